"""Differences of stock Flax between its two flavours: the rows of docs/known-differences.md that a test guards."""

import dataclasses
from collections.abc import Mapping

import flax
from packaging.version import Version

__all__ = [
    "ATTENTION",
    "ATTENTION_FUNCTION",
    "BATCH_NORM",
    "DROPOUT",
    "GRU",
    "LSTM",
    "NORM",
    "SPECTRAL",
    "STORED_ATTENTION",
    "USED_BATCH_NORM",
    "WEIGHT",
    "WRITTEN",
    "Difference",
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Difference:
    """A real difference.

    Args:
        about: the beginning of its row in the page.
        finds: channel -> glob of the paths of its findings. All of these block, and no others do.
    """

    about: str
    finds: Mapping[str, str]


NORM = Difference(about="`LayerNorm`, `RMSNorm`,", finds={"gradients": "params/*", "state": "step?/*"})
BATCH_NORM = Difference(about="`BatchNorm` in bfloat16", finds={"gradients": "params/*", "state": "*"})
USED_BATCH_NORM = Difference(
    about="`BatchNorm` in bfloat16", finds={"dots": "*", "gradients": "params/*", "state": "step?/*"}
)
ATTENTION = Difference(
    about="attention in bfloat16", finds={"dots": "*", "gradients": "params/*", "state": "step?/*"}
)
STORED_ATTENTION = Difference(about="attention in bfloat16", finds={"dots": "*"})
ATTENTION_FUNCTION = Difference(about="attention in bfloat16", finds={"dots": "*", "values": "inputs/*"})
DROPOUT = Difference(
    about="dropout masks",
    finds={"values": "*", "gradients": "params/*", "state": "step?/*", "loops": "*(forward, rng, *"},
)
GRU = Difference(about="the GRU cell", finds={"tree": "params/*/hn/bias"})
LSTM = Difference(
    about="recurrent kernels of `OptimizedLSTMCell`", finds={"rng": "initial params/*/h?/kernel"}
)
WRITES = {"values": "step?/loss", "state": "step?/*"}
WRITTEN = Difference(about="`WeightNorm` and `SpectralNorm`", finds={"rng": "initial *", **WRITES})
WEIGHT = (
    WRITTEN
    if Version(flax.__version__) >= Version("0.12.12")
    else Difference(
        about="the scale of `WeightNorm`", finds={"tree": "params/WeightNorm_0/Dense_0/kernel/scale"}
    )
)
SPECTRAL = Difference(about="`SpectralNorm` starts", finds={"rng": "initial *", **WRITES})
