"""Which cases there are, and how to select them."""

import dataclasses
import difflib
import enum
import fnmatch
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from parity.builds.build import Build
from parity.builds.meshes import MeshSpec
from parity.builds.weights.map import Rule
from parity.cases.coverage import Coverage
from parity.cases.waivers import Waiver
from parity.verdicts import Verdict

if TYPE_CHECKING:
    from parity.cases.budgets import Budget

__all__ = [
    "Case",
    "Flag",
    "Keys",
    "Pair",
    "SelectionError",
    "made",
    "matches",
    "select",
    "selects",
]


class Keys(enum.StrEnum):
    """Whether Linen and NNX derive the same random keys from the same root key, or keys of their own."""

    SHARED = "shared"
    INDEPENDENT = "independent"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flag:
    """A setting that both twins must honour: it changes the program of each, into the same program.

    Args:
        name: for people, such as ``remat.policy=full``.
        on: settings with the flag, ``{"field": "text"}``.
        off: settings without it; the case as it is by default.
    """

    name: str
    on: Mapping[str, str]
    off: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """A reference build and a candidate build compared on one program, one mesh, one backend.

    Args:
        id: ``pair-variant/program@mesh``.
        reference, candidate: make the two builds; one with a parameter ``mesh`` is given the mesh of its backend,
            with the devices, and None on a single device.
        program: name of the program both have.
        mesh: where it runs.
        candidate_mesh: where the candidate runs, if that is elsewhere.
        backend: what compiles and runs it.
        fixed_axes: mesh axes whose size belongs to the model, such as the stages of a pipeline: no backend changes it.
        asked: the mesh in the id, where the backend has made it fit; empty where it runs as it is.
        skip_reason: why it cannot run on its backend; empty where it can.
        too_few_devices: why it cannot run with the devices that there are, which is an error; empty where it can.
        not_applicable: channels that say nothing here, with the reason.
        require: the lowest rung of the ladder this case may rest on; of several any is enough. ``reordered``
            means: proved, or reordered with equal bits when both sides run, on a CPU with and without contraction.
        rules: explicit weight pairings.
        exact: makes the reference in float64, for arbitration; None where there is none.
        arrange: what is done to the random state before it runs, such as making two experts nearly alike.
        zero_gradients: globs of leaves that have no gradient by design.
        not_finite: globs of outputs that are NaN or infinite by design, such as the loss of a spoilt batch.
        waivers: differences that are accepted, with the reason; over the project's own.
        budgets: how far structure may grow, by ``memory.temp``, ``collectives.bytes``, ...; over the project's own.
        flags: what can be flipped in it, and must be live on both sides.
        vary: makes the case with other settings of the config; needed where there are flags.
        ablations: settings that switch something off, for ``parity bisect --search config``; likely causes first.
        sizes: ``{field: size}`` of the config, which ``vary`` can make smaller.
        arithmetic: whether both sides are also proved equal in exact real arithmetic, in the channel ``exact``.
        apart: ``{glob of the reference's leaves: dimensions}`` that proofs in exact arithmetic take apart, as one side
            computes with parts of them.
        ranges: ``{input: (least, one more than the greatest)}`` of integers, which such proofs assume.
        bridged: why a side runs modules of the other framework only, through a bridge; empty where none does.
        keys: whether both sides draw from the same keys; asked of two flavours only.
        paranoid: whether it is compiled and run also where it is proved.
        smoke: whether the case is in the small subset.
        core: whether it is in the subset in which all meets that is worth a case of its own.
    """

    id: str
    reference: Callable[..., Build]
    candidate: Callable[..., Build]
    program: str
    mesh: MeshSpec = MeshSpec()
    candidate_mesh: MeshSpec | None = None
    backend: str = "cpu"
    fixed_axes: tuple[str, ...] = ()
    asked: str = ""
    skip_reason: str = ""
    too_few_devices: str = ""
    not_applicable: Mapping[str, str] = dataclasses.field(default_factory=dict)
    require: Verdict | Sequence[Verdict] = Verdict.ARBITRATED
    rules: Sequence[Rule] = ()
    exact: Callable[..., Build] | None = None
    arrange: Callable[[Mapping[str, Any]], dict[str, Any]] = dict
    zero_gradients: Sequence[str] = ()
    not_finite: Sequence[str] = ()
    waivers: Sequence[Waiver] = ()
    budgets: "Mapping[str, Budget]" = dataclasses.field(default_factory=dict)
    flags: Sequence[Flag] = ()
    vary: "Callable[[Mapping[str, str]], Case] | None" = None
    ablations: Sequence[Mapping[str, str]] = ()
    sizes: Mapping[str, int] = dataclasses.field(default_factory=dict)
    arithmetic: bool = False
    apart: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    ranges: Mapping[str, tuple[int, int]] = dataclasses.field(default_factory=dict)
    bridged: str = ""
    keys: Keys = Keys.SHARED
    paranoid: bool = False
    smoke: bool = False
    core: bool = True

    @property
    def meshes(self) -> tuple[MeshSpec, MeshSpec]:
        """Where the reference and the candidate run."""
        return self.mesh, self.candidate_mesh or self.mesh


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pair:
    """What a project registers to have its twins compared.

    Args:
        name: first word of the case ids.
        about: one line for people.
        cases: settings -> cases; settings are ``{"field": "text"}`` from ``--set``.
        full_size: settings and a number of devices -> cases at published size, to be lowered only.
        coverage: says which combinations of options its cases cover, where it counts them.
    """

    name: str
    about: str
    cases: Callable[[Mapping[str, str]], Sequence[Case]]
    full_size: Callable[[Mapping[str, str], int], Sequence[Case]] = lambda settings, devices: ()
    coverage: Callable[[], Sequence[Coverage]] = tuple


