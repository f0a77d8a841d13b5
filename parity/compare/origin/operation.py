"""The first operation with different values, on the way to the failing result, and the lines to blame, as text."""

import dataclasses
import itertools
import re
from collections.abc import Collection, Mapping, Sequence

from parity.cases.case import Case
from parity.compare.evidence import Evidence
from parity.compare.origin.alignment import GIVEN, ITERATIONS, Alignment, before_moves, ordered, reached
from parity.compare.origin.blame import STRATEGIES, Blame, Strategy, makers_of_both, set_by_callers
from parity.compare.origin.divergence import Divergence, present
from parity.compare.origin.evaluated import Evaluated, evaluate_case, on_one_device
from parity.compare.origin.result import SearchResult
from parity.compare.origin.trace import Node, site
from parity.compare.session import Session
from parity.compare.stress import COMPARED, stress
from parity.ir.checks import COMPARISONS
from parity.ir.functions import deciding_call, function_of, giving_call
from parity.ir.given import given_at
from parity.ir.location import Frame, SourceLocation, equation_source
from parity.ir.makers import given_functions, table_makers
from parity.prove.frontier import TABLE, number
from parity.verdicts import SIDES, Finding, listed

SURE = 2
"""Maximum number of functions that may hold the cause if the first one is named without doubt."""
NEAR = 200
"""Maximum number of operations around the first divergence whose functions are suspected."""
MOST = 5
"""Maximum number of rows of the table of divergences."""
DEEP = 3
"""Number of functions around an update from which on any of them may drop it."""
WITH_MODES = ("BatchNorm.", "Dropout.")
"""Layers whose mode is set, or not, outside of the classes that hold them."""


def locate(case: Case, session: Session, channel: str) -> SearchResult:
    """Evaluates both programs of a case on one device, and returns the first operation that is beyond the floor.

    If no result of the standard batch differs, they are evaluated on the stress inputs on which the channel fails.

    Args:
        session: an evaluation that it holds is not repeated.
        channel: the channel that fails.
    """
    work = Evidence.of(on_one_device(case), session)
    found = evaluate_case(work, channel)
    if not found.failing and channel in COMPARED and work.unproved:
        trial = work.read(stress).trials.get(channel)
        found = evaluate_case(work, channel, trial) if trial else found
    return follow(work, found, channel)


def follow(work: Evidence, found: Evaluated, channel: str = "") -> SearchResult:
    """Returns the divergences; a search that is not sure of the place adds the first difference of the proof.

    It begins with one that the proof grades, because no numbers decide that.

    Args:
        channel: the channel that fails; its differences may reach no result on the batch.
    """
    result = describe(found)
    if result.found or not (found.failing or channel == "program"):
        return result
    differences = [each for each in work.differences if each.reference or each.candidate]
    if not work.weights.is_identity or not differences:
        return result
    graded = dict(work.operation_proof.reasons()) if work.operation_proof else {}
    first = next(iter(graded), differences[0])
    place = f"the programs differ first at {first.sentence()}"
    facts = {**result.facts, "proof": first.sentence()}
    if not graded:
        return dataclasses.replace(result, sentence=f"{result.sentence}; {place}", facts=facts)
    sentence = f"{place}: {graded[first]}, which no numbers settle; by values: {result.sentence}"
    return dataclasses.replace(
        result, sentence=sentence, found=True, finding=first, head=(), rows=(), facts=facts
    )


