"""Pairs as people have them, right when right, and with a planted bug that is named by its line."""

import functools
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx
from flax.nnx import bridge

B, T, D, H, F = 4, 5, 12, 6, 3


# --- a convolutional network with batch statistics ---


class LinenCnn(linen.Module):
    @linen.compact
    def __call__(self, x, train):
        x = linen.Conv(H, (3,))(x)
        x = jax.nn.relu(linen.BatchNorm(use_running_average=not train, momentum=0.9)(x))
        x = jax.nn.relu(linen.BatchNorm(use_running_average=not train, momentum=0.9)(linen.Conv(H, (3,))(x)))
        return linen.Dense(F)(x)


class NnxCnn(nnx.Module):
    def __init__(self, rngs, bug=False):
        self.first, self.second = nnx.Conv(D, H, (3,), rngs=rngs), nnx.Conv(H, H, (3,), rngs=rngs)
        self.norm1, self.norm2 = (nnx.BatchNorm(H, momentum=0.9, rngs=rngs) for _ in range(2))
        self.out, self.bug = nnx.Linear(H, F, rngs=rngs), bug

    def __call__(self, x, deterministic):
        x = jnp.abs(x) if self.bug else x
        x = jax.nn.relu(self.norm1(self.first(x), use_running_average=deterministic))
        x = jax.nn.relu(self.norm2(self.second(x), use_running_average=deterministic))
        return self.out(x)


TRAINING = {"linen_options": {"train": True}, "nnx_options": {"deterministic": False}}


# --- a recurrent network ---


class LinenRnn(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.Dense(F)(linen.RNN(linen.LSTMCell(H))(x))


class NnxRnn(nnx.Module):
    def __init__(self, rngs, bug=False):
        self.rnn = nnx.RNN(nnx.LSTMCell(D, H, rngs=rngs), rngs=rngs)
        self.out, self.bug = nnx.Linear(H, F, rngs=rngs), bug

    def __call__(self, x):
        if self.bug:
            x = jnp.flip(x, 1)
        return self.out(self.rnn(x))


# --- an encoder with attention ---


class LinenEncoder(linen.Module):
    @linen.compact
    def __call__(self, x, mask):
        y = linen.MultiHeadDotProductAttention(num_heads=2, name="attention")(x, mask=mask)
        return linen.Dense(F, name="out")(linen.LayerNorm(name="norm")(x + y))


class NnxEncoder(nnx.Module):
    def __init__(self, rngs, bug=False):
        self.attention = nnx.MultiHeadAttention(num_heads=2, in_features=D, decode=False, rngs=rngs)
        self.norm, self.out = nnx.LayerNorm(D, rngs=rngs), nnx.Linear(D, F, rngs=rngs)
        self.bug = bug

    def __call__(self, x, mask):
        x = jnp.flip(x, 1) if self.bug else x
        y = self.attention(x, mask=mask)
        return self.out(self.norm(x + y))


def masked(seed):
    rng = np.random.default_rng(seed)
    batch = {name: rng.normal(size=(B, T, size)).astype("float32") for name, size in (("x", D), ("y", F))}
    mask = np.tril(np.ones((B, 1, T, T), bool)) & (rng.random((B, 1, 1, T)) > 0.3)
    return {**batch, "mask": mask | np.eye(T, dtype=bool)}


# --- low-rank adapters on frozen weights ---


class LinenLora(linen.Module):
    @linen.compact
    def __call__(self, x):
        frozen = self.variable("frozen", "kernel", lambda: jnp.zeros((D, F)))
        down = self.param("down", linen.initializers.lecun_normal(), (D, 2))
        up = self.param("up", linen.initializers.lecun_normal(), (2, F))
        return x @ frozen.value + 0.5 * (x @ down @ up)


class Frozen(nnx.Variable):
    """A weight that is not trained."""


class NnxLora(nnx.Module):
    def __init__(self, rngs, bug=False):
        init = nnx.initializers.lecun_normal()
        self.kernel = Frozen(jnp.zeros((D, F)))
        self.down, self.up = nnx.Param(init(rngs(), (D, 2))), nnx.Param(init(rngs(), (2, F)))
        self.scale = 1.0 if bug else 0.5

    def __call__(self, x):
        y = x @ self.kernel[...]
        return y + self.scale * (x @ self.down[...] @ self.up[...])


# --- bridged ---


class LinenMlp(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.Dense(F)(jnp.tanh(linen.Dense(H)(x)))


class NnxMlp(nnx.Module):
    def __init__(self, rngs, bug=False):
        self.up, self.out, self.bug = nnx.Linear(D, H, rngs=rngs), nnx.Linear(H, F, rngs=rngs), bug

    def __call__(self, x):
        x = self.up(x)
        return self.out(jnp.sin(x) if self.bug else jnp.tanh(x))


class Bridged(nnx.Module):
    """A Linen module in an NNX one."""

    def __init__(self, rngs, bug=False):
        self.mlp, self.bug = bridge.ToNNX(LinenMlp(), rngs=rngs).lazy_init(jnp.zeros((B, T, D))), bug

    def __call__(self, x):
        x = 2 * x if self.bug else x
        return self.mlp(x)


PAIRS = {
    "cnn": (LinenCnn, NnxCnn, "jnp.abs(x)", {**TRAINING, "programs": ("grad",)}),
    "rnn": (LinenRnn, NnxRnn, "jnp.flip(x, 1)", {}),
    "encoder": (
        LinenEncoder,
        NnxEncoder,
        "jnp.flip(x, 1)",
        {"inputs": masked, "keywords": ("mask",), "programs": ("forward",)},
    ),
    "lora": (LinenLora, NnxLora, "self.scale * (x", {}),
    "to_nnx": (LinenMlp, Bridged, "2 * x if self.bug", {}),
    "to_linen": (lambda: bridge.to_linen(NnxMlp), NnxMlp, "jnp.sin(x)", {"bridged": "on its way back"}),
}


@pytest.mark.parametrize("name", PAIRS)
def test_a_right_pair_passes(compare, name):
    reference, candidate, _, options = PAIRS[name]
    compare(reference, candidate, **options).assert_passed()


@pytest.mark.parametrize("name", PAIRS)
def test_a_planted_bug_is_named_by_its_line(compare, name):
    reference, candidate, text, options = PAIRS[name]
    planted = functools.partial(candidate, bug=True)
    found = compare(reference, planted, channels=("program",), **{**options, "programs": ("forward",)})
    source, start = inspect.getsourcelines(candidate)
    line = next(start + at for at, code in enumerate(source) if text in code)
    assert found.verdicts("program") == {"forward": "unproved"}
    sentences = [finding.sentence() for finding in found["forward"].channels["program"].findings]
    assert any(f"test_pairs.py:{line}" in sentence for sentence in sentences), (line, sentences)
