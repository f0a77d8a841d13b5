"""Weight rules between stacked and unrolled layers of the decoders."""

from collections.abc import Iterator

import numpy as np

from models_nnx.shared.config import FeedForward, LayerKind, LayerLayout, ModelConfig, PipelinedStack, Stack
from parity.builds.weights.map import Rule
from parity.builds.weights.transforms import Stack as StackLeaves
from parity.builds.weights.transforms import StackGrid, Transform, Unstack


def layer_rules(config: ModelConfig) -> tuple[Rule, ...]:
    """Returns the rules from a scanned decoder to its unrolled form.

    Names alone are ambiguous: repeat r of block i in a cycle of c is layer ``first + r * c + i``.
    """
    return tuple(
        Rule(
            reference=(rf"{where}({leaf})",),
            candidate=tuple(rf"decoder/layers/{number}/\1" for number in numbers),
            transform=Unstack(axis, len(numbers)),
        )
        for stack in config.stacks
        if stack.layout is LayerLayout.SCANNED
        for where, kind, numbers in _blocks(stack)
        for leaf, axis in _scan_axes(config, kind).items()
    )


def _blocks(stack: Stack) -> Iterator[tuple[str, LayerKind, np.ndarray]]:
    """Yields each block of a scanned stack: its path, its kind of layer, and the numbers of its layers."""
    numbers = np.arange(stack.first, stack.first + len(stack.layers)).reshape(stack.repeats, -1)
    for index, kind in enumerate(stack.cycle):
        yield f"decoder/{stack.name}/{_block(stack, index)}", kind, numbers[:, index]


def _scan_axes(config: ModelConfig, kind: LayerKind) -> dict[str, int]:
    """Returns ``{regular expression of leaves: stacking axis}`` for a kind of layer."""
    experts = config.moe if kind.feed_forward is FeedForward.MOE else None
    biased = experts is not None and experts.bias_rate is not None
    return {**({".*/routing_bias": 0} if biased else {}), ".*": config.scan_axis}


def pipeline_rules(config: ModelConfig) -> tuple[Rule, ...]:
    """Returns the rules from an unrolled decoder to a pipeline of the same layers.

    Layer l of stage s in repeat r is number ``(r * S + s) * L + l`` of its stack.
    """
    rules = []
    for stack in config.stacks:
        if isinstance(stack, PipelinedStack) and config.pipeline:
            lengths = tuple(length for _, length in config.pipeline.axes)
            numbers = np.arange(stack.first, stack.first + len(stack.layers))
            rules += _stage_rules(config.stage.stacks[0], lengths, numbers)
        elif stack.layout is LayerLayout.SCANNED:
            rules += [
                _gathered(where, leaf, numbers, StackLeaves(axis, len(numbers)))
                for where, kind, numbers in _blocks(stack)
                for leaf, axis in _scan_axes(config, kind).items()
            ]
    return tuple(rules)


def _stage_rules(stage: Stack, lengths: tuple[int, ...], numbers: np.ndarray) -> list[Rule]:
    period, where = len(stage.cycle), "decoder/pipeline/stages"
    if stage.layout is LayerLayout.UNROLLED:
        held = {f"{where}/layers/{index}/": index for index in range(len(stage.layers))}
        grid = numbers.reshape(*lengths, len(held))
    else:
        held = {f"{where}/{stage.name}/{_block(stage, index)}": index for index in range(period)}
        grid = numbers.reshape(*lengths, stage.repeats, period)
    return [
        _gathered(path, ".*", grid[..., index].ravel(), StackGrid(grid.shape[:-1]))
        for path, index in held.items()
    ]


def _block(stack: Stack, index: int) -> str:
    return "" if len(stack.cycle) == 1 else f"block/{index}/"


def _gathered(where: str, leaf: str, numbers: np.ndarray, transform: Transform) -> Rule:
    first, *others = (f"decoder/layers/{number}/" for number in numbers)
    return Rule(
        reference=(rf"{first}({leaf})", *(rf"{other}\1" for other in others)),
        candidate=(rf"{where}\1",),
        transform=transform,
    )
