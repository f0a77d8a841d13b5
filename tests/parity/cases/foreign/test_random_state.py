"""NNX keeps RNG streams in the model, Linen is given keys: what one side has alone stops and hides nothing."""

import functools

import jax
import jax.numpy as jnp
import pytest
from flax import linen, nnx

B, T, D, H, F, L = 4, 5, 12, 6, 3, 2


class LinenDrop(linen.Module):
    @linen.compact
    def __call__(self, x):
        x = jnp.tanh(linen.Dense(H, name="up")(x))
        return linen.Dense(F, name="out")(linen.Dropout(0.5, deterministic=True)(x))


class NnxDrop(nnx.Module):
    def __init__(self, rngs, noise=0.0, idle=False):
        self.up, self.out = nnx.Linear(D, H, rngs=rngs), nnx.Linear(H, F, rngs=rngs)
        self.drop = nnx.Dropout(0.5, deterministic=True, rngs=rngs)
        self.noise, self.idle = noise, idle

    def __call__(self, x):
        x = self.drop(jnp.tanh(self.up(x)))
        if self.idle:
            self.drop.rngs()
        if self.noise:
            x += self.noise * jax.random.normal(self.drop.rngs(), x.shape)
        return self.out(x)


class LinenLayer(linen.Module):
    @linen.compact
    def __call__(self, x, _):
        return x + jnp.tanh(linen.Dense(D, name="dense")(x)), None


class LinenStack(linen.Module):
    @linen.compact
    def __call__(self, x):
        split = {"params": True, "dropout": True}
        layer = linen.remat(LinenLayer, prevent_cse=False)
        scan = linen.scan(layer, variable_axes={"params": 0}, split_rngs=split, length=L)
        return linen.Dense(F, name="out")(scan(name="layers")(x, None)[0])


class NnxLayer(nnx.Module):
    def __init__(self, rngs):
        self.dense = nnx.Linear(D, D, rngs=rngs)
        self.drop = nnx.Dropout(0.3, deterministic=True, rngs=rngs)

    def __call__(self, x):
        return x + self.drop(jnp.tanh(self.dense(x)))


class NnxStack(nnx.Module):
    def __init__(self, rngs):
        create = nnx.split_rngs(splits=L)(nnx.vmap(lambda rngs: NnxLayer(rngs), in_axes=0))
        self.layers, self.out = create(rngs), nnx.Linear(D, F, rngs=rngs)

    def __call__(self, x):
        layer = nnx.remat(lambda x, layer: layer(x), prevent_cse=False)
        body = nnx.scan(layer, in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)
        return self.out(body(x, self.layers))


def test_streams_of_one_side_are_carried_and_the_rest_is_proved(compare):
    found = compare(LinenDrop, NnxDrop)
    found.assert_passed()
    assert {found.verdicts(name)["train_step"] for name in ("program", "state", "memory")} == {"proved"}
    channels = found["train_step"].channels
    assert channels["tree"].detail.endswith("2 RNG leaves on one side")
    assert "but for 0 and 2 results that one side has alone" in channels["program"].detail
    assert not found.notes("rng")


def test_scanned_streams_are_carried_through_the_loop(compare):
    found = compare(LinenStack, NnxStack)
    found.assert_passed()
    assert found.verdicts("program") == {"train_step": "proved"}
    (note,) = found.notes("loops")
    assert "float32[2, 12, 12]" in note and "needs no more memory" in note and "key<fry>" not in note


def test_a_stream_that_is_advanced_and_not_drawn_from_is_a_note(compare):
    found = compare(LinenDrop, functools.partial(NnxDrop, idle=True))
    found.assert_passed()
    (note,) = found.notes("rng")
    assert note.startswith("model/drop/rngs: ") and "nothing draws from it" in note


def test_results_that_depend_on_a_stream_of_one_side_fail(compare):
    noisy = functools.partial(NnxDrop, noise=1e-3)
    channels = ("program", "values", "rng")
    found = compare(LinenDrop, noisy, programs=("forward",), channels=channels)
    assert found.verdicts("values") == {"forward": "failed"}
    assert found.verdicts("program") == {"forward": "unproved"}
    assert not found.notes("rng")


@pytest.mark.slow
def test_a_program_that_is_not_proved_carries_them_too(compare):
    """Another order of summation: the lower rungs run both sides, and structure is compared."""

    class Reordered(NnxStack):
        def __call__(self, x):
            return super().__call__(x) * (1 + 2.0**-23)

    found = compare(LinenStack, Reordered)
    found.assert_passed()
    assert found.verdicts("loops") == {"train_step": "equal"}
    assert found.verdicts("state")["train_step"] in ("floor", "arbitrated")
