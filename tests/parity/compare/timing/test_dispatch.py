"""Every way to call a step gives the step's result, and the recommended one is the cheapest of NNX's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx

import parity
from parity.builds.tree import flatten
from parity.compare.timing.dispatch import DISPATCH, calls
from parity.compare.timing.rounds import interleave

LAYERS = 6


class Linen(linen.Module):
    @linen.compact
    def __call__(self, x):
        for layer in range(LAYERS):
            x = jnp.tanh(linen.Dense(4, name=f"layer{layer}")(x))
        return x


class Nnx(nnx.Module):
    def __init__(self, rngs):
        for layer in range(LAYERS):
            setattr(self, f"layer{layer}", nnx.Linear(4, 4, rngs=rngs))

    def __call__(self, x):
        for layer in range(LAYERS):
            x = jnp.tanh(getattr(self, f"layer{layer}")(x))
        return x


class WithTable(Nnx):
    def __init__(self, rngs):
        super().__init__(rngs)
        self.table = nnx.data(jnp.arange(4.0))  # no state: merged from constants of the build


def inputs(seed):
    return {name: np.random.default_rng(seed).normal(size=(2, 4)).astype("float32") for name in ("x", "y")}


def loss(out, batch):
    return jnp.mean((out - batch["y"]) ** 2)


@pytest.fixture(scope="module", params=[Nnx, WithTable])
def cases(request):
    pair = parity.twins("net", linen=Linen, nnx=request.param, inputs=inputs, loss=loss)
    return {case.program: (case.reference(), case.candidate()) for case in pair.cases({})}


def double(state, batch):
    return jax.tree.map(lambda leaf: leaf + leaf, state), batch["x"].sum()


def read(state, batch):
    return None, sum(leaf.sum() for leaf in jax.tree.leaves(state)) + batch["x"].sum()


@pytest.mark.slow
def test_every_way_leaves_the_state_as_the_step_does(cases):
    batch = {"x": jnp.ones(3)}
    for build in cases["train_step"]:
        flat = {
            path: np.full((), at + 1, leaf.dtype) for at, (path, leaf) in enumerate(build.abstract.items())
        }
        assert build.ways
        for name, way in build.ways.items():
            loop = way({path: jnp.array(value) for path, value in flat.items()}, batch, double)
            assert [float(loop.call()) for _ in range(3)] == [3.0] * 3, name
            after = {path: value.item() for path, value in flatten(loop.state()).items()}
            if name == "leaves":
                assert sorted(value.item() for value in loop.state()) == sorted(
                    8 * x.item() for x in flat.values()
                )
            else:
                assert after == {path: 8 * value.item() for path, value in flat.items()}, name


def test_a_step_that_only_reads_gives_nothing_away(cases):
    batch = {"x": jnp.ones(3)}
    for build in cases["forward"]:
        flat = {path: jnp.ones((), leaf.dtype) for path, leaf in build.abstract.items()}
        for name, way in build.ways.items():
            loop = way(flat, batch, read)
            assert [float(loop.call()) for _ in range(2)] == [len(flat) + 3.0] * 2, name
            assert not any(leaf.is_deleted() for leaf in flat.values()), name


@pytest.mark.slow
def test_the_recommended_way_is_no_dearer_than_linens_and_the_naive_one_is(cases):
    builds = cases["train_step"]
    found = interleave(calls(builds, builds[0].programs["train_step"]), rounds=5)
    assert list(found) == [DISPATCH, *(f"{DISPATCH}, {name}" for name in list(builds[1].ways)[1:])]
    assert found[DISPATCH].middle < 1.1
    assert found[f"{DISPATCH}, nnx.State"].middle > found[DISPATCH].middle
    assert found[f"{DISPATCH}, nnx.jit"].low > 2