def describe(found: Evaluated, strategies: Collection[Strategy] = STRATEGIES.values()) -> SearchResult:
    """Returns the divergences of two programs, and the lines to blame by the first strategy that finds any."""
    if not found.failing:
        return SearchResult.nothing(
            "op",
            "no result is beyond the floor when both programs are evaluated on one device: the "
            "difference is in structure, placement or random state; see the finding of the channel",
        )
    if not found.divergences:
        return SearchResult.nothing("op", "results differ, but no operation is first to differ")
    entries = [_Entry(each, strategies) for each in found.divergences]
    first, worst = entries[0], found.failing[0]
    other = first.missing(entries)
    distance = (
        "which no rounding explains" if worst.in_floors == float("inf") else f"{worst.in_floors:.3g} x noise"
    )
    finding = first.finding(found.step, other, f"it reaches {worst.path}, {distance}")
    suspects = first.passing or (_suspects(found) if first.is_alone and not first.compares else ())
    doubt = first.doubt(found)
    leading = found.divergences[0]
    lacking = {each.ends[0] is None for each in found.divergences if each.pair is None and not each.nan}
    is_alone = leading.pair is None and not leading.nan
    later = any(number for node in leading.nodes if node for _, number in node.around.iterations)
    if not doubt and is_alone and later and len(lacking) > 1:
        doubt = "because each side computes values here that the other one lacks, perhaps since an earlier iteration"
    stops = [entry for entry in entries if entry.stops_gradient]
    if not doubt and first in stops[:-1]:
        lines = dict.fromkeys(str(frame) for entry in stops for frame in entry.blamed)
        numbers = {
            [node.name for node in trace.nodes].count("stop_gradient") for trace in found.alignment.traces
        }
        several = "several gradients are stopped on one side only"
        how = several if len(numbers) > 1 else "both sides stop as many gradients, perhaps in other places"
        doubt = f"because {how}: {listed(list(lines), MOST)}"
    if not doubt and len(suspects) > SURE:
        doubt = f"one of {listed([str(each) for each in suspects], MOST)}"
    sentence = finding.sentence()
    return SearchResult(
        axis="op",
        sentence=f"not sure of the cause, {doubt}: values differ first at {sentence}" if doubt else sentence,
        found=not doubt,
        finding=finding,
        head=("operation", "where", "reference", "candidate"),
        rows=tuple(dict.fromkeys(entry.row() for entry in entries))[:MOST],
        facts={
            "step": found.step,
            "results": [[each.group, each.path, each.in_floors] for each in found.failing],
            "first": first.facts(),
            "doubt": doubt,
            "suspects": [_frame(frame) for frame in suspects],
        },
    )


def _suspects(found: Evaluated) -> tuple[Frame, ...]:
    """Returns the candidate's functions between the first divergence and the next operations that correspond."""
    alignment, frames = found.alignment, dict[str, Frame]()
    nodes, matches = alignment.traces[1].nodes, alignment.matches[1]
    waiting = [at for each in found.divergences if (at := each.ends[1]) is not None][:1]
    backward = all(nodes[at].around.backward for at in waiting)
    for at in itertools.islice(waiting, NEAR):
        if nodes[at].around.backward is backward and not alignment.corresponds(1, at):
            own = site(nodes[at]).own
            if own and function_of(own[0]) not in alignment.common:
                frames.setdefault(own[0].function, own[0])
            near = [*alignment.users(1, at), *alignment.deciding(1, at)]
            waiting += [each for each in near if matches[each] < 0 and each not in waiting]
    return tuple(frames.values())


