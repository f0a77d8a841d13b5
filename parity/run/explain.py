"""The explanation of a failed case: one line on its cause, then the findings behind it.

The cause is the proof's first difference if numbers differ too; else the finding with a source line.
"""

import dataclasses
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence

from parity.channels import Aspect, of_aspect
from parity.channels.loops import CARRIED, DRAWN, STACKED
from parity.prove.frontier import TABLE
from parity.prove.grade import SETTING
from parity.verdicts import BLOCKING, ChannelResult, Doubt, Finding, Verdict, grouped, listed

PLACE = re.compile(r"(?<![\w./-])([\w./-]+\.py):(\d+)\b")
SEVERITY = (Verdict.FAILED, Verdict.ERROR, Verdict.VACUOUS, Verdict.OPEN)
OF_PROGRAMS = ("tree", "inputs", "dots")
"""Channels whose differences make the programs differ, the surest first."""
OF_VALUES = ("rng", "retrace")
"""Other channels whose differences make values, state and memory differ, the surest first."""
STRUCTURE = ("loops", "sharding")
"""Channels whose differences make collectives and memory differ, the surest first."""
ELSEWHERE = frozenset({Doubt.PLACE, Doubt.OPERAND, Doubt.ALSO_OPERAND})
"""Doubts of a difference that may come from elsewhere."""
UNSURE = ELSEWHERE | {Doubt.LATER}
"""Doubts of a place that a search by values may correct."""
PLACING = re.compile(r"sharding_constraint|\breshard\b|annotate_device_placement")
"""Operations on which shardings, collectives and memory rest; other differences of programs may leave them equal."""
NUMBERS = frozenset(of_aspect(Aspect.VALUES))
NEXT: Mapping[str, str] = {
    "tree": "parity map {pair}",
    **dict.fromkeys(("sharding", "loops", "collectives", "memory"), "parity inspect {case}"),
}
"""The next command by channel; `parity bisect` for others, and the traceback for an error."""
CONSEQUENCE = "a consequence of the difference above; else a wrong guess of the weight map"
"""Cause of a doubtful guess of the weight map that comes after another difference."""
LISTED = 3
NEEDED, CHANNELS, FURTHER = range(3)
"""Ranks of the parts of a cause: all that is needed is in the first line, of the others what fits."""
LONGEST = 300
"""Length of a cause in one line, with the case, up to which further parts fit."""
LEFT_OUT = re.compile(r" \(through [^()]*\)|(?<=\.)<locals>\.")
"""Parts of a source line that its first line can do without: the library's lines behind it, the word for closures."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Explanation:
    """The cause of a failure and its consequences.

    Args:
        line: the difference, its source lines, the leaves that follow, the next command; without line breaks.
        rest: the remaining parts of the cause, then the findings of all blocking channels, those of one kind in one
            line.
    """

    channel: str
    cause: Finding | None
    line: str
    rest: tuple[str, ...]


def blocking(channels: Iterable[ChannelResult]) -> list[ChannelResult]:
    """Returns the channels that keep a case from passing, worst first."""
    held = [result for result in channels if result.verdict in BLOCKING]
    guess = _guess(held)
    return sorted(held, key=lambda one: (SEVERITY.index(one.verdict), one is guess, not _is_cause(one)))


def _is_cause(result: ChannelResult) -> bool:
    """True if differences of a channel make values differ; those of ``dots`` do if an operation has other types."""
    return result.name in (*OF_PROGRAMS, "program", *OF_VALUES) and not _is_harmless(result)


def _is_harmless(result: ChannelResult) -> bool:
    return bool(result.findings) and all(Doubt.HARMLESS in one.doubts for one in result.findings)


def explain(
    case: str, channels: Mapping[str, ChannelResult], *, options: str = "", runnable: bool = True
) -> Explanation | None:
    """Returns the explanation of a failure; None if no channel blocks.

    Args:
        options: words of the command line that find the case.
        runnable: True if commands know the case by its id.
    """
    held = blocking(channels.values())
    if not held:
        return None
    channel = _likeliest(held, channels)
    cause = found = _cause(channel, held)
    guess = _guess(held) if found and Doubt.OPERAND in found.doubts else None
    if cause and cause.doubts and unplaced(channels) is channel:
        cause = dataclasses.replace(cause, doubts=(*cause.doubts, Doubt.PLACE))
    parts = _parts(channel, cause)
    parts += [(CHANNELS, _follows(one)) for one in held if one.name in NUMBERS and one is not channel]
    more = [one.name for one in held if one.name not in NUMBERS and one is not channel]
    parts += [(CHANNELS, f"also {', '.join(more)}")] if more else []
    if runnable:
        known = channel in held or any(one.name in NUMBERS for one in held)
        asked = guess or (channel if known else held[0])
        command = _command(case, asked, cause if asked is channel else None)
        parts.append((NEEDED, " ".join(filter(None, ["next:", command, options]))))
    verdict = channel.verdict if channel.verdict in BLOCKING else "differs"
    line, rest = _fitted(f"{channel.name} {verdict}: ", parts, LONGEST - len(case))
    return Explanation(
        channel=channel.name,
        cause=cause,
        line=line,
        rest=tuple([*([f"  {rest}"] if rest else []), *_rest(held, channel, found)]),
    )


def unplaced(channels: Mapping[str, ChannelResult]) -> ChannelResult | None:
    """Returns the channel behind a failure of numbers if the proof is not sure of the place; None if it is."""
    held = blocking(channels.values())
    failed = {one.name for one in held if one.verdict is Verdict.FAILED}
    if "program" not in channels or failed.isdisjoint(NUMBERS) or held[0].name not in failed:
        return None
    channel = _likeliest(held, channels)
    first = _cause(channel, held)
    harmless = channel.name == "program" and channel.verdict is Verdict.UNPROVED  # may change no number
    harmless = harmless or (first is not None and first.cause == SETTING)
    unsure = harmless or first is None or not UNSURE.isdisjoint(first.doubts) or not places(first)
    unsure = unsure or (first is not None and TABLE in first.where)  # the search names the maker of a table
    return channel if unsure and channel.name in {"program", *NUMBERS} else None


def _cause(channel: ChannelResult, held: Sequence[ChannelResult]) -> Finding | None:
    """Returns the place by values, or the first finding that does not rest on guesses, or the first.

    Another one of the same cause takes its place if only that one has a source line.
    """
    first = next(iter(channel.findings), None)
    guessed = first and Doubt.OPERAND in first.doubts and _guess(held)
    candidates = (
        channel.located,
        *(one for one in channel.findings if guessed and ELSEWHERE.isdisjoint(one.doubts)),
        *(one for one in channel.findings if first and one.cause == first.cause != "" and places(one)),
        first,
    )
    return next(filter(None, candidates), None)


def _fitted(head: str, parts: Sequence[tuple[int, str]], longest: int) -> tuple[str, str]:
    """Returns the needed parts, and others as far as they fit, as one line, and the parts that are left out."""
    texts = [(rank, LEFT_OUT.sub("", " ".join(text.split()))) for rank, text in parts if text]
    kept: set[int] = set()
    for at in sorted(range(len(texts)), key=lambda at: texts[at][0]):
        rank, text = texts[at]
        length = len(head) + sum(len(texts[one][1]) + 2 for one in kept) + len(text)
        if rank == NEEDED or length <= longest:
            kept.add(at)
    rest = [text for at, (rank, text) in enumerate(texts) if at not in kept and rank != CHANNELS]
    return head + "; ".join(texts[at][1] for at in sorted(kept)), "; ".join(rest)


def _likeliest(held: Sequence[ChannelResult], channels: Mapping[str, ChannelResult]) -> ChannelResult:
    """Returns the channel whose first finding is the likeliest cause of all others: the first of some candidates."""
    untraced = [one for one in held if one.name == "program" and any(map(_is_of_a_side, one.findings))]
    failed = {one.name: one for one in held if one.verdict is Verdict.FAILED}
    tree = failed.get("tree")
    axes = tree is not None and any("logical axes" in one.reference for one in tree.findings[:1])
    if tree and axes and any("Sharding" in one.candidate for each in untraced for one in each.findings[:1]):
        return tree  # the error follows from it
    if untraced or held[0].verdict is not Verdict.FAILED:
        return (untraced or held)[0]
    guess, numbers = _guess(held), not NUMBERS.isdisjoint(failed)
    sure = {
        name: one
        for name, one in failed.items()
        if one is not guess and not (numbers and name in ("dots", *OF_VALUES) and _is_harmless(one))
        if not (numbers and any(each.cause.endswith((DRAWN, STACKED)) for each in one.findings[:1]))
    }
    program = channels.get("program")
    differs = program if program and program.findings and program.verdict is not Verdict.PROVED else None
    first = differs.findings[0] if differs else None
    moves = first and "loops" not in failed and PLACING.search(first.sentence())
    explains = failed.get("program") or (differs if moves or numbers else None)
    redrawn = "rng" in sure and any(not one.leaf for one in sure["rng"].findings[:1])
    named = first and (first.reference or first.candidate)
    structure = STRUCTURE[::-1] if _may_be_resharded(failed.get("loops")) else STRUCTURE
    candidates = (
        *map(sure.get, OF_PROGRAMS),
        explains if named and not redrawn else None,  # values follow from their keys
        *map(sure.get, (*OF_VALUES, *structure)),
        explains,
        *(one for one in failed.values() if one.findings and places(one.findings[0])),
        differs,  # though other failures do not follow from it
        *failed.values(),
    )
    return next(filter(None, candidates))


def _is_of_a_side(finding: Finding) -> bool:
    """True for an error of one side, which is traced without the other one."""
    return bool(finding.traceback) and finding.where.endswith(", trace")


def _may_be_resharded(loops: ChannelResult | None) -> bool:
    """True if loops differ first in the bytes that they carry, which may follow from a sharding."""
    return loops is not None and any(one.cause == CARRIED for one in loops.findings[:1])


def _guess(held: Sequence[ChannelResult]) -> ChannelResult | None:
    """Returns ``tree`` if it only doubts guesses of the weight map, which a difference of the programs makes doubtful.

    A guess that joins leaves of other initial values is likelier wrong than the program.
    """
    initial = {finding.leaf for one in held if one.name == "rng" for finding in one.findings}
    tree = next((one for one in held if one.name == "tree"), None)
    sure = tree and any(Doubt.GUESS not in one.doubts or one.leaf in initial for one in tree.findings)
    return None if sure else tree


def _parts(channel: ChannelResult, cause: Finding | None) -> list[tuple[int, str]]:
    if cause is None:
        return [(NEEDED, channel.detail)]
    more = len(channel.findings) - 1 if channel.name != "program" else 0
    of_numbers = channel.name in NUMBERS
    steps = [] if Doubt.NUMBERS in cause.doubts else cause.next_step.split("; ")
    sure = cause is not channel.located  # else the step is the reason why the search is not sure
    return [
        (NEEDED, channel.detail if of_numbers else ""),
        (NEEDED, cause.difference()),
        (FURTHER, cause.distance),
        (NEEDED if PLACE.search(cause.cause) else FURTHER, f"likely {cause.cause}" if cause.cause else ""),
        *((FURTHER if sure and not PLACE.search(step) else NEEDED, step) for step in steps),
        (FURTHER, f"and {more} more" if more else ""),
    ]


def _follows(channel: ChannelResult) -> str:
    worst = f" ({channel.findings[0].where})" if channel.findings else ""
    return f"{channel.name}: {channel.detail.partition(';')[0].partition(', worst')[0]}{worst}"


def _command(case: str, channel: ChannelResult, cause: Finding | None) -> str:
    if cause is not None and cause.traceback:
        return f"parity run {shlex.quote(case)} --traceback"
    command = NEXT.get(channel.name, "parity bisect {case}")
    return command.format(case=shlex.quote(case), pair=shlex.quote(case.partition("/")[0]))


def _rest(held: Sequence[ChannelResult], first: ChannelResult, cause: Finding | None) -> list[str]:
    """Returns the findings of the first channel, except the cause, and of all other blocking channels."""
    others = [one for one in first.findings if one is not cause]
    if first.located:  # the proof's differences may be harmless
        others = [one for one in others if ELSEWHERE.isdisjoint(one.doubts)]
    # Numbers decide what the proof left open, because they differ, too.
    others = [
        dataclasses.replace(one, next_step="") if Doubt.NUMBERS in one.doubts else one for one in others
    ]
    lines = [f"  {line}" for line in by_kind(others)]
    for channel in held:
        if channel is not first:
            lines.append(f"  {channel.name} {channel.verdict}: {channel.detail}")
            findings: Sequence[Finding] = channel.findings
            if channel is _guess(held) and (_is_cause(first) or first.name in NUMBERS):
                findings = [dataclasses.replace(one, cause=CONSEQUENCE) for one in findings]
            lines += [f"    {line}" for line in by_kind(findings)]
    return lines


def by_kind(findings: Sequence[Finding]) -> list[str]:
    """Returns a line for the findings of each kind: the first as a sentence, the others by name and number."""
    kinds = grouped(findings, lambda one: (one.labels, one.cause or PLACE.sub("", one.next_step)))
    lines = []
    for first, *others in kinds.values():
        names = list(dict.fromkeys(one.place for one in others))
        lines.append(first.sentence() + (f"; the same for {listed(names, LISTED)}" if names else ""))
    return lines


def innermost(finding: Finding) -> list[tuple[str, str]]:
    """Returns the first source line that a finding names for each side."""
    return [place for text in (finding.reference, finding.candidate) for place in PLACE.findall(text)[:1]]


def places(finding: Finding) -> list[tuple[str, int]]:
    """Returns the source lines that a finding names: those of the candidate alone, then shared ones, then others."""
    texts = (finding.candidate, finding.reference, f"{finding.where} {finding.next_step}")
    left, right, rest = ([(file, int(line)) for file, line in PLACE.findall(text)] for text in texts)
    own = [place for place in left if place not in right]
    return list(dict.fromkeys((*own, *left, *right, *rest)))
