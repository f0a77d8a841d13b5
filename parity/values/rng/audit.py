"""Audit of random keys: no key is used twice over layers, microbatches and steps, and both twins use the same keys."""

import collections
import dataclasses
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

from parity.ir.functions import together
from parity.ir.jaxprs import opened
from parity.values.rng.demand import Demand
from parity.values.rng.draws import FRAMES, Draw, Recorder
from parity.verdicts import SIDES, Finding, expected_got, grouped, one_sided


@dataclasses.dataclass(frozen=True, kw_only=True)
class Audited:
    """The draws of a program.

    Args:
        unseen: sites of draws whose keys were not followed.
    """

    draws: tuple[Draw, ...]
    unseen: tuple[str, ...] = ()

    @property
    def forward(self) -> list[Draw]:
        """The draws, without those that the backward pass repeats."""
        return [draw for draw in self.draws if not draw.again]

    def sentence(self) -> str:
        """Returns the numbers of draws, keys and steps as text."""
        steps = max((draw.step for draw in self.draws), default=1)
        forward = self.forward
        more = f" in {steps} steps" if steps > 1 else ""
        blind = f", {len(self.unseen)} not followed ({self.unseen[0]})" if self.unseen else ""
        return f"{len(forward)} draws from {len({draw.key for draw in forward})} keys{more}{blind}"


def audit(
    jaxpr: Any,
    value: Callable[[int, int], Any],
    feedback: Mapping[int, int] | None = None,
    steps: int = 1,
) -> Audited:
    """Returns every draw that a result depends on, step by step.

    Args:
        value: position of an argument and step -> its value. Called only if a key depends on the argument; after the
            first step only for arguments that no output replaces.
        feedback: argument -> the output that replaces it in the next step.
    """
    feedback = feedback or {}
    living = Demand(jaxpr, range(len(opened(jaxpr).outvars)), all_draws=False, drawn=True).draws
    demand = Demand(jaxpr)
    needed = demand.inputs
    while steps > 1:  # this step must compute the inputs of the next step
        demand = Demand(jaxpr, [feedback[index] for index in needed if index in feedback])
        if demand.inputs <= needed:
            break
        needed = demand.inputs | needed
    arguments = [value(index, 1) if index in needed else None for index in range(len(opened(jaxpr).invars))]
    draws: list[Draw] = []
    unseen: dict[str, None] = {}
    for step in range(1, steps + 1):
        for index in needed - set(feedback) if step > 1 else ():
            arguments[index] = value(index, step)
        recorder = Recorder(demand, step)
        outputs = recorder.run(jaxpr, arguments)
        draws += [draw for draw in recorder.draws if draw.equation in living]
        unseen |= dict.fromkeys(recorder.unseen)
        for index in needed & set(feedback):
            arguments[index] = outputs[feedback[index]]
    return Audited(draws=tuple(draws), unseen=tuple(unseen))


def named_by_leaf(audited: Audited, jaxpr: Any, leaves: Iterable[tuple[int, str]]) -> Audited:
    """Returns the draws of some leaves, with the leaves' names at the start of their sites.

    Args:
        leaves: position among its outputs and path of each leaf to include.
    """
    owners: dict[tuple[int, ...], list[str]] = {}
    for position, path in leaves:
        for place in Demand(jaxpr, [position], all_draws=False, drawn=True).draws:
            owners.setdefault(place, []).append(path)
    draws = (
        dataclasses.replace(draw, site=f"{', '.join(owners[draw.equation])} ({draw.site})")
        for draw in audited.draws
        if draw.equation in owners
    )
    return dataclasses.replace(audited, draws=tuple(draws))


def repeated_keys(audited: Audited, side: str, other: str) -> list[Finding]:
    """Returns a finding for each group of keys that are used more than once.

    The backward pass may repeat draws of the forward pass: a rematerialised block must drop the same entries.

    Args:
        other: description of the draws of the other side.
    """
    groups: dict[Hashable, list[tuple[Draw, Draw, int]]] = collections.defaultdict(list)
    for draws in grouped(audited.forward, lambda draw: draw.key).values():
        # Each kind of repetition is reported once, by its first two draws.
        kinds = {_kind(draws[0], draw): draw for draw in reversed(draws[1:])}
        for kind, second in kinds.items():
            groups[draws[0].equation, kind].append((draws[0], second, len(draws)))
    findings = []
    for held in groups.values():
        first, second, _ = held[0]
        count, keys = sum(entry[2] for entry in held), len(held)
        words = f"{count} draws from {keys} key{'s' * (keys > 1)}, such as {_hex(first.key)}"
        where, cause, next_step = _why(first, second)
        words += f", made at {first.made}" if first.made else ""
        findings.append(
            Finding(
                where=f"{where} of the {side}",
                **one_sided(side, words, other),
                cause=cause,
                next_step=next_step,
            )
        )
    return findings


