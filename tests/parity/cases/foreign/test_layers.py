"""Every layer that Flax has in both flavours: the same program, or the same numbers; no false alarm, no error."""

import functools

import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx

import parity
from parity.running.run import run_cases
from parity.weights.transforms import Concat

B, T, D, H = 2, 5, 12, 6
CHANNELS = ("program", "tree", "rng", "values", "gradients", "dots")


class Over(nnx.Module):
    """A layer under the name that Linen's has."""

    def __init__(self, make, rngs):
        self.layer = make(rngs=rngs)

    def __call__(self, x):
        return self.layer(x)


class LinenOver(linen.Module):
    make: object

    @linen.compact
    def __call__(self, x):
        return self.make(name="layer")(x)


def of(layer, *arguments, **keywords):
    return functools.partial(layer, *arguments, **keywords)


def normalised(norm):
    """A norm with batch statistics of the batch itself."""
    return of(norm, use_running_average=False)


LAYERS = {
    "Dense": (of(linen.Dense, H), of(nnx.Linear, D, H)),
    "DenseGeneral": (of(linen.DenseGeneral, (2, 3)), of(nnx.LinearGeneral, D, (2, 3))),
    "Einsum": (of(linen.Einsum, (D, H), "btd,dh->bth"), of(nnx.Einsum, "btd,dh->bth", (D, H), (H,))),
    "Conv": (of(linen.Conv, H, (3,)), of(nnx.Conv, D, H, (3,))),
    "Conv strided": (of(linen.Conv, H, (3,), strides=2), of(nnx.Conv, D, H, (3,), strides=2)),
    "ConvTranspose": (of(linen.ConvTranspose, H, (3,)), of(nnx.ConvTranspose, D, H, (3,))),
    "LayerNorm": (linen.LayerNorm, of(nnx.LayerNorm, D)),
    "RMSNorm": (linen.RMSNorm, of(nnx.RMSNorm, D)),
    "GroupNorm": (of(linen.GroupNorm, 3), of(nnx.GroupNorm, D, 3)),
    "InstanceNorm": (linen.InstanceNorm, of(nnx.InstanceNorm, D)),
    "BatchNorm": (normalised(linen.BatchNorm), of(nnx.BatchNorm, D, use_running_average=False)),
    "Dropout": (of(linen.Dropout, 0.5, deterministic=True), of(nnx.Dropout, 0.5, deterministic=True)),
    "Attention": (
        of(linen.MultiHeadDotProductAttention, 2),
        of(nnx.MultiHeadAttention, num_heads=2, in_features=D, decode=False),
    ),
    "PReLU": (linen.PReLU, lambda rngs: nnx.PReLU()),
}
CELLS = {
    "LSTM": (linen.LSTMCell, nnx.LSTMCell),
    "OptimizedLSTM": (linen.OptimizedLSTMCell, nnx.OptimizedLSTMCell),
    "GRU": (linen.GRUCell, nnx.GRUCell),
    "Simple": (linen.SimpleCell, nnx.SimpleCell),
}
for name, (ours, theirs) in CELLS.items():
    LAYERS[name] = (
        lambda name, cell=ours: linen.RNN(cell(H), name=name),
        lambda rngs, cell=theirs: nnx.RNN(cell(D, H, rngs=rngs), rngs=rngs),
    )


def inputs(seed):
    return {"x": np.random.default_rng(seed).normal(size=(B, T, D)).astype("float32")}


def loss(out, batch):
    return jnp.mean(out**2 * jnp.arange(1, out.size + 1).reshape(out.shape))


def gates(part, leaf, names, axis):
    """NNX keeps the gates of a cell in one array."""
    return parity.Rule(
        reference=tuple(
            (r"(.*)/" if at == 0 else r"\1/") + f"{name}/{leaf}" for at, name in enumerate(names)
        ),
        candidate=(f"layer/cell/{part}/{leaf}",),
        transform=Concat(axis=axis, sizes=(H,) * len(names)),
    )


RULES = {
    "OptimizedLSTM": [
        gates("dense_i", "kernel", ("ii", "if", "ig", "io"), 1),
        gates("dense_h", "kernel", ("hi", "hf", "hg", "ho"), 1),
        gates("dense_h", "bias", ("hi", "hf", "hg", "ho"), 0),
    ],
    "GRU": [
        gates("dense_i", "kernel", ("ir", "iz", "in"), 1),
        gates("dense_i", "bias", ("ir", "iz", "in"), 0),
        gates("dense_h", "kernel", ("hr", "hz", "hn"), 1),
    ],
}


def result(name):
    ours, theirs = LAYERS[name]
    pair = parity.twins(
        "layer",
        linen=lambda: LinenOver(ours),
        nnx=lambda rngs: Over(theirs, rngs),
        inputs=inputs,
        loss=loss,
        programs=("grad",),
        weight_rules=RULES.get(name, ()),
    )
    (found,) = run_cases(pair.cases({}), channels=CHANNELS)
    return found


@pytest.mark.parametrize("name", [name for name in LAYERS if name not in ("GRU", "OptimizedLSTM")])
def test_a_layer_of_both_flavours_is_the_same(name):
    found = result(name)
    assert str(found.verdict) == "passed", found.sentence()


def test_the_recurrent_kernels_of_the_lstm_start_otherwise_and_compute_alike():
    found = result("OptimizedLSTM")
    assert [channel.name for channel in found.blocking] == ["rng"]
    assert {finding.where.rpartition("/")[2] for finding in found.blocking[0].findings} == {"kernel"}
    assert all("/h" in finding.where for finding in found.blocking[0].findings)


def test_the_bias_that_the_gru_of_nnx_lacks_is_all_that_is_found():
    found = result("GRU")
    (finding,) = found.channels["tree"].findings
    assert finding.where == "params/GRUCell_0/hn/bias" and finding.candidate == "no such leaf"
    assert finding.cause.endswith("with its moments (2)")