def made(make: Callable[..., Build], mesh_of: Callable[[MeshSpec], Any], mesh: MeshSpec) -> Build:
    """Returns what makes a build made; one with a parameter ``mesh`` is given the mesh, with its devices.

    Args:
        make: as `Case` has it.
        mesh_of: gives the mesh of a spec.
        mesh: where the build runs.
    """
    wants = "mesh" in inspect.signature(make).parameters
    return make(mesh=mesh_of(mesh)) if wants else make()


class SelectionError(ValueError):
    """A selector matches no case."""


def select(cases: Sequence[Case], selectors: Iterable[str]) -> list[Case]:
    """Returns the cases whose id matches a selector, in the order of the matrix; all without selectors.

    A selector is a glob over the whole id, or a prefix of it such as a pair's name; ``smoke`` and ``core``
    select the subset of that name.

    Raises:
        SelectionError: a selector matches nothing; names the nearest ids.
    """
    chosen: set[str] = set()
    ids = [case.id for case in cases]
    selectors = list(selectors)
    for selector in selectors:
        matched = [case.id for case in cases if matches(case, selector)]
        if not matched:
            words = sorted({*ids, *(id.split("/")[0] for id in ids), *(id.split("-")[0] for id in ids)})
            near = difflib.get_close_matches(selector, words, n=3, cutoff=0.4)
            hint = f"did you mean {', '.join(near)}? " if near else ""
            raise SelectionError(
                f"selector {selector!r}: matches none of {len(ids)} cases; {hint}`parity list` shows all"
            )
        chosen.update(matched)
    return [case for case in cases if not selectors or case.id in chosen]


def matches(case: Case, selector: str) -> bool:
    """Returns whether a selector, as `select` takes it, selects a case."""
    return SUBSETS[selector](case) if selector in SUBSETS else selects(case.id, selector)


SUBSETS: Mapping[str, Callable[[Case], bool]] = {
    "smoke": lambda case: case.smoke,
    "core": lambda case: case.core or case.smoke,
}
"""Selectors that name no case."""


def selects(id: str, selector: str) -> bool:
    """Returns whether a selector is a glob or a prefix of a case's id."""
    prefixed = id.startswith(selector) and id[len(selector) :][:1] in {"", "/", "@", "-", "."}
    return prefixed or fnmatch.fnmatchcase(id, selector)
