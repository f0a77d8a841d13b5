"""Cost of a side: steps continue from the state that they return, and each phase is measured from scratch."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx

import parity
from parity.builds.build import SEED
from parity.compare.evidence import Evidence
from parity.compare.session import Session
from parity.compare.timing.rounds import Steps, first_step, initialise, source, steps


class Linen(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.BatchNorm(use_running_average=False, momentum=0.5, name="norm")(x)


class Nnx(nnx.Module):
    def __init__(self, rngs):
        self.norm = nnx.BatchNorm(4, momentum=0.5, rngs=rngs)

    def __call__(self, x):
        return self.norm(x)


def inputs(seed):
    return {name: np.random.default_rng(seed).normal(size=(6, 4)).astype("float32") for name in ("x", "y")}


PAIR = parity.twins(
    "net", linen=Linen, nnx=Nnx, inputs=inputs, loss=lambda out, batch: jnp.mean((out - batch["y"]) ** 2)
)


@pytest.fixture(scope="module")
def work():
    return {case.program: Evidence.of(case, Session()) for case in PAIR.cases({})}


def test_a_forward_pass_that_returns_some_of_the_state_is_repeated(work):
    forward = work["forward"]
    for once in steps((forward.reference, forward.candidate), (forward.state, forward.candidate_state)):
        assert once.count > 1 and once() > 0
    many = Steps(forward.reference, forward.state)
    many.count = 60
    many()
    mean = next(value for path, value in many.state.items() if path.endswith("mean"))
    np.testing.assert_allclose(
        mean, inputs(SEED)["x"].mean(axis=0), atol=1e-4
    )  # the limit, if steps continue from the returned state


@pytest.mark.long
def test_every_round_traces_and_compiles_again(work, monkeypatch):
    side = work["train_step"].reference
    traced, compiled = [], []
    replace, start = dataclasses.replace, type(side.backend).start
    monkeypatch.setattr(
        type(side.backend), "start", lambda self, lowered: compiled.append(lowered) or start(self, lowered)
    )
    monkeypatch.setattr(
        dataclasses, "replace", lambda one, **more: traced.append(one) or replace(one, **more)
    )
    for phase in (source, first_step):
        found = [phase(side, work["train_step"].state) for _ in range(2)]
        assert all(seconds > 0 for row in found for seconds in row.values())
    assert list(found[0]) == ["compile", "first step"] and found[0]["first step"] > found[0]["compile"]
    assert sum(one is side for one in traced) == 4 and len(set(map(id, compiled))) == 2
    assert initialise(side)["init"] > 0
