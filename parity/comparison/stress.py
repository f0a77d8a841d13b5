"""Programs that are not proved but agree on the usual batch, run on wild ones as well."""

import dataclasses
import functools
from collections.abc import Mapping

import numpy as np

from parity.comparison.comparison import SEED, Comparison
from parity.comparison.runs import beside
from parity.comparison.side import Side
from parity.mlir import attribute_items
from parity.programs.build import Group
from parity.prove.program import Region
from parity.values.noise import DRAWS
from parity.values.wild import WILD, Wild, apart, shake
from parity.verdicts import Finding

__all__ = ["Stressed", "stress"]

MOST_CONSTANTS = 24
Outputs = Mapping[str, Mapping[str, np.ndarray]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stressed:
    """What wild data showed.

    Args:
        findings: by group of outputs.
        draws: how many wild draws were run.
    """

    findings: Mapping[str, tuple[Finding, ...]]
    draws: int


def stress(work: Comparison) -> Stressed:
    """Runs both sides on each kind of wild data; the reference runs nudged only where bits differ.

    Args:
        work: a case on a backend that executes, whose proof was tried and failed.
    """
    constants = sorted({number for side in (work.reference, work.candidate) for number in _constants(side)})
    constants = constants[:: max(1, len(constants) // MOST_CONSTANTS)]
    findings: dict[str, list[Finding]] = {}
    for wild in WILD:
        for group, found in _on(work, wild, constants):
            findings.setdefault(group, []).append(found)
    return Stressed(findings={group: tuple(found) for group, found in findings.items()}, draws=len(WILD))


def _on(work: Comparison, wild: Wild, constants: list[float]):
    """Yields ``(group, finding)`` of what differs on one kind of wild data."""
    alter = functools.partial(wild.batch, constants=constants)
    state = wild.state(work.state, work.builds[0].leaves, constants)
    reference, candidate = beside(
        work,
        work.reference.run(state, SEED, alter),
        work.candidate.run(work.as_candidate(state), SEED, alter),
    )
    if _routes_apart(reference, candidate):
        return

    @functools.cache
    def nudged() -> list[Outputs]:
        runs = []
        for draw in range(DRAWS):
            rng = np.random.default_rng(2_000 + draw)
            move = functools.partial(shake, rng=rng)
            runs.append(work.reference.run(move(state), SEED, lambda batch, move=move: move(alter(batch))))
        return runs

    groups = (Group.VALUES, Group.GRADIENTS, *(() if wild.saturates else (Group.STATE,)))
    for group in groups:
        ours, others = reference.get(group, {}), candidate.get(group, {})
        shared = {path: array for path, array in ours.items() if path in others and _counts(path, wild)}
        for off, noise in apart(shared, others, lambda group=group: [run[group] for run in nudged()]):
            times = f"{off.relative / noise:.3g} x noise" if noise else "no noise explains it"
            yield (
                group,
                Finding(
                    where=f"{off.path}{list(off.worst)}" if off.worst else off.path,
                    reference=off.reference,
                    candidate=off.candidate,
                    distance=f"on wild data ({wild.name}): {off.note or f'relative {off.relative:.3g}'}, {times}",
                    cause="programs that differ where the usual batch does not reach, such as a clip, an epsilon, "
                    "a threshold or a schedule's end",
                    next_step="look at the first operation that differs",
                ),
            )


def _counts(path: str, wild: Wild) -> bool:
    """Whether an output says something: none does after a step on saturated gradients, which cancelling left."""
    step, _, rest = path.partition("/")
    return not (wild.saturates and rest and step.startswith("step") and step != "step1")


def _routes_apart(reference: Outputs, candidate: Outputs) -> bool:
    """Whether experts are chosen otherwise: rounding may decide that, and nothing downstream compares."""
    ours, theirs = (side.get(Group.ROUTING, {}) for side in (reference, candidate))
    return any(ours[path].tobytes() != theirs[path].tobytes() for path in ours if path.endswith("/preferred"))


def _constants(side: Side) -> set[float]:
    """Returns the float constants of a lowered program that are single numbers."""
    found: set[float] = set()

    def walk(region: Region) -> None:
        for op in region.ops:
            if op.live is not None and op.form.name == "stablehlo.constant":
                found.update(_number(str(dict(attribute_items(op.source.operation)).get("value", ""))))
            for inner in op.regions:
                walk(inner)

    walk(side.operations.body)
    return found


def _number(text: str) -> list[float]:
    head, _, kind = text.removeprefix("dense<").partition("> : tensor<")
    if not kind or kind.rstrip(">").rpartition("x")[2] not in ("f32", "bf16", "f16", "f64"):
        return []
    try:
        number = float(head)
    except ValueError:
        return []
    return [number] if number and 1e-12 < abs(number) < 1e12 else []
