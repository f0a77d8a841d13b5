"""The axis ``op``: the first operation from which values differ, on the way to the result that fails."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

from parity.bisect.alignment import Alignment, Divergence
from parity.bisect.axis import Question, Search, SearchResult
from parity.bisect.blame import made_with, other_turn, unfinished
from parity.bisect.constants import handed
from parity.bisect.evaluated import Evaluated, evaluate_case
from parity.bisect.misplaced import confused, left_out, left_to_itself, levels, made_wrong
from parity.bisect.per_device import first_unlike
from parity.bisect.single import on_one_device
from parity.bisect.source import Calls, blamed, function_of, place_text, shared, site
from parity.bisect.stopped import stopped
from parity.bisect.trace import COMPILED, Node
from parity.compare.comparison import Comparison
from parity.ir.location import Frame, SourceLocation, equation_source

__all__ = ["AXIS", "describe"]

MOST = 5
"""Rows of the table of places where the programs part."""


def look(question: Question) -> SearchResult:
    """Evaluates both programs and names the first operation that is beyond the floor."""
    work = Comparison(on_one_device(question.case), question.bench)
    question.tell("op: both programs, operation by operation")
    return describe(evaluate_case(work, question.signature.channel))


def describe(found: Evaluated) -> SearchResult:
    """Returns in words where two programs part.

    Args:
        found: both evaluated.
    """
    if not found.failing:
        return SearchResult(
            axis="op",
            found=False,
            sentence="no result is beyond the floor when both programs are evaluated on one device: the "
            "difference is in structure, placement or random state; see the finding of the channel",
        )
    if not found.divergences:
        return SearchResult(
            axis="op", found=False, sentence="results differ, but no operation is first to differ"
        )
    sites = [list(dict.fromkeys(site(node) for node in trace.nodes)) for trace in found.alignment.traces]
    files = [{frame.file for one in each for frame in one.own} for each in sites]
    sources = _Sources(shared(sites), [Calls(each) for each in sites], files)
    divergences = list(found.divergences)
    alone = None in (divergences[0].reference, divergences[0].candidate)
    if any(map(found.alignment.backward, divergences if alone else divergences[:1])):
        divergences[:0] = stopped(found.alignment, (each.path for each in found.failing))[:1]
    entries = [_Entry(found.alignment, each, sources) for each in divergences]
    first, worst = entries[0], found.failing[0]
    other = first.missing(entries)
    step = f"step {found.step}, " if found.step > 1 else ""
    return SearchResult(
        axis="op",
        sentence=f"{step}{first.sentence()}{other}; it reaches {worst.path}, {_floors(worst.in_floors)}",
        head=("operation", "where", "reference", "candidate"),
        rows=tuple(entry.row() for entry in entries[:MOST]),
        facts={
            "step": found.step,
            "results": [[each.group, each.path, each.in_floors] for each in found.failing],
            "first": first.facts(),
        },
    )


class _Sources(NamedTuple):
    """What is known of the code of both sides."""

    common: frozenset
    calls: list[Calls]
    files: list[set[str]]

    def left_out(self, one: SourceLocation, side: int) -> str:
        """Returns the function in which the other side leaves out a call; empty where it makes all of them."""
        frame = self.calls[side].missing(one, self.calls[1 - side], self.common)
        return frame.function if frame else ""


class _Entry:
    """A divergence in words."""

    def __init__(self, alignment: Alignment, divergence: Divergence, sources: _Sources):
        self._alignment, self._common = alignment, sources.common
        self._divergence, handed_over = self._settled(divergence, sources.common, sources.files)
        divergence = self._divergence
        ends = (divergence.reference, divergence.candidate)
        self._nodes = [
            None if at is None else trace.nodes[at] for trace, at in zip(alignment.traces, ends, strict=True)
        ]
        self._nodes = _opened(self._nodes) if not divergence.operands else self._nodes
        self._sites = [None if node is None else site(node) for node in self._nodes]
        self.blamed = [blamed(one, sources.common, caller=self._reads_another()) for one in self._sites]
        if handed_over:
            self.blamed = [frame or own for frame, own in zip(handed_over, self.blamed, strict=True)]
            return
        longer = alignment.longer(*ends)
        extra = None if longer is None else self._sites[longer]
        left_out = "" if longer is None or extra is None else sources.left_out(extra, longer)
        in_library = self._handed(sources.common)
        for side, one in enumerate(self._sites):
            if one is None:
                continue
            calling = (frame for frame in one.own if frame.function == left_out)
            self.blamed[side] = next(calling, self.blamed[side])
            if in_library:
                self.blamed[side] = handed(one, sources.files[side]) or self.blamed[side]

    def _settled(
        self, divergence: Divergence, common: frozenset, files: Sequence[set[str]]
    ) -> tuple[Divergence, Sequence[Frame | None]]:
        """Returns where a right value comes to the wrong place, and who hands it over; else what is there."""
        decided = made_with(self._alignment, divergence, files, common) or unfinished(
            self._alignment, divergence, common
        )
        if decided:
            return divergence, decided
        below = levels(divergence.path)
        right = not any(made_wrong(self._alignment, operands) for _, operands in below)
        judges = (other_turn, left_to_itself, confused, left_out) if right else (left_to_itself, left_out)
        for users, operands in below:
            for judge in judges:
                frames = judge(self._alignment, (users, operands), common)
                if not frames:
                    continue
                more = self._alignment.more(*operands) if judge is left_out else None
                ends = [operands[side] if side == more else users[side] for side in (0, 1)]
                unlike = self._alignment.unlike(*users) if more is None else ()
                settled = dataclasses.replace(
                    divergence, reference=ends[0], candidate=ends[1], operands=unlike
                )
                return settled, frames
        return divergence, ()

    @property
    def _node(self) -> Node:
        return next(node for node in reversed(self._nodes) if node is not None)

    @property
    def _alike(self) -> bool:
        left, right = self._nodes
        return left is not None and right is not None and left.name == right.name

    def _reads_another(self) -> bool:
        """Whether both sides do the same with another leaf of the state: whoever chose the module is to blame."""
        left, right = self._nodes
        if left is None or right is None or not self._alike or not self._divergence.operands:
            return False
        position = self._divergence.operands[0]
        leaves = [
            _leaf(trace.nodes, node.inputs[position])
            for trace, node in zip(self._alignment.traces, (left, right), strict=True)
        ]
        return all(leaves)

    def _handed(self, common: frozenset) -> bool:
        """Whether both sides differ inside a library that code which they share calls: in what it was made with."""
        return all(
            one and one.library and one.own and function_of(one.own[0]) in common for one in self._sites
        )

    def sentence(self) -> str:
        where = ", ".join(self._where())
        names = dict.fromkeys(node.name for node in self._nodes if node)
        sides = ", ".join(
            f"{label} {text}" for label, text in zip(("reference", "candidate"), self._texts(), strict=True)
        )
        return f"{' / '.join(names)} ({where}): {sides}{self._operands()}"

    def missing(self, entries: "list[_Entry]") -> str:
        """Says what the side that has nothing there does first instead; empty where both have something."""
        side = next((side for side, node in enumerate(self._nodes) if node is None), None)
        if side is None:
            return ""
        there = (self._divergence.candidate, self._divergence.reference)[side]
        at = None if there is None else self._alignment.instead(1 - side, there)
        if at is not None:
            node = self._alignment.traces[side].nodes[at]
            self.blamed[side] = blamed(site(node), self._common)
            return self._goes_on(side, node, _place(node, site(node), self.blamed[side]))
        for after in entries:
            if (node := after._nodes[side]) is not None:
                self.blamed[side] = after.blamed[side]
                return self._goes_on(side, node, after._texts()[side])
        return ""

    @staticmethod
    def _goes_on(side: int, node: Node, where: str) -> str:
        return f", the {('reference', 'candidate')[side]} goes on with {node.name} at {where}"

    def row(self) -> tuple[str, ...]:
        names = dict.fromkeys(node.name for node in self._nodes if node)
        return (" / ".join(names), ", ".join(self._where()), *self._texts())

    def facts(self) -> dict:
        return {
            "operations": [node.name if node else None for node in self._nodes],
            "backward": self._node.around.backward,
            "turns": [turn for _, turn in self._node.around.iterations],
            "blamed": [_frame(frame) for frame in self.blamed],
            "stack": [[_frame(frame) for frame in each.own] if each else [] for each in self._sites],
            "operands": list(self._divergence.operands),
        }

    def _where(self) -> list[str]:
        around = self._node.around
        words = ["backward" if around.backward else "forward"]
        return words + [f"turn {turn} of {_loop(loop)}" for loop, turn in around.iterations]

    def _texts(self) -> list[str]:
        return [
            _place(node, one, frame) if node is not None and one is not None else "has nothing there"
            for node, one, frame in zip(self._nodes, self._sites, self.blamed, strict=True)
        ]

    def _operands(self) -> str:
        """Says which operands are not the same value, and what they are."""
        left, right = self._nodes
        if left is None or right is None or not self._divergence.operands:
            return ""
        words = []
        for position in self._divergence.operands[:3]:
            texts = [
                _origin(trace.nodes, node.inputs[position])
                for trace, node in zip(self._alignment.traces, (left, right), strict=True)
            ]
            words.append(f"operand {position}: {texts[0]} against {texts[1]}")
        return f" ({'; '.join(words)})"


def _opened(nodes: Sequence[Node | None]) -> list[Node | None]:
    """Returns operations that take the same values, or where they are run as a whole what first differs in them."""
    equations = [node.equation for node in nodes if node is not None and node.name in COMPILED]
    inside = first_unlike(*equations) if len(equations) == 2 else None
    if inside is None:
        return list(nodes)
    return [
        node
        if node is None or one is None
        else dataclasses.replace(node, name=one.primitive.name, equation=one)
        for node, one in zip(nodes, inside, strict=True)
    ]


def _leaf(nodes: list[Node], at: int) -> str:
    """Returns the path of the leaf that a value is a part of, or a cast; empty where it is more."""
    while len(nodes[at].inputs) == 1:
        at = nodes[at].inputs[0]
    return nodes[at].label


def _origin(nodes: list[Node], at: int) -> str:
    """Returns what a value is: a constant, a leaf of the state or a batch, or what made it."""
    node = nodes[at]
    if node.literal:
        return node.sketch.shown
    while len(node.inputs) == 1 or (node.inputs and node.name in ("dot_general", "convert_element_type")):
        below = [nodes[i] for i in node.inputs]
        leaf = next((each for each in below if each.label), None)
        if leaf is not None:
            return f"{node.name} of {leaf.label}"
        if len(below) > 1:
            turned = next((nodes[i] for each in below for i in each.inputs if nodes[i].label), None)
            return f"{node.name} of {turned.label}" if turned else node.name
        node = below[0]
    return node.label or node.name


def _place(node: Node, one: SourceLocation, frame: Frame | None) -> str:
    if node.label:
        return f"the given {node.label}"
    if frame is None or not one.own or frame == one.own[0]:
        return place_text(one)
    between = "handed over" if one.library and frame not in one.own else "called"
    return f"{place_text(one)}, {between} at {frame}"


def _loop(equation) -> str:
    own = equation_source(equation).own
    return f"the loop at {own[0].place}" if own else "a loop"


def _frame(frame: Frame | None) -> list | None:
    return [frame.file, frame.line, frame.function] if frame else None


def _floors(number: float) -> str:
    return "which no rounding explains" if number == float("inf") else f"{number:.3g} x noise"


AXIS = Search(name="op", about="the first operation from which values differ", look=look)
