"""A foreign NNX module that adopts PathRngs, as the guide recommends, starts with exactly Linen's bits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx

import parity
from models_nnx.rngs import PathRngs
from parity.cases.case import Keys
from parity.compare.session import Session
from parity.run.run import run_case

FEATURES, HIDDEN = 5, 7
init = jax.nn.initializers.lecun_normal()


class LinenMlp(linen.Module):
    def setup(self):
        self.up = linen.Dense(HIDDEN, use_bias=False)
        self.down = linen.Dense(FEATURES, use_bias=False)

    def __call__(self, x):
        return self.down(jnp.tanh(self.up(x)))


class Linear(nnx.Module):
    def __init__(self, shape, *, rngs: PathRngs):
        self.kernel = nnx.Param(init(rngs.draw("params"), shape))

    def __call__(self, x):
        return x @ self.kernel[...]


class AdoptedMlp(nnx.Module):
    def __init__(self, *, rngs: PathRngs):
        self.up = Linear((FEATURES, HIDDEN), rngs=rngs.at("up"))
        self.down = Linear((HIDDEN, FEATURES), rngs=rngs.at("down"))

    def __call__(self, x):
        return self.down(jnp.tanh(self.up(x)))


class NnxMlp(nnx.Module):
    def __init__(self, *, rngs: nnx.Rngs):
        self.up = nnx.Linear(FEATURES, HIDDEN, use_bias=False, rngs=rngs)
        self.down = nnx.Linear(HIDDEN, FEATURES, use_bias=False, rngs=rngs)

    def __call__(self, x):
        return self.down(jnp.tanh(self.up(x)))


def adopted(rngs: nnx.Rngs) -> AdoptedMlp:
    return AdoptedMlp(rngs=PathRngs({"params": rngs.default.key[...]}))


def outcome(make, keys):
    pair = parity.twins(
        "mlp",
        linen=LinenMlp,
        nnx=make,
        inputs=lambda seed: {"x": np.random.default_rng(seed).standard_normal((4, FEATURES), np.float32)},
        loss=lambda outputs, batch: (outputs**2).mean(),
        keys=keys,
    )
    return run_case(pair.cases({})[0], Session(), ("program", "rng")).channels


def test_adopted_keys_start_both_sides_equally():
    channels = outcome(adopted, Keys.SHARED)
    assert channels["rng"].findings == () and channels["rng"].verdict in ("proved", "bitwise")
    assert "initial state 2 draws from 2 keys" in channels["rng"].detail
    assert channels["program"].detail.startswith("attested linen and nnx")


@pytest.mark.slow
@pytest.mark.parametrize(("keys", "verdict"), [(Keys.SHARED, "failed"), (Keys.INDEPENDENT, "equal")])
def test_keys_of_nnx_are_other_keys(keys, verdict):
    channel = outcome(NnxMlp, keys)["rng"]
    assert channel.verdict == verdict
    assert (["initial params/down/kernel", "initial params/up/kernel"] if keys is Keys.SHARED else []) == [
        finding.where for finding in channel.findings
    ]
