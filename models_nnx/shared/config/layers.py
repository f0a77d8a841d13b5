"""Kinds of the layers, and their grouping into stacks that run as one loop."""

import dataclasses
import enum

from models_nnx.shared.config.attention import Span

__all__ = [
    "FeedForward",
    "LayerKind",
    "LayerLayout",
    "Stack",
    "layer_kinds",
    "make_stacks",
]


class LayerLayout(enum.StrEnum):
    """Layout of the layers in the state: one stacked leaf per parameter, or one leaf per layer."""

    SCANNED = "scanned"
    UNROLLED = "unrolled"


class FeedForward(enum.StrEnum):
    """Part of a block after attention: one MLP for all tokens, or a mixture of experts."""

    DENSE = "dense"
    MOE = "moe"


@dataclasses.dataclass(frozen=True, kw_only=True)
class LayerKind:
    """Kind of a layer: all static settings that may differ between layers.

    Args:
        span: attention span.
        feed_forward: the part after attention.
    """

    span: Span = Span.GLOBAL
    feed_forward: FeedForward = FeedForward.DENSE


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stack:
    """Consecutive layers that repeat a cycle.

    Args:
        name: name of scanned parameters in the decoder.
        first: number of the first layer in the whole model.
        cycle: the kinds of one cycle, in order.
        repeats: number of times that the cycle runs.
        layout: scanned (one loop over the repeats) or unrolled.
        axis: logical name of the axis along which scanned parameters are stacked.
    """

    name: str
    first: int
    cycle: tuple[LayerKind, ...]
    repeats: int
    layout: LayerLayout
    axis: str = "layers"

    @property
    def layers(self) -> dict[str, LayerKind]:
        """The kind of each layer by its unrolled name, ``layers_3`` for the fourth of the model."""
        kinds = self.cycle * self.repeats
        return {f"layers_{self.first + index}": kind for index, kind in enumerate(kinds)}


def layer_kinds(spans: tuple[Span, ...], feed_forwards: tuple[FeedForward, ...]) -> tuple[LayerKind, ...]:
    """Returns the kind of each layer: the spans in a cycle, the feed-forward of each."""
    return tuple(
        LayerKind(span=spans[index % len(spans)], feed_forward=feed_forward)
        for index, feed_forward in enumerate(feed_forwards)
    )


def make_stacks(kinds: tuple[LayerKind, ...], period: int, layout: LayerLayout) -> tuple[Stack, ...]:
    """Returns the stacks that run ``kinds`` in order.

    A change of the feed-forward starts a new stack. Layers that fill no whole cycle come last and are always
    unrolled: a loop that runs once costs a stacked axis of size one and saves nothing.

    Args:
        kinds: every layer.
        period: length of the cycle of spans.
        layout: layout of the whole cycles.
    """
    dense = sum(kind.feed_forward is FeedForward.DENSE for kind in kinds)
    runs = {"layers": (0, len(kinds))}
    if 0 < dense < len(kinds):
        runs = {"dense_layers": (0, dense), "layers": (dense, len(kinds))}
    stacks = []
    for name, (first, end) in runs.items():
        repeats, rest = divmod(end - first, period)
        whole = first + repeats * period
        if repeats:
            cycle = kinds[first : first + period]
            stacks.append(Stack(name=name, first=first, cycle=cycle, repeats=repeats, layout=layout))
        if rest:
            rest_layout = LayerLayout.UNROLLED
            cycle = kinds[whole:end]
            stacks.append(Stack(name=f"{name}_rest", first=whole, cycle=cycle, repeats=1, layout=rest_layout))
    return tuple(stacks)
