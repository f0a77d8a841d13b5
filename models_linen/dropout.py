"""Dropout with a key drawn from the stream ``dropout``."""

from flax import linen as nn

from models_nnx.shared import ops

__all__ = ["Dropout"]


class Dropout(nn.Module):
    """Zeroes entries with probability ``rate``; the identity when deterministic."""

    rate: float

    def __call__(self, x, deterministic: bool):
        if deterministic or self.rate == 0:
            return x
        return ops.dropout(x, self.make_rng("dropout"), self.rate)
