"""Recurrent cells alone and under `RNN` and `Bidirectional`."""

import jax
import jax.numpy as jnp
from flax import linen, nnx

import parity
from flax_layers.differences import GRU, LSTM
from flax_layers.rows import BFLOAT16, B, D, H, Row, T, normal, of
from parity.builds.weights.transforms import Concat

CELLS = {
    "LSTMCell": (linen.LSTMCell, nnx.LSTMCell, 2),
    "OptimizedLSTMCell": (linen.OptimizedLSTMCell, nnx.OptimizedLSTMCell, 2),
    "GRUCell": (linen.GRUCell, nnx.GRUCell, 1),
    "SimpleCell": (linen.SimpleCell, nnx.SimpleCell, 1),
}
GATES = {
    "OptimizedLSTMCell": [
        ("dense_i/kernel", ("ii", "if", "ig", "io"), 1),
        ("dense_h/kernel", ("hi", "hf", "hg", "ho"), 1),
        ("dense_h/bias", ("hi", "hf", "hg", "ho"), 0),
    ],
    "GRUCell": [
        ("dense_i/kernel", ("ir", "iz", "in"), 1),
        ("dense_i/bias", ("ir", "iz", "in"), 0),
        ("dense_h/kernel", ("hr", "hz", "hn"), 1),
    ],
}
DIFFERS = {"OptimizedLSTMCell": LSTM, "GRUCell": GRU}


def rules(cell):
    """NNX keeps the gates of a cell in one array."""
    return [
        parity.Rule(
            reference=tuple(
                (r"(.*)" if at == 0 else r"\1") + f"{name}/{leaf.rpartition('/')[2]}"
                for at, name in enumerate(names)
            ),
            candidate=(rf"cell/{leaf}",),
            transform=Concat(axis=axis, sizes=(H,) * len(names)),
        )
        for leaf, names, axis in GATES.get(cell, ())
    ]


class LinenCell(linen.Module):
    cell: linen.Module

    def __call__(self, x, *carry):
        return self.cell(carry if len(carry) > 1 else carry[0], x)


class NnxCell(nnx.Module):
    def __init__(self, cell, rngs, **options):
        self.cell = cell(D, H, rngs=rngs, **options)

    def __call__(self, x, *carry):
        return self.cell(carry if len(carry) > 1 else carry[0], x)


def by_gate(key, shape, dtype):
    """The workaround for LSTM: initialises each gate separately."""
    keys = jax.random.split(key, shape[1] // shape[0])
    return jnp.concatenate([nnx.initializers.orthogonal()(key, (shape[0],) * 2, dtype) for key in keys], 1)


def alone(name, differs=DIFFERS, nnx_options=None, **options):
    left, right, carries = CELLS[name]
    return Row(
        linen=LinenCell(left(H, **options)),
        nnx=of(NnxCell, right, **options, **(nnx_options or {})),
        inputs={"x": normal(B, D), **{f"carry{at}": normal(B, H) for at in range(carries)}},
        options={"weight_rules": rules(name)},
        differs=differs.get(name),
    )


def rolled(name, given=None, **options):
    """A cell under `RNN`."""
    left, right, _ = CELLS[name]
    return Row(
        linen=linen.RNN(left(H), **options),
        nnx=lambda rngs: nnx.RNN(right(D, H, rngs=rngs), **options, rngs=rngs),
        options={"weight_rules": rules(name), **(given or {})},
        differs=DIFFERS.get(name),
    )


def lengths(rng):
    return rng.integers(1, T + 1, (B,))


RNN = {
    "reverse": {"reverse": True},
    "reverse in order": {"reverse": True, "keep_order": True},
    "time major": {"time_major": True},
    "carry": {"return_carry": True},
    "unrolled": {"unroll": T},
}


def both_ways(**options):
    return Row(
        linen=linen.Bidirectional(linen.RNN(linen.LSTMCell(H)), linen.RNN(linen.LSTMCell(H)), **options),
        nnx=lambda rngs: nnx.Bidirectional(
            *(nnx.RNN(nnx.LSTMCell(D, H, rngs=rngs), rngs=rngs) for _ in range(2)), **options, rngs=rngs
        ),
    )


ROWS = {
    **{name: alone(name) for name in CELLS},
    **{f"{name}: bfloat16": alone(name, **BFLOAT16["bfloat16"]) for name in CELLS},
    "OptimizedLSTMCell: orthogonal by gate": alone(
        "OptimizedLSTMCell", {}, {"recurrent_kernel_init": by_gate}
    ),
    "SimpleCell: residual": Row(
        linen=LinenCell(linen.SimpleCell(H, residual=True)),
        nnx=of(NnxCell, nnx.SimpleCell, residual=True),
        inputs={"x": normal(B, D), "carry": normal(B, H)},
    ),
    "SimpleCell: relu": alone("SimpleCell", activation_fn=jnp.abs),
    "RNN": rolled("LSTMCell"),
    **{f"RNN: {name}": rolled(name) for name in CELLS},
    **{f"RNN: {name}": rolled("LSTMCell", **options) for name, options in RNN.items()},
    "RNN: lengths": Row(
        linen=linen.RNN(linen.SimpleCell(H)),
        nnx=lambda rngs: nnx.RNN(nnx.SimpleCell(D, H, rngs=rngs), rngs=rngs),
        inputs={"x": normal(B, T, D), "seq_lengths": lengths},
        options={"arguments": ("x",), "keywords": ("seq_lengths",)},
    ),
    "RNN: initial carry": Row(
        linen=linen.RNN(linen.SimpleCell(H)),
        nnx=lambda rngs: nnx.RNN(nnx.SimpleCell(D, H, rngs=rngs), rngs=rngs),
        inputs={"x": normal(B, T, D), "initial_carry": normal(B, H)},
        options={"arguments": ("x",), "keywords": ("initial_carry",)},
    ),
    "Bidirectional": both_ways(),
    "Bidirectional: sum": both_ways(merge_fn=lambda a, b: a + b),
}
