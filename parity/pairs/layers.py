"""How stacked layers of the decoders map to unrolled ones."""

from models_nnx.config import LayerLayout, ModelConfig, Stack
from parity.transforms import Unstack
from parity.weights import Rule

__all__ = ["OTHER_LAYOUT", "layer_rules"]

OTHER_LAYOUT = {
    "collectives": "one side scans, the other does not",
    "loops": "one side scans, the other does not",
    "memory": "one side scans, the other does not",
    "sharding": "stacked leaves have an axis that single ones lack",
}
"""What a scanned and an unrolled decoder cannot be compared on, and why."""


def layer_rules(config: ModelConfig) -> tuple[Rule, ...]:
    """Returns the rules from a scanned decoder to its unrolled form.

    Names alone do not tell them: repeat r of block i in a cycle of c is layer ``first + r * c + i``.

    Args:
        config: the scanned decoder.
    """
    scanned = [stack for stack in config.stacks if stack.layout is LayerLayout.SCANNED]
    leaves = {".*/routing_bias": 0, ".*": config.scan_axis}
    return tuple(
        _rule(stack, index, leaf, axis)
        for stack in scanned
        for index in range(len(stack.cycle))
        for leaf, axis in leaves.items()
    )


def _rule(stack: Stack, index: int, leaf: str, axis: int) -> Rule:
    period = len(stack.cycle)
    block = "" if period == 1 else f"block/{index}/"
    numbers = range(stack.first + index, stack.first + period * stack.repeats, period)
    return Rule(
        reference=(rf"decoder/{stack.name}/{block}({leaf})",),
        candidate=tuple(rf"decoder/layers/{number}/\1" for number in numbers),
        transform=Unstack(axis, stack.repeats),
    )
