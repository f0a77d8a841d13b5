"""Cases, pairs, and the selection of cases."""

import dataclasses
import difflib
import enum
import fnmatch
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from parity.builds.build import Build
from parity.builds.meshes import MeshSpec
from parity.builds.weights.map import Rule
from parity.cases.accepted import Budget, Waiver
from parity.verdicts import Verdict


class Keys(enum.StrEnum):
    """Random keys of Linen and NNX: derived in the same way from the same root key, or independently."""

    SHARED = "shared"
    INDEPENDENT = "independent"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flag:
    """A setting that both twins must honour: it changes both programs, and they stay equal.

    Args:
        name: for display, such as ``remat.policy=full``.
        on: settings with the flag, ``{"field": "text"}``.
        off: settings without it; the case as it is by default.
    """

    name: str
    on: Mapping[str, str]
    off: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Accept:
    """Requirements of a case, and the differences that it accepts.

    Args:
        require: the lowest rung of the ladder that the case accepts; of several rungs, any is enough. ``reordered``
            means: proved, or reordered with equal bits when both sides run, on a CPU with and without contraction.
        prove_exact: if True, both sides are also proved equal in exact real arithmetic, in the channel ``exact``.
        split_dims: ``{glob of the reference's leaves: dimensions}`` that such proofs split, because one side computes
            with parts of them.
        integer_ranges: ``{input: (least, one more than the greatest)}``, which such proofs assume.
        paranoid: if True, the case is compiled and run even if it is proved.
        not_applicable: channels that do not apply, with the reason.
        zero_gradients: globs of leaves that have no gradient by design.
        not_finite: globs of outputs that are NaN or infinite by design, such as the loss of a spoilt batch.
        waivers: accepted differences, with the reason; added to the project's.
        budgets: allowed structural changes by ``memory.temp``, ``collectives.bytes``, ...; they override the project's.
        bridged: reason why a side runs only modules of the other framework, through a bridge; empty if none does.

    Raises:
        TypeError: one glob or waiver is given without a sequence around it; the letters of a text would be globs.
    """

    require: Verdict | Sequence[Verdict] = Verdict.ARBITRATED
    prove_exact: bool = False
    split_dims: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    integer_ranges: Mapping[str, tuple[int, int]] = dataclasses.field(default_factory=dict)
    paranoid: bool = False
    not_applicable: Mapping[str, str] = dataclasses.field(default_factory=dict)
    zero_gradients: Sequence[str] = ()
    not_finite: Sequence[str] = ()
    waivers: Sequence[Waiver] = ()
    budgets: Mapping[str, Budget] = dataclasses.field(default_factory=dict)
    bridged: str = ""

    def __post_init__(self):
        for name in ("zero_gradients", "not_finite", "waivers"):
            given = getattr(self, name)
            if isinstance(given, str) or not isinstance(given, Sequence):
                raise TypeError(
                    f"accept: {name}: got {given!r}, expected a sequence of them, such as ({given!r},)"
                )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Explore:
    """Changes that the channel ``flags``, ``--set`` and ``parity bisect`` may make to a case.

    Args:
        flags: settings that can be toggled, and must be live on both sides.
        with_settings: makes the case with other settings of the config; needed if there are flags.
        ablations: settings that switch something off, for ``parity bisect --search config``; likely causes first.
        sizes: ``{field: size}`` of the config, which ``with_settings`` can make smaller.
    """

    flags: Sequence[Flag] = ()
    with_settings: "Callable[[Mapping[str, str]], Case] | None" = None
    ablations: Iterable[Mapping[str, str]] = ()
    sizes: Mapping[str, int] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Placement:
    """Backend and mesh from `parity.compare.placement.place`; a registration sets ``skip_reason`` at most.

    Args:
        backend: name of the backend that compiles and runs the case.
        options: options of the command line that make the case, such as ``--set layers=2``.
        requested_mesh: the mesh in the id, if the backend reduced it; empty if the case runs on it.
        skip_reason: why it cannot run on its backend, or at all; empty if it can.
        too_few_devices: why it cannot run with the available devices, which is an error; empty if it can.
    """

    backend: str = "cpu"
    options: str = ""
    requested_mesh: str = ""
    skip_reason: str = ""
    too_few_devices: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """A reference build and a candidate build compared on one program and one mesh.

    Args:
        id: ``pair-variant/program@mesh``.
        reference, candidate: make the two builds; a function with a parameter ``mesh`` receives the mesh of its
            backend with the devices, or None on a single device.
        program: name of the program, which both builds have.
        mesh: mesh of the reference.
        candidate_mesh: mesh of the candidate; None if it is the same.
        fixed_axes: mesh axes whose size belongs to the model, such as the stages of a pipeline; no backend changes it.
        rules: explicit weight pairings.
        keys: whether both sides draw from the same keys; only checked between two flavours.
        float64_reference: makes the reference in float64, for arbitration; None if there is none.
        prepare_state: changes the random state before the run, for example makes two experts nearly equal.
        smoke: True if the case is in the small subset.
        core: True if the case is in the subset that contains each combination of options once.
        config: config of both sides, for the list of options that no case varies: a mapping, a dataclass instance or a
            pydantic model; None if it is not known.
        accept: requirements, and accepted differences.
        explore: allowed changes of the settings.
        placement: backend and mesh.
    """

    id: str
    reference: Callable[..., Build]
    candidate: Callable[..., Build]
    program: str
    mesh: MeshSpec = MeshSpec()
    candidate_mesh: MeshSpec | None = None
    fixed_axes: tuple[str, ...] = ()
    rules: Sequence[Rule] = ()
    keys: Keys = Keys.SHARED
    float64_reference: Callable[..., Build] | None = None
    prepare_state: Callable[[Mapping[str, Any]], dict[str, Any]] = dict
    smoke: bool = False
    core: bool = True
    config: Any = None
    accept: Accept = dataclasses.field(default_factory=Accept)
    explore: Explore = dataclasses.field(default_factory=Explore)
    placement: Placement = dataclasses.field(default_factory=Placement)

    @property
    def meshes(self) -> tuple[MeshSpec, MeshSpec]:
        """The meshes of the reference and the candidate."""
        return self.mesh, self.candidate_mesh or self.mesh

    def varied(self, settings: Mapping[str, str]) -> "Case":
        """Returns the case with other settings of its config, and with its own id, meshes, requirements and backend.

        Raises:
            ValueError: `Explore.with_settings` is not given, or refuses the settings.
        """
        make = self.explore.with_settings
        if make is None:
            raise ValueError(f"{self.id}: expected `with_settings`, which makes the case with other settings")
        made = make(settings)
        return dataclasses.replace(
            made,
            id=self.id,
            mesh=self.mesh,
            candidate_mesh=self.candidate_mesh,
            float64_reference=self.float64_reference and made.float64_reference,
            accept=self.accept,
            placement=self.placement,
        )

    def with_accept(self, **fields: Any) -> "Case":
        """Returns the case with other fields of ``accept``."""
        return dataclasses.replace(self, accept=dataclasses.replace(self.accept, **fields))

    def with_explore(self, **fields: Any) -> "Case":
        """Returns the case with other fields of ``explore``."""
        return dataclasses.replace(self, explore=dataclasses.replace(self.explore, **fields))

    def with_placement(self, **fields: Any) -> "Case":
        """Returns the case with other fields of ``placement``."""
        return dataclasses.replace(self, placement=dataclasses.replace(self.placement, **fields))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pair:
    """A pair of twins, as a project registers it.

    Args:
        name: first word of the case ids.
        about: a description in one line.
        cases: settings -> cases; settings are ``{"field": "text"}`` from ``--set``.
        full_size: settings and a number of devices -> cases at published size, to be lowered only.
    """

    name: str
    about: str
    cases: Callable[[Mapping[str, str]], Sequence[Case]]
    full_size: Callable[[Mapping[str, str], int], Sequence[Case]] = lambda settings, devices: ()


