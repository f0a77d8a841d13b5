"""Norms. D embed."""

from flax import nnx

from models_nnx import ops
from models_nnx.config import ModelConfig
from models_nnx.rngs import PathRngs

__all__ = ["RMSNorm"]


class RMSNorm(nnx.Module):
    """Root-mean-square norm over the last axis with a learned scale."""

    def __init__(self, config: ModelConfig, *, rngs: PathRngs):
        self.config = config
        init = nnx.initializers.ones
        self.scale = nnx.Param(
            init(rngs.draw("params"), (config.embed,), config.param_dtype),
            out_sharding=("norm",),
            eager_sharding=False,
        )

    def __call__(self, x_BTD):
        return ops.rms_norm(x_BTD, self.scale[...], self.config.norm_epsilon)
