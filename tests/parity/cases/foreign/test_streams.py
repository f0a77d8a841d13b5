"""``rngs=``: both flavours receive the keys that the NNX model draws from, or an error is raised."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx

import parity
from parity.run.request import Request
from parity.run.run import case_runner

B, D, F, L = 4, 12, 3, 2


class Old(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.Dropout(0.5, deterministic=False)(linen.Dense(F, name="out")(x))


class New(nnx.Module):
    def __init__(self, rngs, own=()):
        streams = nnx.Rngs(**dict.fromkeys(own, 7)) if own else rngs
        self.out, self.drop = nnx.Linear(D, F, rngs=rngs), nnx.Dropout(0.5, rngs=streams)

    def __call__(self, x):
        return self.drop(self.out(x))


class Stacked(nnx.Module):
    """Layers made by a map, so that their streams are stacked."""

    def __init__(self, rngs):
        make = nnx.split_rngs(splits=L)(nnx.vmap(lambda rngs: nnx.Dropout(0.5, rngs=rngs)))
        self.out, self.drops = nnx.Linear(D, F, rngs=rngs), make(rngs)

    def __call__(self, x):
        body = nnx.scan(lambda x, drop: drop(x), in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)
        return body(self.out(x), self.drops)


class Plain(nnx.Module):
    """Draws nothing; Linen applies dropout."""

    def __init__(self, rngs):
        self.out = nnx.Linear(D, F, rngs=rngs)

    def __call__(self, x):
        return self.out(x)


class Given(New):
    """Draws from the model's default stream, but is given keys in the call."""

    def __call__(self, x, rngs=None):
        return self.drop(self.out(x), rngs=rngs)


def inputs(seed):
    return {"x": np.random.default_rng(seed).normal(size=(B, D)).astype("float32")}


def case_of(make, rngs=("dropout",), program="forward"):
    loss = lambda out, batch: jnp.mean(out**2)  # noqa: E731
    pair = parity.twins("own", linen=Old, nnx=make, inputs=inputs, loss=loss, rngs=rngs, programs=(program,))
    return pair.cases({})[0]


@pytest.mark.parametrize("make", [New, Stacked, Given], ids=["model", "stacked", "call"])
@pytest.mark.parametrize("rngs", [("dropout",), ("noise", "dropout")], ids=["one", "two"])
def test_the_key_of_the_batch_decides_the_dropped_values(make, rngs):
    build = case_of(make, rngs).candidate()
    state = jax.jit(build.create)(jax.random.key(0))
    run = jax.jit(build.programs["forward"].function)
    batch = {name: jnp.asarray(array) for name, array in build.inputs(0).items()}
    other = {**batch, "stream_key": batch["stream_key"] + 1}
    outputs = [run(dict(state), one)["values"]["outputs"] for one in (batch, batch, other)]
    assert (outputs[0] == outputs[1]).all() and (outputs[0] == 0).any()
    assert ((outputs[0] == 0) != (outputs[2] == 0)).any()


@pytest.mark.parametrize(
    ("make", "rngs", "held"),
    [
        (lambda rngs: New(rngs, ("default",)), ("dropout",), "default"),
        (lambda rngs: New(nnx.Rngs(0)), ("dropout",), "default"),
        (New(nnx.Rngs(0)), ("dropout",), "default"),
        (lambda rngs: New(rngs, ("dropout",)), ("droput",), "dropout"),
        (New(nnx.Rngs(0, dropout=1)), ("Dropout",), "dropout"),
        (lambda rngs: New(rngs, ("default",)), ("dropout", "noise"), "default"),
    ],
    ids=["own default", "own rngs", "an instance", "misspelt", "capital", "two"],
)
def test_streams_that_the_model_lacks_are_an_error(make, rngs, held):
    result = case_runner(Request())(case_of(make, rngs))
    assert result.verdict == "error"
    assert "the NNX model holds no stream" in result.sentence() and f"it holds {held}" in result.sentence()


@pytest.mark.parametrize(
    "make", [New, Plain, Given, New(nnx.Rngs(0, dropout=1))], ids=["new", "plain", "given", "made"]
)
def test_other_models_are_not_refused(make):
    case_of(make).candidate()


def test_a_model_without_named_streams_may_have_others():
    case_of(lambda rngs: New(nnx.Rngs(0)), rngs=()).candidate()


def test_the_default_stream_may_be_named():
    case_of(lambda rngs: New(nnx.Rngs(0)), rngs=("default",)).candidate()
    case_of(New, rngs=("default", "dropout")).candidate()
