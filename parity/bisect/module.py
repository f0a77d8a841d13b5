"""The axis ``module``: distances of each module's activation and cotangent between both sides."""

import collections
import itertools

from parity.bisect.axis import Question
from parity.builds.tree import Role
from parity.builds.weights.map import strip_container
from parity.compare.evidence import Evidence
from parity.compare.origin.alignment import Alignment
from parity.compare.origin.evaluated import evaluate_case, on_one_device
from parity.compare.origin.result import SearchResult
from parity.compare.origin.trace import Node, Trace
from parity.values.ladder import FLOOR_FACTOR

MOST_ROWS = 24


def uses(trace: Trace) -> list[tuple[str, int]]:
    """Returns weight and number of each first value that is computed from a weight and another value, in order.

    Those after the backward pass are left out.
    """
    found = []
    for at, node in enumerate(trace.nodes):
        # A slice, cast or transposition of the weight counts as the weight.
        leaves = set() if node.leaf else {trace.nodes[number].leaf for number in node.inputs} - {""}
        found += [(leaf, at) for leaf in sorted(leaves)]
    start = next((at for _, at in found if trace.nodes[at].around.backward), len(trace.nodes))
    return [(leaf, at) for leaf, at in found if at < start or trace.nodes[at].around.backward]


def search_modules(question: Question) -> SearchResult:
    """Returns the distance of each module's activation and cotangent, in units of the noise."""
    work = question.work(on_one_device(question.case))
    question.notify("module: what each module makes")
    rows = _rows(work, evaluate_case(work).alignment)
    if not rows:
        return SearchResult.nothing("module", "no module has weights that both sides use")
    forward, backward = (
        [name for name, off in rows.items() if (off[passes] or 0.0) > FLOOR_FACTOR] for passes in (0, 1)
    )
    first = next(iter((*forward, *reversed(backward))), None)  # the backward pass has the reverse order
    if first is None:
        sentence = "all modules agree, forward and backward: the difference is outside of them"
    else:
        what, number = ("activation", rows[first][0]) if forward else ("cotangent", rows[first][1])
        sentence = f"the first module that diverges is {first}: its {what} is {_text(number)} x noise apart"
    start = max([*rows].index(first) - 4, 0) if first and len(rows) > MOST_ROWS else 0
    shown = itertools.islice(rows.items(), start, start + MOST_ROWS)
    return SearchResult(
        axis="module",
        found=first is not None,
        sentence=f"{sentence} ({len({*forward, *backward})} of {len(rows)} modules)",
        head=("module", "activation, x noise", "cotangent, x noise"),
        rows=tuple((name, *map(_text, off)) for name, off in shown),
        facts={"first": first, "modules": [[name, *off] for name, off in rows.items()]},
    )


def _rows(work: Evidence, alignment: Alignment) -> dict[str, list[float | None]]:
    """Returns the distances of each module, forward and backward, in the order of execution.

    Pairs the uses of weights on both sides in order, also in loops and stacks. A module such as an embedding, which is
    used again at the end, is where its first use that differs is.
    """
    held: list[dict[tuple[int, bool], list[tuple[str, int]]]] = []
    for side, trace in enumerate(alignment.traces):
        numbers = {
            path: number
            for number, entry in enumerate(work.weights.entries)
            for path in (entry.reference, entry.candidate)[side]
            if entry.role is Role.PARAMS
        }
        held.append(collections.defaultdict(list))
        for leaf, at in uses(trace):
            if leaf in numbers:
                held[side][numbers[leaf], trace.nodes[at].around.backward].append((leaf, at))
    rows: dict[str, list[float | None]] = {}
    order: dict[str, tuple[bool, int]] = {}
    for key, one in held[0].items():
        other, (_, backward) = held[1].get(key, []), key
        for (leaf, left), (_, right) in zip(one, other, strict=True) if len(one) == len(other) else ():
            name = _name(leaf, alignment.traces[0].nodes[left])
            row = rows.setdefault(name, [None, None])
            distance = alignment.in_floors(left, right)
            row[backward] = max(row[backward] or 0.0, distance)
            if not backward:
                use = distance <= FLOOR_FACTOR, left
                order[name] = min(order.get(name, use), use)
    return {name: rows[name] for name in sorted(rows, key=lambda name: order.get(name, (True, 1 << 62))[1])}


def _name(leaf: str, node: Node) -> str:
    path = strip_container(leaf).rpartition("/")[0] or strip_container(leaf)
    places = ".".join(str(iteration) for _, iteration in node.around.iterations)
    return f"{path}, turn {places}" if places else path


def _text(number: float | None) -> str:
    return "-" if number is None else "same" if number == 0 else f"{number:.3g}"