class _Entry:
    """A divergence as text."""

    def __init__(self, divergence: Divergence, strategies: Collection[Strategy]):
        tried = () if divergence.nan else strategies  # values are right where they are
        found = next((each for one in tried if (each := one(divergence))), Blame((None, None)))
        self._is_default = found == Blame((None, None))
        self._before = divergence
        common = divergence.alignment.common
        self._given = found.given
        self.passing = [each for each in found.passing if function_of(each) not in common]
        self._after: tuple[str, ...] = ()
        place = found.divergence or divergence
        is_given = any(node.name == "argument" for node in place.nodes if node)
        if self._is_default and is_given:  # it has no line, its use has one
            place = place.moved(place.path[-2]) if len(place.path) > 1 else _at_use(place)
        self._divergence, self._alignment = place, divergence.alignment
        self._nodes = self._divergence.nodes
        self._around = next(node for node in reversed(self._nodes) if node is not None).around
        self._sources = [None if node is None else site(node) for node in self._nodes]
        self.blamed = [
            frame or self._default(source) for frame, source in zip(found.frames, self._sources, strict=True)
        ]

    def _default(self, source: SourceLocation | None) -> Frame | None:
        """Returns the innermost line in a function that only this side has, else the innermost of all."""
        own = source.own if source else ()
        return self._alignment.innermost(own) or next(iter(own), None)

    @property
    def stops_gradient(self) -> bool:
        """True if one side stops a gradient and the other computes on, so that the gradient differs."""
        names = [node.name for node in self._nodes if node]
        return names.count("stop_gradient") == 1 and GIVEN.isdisjoint(names)

    @property
    def is_alone(self) -> bool:
        """True if no single operation does something else with equal operands, so that more code may differ."""
        pair = self._divergence.pair
        if self._divergence.nan:
            return False
        names = {node.name for node in self._nodes if node}
        return pair is None or len(names) > 1 or not self._alignment.shares(*pair)

    @property
    def compares(self) -> bool:
        """True if both sides compare one value, each in its own way."""
        pair = self._divergence.pair
        names = {node.name for node in self._nodes if node}
        return pair is not None and names <= COMPARISONS and self._alignment.shares(*pair)

    def finding(self, step: int, other: str, distance: str) -> Finding:
        """Returns the divergence as a finding, with the operation from `missing`."""
        operation, where, left, right = self.row()
        return Finding(
            where=f"{f'step {step}, ' if step > 1 else ''}{operation} ({where})",
            reference=left,
            candidate=f"{right}{self._unlike()}{other}",
            distance=distance,
        )

    def missing(self, entries: "list[_Entry]") -> str:
        """Returns the first operation of the side that has none there, as text; empty if both have one."""
        if None not in self._nodes or self._divergence.nan:
            return ""
        side = self._nodes.index(None)
        at = self._alignment.instead(*present(self._divergence.ends)[0])
        if at is not None:
            node = self._alignment.traces[side].nodes[at]
            frame = self._default(site(node))
            text = _place(node, site(node), frame)
        else:
            after = next(((each, node) for each in entries if (node := each._nodes[side]) is not None), None)
            if after is None:
                return ""
            entry, node = after
            frame, text = entry.blamed[side], entry._texts()[side]
        self.blamed[side], self._after = frame, (node.name,)
        return f", the {SIDES[side]} goes on with {node.name} at {text}"

    def doubt(self, found: Evaluated) -> str:
        """Returns the reason why the place may not be the cause; empty if it is certain."""
        names = [node.name for node in self._nodes if node]
        if not any(frame and not frame.in_library for frame in self.blamed):
            return "because no line of your files is near"
        divergence = self._divergence
        if divergence.kept and not divergence.has_other_constant():
            return "because it is only kept for a backward pass that differs, such as by a gradient that is stopped"
        if divergence.faint and not divergence.has_other_constant():
            return "because the results that it reaches are equal up to noise, except some entries"
        moved = {*self._after, *(names if self._is_default else ())}
        if moved & GIVEN and (len(names) == 1 or moved & ITERATIONS):
            return "because only one side casts or moves a value here"
        if "add_any" in names and len(set(names)) != 1:
            lines = _lone_stops(self._alignment)
            places = f": {listed(lines, MOST)}" if lines else ""
            return f"because only one side adds a gradient here, which another operation may stop{places}"
        if kept := _as_given(self._before, {*found.partners, *itertools.chain(*found.partners.values())}):
            return kept
        if divergence.pair and self._alignment.follows(*divergence.pair):
            return "because its operands differ by as much, within their own rounding"
        if self._is_default and (makers := makers_of_both(self._divergence)):
            return f"because the call that made {makers[-1]} chose the constant, and that call was not found"
        inside = all(
            not frame or not one or frame in one.own
            for frame, one in zip(self.blamed, self._sources, strict=True)
        )
        if inside and (equal := set_by_callers(self._divergence)):
            return f"because {equal} is equal on both sides and does other operations, as a setting from outside says"
        return self._misread(found.partners, found.guessed)

    def _misread(self, partners: Mapping[str, Sequence[str]], guessed: Collection[str]) -> str:
        """Returns the reason why a weight that is read instead of another may not be the cause; empty if it is."""
        for pair in self._divergence.given:
            left, right = (
                trace.nodes[before_moves(trace.nodes, at)].label
                for trace, at in zip(self._alignment.traces, pair, strict=True)
            )
            if left and _unnumbered(right) in map(_unnumbered, partners.get(left, ())):
                return f"because {right} is read instead of the partner of {left}, which a caller may decide"
            if left and right and not {left, right}.isdisjoint(guessed):
                return (
                    f"because {right} is read instead of the partner of {left}, which the weight map guesses"
                )
        return ""

    def row(self) -> tuple[str, ...]:
        names = " / ".join(dict.fromkeys(node.name for node in self._nodes if node))
        divergence = self._divergence
        return (f"{'NaN of ' if divergence.nan else ''}{names}", ", ".join(self._where()), *self._texts())

    def facts(self) -> dict:
        return {
            "operations": [node.name if node else None for node in self._nodes],
            "backward": self._around.backward,
            "blamed": [_frame(frame) for frame in self.blamed],
        }

    def _where(self) -> list[str]:
        words = ["backward" if self._around.backward else "forward"]
        return words + [f"turn {iteration} of {_loop(loop)}" for loop, iteration in self._around.iterations]

    def _texts(self) -> list[str]:
        absent = f"has no such {'NaN' if self._divergence.nan else 'value'}"
        sides = enumerate(zip(self._nodes, self._sources, self.blamed, strict=True))
        return [
            f"{_place(node, one, frame)}{self._set_at(side) or self._made()[side] or self._decided(side)}"
            if node is not None and one is not None
            else absent
            for side, (node, one, frame) in sides
        ]

    def _set_at(self, side: int) -> str:
        """Returns the call that passes a side's constant and the line that holds it, as text; empty if named."""
        source, divergence = self._sources[side], self._divergence
        if source is None or not divergence.given:
            return ""
        nodes, at = self._alignment.traces[side].nodes, divergence.given[0][side]
        given, made = nodes[at], nodes[before_moves(nodes, at)]
        constant = number(given.sketch.shown) if given.literal and not made.inputs else None
        single = divergence.differs_in_constants() and given.sketch.kind[0] == 1
        direct = single and self.blamed[side] in source.own[:1]
        known = source.own[:1] if direct or source.library else source.own
        return given_at(constant, source.own, source.library, (self.blamed[side], *known))

    def _decided(self, side: int) -> str:
        """Returns the call that decides what the function does or gets, as text; empty if there is none.

        Sides that do different operations may be in different functions, so their callers decide.
        """
        stacks: list[Sequence[Frame]] = [one.own if one else () for one in self._sources]
        own = stacks[side]
        if self.blamed[side] not in own[:1]:
            return ""
        if call := self._given[side]:
            return f", called at {call}"
        if not self.is_alone:
            return ""
        one_sided = self._divergence.pair is None
        others = one_sided or len({node.name for node in self._nodes if node}) > 1
        have_callers = all(len(each) > 1 for each in ([own] if one_sided else stacks))
        source = self._sources[side]
        caller = (giving_call(own) or own[1]) if others and have_callers else None
        if caller and source and any(frame.function.startswith(WITH_MODES) for frame in source.library):
            functions = (frame for frame in own[1:] if "." not in frame.function.replace(".<locals>.", ""))
            caller = next(functions, caller)
        call = deciding_call(own) or caller
        return f", called at {call}" if call else ""

    def _made(self) -> Sequence[str]:
        """Returns for each side the function that computes its constant ahead of the program, as text."""
        lines = [frame for frame in self.blamed if frame and not frame.in_library]
        if len(lines) < 2 or not self._divergence.differs_in_constants():
            return "", ""
        traced = [set(map(function_of, frames)) for frames in self._alignment.frames]
        makers = table_makers(lines[0], lines[1], traced)
        return [
            f", with a constant from {each[0]}" if len(each) == 1 and _is_table(trace.nodes, at) else ""
            for each, trace, at in zip(makers, self._alignment.traces, self._divergence.given[0], strict=True)
        ]

    def _unlike(self) -> str:
        """Returns the operands that are not the same value, as text."""
        words = []
        for position, pair in list(zip(self._divergence.operands, self._divergence.given, strict=False))[:3]:
            given = [(trace.nodes, at) for trace, at in zip(self._alignment.traces, pair, strict=True)]
            texts = [_origin(*each) for each in given]
            computed = [text == nodes[at].name for text, (nodes, at) in zip(texts, given, strict=True)]
            if all(_is_table(*each) for each in given):
                unlike = TABLE
            elif texts[0] == texts[1] and all(nodes[at].literal for nodes, at in given):
                unlike = "other entries"
            elif texts[0] == texts[1] or all(computed):
                used = [None, None] if texts[0] == texts[1] else self._sources
                left, right = (_made_at(*each, source) for each, source in zip(given, used, strict=True))
                unlike = f"two values of {left}" if left == right else f"{left} against {right}"
            else:
                unlike = " against ".join(texts)
            place = " / ".join(map(str, dict.fromkeys(position)))
            words.append(f"operand {place}: {unlike}")
        return f" ({'; '.join(words)})" if words else ""


