"""Compares the dtypes of dots and other precision-sensitive operations."""

import collections
from collections.abc import Hashable, Sequence

from parity.channels.structure.compare_counts import pair_up
from parity.ir.stablehlo.dtypes import TypedOp
from parity.verdicts import ChannelResult, Finding, Verdict

__all__ = ["compare_dots"]


def _direction(one: TypedOp) -> str:
    return "backward" if one.provenance.backward else "forward"


def _full(one: TypedOp) -> Hashable:
    return (one.kind, one.operands, one.result, one.precision, one.sizes, _direction(one))


def _alike(one: TypedOp) -> Hashable:
    return (one.kind, len(one.operands), one.sizes, _direction(one))


def compare_dots(reference: Sequence[TypedOp], candidate: Sequence[TypedOp]) -> ChannelResult:
    """Compares the types in which two programs multiply, exponentiate and sum.

    An operation of one side is paired with one of equal kind, result dimensions and direction; only then do types
    differ. A side does an unpaired operation more often or in another shape, which is not a matter of types. It is
    reported only if the other side has no operation of its kind in these types.

    Args:
        reference: operations of the reference build.
        candidate: operations of the candidate build.

    Returns:
        The ``dots`` channel: equal, failed with a finding per group of operations, skipped if neither side has any, or
        vacuous if only one side has any.
    """
    if not reference and not candidate:
        return ChannelResult(name="dots", verdict=Verdict.SKIPPED, detail="no floating-point dot or sum")
    for side, entries in (("reference", reference), ("candidate", candidate)):
        if not entries:
            text = f"the {side} has no floating-point dot, exponential or sum"
            return ChannelResult(name="dots", verdict=Verdict.VACUOUS, detail=text)
    pairs, missing, extra = pair_up(reference, candidate, (_full, _alike))
    groups: dict[Hashable, list[tuple[TypedOp, TypedOp]]] = collections.defaultdict(list)
    for left, right in pairs:
        groups[_full(left), _full(right), right.provenance.line].append((left, right))
    findings = [_differs(*group[0], len(group)) for group in groups.values()]
    findings += [_alone(one, count, "reference") for one, count in _grouped(missing, candidate)]
    findings += [_alone(one, count, "candidate") for one, count in _grouped(extra, reference)]
    verdict = Verdict.FAILED if findings else Verdict.EQUAL
    left, right = _detail(reference), _detail(candidate)
    detail = left if left == right else f"{left} -> {right}"
    return ChannelResult(name="dots", verdict=verdict, detail=detail, findings=tuple(findings))


def _grouped(entries: Sequence[TypedOp], other: Sequence[TypedOp]) -> list[tuple[TypedOp, int]]:
    """Counts the operations whose kind and types do not occur on the other side."""
    known = {(one.kind, one.types) for one in other}
    groups: dict[Hashable, list[TypedOp]] = collections.defaultdict(list)
    for one in entries:
        if (one.kind, one.types) not in known:
            groups[_full(one), one.provenance.line].append(one)
    return [(group[0], len(group)) for group in groups.values()]


def _detail(entries: Sequence[TypedOp]) -> str:
    counts = collections.Counter(one.types for one in entries if one.kind == "dot")
    others = len(entries) - counts.total()
    dots = ", ".join(f"{count} dots {types}" for types, count in sorted(counts.items()))
    return f"{dots or 'no dots'}, {others} others"


def _size(one: TypedOp) -> str:
    return f"[{','.join(map(str, one.sizes))}]"


def _differs(left: TypedOp, right: TypedOp, count: int) -> Finding:
    cause = "a cast on one side only"
    if (left.operands, left.result) == (right.operands, right.result):
        cause = "a precision or an algorithm asked for on one side only; numbers show it on a TPU or a GPU, not here"
    elif left.kind in ("exponential", "sum", "log", "logistic"):
        cause = f"a softmax, norm or loss computed in {right.result} instead of {left.result}"
    elif left.kind == "dot" and left.operands == right.operands:
        cause = "preferred_element_type (accumulation type) given on one side only"
    elif left.kind == "dot":
        cause = "weights or activations in another compute dtype"
    return Finding(
        where=f"{f'{count} x ' if count > 1 else ''}{left.kind} {_size(left)} ({right.provenance.summary})",
        reference=left.types,
        candidate=right.types,
        cause=cause,
        next_step=f"reference: {left.provenance.summary}",
    )


def _alone(one: TypedOp, count: int, side: str) -> Finding:
    texts = {
        "reference": "no such operation",
        "candidate": "no such operation",
        side: f"{count} x {one.types}",
    }
    return Finding(
        where=f"{one.kind} {_size(one)} of the {side} ({one.provenance.summary})",
        reference=texts["reference"],
        candidate=texts["candidate"],
        cause=f"the only {one.kind} in these types; the other side has its like in others or not at all",
    )
