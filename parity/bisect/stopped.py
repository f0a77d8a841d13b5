"""Where one side stops a gradient and the other does not."""

from collections.abc import Iterable

from parity.bisect.alignment import Alignment, Divergence

__all__ = ["stopped"]


def stopped(alignment: Alignment, leaves: Iterable[str]) -> list[Divergence]:
    """Returns where one side stops a gradient and the other does not, the likeliest first.

    Args:
        alignment: both programs.
        leaves: the reference's whose gradients differ; what is stopped is made of them, and of no others.
    """
    cuts = [
        [at for at, node in enumerate(trace.nodes) if node.name == "stop_gradient"]
        for trace in alignment.traces
    ]
    failing, found = set(leaves), []
    for side in (0, 1):
        for at in cuts[side]:
            ends = [(at, other) if side == 0 else (other, at) for other in cuts[1 - side]]
            partner = alignment.matches[side][at]
            if partner < 0 or any(alignment.same(*pair) for pair in ends):
                continue  # what is stopped may differ by value alone, as in a softmax
            left, right = (at, partner) if side == 0 else (partner, at)
            made_of = _leaves_below(alignment, left)
            alike = len(made_of & failing) / max(len(made_of | failing), 1)
            found.append((alike, left, Divergence(reference=left, candidate=right, place=left)))
    return [each for *_, each in sorted(found, key=lambda each: each[:2], reverse=True)]


def _leaves_below(alignment: Alignment, at: int) -> set[str]:
    """Returns the paths of the arguments that a value of the reference is made of."""
    nodes, waiting, seen = alignment.traces[0].nodes, [at], {at}
    while waiting:
        fresh = {*nodes[waiting.pop()].inputs} - seen
        seen |= fresh
        waiting += fresh
    return {nodes[each].label for each in seen} - {""}
