"""Norms. D width of the normalised axis, ``embed`` by default."""

from flax import linen as nn

from models_nnx.shared import ops
from models_nnx.shared.config import ModelConfig

__all__ = ["RMSNorm"]


class RMSNorm(nn.Module):
    """Root-mean-square norm over the last axis with a learned scale."""

    config: ModelConfig
    width: int | None = None

    def setup(self):
        init = nn.with_logical_partitioning(ops.norm_init(self.config.norm_scale), ("norm",))
        shape = (self.width or self.config.embed,)
        self.scale = self.param("scale", init, shape, self.config.param_dtype)

    def __call__(self, x):
        return ops.rms_norm(x, self.scale, self.config.norm_epsilon, self.config.norm_scale)
