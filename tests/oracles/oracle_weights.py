"""Random parameters drawn from only their name and shape, so that no file needs to hold them.

A name is the dotted path of an unrolled decoder, such as ``decoder.layers_3.attention.query.kernel``.
"""

import hashlib
import math

import numpy as np

from models_nnx.shared.config import LayerLayout, NormScale


def draw(name, shape, config):
    """Returns float32 values: scales not only near one, no bias zero, scores of a few units."""
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
    rng = np.random.default_rng(seed)
    part, leaf = name.split(".")[-2:]
    if leaf == "scale":
        one = 0.0 if config.norm_scale is NormScale.OFFSET else 1.0
        values = one + rng.uniform(-0.6, 0.7, shape)
    elif leaf in ("embedding", "bias", "sink", "gate_bias", "up_bias", "down_bias", "routing_bias"):
        values = 0.3 * rng.normal(size=shape)
    else:
        expert = 1 if part == "experts" else 0
        fan_in = math.prod(shape[:-1]) if part == "out" else shape[expert]
        values = rng.normal(size=shape) * 1.3 / math.sqrt(fan_in)
    return values.astype(np.float32)


def names_of(path, config):
    """Returns the unrolled names that a leaf at ``path`` stacks, in order; only its own if it stacks nothing."""
    holder, _, tail = path.removeprefix("decoder.").partition(".")
    stack = next((stack for stack in config.stacks if stack.name == holder), None)
    if not path.startswith("decoder.") or stack is None or stack.layout is not LayerLayout.SCANNED:
        return [path]
    index, period = 0, len(stack.cycle)
    if period > 1:
        block, _, tail = tail.partition(".")
        index = int(block.removeprefix("block_"))
    layers = range(stack.first + index, stack.first + period * stack.repeats, period)
    return [f"decoder.layers_{layer}.{tail}" for layer in layers]


def fill(path, shape, config):
    """Returns the value of a leaf at ``path`` of a twin, scanned or not."""
    names = names_of(path, config)
    if names == [path]:
        return draw(path, shape, config)
    axis = 0 if path.endswith("routing_bias") else config.scan_axis
    single = shape[:axis] + shape[axis + 1 :]
    return np.stack([draw(name, single, config) for name in names], axis=axis)
