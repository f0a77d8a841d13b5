"""Dropout with a key drawn from the stream ``dropout``."""

from flax import nnx

from models_nnx.rngs import PathRngs
from models_nnx.shared import ops

__all__ = ["Dropout"]


class Dropout(nnx.Module):
    """Zeroes entries with probability ``rate``; the identity when deterministic."""

    def __init__(self, rate: float, *, rngs: PathRngs):
        self.rate, self.path = rate, rngs.path

    def __call__(self, x, deterministic: bool, rngs: PathRngs | None):
        if deterministic or self.rate == 0:
            return x
        if rngs is None:
            raise ValueError(
                f"Dropout at {'/'.join(self.path)}: got rngs=None with deterministic=False, expected "
                "PathRngs with a stream 'dropout'; pass rngs to the model's __call__"
            )
        return ops.dropout(x, rngs.draw("dropout", self.path), self.rate)
