"""A recurrent network that reads both ways."""

import jax.numpy as jnp
import numpy as np
from flax import linen, nnx

import parity


class LinenRnn(linen.Module):
    @linen.compact
    def __call__(self, x, seq_lengths):
        ahead, back = linen.RNN(linen.LSTMCell(6)), linen.RNN(linen.LSTMCell(6))
        x = linen.Bidirectional(ahead, back)(x, seq_lengths=seq_lengths)
        return linen.Dense(3)(x)


class NnxRnn(nnx.Module):
    def __init__(self, rngs):
        ahead, back = (nnx.RNN(nnx.LSTMCell(12, 6, rngs=rngs), rngs=rngs) for _ in range(2))
        self.rnn = nnx.Bidirectional(ahead, back, rngs=rngs)
        self.out = nnx.Linear(12, 3, rngs=rngs)

    def __call__(self, x, seq_lengths):
        x = self.rnn(x, seq_lengths=seq_lengths)
        return self.out(x)


def inputs(seed):
    rng = np.random.default_rng(seed)
    return {"x": rng.normal(size=(4, 5, 12)).astype("float32"), "seq_lengths": rng.integers(2, 6, (4,))}


PAIR = parity.twins(
    "rnn",
    linen=LinenRnn,
    nnx=NnxRnn,
    inputs=inputs,
    loss=lambda out, batch: jnp.mean(out**2),
    keywords=("seq_lengths",),
)