def made(make: Callable[..., Build], mesh_of: Callable[[MeshSpec], Any], mesh: MeshSpec) -> Build:
    """Returns the build of ``make``; a function with a parameter ``mesh`` receives the mesh with its devices."""
    wants = "mesh" in inspect.signature(make).parameters
    return make(mesh=mesh_of(mesh)) if wants else make()


def select(cases: Sequence[Case], selectors: Iterable[str]) -> list[Case]:
    """Returns the cases whose id matches a selector, in the order of the matrix; all cases if there are no selectors.

    A selector is an id, else a glob over the whole id, or a prefix of it such as a pair's name; ``smoke`` and
    ``core`` select the subset of that name.

    Raises:
        ValueError: a selector matches nothing; the message names the nearest ids.
    """
    chosen: set[str] = set()
    ids = [case.id for case in cases]
    selectors = list(selectors)
    for selector in selectors:
        whole = [selector] if selector in ids else []
        matched = whole or [case.id for case in cases if matches(case, selector)]
        if not matched:
            raise ValueError(matches_none(selector, ids))
        chosen.update(matched)
    return [case for case in cases if not selectors or case.id in chosen]


def matches_none(selector: str, ids: Collection[str]) -> str:
    """Returns a sentence about a selector that matches no id, with the nearest ids and pairs."""
    words = sorted({*ids, *(id.split("/")[0] for id in ids), *(id.split("-")[0] for id in ids)})
    near = difflib.get_close_matches(selector, words, n=3, cutoff=0.4)
    hint = f"did you mean {', '.join(near)}? " if near else ""
    return f"selector {selector!r}: matches none of {len(ids)} cases; {hint}`parity list` shows all"


def matches(case: Case, selector: str) -> bool:
    """True if a selector, as in `select`, selects a case."""
    return SUBSETS[selector](case) if selector in SUBSETS else selects(case.id, selector)


SUBSETS: Mapping[str, Callable[[Case], bool]] = {
    "smoke": lambda case: case.smoke,
    "core": lambda case: case.core or case.smoke,
}


def selects(id: str, selector: str) -> bool:
    """True if a selector is a glob that matches a case's id, or a prefix of the id."""
    prefixed = id.startswith(selector) and id[len(selector) :][:1] in {"", "/", "@", "-", "."}
    return prefixed or fnmatch.fnmatchcase(id, selector)
