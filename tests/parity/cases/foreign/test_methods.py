"""Pairs that call a method which uses a part of the model, masked optimizers, streams that one side does not read."""

import jax.numpy as jnp
import optax
import pytest
from flax import linen, nnx

# D in and hidden, F out, as in conftest.py
D, F = 12, 3


class Linen(linen.Module):
    def setup(self):
        self.encoder, self.decoder = linen.Dense(F), linen.Dense(D)

    def encode(self, x):
        return jnp.tanh(self.encoder(x))

    def __call__(self, x):
        return self.decoder(self.encode(x))


class Nnx(nnx.Module):
    def __init__(self, rngs):
        self.encoder, self.decoder = nnx.Linear(D, F, rngs=rngs), nnx.Linear(F, D, rngs=rngs)

    def encode(self, x):
        return jnp.tanh(self.encoder(x))

    def __call__(self, x):
        return self.decoder(self.encode(x))


class OtherActivation(Nnx):
    def encode(self, x):
        return jnp.sin(self.encoder(x))


class ReadsMore(Nnx):
    def encode(self, x):
        return jnp.tanh(self.encoder(x)) + self.decoder.bias[0]


@pytest.mark.parametrize("optimizer", [None, optax.adamw(1e-2, weight_decay=0.1)])
def test_parameters_that_the_method_does_not_use_are_named_and_the_rest_is_compared(compare, optimizer):
    programs = ("forward", "grad", "train_step")
    found = compare(Linen, Nnx, programs=programs, method="encode", optimizer=optimizer)
    found.assert_passed()
    detail = found["train_step"].channels["tree"].detail
    assert "leaves that only nnx own has and `encode` does not use, such as model/decoder/bias" in detail


@pytest.mark.long
def test_a_bug_in_the_method_is_found_although_the_other_side_has_more_parameters(compare):
    found = compare(Linen, OtherActivation, programs=("forward", "train_step"), method="encode")
    assert found.verdicts("tree") == {"forward": "equal", "train_step": "equal"}
    assert found["forward"].channels["values"].verdict == "failed"
    assert found["train_step"].channels["state"].verdict == "failed"


def test_a_parameter_that_the_method_does_use_is_still_missing(compare):
    found = compare(Linen, ReadsMore, programs=("forward",), method="encode")
    assert found.verdicts("tree") == {"forward": "failed"}
    assert [finding.where for finding in found["forward"].channels["tree"].findings] == ["model/decoder/bias"]


def test_an_unused_parameter_is_still_missing_if_the_whole_model_is_called(compare):
    class EncodesOnly(linen.Module):
        @linen.compact
        def __call__(self, x):
            return jnp.tanh(linen.Dense(F, name="encoder")(x))

    class Unused(Nnx):
        def __call__(self, x):
            return self.encode(x)

    found = compare(EncodesOnly, Unused, programs=("forward",))
    assert found.verdicts("tree") == {"forward": "failed"}


class Boxed(linen.Module):
    @linen.compact
    def __call__(self, x):
        init = linen.with_partitioning(linen.initializers.lecun_normal(), ("in", "out"))
        return linen.Dense(F, kernel_init=init, name="dense")(x)


class BoxedNnx(nnx.Module):
    def __init__(self, rngs):
        init = nnx.with_partitioning(nnx.initializers.lecun_normal(), ("in", "out"))
        self.dense = nnx.Linear(D, F, kernel_init=init, rngs=rngs)

    def __call__(self, x):
        return self.dense(x)


def test_an_optimizer_may_mask_parameters_in_boxes(compare):
    compare(
        Boxed, BoxedNnx, programs=("forward", "train_step"), optimizer=optax.contrib.muon(1e-2)
    ).assert_passed()


class Drops(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.Dense(F, name="dense")(linen.Dropout(0.5, deterministic=False)(x))


class DropsInEvaluation(nnx.Module):
    def __init__(self, rngs):
        self.dense, self.dropout = nnx.Linear(D, F, rngs=rngs), nnx.Dropout(0.5, rngs=rngs)
        self.eval()

    def __call__(self, x):
        return self.dense(self.dropout(x))


@pytest.mark.long
def test_a_side_that_draws_nothing_from_the_streams_is_named(compare):
    found = compare(Drops, DropsInEvaluation, programs=("forward",), rngs=("dropout",))
    (first,) = found["forward"].channels["program"].findings
    assert "no draw of one side depends on the streams of `rngs`" in first.sentence()
    assert found["forward"].channels["values"].verdict == "failed"
