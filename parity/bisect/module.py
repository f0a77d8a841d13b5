"""The axis ``module``: distances of each module's activation and cotangent between both sides."""

import collections
import dataclasses

from parity.bisect.axis import Question
from parity.builds.tree import Role
from parity.builds.weights.map import strip_container
from parity.compare.evidence import Evidence
from parity.compare.origin.alignment import Alignment
from parity.compare.origin.evaluated import evaluate_case, on_one_device
from parity.compare.origin.result import SearchResult
from parity.compare.origin.trace import Trace
from parity.values.ladder import FLOOR_FACTOR

MOST_ROWS = 24


@dataclasses.dataclass(frozen=True, slots=True)
class Use:
    """The first value that is computed from a weight and another value, forward or backward."""

    leaf: str
    node: int
    backward: bool
    loop_indices: tuple[int, ...]


def uses(trace: Trace) -> list[Use]:
    """Returns the uses of weights, in the order of execution, without those after the backward pass."""
    found = []
    for at, node in enumerate(trace.nodes):
        # A slice, cast or transposition of the weight counts as the weight.
        leaves = set() if node.leaf else {trace.nodes[number].leaf for number in node.inputs} - {""}
        loop_indices = tuple(iteration for _, iteration in node.around.iterations)
        found += [Use(leaf, at, node.around.backward, loop_indices) for leaf in sorted(leaves)]
    start = next((use.node for use in found if use.backward), len(trace.nodes))
    return [use for use in found if use.backward or use.node < start]


def search_modules(question: Question) -> SearchResult:
    """Returns the distance of each module's activation and cotangent, in units of the noise."""
    work = question.work(on_one_device(question.case))
    question.notify("module: what each module makes")
    rows = _rows(work, evaluate_case(work).alignment)
    if not rows:
        return SearchResult.nothing("module", "no module has weights that both sides use")
    differs = [row for row in rows if row.differs(False) or row.differs(True)]
    forward = next((row for row in rows if row.differs(False)), None)
    backward = [row for row in rows if row.differs(True)]
    first = forward or (backward[-1] if backward else None)  # the backward pass has the reverse order
    if first is None:
        sentence = "all modules agree, forward and backward: the difference is outside of them"
    else:
        what = "activation" if forward else "cotangent"
        number = first.forward if forward else first.backward
        sentence = (
            f"the first module that diverges is {first.name}: its {what} is {_text(number)} x noise apart"
        )
    start = max(rows.index(first) - 4, 0) if first and len(rows) > MOST_ROWS else 0
    return SearchResult(
        axis="module",
        found=first is not None,
        sentence=f"{sentence} ({len(differs)} of {len(rows)} modules)",
        head=("module", "activation, x noise", "cotangent, x noise"),
        rows=tuple(
            (row.name, _text(row.forward), _text(row.backward)) for row in rows[start : start + MOST_ROWS]
        ),
        facts={"first": first.name if first else None, "modules": [dataclasses.astuple(row) for row in rows]},
    )


@dataclasses.dataclass(frozen=True, slots=True)
class _Row:
    name: str
    forward: float | None
    backward: float | None

    def differs(self, backward: bool) -> bool:
        """True if the activation or the cotangent is beyond the floor."""
        return ((self.backward if backward else self.forward) or 0.0) > FLOOR_FACTOR


def _rows(work: Evidence, alignment: Alignment) -> list[_Row]:
    """Returns the rows of the table; pairs the uses of weights on both sides in order, also in loops and stacks."""
    held: list[dict[tuple[int, bool], list[Use]]] = []
    for side, trace in enumerate(alignment.traces):
        numbers = {
            path: number
            for number, entry in enumerate(work.weights.entries)
            for path in (entry.reference, entry.candidate)[side]
            if entry.role is Role.PARAMS
        }
        held.append(collections.defaultdict(list))
        for use in uses(trace):
            if use.leaf in numbers:
                held[side][numbers[use.leaf], use.backward].append(use)
    rows: dict[str, list[float | None]] = {}
    order: dict[str, int] = {}
    for key, one in held[0].items():
        other = held[1].get(key, [])
        for left, right in zip(one, other, strict=True) if len(one) == len(other) else ():
            name, backward = _name(left), left.backward
            row = rows.setdefault(name, [None, None])
            row[backward] = max(row[backward] or 0.0, alignment.in_floors(left.node, right.node))
            if not backward:
                order[name] = min(order.get(name, left.node), left.node)
    return [_Row(name, *rows[name]) for name in sorted(rows, key=lambda name: order.get(name, 1 << 62))]


def _name(use: Use) -> str:
    path = strip_container(use.leaf).rpartition("/")[0] or strip_container(use.leaf)
    return f"{path}, turn {'.'.join(map(str, use.loop_indices))}" if use.loop_indices else path


def _text(number: float | None) -> str:
    return "-" if number is None else "same" if number == 0 else f"{number:.3g}"
