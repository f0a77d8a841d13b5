"""Weight rules between stacked and unrolled layers of the decoders."""

import numpy as np

from models_nnx.shared.config import FeedForward, LayerKind, LayerLayout, ModelConfig, PipelinedStack, Stack
from parity.builds.weights.map import Rule
from parity.builds.weights.transforms import Stack as StackLeaves
from parity.builds.weights.transforms import StackGrid, Transform, Unstack


def layer_rules(config: ModelConfig) -> tuple[Rule, ...]:
    """Returns the rules from a scanned decoder to its unrolled form.

    Names alone are ambiguous: repeat r of block i in a cycle of c is layer ``first + r * c + i``.
    """
    scanned = [stack for stack in config.stacks if stack.layout is LayerLayout.SCANNED]
    return tuple(
        _rule(stack, index, leaf, axis)
        for stack in scanned
        for index, kind in enumerate(stack.cycle)
        for leaf, axis in _scan_axes(config, kind).items()
    )


def _scan_axes(config: ModelConfig, kind: LayerKind) -> dict[str, int]:
    """Returns ``{regular expression of leaves: stacking axis}`` for a kind of layer."""
    experts = config.moe if kind.feed_forward is FeedForward.MOE else None
    biased = experts is not None and experts.bias_rate is not None
    return {**({".*/routing_bias": 0} if biased else {}), ".*": config.scan_axis}


def _rule(stack: Stack, index: int, leaf: str, axis: int) -> Rule:
    period = len(stack.cycle)
    block = _block(stack, index)
    numbers = range(stack.first + index, stack.first + period * stack.repeats, period)
    return Rule(
        reference=(rf"decoder/{stack.name}/{block}({leaf})",),
        candidate=tuple(rf"decoder/layers/{number}/\1" for number in numbers),
        transform=Unstack(axis, stack.repeats),
    )


def pipeline_rules(config: ModelConfig) -> tuple[Rule, ...]:
    """Returns the rules from an unrolled decoder to a pipeline of the same layers.

    Layer l of stage s in repeat r is number ``(r * S + s) * L + l`` of its stack.
    """
    rules = []
    for stack in config.stacks:
        numbers = np.arange(stack.first, stack.first + len(stack.layers))
        if isinstance(stack, PipelinedStack) and config.pipeline:
            lengths = tuple(length for _, length in config.pipeline.axes)
            rules += _stage_rules(config.stage.stacks[0], lengths, numbers)
        elif stack.layout is LayerLayout.SCANNED:
            for index, of_block in enumerate(numbers.reshape(stack.repeats, -1).T):
                where = f"decoder/{stack.name}/{_block(stack, index)}"
                for leaf, axis in _scan_axes(config, stack.cycle[index]).items():
                    rules.append(_gathered(where, leaf, of_block, StackLeaves(axis, stack.repeats)))
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