def _at_use(divergence: Divergence) -> Divergence:
    """Returns a divergence at the first operation that uses the value, if only one side has it."""
    side, at = present(divergence.ends)[0]
    users = sorted(divergence.alignment.users(side, at))
    if divergence.pair is not None or not users:
        return divergence
    return dataclasses.replace(divergence, ends=ordered(side, users[0], None))


def _as_given(divergence: Divergence, leaves: Collection[str]) -> str:
    """Returns a doubt if one side returns or uses a leaf as it is given, which the other updates inside; else empty.

    A leaf that is used counts only if this side also computes the updated one, from the leaf.
    """
    if divergence.pair is None:
        return _once_more(divergence)
    ends, nodes, matches = divergence.pair, divergence.nodes, divergence.alignment.matches
    traces = divergence.alignment.traces
    for side, trace in enumerate(traces):
        given, other = nodes[side], nodes[1 - side]
        if given is None or other is None or given.label not in leaves or other.label:
            continue
        callers = [str(frame) for frame in site(other).own]
        returned = len(divergence.path) <= 1 and ends[side] in trace.outputs
        before = reached([ends[1 - side]], lambda at, other=side: traces[1 - other].nodes[at].inputs)
        used = matches[1 - side][ends[1 - side]] >= 0 and matches[side][ends[side]] in before
        if (returned or used) and len(callers) >= DEEP:
            how = f"{'returns' if returned else 'uses'} {given.label} as it is given"
            return f"because the {SIDES[side]} {how}, as a caller may decide: {listed(callers, MOST)}"
    return ""


