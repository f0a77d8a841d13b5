"""Recomputation by the checkpoints of each side in the backward pass, by the work of the products."""

import collections
import math
import re
from collections.abc import Iterator
from typing import Any

from parity.compare.evidence import Evidence
from parity.compare.side import Side
from parity.ir.functions import function_of, listing
from parity.ir.jaxprs import bodies, distinct_equations, opened
from parity.ir.location import SourceLocation, called_frames, equation_source
from parity.verdicts import SIDES, Finding, listed, one_sided

ACCEPT = 'accept it, if it is meant, by parity.Waiver(channel="loops", where=..., reason=...)'
MOST = 3
NAME = re.compile(r"'([^']+)'")
PRODUCTS = ("dot_general", "conv_general_dilated", "ragged_dot_general")


def compare_recomputed(evidence: Evidence) -> Finding | None:
    """Finds what only one side recomputes in its backward pass, in loops or outside: products, or anything at all.

    If both recompute products, these must be equal work where the other products are.
    """
    left, right = (_Recomputed(side.traced.jaxpr) for side in evidence.sides)
    for kind in ("products", "operations"):
        if (kind in left.first) != (kind in right.first):
            more = left if kind in left.first else right
            (checkpoint, equation), texts = more.first[kind], (f"recomputes {kind}", f"recomputes no {kind}")
            break
    else:
        work = _comparable(left, right)
        totals = [side.total() for side in work]
        if totals[0] == totals[1]:
            return None
        at = totals.index(max(totals))
        more = (left, right)[at]
        checkpoint, equation = more.products[next(iter(work[at] - work[1 - at]))]
        texts = tuple(f"recomputes products of {totals[side]:,} multiplications" for side in (at, 1 - at))
    source = equation_source(checkpoint[-1], checkpoint[:-1])
    return Finding(
        where=f"checkpoint at {source.own_place}{_caller(source, evidence.sides[more is left])}",
        **one_sided(SIDES[more is right], f"{texts[0]}, such as {equation.primitive.name}", texts[1]),
        cause="remat dropped, or another checkpoint policy",
        next_step="; ".join((*_saved_by_one(evidence), ACCEPT)),
    )


def _caller(source: SourceLocation, other: Side) -> str:
    """Returns the innermost function on a call stack that the other side does not run, as text, if it is a caller."""
    common = set(map(function_of, called_frames(other.traced.jaxpr)))
    unlike = next((frame for frame in source.own if function_of(frame) not in common), source.frame)
    return "" if unlike in source.own[:1] else f", called at {unlike}"


def _saved_by_one(evidence: Evidence) -> Iterator[str]:
    """Yields the names that the checkpoint policies of only one side save, with the function that lists them."""
    saved = [_saved_names(side.traced.jaxpr) for side in evidence.sides]
    for name, side, own, others in zip(SIDES, evidence.sides, saved, saved[::-1], strict=True):
        names = sorted(own - others)
        if names and others:
            place = listing(own, names[0], {frame.file for frame in called_frames(side.traced.jaxpr)})
            yield f"only the {name} saves {listed(names, MOST)}{f', as listed at {place}' if place else ''}"


def _saved_names(jaxpr: Any) -> set[str]:
    """Returns the names in the checkpoint policies of a program; a policy shows them, or its closure does."""
    policies = {one.params.get("policy") for one, _ in distinct_equations(jaxpr)}
    cells = [cell for policy in policies for cell in getattr(policy, "__closure__", None) or ()]
    return {*NAME.findall(repr([*policies, *(cell.cell_contents for cell in cells)]))}


def _comparable(left: "_Recomputed", right: "_Recomputed") -> list[collections.Counter[int]]:
    """Returns the recomputed work of both sides: all, or of the sizes whose other products are equal."""
    if left.others.total() == right.others.total():
        return [left.work, right.work]
    equal = {size for size, work in left.others.items() if right.others[size] == work}
    return [collections.Counter({size: side.work[size] for size in equal}) for side in (left, right)]


class _Recomputed:
    """Operations that the checkpoints of a program recompute, and the work of its products.

    Attributes:
        first: the first recomputed equation of each kind, ``operations`` and ``products``, after its checkpoint.
        products: the first recomputed product of each size, in multiplications, after its checkpoint.
        work: multiplications of all recomputed products, by the size of one.
        others: those of all other products.
    """

    def __init__(self, jaxpr: Any):
        self.first: dict[str, tuple[Any, Any]] = {}
        self.products: dict[int, tuple[Any, Any]] = {}
        self.work: collections.Counter[int] = collections.Counter()
        self.others: collections.Counter[int] = collections.Counter()
        for equation, times, checkpoint in _equations(jaxpr):
            if checkpoint and not bodies(equation):  # a policy that saves everything leaves empty calls
                self.first.setdefault("operations", (checkpoint, equation))
            if equation.primitive.name in PRODUCTS:
                left, right, *_ = (operand.aval.size for operand in equation.invars)
                size = math.isqrt(left * right * equation.outvars[0].aval.size)
                if checkpoint:
                    self.first.setdefault("products", (checkpoint, equation))
                    self.products.setdefault(size, (checkpoint, equation))
                    self.work[size] += size * times
                else:
                    self.others[size] += size * times


def _equations(
    jaxpr: Any,
    times: int = 1,
    calls: tuple[Any, ...] = (),
    inside: tuple[Any, ...] = (),
    *,
    recomputed: bool = False,
) -> Iterator[tuple[Any, int, tuple[Any, ...]]]:
    """Yields each equation, how often it runs, and the checkpoint that recomputes it or a call or loop around it.

    The checkpoint is the last of the equations that lead to it; they are empty if nothing is recomputed.
    """
    for equation in opened(jaxpr).eqns:
        here = (*calls, equation)
        checkpoint = here if equation.params.get("differentiated") else inside
        again = recomputed or bool(checkpoint and equation_source(equation).rematted)
        yield equation, times, checkpoint if again else ()
        length = equation.params.get("length", 1)
        for body in bodies(equation):
            yield from _equations(body, times * length, here, checkpoint, recomputed=again)
