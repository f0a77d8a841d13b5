"""The channel ``dots``: types of dots, exponentials, sums and roots, as the source requests them."""

import collections
import re
from collections.abc import Hashable, Iterator, Sequence

from parity.channels.channel import Aspect, SettledByProof, channel
from parity.channels.results import compared, pair_up, span, times
from parity.compare.evidence import Evidence
from parity.ir.functions import origin
from parity.ir.stablehlo.dtypes import OUTER, TypedOp, read_dtypes
from parity.verdicts import ChannelResult, Doubt, Finding, Verdict, grouped, one_sided

FAMILIES = {"sqrt": "rsqrt", "logistic": "exponential"}
"""Kinds of operations that one formula has in place of another kind."""


@channel(column="dots", aspect=Aspect.STRUCTURE, settled_by_proof=SettledByProof.ALWAYS)
def dots(evidence: Evidence) -> ChannelResult:
    """Compares types of dots, exponentials, sums and roots, as the source requests them."""
    return compare_dots(*(read_dtypes(side.operations) for side in evidence.sides))


def _full(one: TypedOp) -> Hashable:
    return (one.kind, one.operands, one.result, one.precision, one.sizes, one.provenance.backward)


def _family(one: TypedOp) -> str:
    return FAMILIES.get(one.kind, one.kind)


def _real(one: TypedOp) -> str:
    """Returns the types without ``complex``: rotary angles may be complex numbers, with the digits of their parts."""
    return re.sub(r"complex<(\w+)>", r"\1", one.types)


def _without_types(one: TypedOp) -> Hashable:
    return (one.kind, len(one.operands), one.sizes, one.provenance.backward)


def compare_dots(reference: Sequence[TypedOp], candidate: Sequence[TypedOp]) -> ChannelResult:
    """Compares the types in which two programs multiply, exponentiate and sum.

    An operation of one side is paired with one of equal kind, result dimensions and direction; only then do types
    differ. A side does an unpaired operation more often or in another shape, which is not a matter of types. It is
    reported only if the other side has no operation of its family in these types, but does compute in others.
    """
    summing = [[one for one in side if one.kind != OUTER] for side in (reference, candidate)]
    if not any(summing):
        return ChannelResult(verdict=Verdict.SKIPPED, detail="no floating-point dot or sum")
    if not all(summing):
        text = (
            f"the {'candidate' if summing[0] else 'reference'} has no floating-point dot, exponential or sum"
        )
        return ChannelResult(verdict=Verdict.VACUOUS, detail=text)
    pairs, missing, extra = pair_up(reference, candidate, (_full, _without_types))
    groups = grouped(pairs, lambda pair: (_full(pair[0]), _full(pair[1]), pair[1].provenance.frame.line))
    findings = [_differs(*group[0], len(group)) for group in groups.values()]
    findings += [*_alone(missing, candidate, "reference"), *_alone(extra, reference, "candidate")]
    return compared(span(_detail(reference), _detail(candidate)), findings)


def _detail(entries: Sequence[TypedOp]) -> str:
    counts = collections.Counter(one.types for one in entries if one.kind == "dot")
    others = len(entries) - counts.total()
    dots = ", ".join(f"{count} dots {types}" for types, count in sorted(counts.items()))
    return f"{dots or 'no dots'}, {others} others"


def _named(one: TypedOp) -> str:
    return f"{one.kind} [{','.join(map(str, one.sizes))}]"


def _differs(left: TypedOp, right: TypedOp, count: int) -> Finding:
    cause = "a cast on one side only"
    same = (left.operands, left.result) == (right.operands, right.result)
    if same:
        cause = "a precision or an algorithm asked for on one side only; numbers show it on a TPU or a GPU, not here"
    elif left.kind in ("exponential", "sum", "log", "logistic"):
        cause = f"a softmax, norm or loss computed in {right.result} instead of {left.result}"
    elif left.kind == "dot" and left.operands == right.operands:
        cause = "preferred_element_type (accumulation type) given on one side only"
    elif left.kind == "dot":
        cause = "weights or activations in another compute dtype"
    found = origin(left.provenance.own, right.provenance.own)
    users = (
        [f", {found.how} at {line}" for line in found.lines]
        if found
        else [_since(left, right), _since(right, left)]
    )
    return Finding(
        where=f"{times(count)}{_named(left)} ({right.provenance.summary}{users[1]})",
        reference=left.types,
        candidate=right.types,
        cause=cause,
        next_step=f"reference: {left.provenance.summary}{users[0]}",
        doubts=(Doubt.HARMLESS,) if same else (),
    )


def _since(one: TypedOp, other: TypedOp) -> str:
    """Returns the line outside of an operation's function that gives its operand the type that the other lacks."""
    begun, used = (source.own[:1] if source else () for source in (one.since, one.provenance))
    if one.operands[0] == other.operands[0] or not begun or [begun[0].named] == [each.named for each in used]:
        return ""
    return f", {one.operands[0]} since {begun[0]}"


def _alone(entries: Sequence[TypedOp], other: Sequence[TypedOp], side: str) -> Iterator[Finding]:
    """Yields a finding for each group of unpaired operations whose family and types the other side does not have.

    Complex numbers are left out: no type of theirs is narrow, and the other side may have a cosine and a sine. So are
    outer products, which the other side may write as products.
    """
    known = {(_family(one), _real(one)) for one in other}
    families, results = {family for family, _ in known}, {one.result for one in other}
    strange = [
        one
        for one in entries
        if (_family(one) in families or results != {one.result})
        and one.kind != OUTER
        and "complex" not in one.types
        and (_family(one), _real(one)) not in known
    ]
    for one, *more in grouped(strange, lambda one: (_full(one), one.provenance.frame.line)).values():
        yield Finding(
            where=f"{_named(one)} of the {side} ({one.provenance.summary})",
            **one_sided(side, f"{1 + len(more)} x {one.types}", "no such operation"),
            cause=f"the only {one.kind} in these types; the other side has its like in others or not at all",
            doubts=(Doubt.HARMLESS,),
        )