def _once_more(divergence: Divergence) -> str:
    """Returns a doubt if one side updates a value, such as of a state, that the other returns; else empty."""
    for side, at in present(divergence.ends):
        nodes, other = divergence.alignment.traces[side].nodes, divergence.alignment.traces[1 - side]
        callers = [str(frame) for frame in site(nodes[at]).own]
        partners = {
            divergence.alignment.matches[side][before_moves(nodes, value)] for value in nodes[at].inputs
        }
        if len(callers) >= DEEP and not partners.isdisjoint(other.outputs):
            how = f"the {SIDES[1 - side]} returns the value from before"
            return f"because {how}, as a caller may decide: {listed(callers, MOST)}"
    return ""


def _lone_stops(alignment: Alignment) -> list[str]:
    """Returns the lines that stop the gradient of a value of which the other side stops none."""
    stops = [
        {
            before_moves(trace.nodes, node.inputs[0]): node
            for node in trace.nodes
            if node.name == "stop_gradient"
        }
        for trace in alignment.traces
    ]
    lone = [
        node
        for side, held in enumerate(stops)
        for at, node in held.items()
        if not node.around.backward and alignment.matches[side][at] not in stops[1 - side]
    ]
    return list(dict.fromkeys(str(frame) for node in lone for frame in site(node).own[:1]))


def _origin(nodes: list[Node], at: int) -> str:
    """Returns the origin of a value as text: a constant, a leaf of the state or the batch, or its operation."""
    node = nodes[at]
    if node.literal:
        return node.sketch.shown
    while len(node.inputs) == 1 and not nodes[node.inputs[0]].label:
        node = nodes[node.inputs[0]]
    below = sorted((nodes[i] for i in node.inputs), key=lambda each: not each.label)
    leaf = next((each.leaf for each in below if each.leaf), "")
    is_of_leaf = leaf and (len(below) == 1 or node.name == "dot_general")
    return f"{node.name} of {leaf}" if is_of_leaf else node.label or node.name


def _made_at(nodes: Sequence[Node], at: int, used: SourceLocation | None) -> str:
    """Returns the operation that makes a value, with the user's line if it is not that of its use."""
    node = nodes[before_moves(nodes, at)]
    own = site(node).own
    return f"{node.name} at {own[0]}" if own and not (used and own[:1] == used.own[:1]) else node.name


def _is_table(nodes: Sequence[Node], at: int) -> bool:
    made = nodes[before_moves(nodes, at)]
    return made.name == "constant" and made.sketch.kind[0] > 1


def _unnumbered(path: str) -> str:
    return re.sub(r"\d+", "#", path)


def _place(node: Node, one: SourceLocation, frame: Frame | None) -> str:
    if node.label:
        return f"the given {node.label}"
    place = one.own_place if one.frames else "no known line"
    if frame is None or not one.own or frame == one.own[0]:
        return f"{place}{one.maker}"
    if frame in one.own or not one.library:
        return f"{place}, {'called at' if frame in one.own else 'with a value from'} {frame}"
    given = given_functions(frame)  # such as the mask of a decay
    return f"{place}, handed over at {frame}" + (
        f" with {listed(list(map(str, given)), MOST)}" if given else ""
    )


def _loop(equation) -> str:
    own = equation_source(equation).own
    return f"the loop at {own[0].place}" if own else "a loop"


def _frame(frame: Frame | None) -> list | None:
    return [frame.file, frame.line, frame.function] if frame else None
