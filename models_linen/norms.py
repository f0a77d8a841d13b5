"""Norms. D embed."""

from flax import linen as nn

from models_nnx import ops
from models_nnx.config import ModelConfig

__all__ = ["RMSNorm"]


class RMSNorm(nn.Module):
    """Root-mean-square norm over the last axis with a learned scale."""

    config: ModelConfig

    def setup(self):
        init = nn.with_logical_partitioning(nn.initializers.ones, ("norm",))
        self.scale = self.param("scale", init, (self.config.embed,), self.config.param_dtype)

    def __call__(self, x_BTD):
        return ops.rms_norm(x_BTD, self.scale, self.config.norm_epsilon)
