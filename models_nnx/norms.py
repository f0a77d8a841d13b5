"""Norms. D width of the normalised axis, ``embed`` by default."""

from flax import nnx

from models_nnx.rngs import PathRngs
from models_nnx.shared import ops
from models_nnx.shared.config import ModelConfig
from models_nnx.state import param

__all__ = ["RMSNorm"]


class RMSNorm(nnx.Module):
    """Root-mean-square norm over the last axis with a learned scale."""

    def __init__(self, config: ModelConfig, width: int | None = None, *, rngs: PathRngs):
        self.config = config
        init, shape = ops.norm_init(config.norm_scale), (width or config.embed,)
        self.scale = param(init(rngs.draw("params"), shape, config.param_dtype), ("norm",))

    def __call__(self, x):
        return ops.rms_norm(x, self.scale[...], self.config.norm_epsilon, self.config.norm_scale)
