"""Every way to call a step gives the step's result, and the recommended one is the cheapest of NNX's."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from campaigns.harness.dispatch import linen_side, measure, nnx_side
from flax import linen, nnx

from parity.builds.tree import flatten

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


class Trained(nnx.Module):
    def __init__(self, model):
        self.model, self.optimizer = model, nnx.Optimizer(model, optax.adam(0.1), wrt=nnx.Param)


def create(key):
    params = Linen().init(key, jnp.ones((2, 4)))["params"]
    return {"params": params, "opt_state": optax.adam(0.1).init(params), "step": jnp.zeros((), jnp.uint32)}


@pytest.fixture(scope="module", params=[Nnx, WithTable])
def sides(request):
    return linen_side(create), nnx_side(lambda key: Trained(request.param(nnx.Rngs(key))))


def double(state, batch):
    return jax.tree.map(lambda leaf: leaf + leaf, state), batch["x"].sum()


def read(state, batch):
    return None, sum(leaf.sum() for leaf in jax.tree.leaves(state)) + batch["x"].sum()


@pytest.mark.slow
def test_every_way_leaves_the_state_as_the_step_does(sides):
    batch = {"x": jnp.ones(3)}
    for build in sides:
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


def test_a_step_that_only_reads_gives_nothing_away(sides):
    batch = {"x": jnp.ones(3)}
    for build in sides:
        flat = {path: jnp.ones((), leaf.dtype) for path, leaf in build.abstract.items()}
        for name, way in build.ways.items():
            loop = way(flat, batch, read)
            assert [float(loop.call()) for _ in range(2)] == [len(flat) + 3.0] * 2, name
            assert not any(leaf.is_deleted() for leaf in flat.values()), name


@pytest.mark.long
def test_the_recommended_way_is_no_dearer_than_linens_and_the_naive_one_is(sides):
    found = measure(*sides, rounds=5)
    assert list(found) == list(sides[1].ways)
    assert found["leaves"].middle < 1.1
    assert found["nnx.State"].middle > found["leaves"].middle
    assert found["nnx.jit"].low > 2
