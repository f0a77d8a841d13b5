"""Options that all registrations of a pair share, and the resulting cases."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

from parity.builds.build import Build
from parity.builds.meshes import MeshSpec
from parity.builds.weights.map import Rule
from parity.cases.case import Accept, Case, Keys, Pair
from parity.cases.shared import kept_state, mesh_axes
from parity.cases.waivers import Waiver
from parity.verdicts import Requirement, Verdict

__all__ = ["CaseOptions", "registered"]

Make = Callable[..., Build]


class CaseOptions(TypedDict, total=False):
    """Options of a registration for all its cases; `parity.cases.twins.twins` describes each."""

    state: Any
    weight_rules: Sequence[Rule]
    meshes: Sequence[str]
    require: Verdict | Sequence[Verdict]
    zero_gradients: Sequence[str]
    not_applicable: Mapping[str, str] | None
    waivers: Sequence[Waiver]
    keys: Keys
    bridged: str
    full_size: Pair


def registered(
    name: str,
    by: str,
    programs: Sequence[str],
    builds: Mapping[str, Make],
    options: CaseOptions,
    axis_rules: Sequence[tuple[str, Any]] = (),
) -> Pair:
    """Returns a pair with a case for each program on each mesh.

    Args:
        name: first word of the case ids.
        by: the function that registers it.
        programs: names of the programs.
        builds: ``reference``, ``candidate`` and optionally ``float64_reference``, as `Case` takes them.
        options: of all cases.
        axis_rules: logical axis name -> mesh axes.

    Raises:
        TypeError: an unknown option.
        ValueError: an unknown rung.
    """
    if unknown := sorted(set(options) - set(CaseOptions.__annotations__)):
        known = ", ".join(sorted(CaseOptions.__annotations__))
        raise TypeError(f"pair {name}: {by} got {', '.join(unknown)}, expected its own arguments or {known}")
    state, require = options.get("state"), options.get("require", Verdict.ARBITRATED)
    Requirement.of(require, f"pair {name}: require")
    given = {
        "rules": tuple(options.get("weight_rules", ())),
        "keys": options.get("keys", Keys.INDEPENDENT),
        "prepare_state": dict if state is None else functools.partial(kept_state, name, state),
        "accept": Accept(
            require=require,
            zero_gradients=options.get("zero_gradients", ()),
            not_applicable=options.get("not_applicable") or {},
            waivers=tuple(options.get("waivers", ())),
            bridged=options.get("bridged", ""),
        ),
    }

    def cases(settings: Mapping[str, str]) -> list[Case]:
        if settings:
            raise ValueError(f"pair {name}: got settings {dict(settings)}, expected none; it has no config")
        meshes = [MeshSpec.parse(mesh) for mesh in options.get("meshes", ("single",))]
        for mesh in meshes:
            mesh.check_axes(mesh_axes(axis_rules))
        return [
            Case(
                id=f"{name}/{program}@{mesh}",
                program=program,
                mesh=mesh,
                smoke=True,
                **builds,
                **given,
            )
            for program in programs
            for mesh in meshes
        ]

    whole = Pair(name=name, about=f"registered with {by}", cases=cases)
    published = options.get("full_size")
    if published is None:
        return whole
    return dataclasses.replace(whole, full_size=lambda settings, devices: published.cases(settings))