def _kind(first: Draw, second: Draw) -> Hashable:
    """Returns the other equation, or "step", or the outermost loop in whose turns two draws from one key differ."""
    if first.equation != second.equation:
        return second.equation
    if first.step != second.step:
        return "step"
    pairs = enumerate(zip(first.iterations, second.iterations, strict=True))
    return next((depth for depth, ((_, left), (_, right)) in pairs if left != right), None)


def _why(first: Draw, second: Draw) -> tuple[str, str, str]:
    """Returns the place of two draws from one key, the cause of the repetition, and the next step."""
    where, kind = f"draw at {first.site}", _kind(first, second)
    if kind == second.equation:
        return (
            _both_sites(first, second),
            "two places draw from one key",
            "split the key, or fold something of its own into each",
        )
    if kind == "step":
        cause = f"the same key in steps {first.step} and {second.step}: the step is not folded into it"
        # An outer function, which keeps the state of the step, may be the cause.
        inner, outer = first.calls[:1], first.calls[1:][-FRAMES:]
        left_out = ["..."] * (len(first.calls) > 1 + FRAMES)
        return (
            f"draw at {' < '.join(map(str, (*inner, *left_out, *outer))) or first.site}",
            cause,
            "fold the step's number into the key, or return the advanced key in the state",
        )
    if not isinstance(kind, int):
        cause = f"the same key for entries {first.lane} and {second.lane} of a batch of keys"
        return where, cause, "split the key before it is mapped over"
    (loop, left), (_, right) = first.iterations[kind], second.iterations[kind]
    cause = f"the same key in turns {left} and {right} of the loop at {loop}"
    return where, cause, "split the key over the loop's turns, or fold the turn's number into it"


def _both_sites(first: Draw, second: Draw) -> str:
    """Returns the places of two draws; if one line makes both, with the calls that differ."""
    if first.site != second.site:
        shared = together(first.calls, second.calls)
        at = [len(one.calls) - shared for one in (first, second)]  # of the function that calls both
        text = f"draws at {first.site} and at {second.site}"
        if not shared or min(at) < FRAMES:
            return text
        return f"{text}, called at {first.calls[at[0]]} and at {second.calls[at[1]]}"
    for one, other in zip(first.calls, second.calls, strict=False):
        if one != other:
            return f"draws at {first.calls[0]}, called at {one} and at {other}"
        if one.column != other.column:
            return f"draws at {first.calls[0]}, called twice at {one}"
    # In turns of a Python loop, which any of the callers may hold.
    return f"two draws at {' < '.join(map(str, first.calls[: 2 * FRAMES])) or first.site}"


def _hex(key: Sequence[int]) -> str:
    return "".join(f"{word:08x}" for word in key)


def unforeseen_draws(audited: Audited, side: str) -> list[Finding]:
    """Returns a finding for each site of the backward pass with draws that the forward pass did not make.

    Such a draw makes another mask than the forward pass.
    """
    drawn = {(draw.step, draw.use) for draw in audited.forward}
    strange = [draw for draw in audited.draws if draw.again and (draw.step, draw.use) not in drawn]
    sites = collections.Counter(draw.site for draw in strange)
    return [
        expected_got(
            f"draw at {site} of the {side}",
            "the backward pass repeats draws of the forward pass",
            f"{count} draws of the backward pass that the forward pass did not make",
            cause="rematerialisation with another key",
            next_step="pass the key into the checkpointed function instead of drawing it there",
        )
        for site, count in sites.items()
    ]


def compare_draws(reference: Audited, candidate: Audited) -> list[Finding]:
    """Returns a finding for each site with draws that only one twin makes: another key, shape or number of bits."""
    drawn = [
        collections.Counter((draw.step, draw.use) for draw in one.forward) for one in (reference, candidate)
    ]
    missing = drawn[0] - drawn[1], drawn[1] - drawn[0]
    findings = []
    for side, holder, alone in zip(SIDES, (reference, candidate), missing, strict=True):
        strange = (draw for draw in holder.forward if (draw.step, draw.use) in alone)
        for site, draws in grouped(strange, lambda draw: draw.site).items():
            findings.append(
                Finding(
                    where=f"draw at {site} of the {side}",
                    **one_sided(side, _of(draws), "no such draw"),
                    cause="another path, count, split or fold behind the key",
                    next_step="derive the key as the other twin does, see models_nnx.rngs.PathRngs",
                )
            )
    return findings


def _of(draws: Sequence[Draw]) -> str:
    first = draws[0]
    around = "".join(f", turn {index}" for _, index in first.iterations)
    return f"{len(draws)} draws, the first {list(first.shape)} from {_hex(first.key)} in step {first.step}{around}"
