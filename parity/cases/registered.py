"""Options that all registrations of a pair share, and the resulting cases."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

from parity.builds.build import Build
from parity.builds.meshes import MeshSpec
from parity.builds.weights.map import Rule
from parity.cases.case import Accept, Case, Keys, Pair
from parity.cases.coverage import options_of
from parity.cases.shared import kept_state, mesh_axes
from parity.cases.tables import unknown
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
    config: Any


def _check(name: str, options: CaseOptions) -> None:
    """Checks the types of options, so that a slip is named where the pair is registered."""
    channels, rules = options.get("not_applicable") or {}, options.get("weight_rules", ())
    if not isinstance(channels, Mapping):
        raise TypeError(
            f'pair {name}: not_applicable: got {channels!r}, expected {{channel: reason}}, such as {{"memory": "..."}}'
        )
    for rule in rules if isinstance(rules, Sequence) else [rules]:
        if not isinstance(rule, Rule):
            raise TypeError(
                f"pair {name}: weight_rules: got {rule!r}, expected a sequence of parity.Rule(reference=, candidate=)"
            )
    if (keys := options.get("keys", Keys.SHARED)) not in list(Keys):
        raise ValueError(f"pair {name}: keys: {unknown(str(keys), Keys)}")


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
        TypeError: an unknown option, or one of the wrong type.
        ValueError: an unknown rung, or other keys than `Keys` has.
    """
    if extra := sorted(set(options) - set(CaseOptions.__annotations__)):
        known = ", ".join(sorted(CaseOptions.__annotations__))
        raise TypeError(f"pair {name}: {by} got {', '.join(extra)}, expected its own arguments or {known}")
    _check(name, options)
    state, require = options.get("state"), options.get("require", Verdict.ARBITRATED)
    Requirement.of(require, f"pair {name}: require")
    given = {
        "rules": tuple(options.get("weight_rules", ())),
        "keys": Keys(options.get("keys", Keys.INDEPENDENT)),
        "config": options.get("config"),
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

    options_of(options.get("config"))
    whole = Pair(name=name, about=f"registered with {by}", cases=cases)
    published = options.get("full_size")
    if published is None:
        return whole
    return dataclasses.replace(whole, full_size=lambda settings, devices: published.cases(settings))
