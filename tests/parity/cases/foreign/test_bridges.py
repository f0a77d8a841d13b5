"""Half-migrated models: modules of one flavour inside the other, in both directions."""

import jax.numpy as jnp
import pytest
from flax import linen, nnx
from flax.nnx import bridge

# D in and hidden, F out, as in conftest.py
D, F = 12, 3


class LinenBlock(linen.Module):
    @linen.compact
    def __call__(self, x):
        return jnp.tanh(linen.Dense(D, name="inner")(x))


class NnxBlock(nnx.Module):
    def __init__(self, rngs):
        self.inner = nnx.Linear(D, D, rngs=rngs)

    def __call__(self, x):
        return jnp.tanh(self.inner(x))


class LinenModel(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.Dense(F, name="out")(LinenBlock(name="block")(x))


class NnxModel(nnx.Module):
    def __init__(self, rngs):
        self.block, self.out = NnxBlock(rngs), nnx.Linear(D, F, rngs=rngs)

    def __call__(self, x):
        return self.out(self.block(x))


class LinenOfNnx(linen.Module):
    wrap: str = "to_linen"
    bug: bool = False

    @linen.compact
    def __call__(self, x):
        block = getattr(bridge, self.wrap)(NnxBlock, name="block")
        return linen.Dense(F, name="out")(-block(x) if self.bug else block(x))


class NnxOfLinen(nnx.Module):
    def __init__(self, rngs):
        self.block = bridge.ToNNX(LinenBlock(), rngs=rngs).lazy_init(jnp.ones((1, D)))
        self.out = nnx.Linear(D, F, rngs=rngs)

    def __call__(self, x):
        return self.out(self.block(x))


def whole_in_nnx(rngs):
    return bridge.ToNNX(LinenModel(), rngs=rngs).lazy_init(jnp.ones((1, D)))


PAIRS = {
    "to_linen": (LinenOfNnx, NnxModel, ""),
    "ToLinen": (lambda: LinenOfNnx(wrap="ToLinen"), NnxModel, ""),
    "ToNNX": (LinenModel, NnxOfLinen, ""),
    "both": (LinenOfNnx, NnxOfLinen, ""),
    "all of it ToLinen": (lambda: bridge.ToLinen(NnxModel), NnxModel, "not migrated yet"),
    "all of it ToNNX": (LinenModel, whole_in_nnx, "migrated from the inside"),
}


@pytest.mark.long
@pytest.mark.parametrize("name", PAIRS)
def test_a_model_half_migrated_is_proved(compare, name):
    reference, candidate, bridged = PAIRS[name]
    found = compare(reference, candidate, channels=("program", "tree", "rng", "state"), bridged=bridged)
    found.assert_passed()
    assert found.verdicts("program") == {"train_step": "proved"}


@pytest.mark.long
def test_a_bug_around_a_bridge_is_found(compare):
    found = compare(lambda: LinenOfNnx(bug=True), NnxModel, channels=("program", "state"))
    assert found.verdicts("state") == {"train_step": "failed"}


def test_a_side_that_is_bridged_whole_must_be_declared(compare):
    found = compare(LinenModel, whole_in_nnx, channels=("program",))
    assert found.verdicts("program") == {"train_step": "failed"}
