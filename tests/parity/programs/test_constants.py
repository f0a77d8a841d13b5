"""Arrays that an NNX module holds without a Variable."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from parity.programs.build import nnx_build

D = 3


class Model(nnx.Module):
    def __init__(self, key):
        self.weight = nnx.Param(jax.random.normal(key, (D,)))
        self.table = jnp.arange(D, dtype="float32")
        self.drawn = jax.random.normal(key, (D,))

    def __call__(self, x):
        return x * self.weight * self.table + self.drawn


def build(step):
    made = nnx_build(
        "nnx constants",
        Model,
        {"step": (step, {})},
        inputs=lambda seed: {"x": np.ones(D, np.float32)},
        specs=lambda state, mesh: {},
        input_specs=lambda batch, mesh: {},
    )
    state = jax.jit(made.create)(jax.random.key(3))
    return made, lambda: jax.jit(made.programs["step"].function)(state, made.inputs(0))


def plain(model, batch):
    return {"values": {"out": model(batch["x"])}, "state": model}


@nnx.jit
def jitted(model, batch):
    return {"values": {"out": nnx.remat(lambda model, x: model(x))(model, batch["x"])}}


def in_jit(model, batch):
    return {**jitted(model, batch), "state": model}


def replaced(model, batch):
    model.table = model.table + 1
    return plain(model, batch)


@nnx.jit
def replaced_in_jit(model, batch):
    model.table = 2 * model.table
    return {"values": {"out": model(batch["x"])}}


@pytest.mark.parametrize("step", [plain, in_jit])
def test_what_no_key_changes_is_a_constant_and_the_rest_is_state(step):
    made, run = build(step)
    assert list(made.leaves) == list(made.abstract) == ["drawn", "weight"]
    out = run()
    assert set(out["state"]) == {"drawn", "weight"}
    key = jax.random.key(3)
    draw = jax.random.normal(key, (D,))
    np.testing.assert_allclose(out["values"]["out"], draw * np.arange(D) + draw, rtol=1e-6)


@pytest.mark.parametrize("step", [replaced, replaced_in_jit])
def test_a_program_that_changes_one_is_told_to_hold_it_in_a_variable(step):
    _, run = build(step)
    with pytest.raises(
        ValueError, match=r"nnx constants: step changes table, .* hold them in an nnx.Variable"
    ):
        run()
