"""Detection of plain arrays of an NNX module that are constants."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from parity.builds.build import nnx_build
from parity.builds.constants import take_apart, traceable, traced_once
from parity.ir.jax_internals import equation_traceback, traceback_frames


class Drawn(nnx.Module):
    def __init__(self, rngs):
        self.table = jnp.arange(3.0)
        self.kernel = nnx.Param(jnp.ones(2))
        for number in range(8):
            setattr(self, f"sign_{number}", jax.random.bernoulli(rngs.params()))


def test_truth_values_that_a_key_draws_are_no_constants():
    """Two keys draw half of them equal."""
    _, state, constants, _ = take_apart(traceable(lambda key: Drawn(nnx.Rngs(key))))
    held = {"/".join(map(str, path)) for path, _ in nnx.to_flat_state(state)}
    assert held == {"kernel", *(f"sign_{number}" for number in range(8))}
    assert [path for path, _ in nnx.to_flat_state(constants.states()[0])] == [("table",)]


def test_one_trace_has_the_same_operations_at_the_same_lines():
    calls = []

    def create(key):
        calls.append(key)
        return {"kernel": jax.random.normal(key, (3, 2)), "scale": jnp.full(4, 0.5)}

    example, fresh = traced_once(create)
    right = jax.make_jaxpr(fresh)(jax.random.key(3))
    assert len(calls) == 1
    left = jax.make_jaxpr(create)(jax.random.key(3))
    assert str(left) == str(right)
    lines = [
        [traceback_frames(equation_traceback(equation))[0] for equation in jaxpr.eqns]
        for jaxpr in (left, right)
    ]
    assert lines[0] == lines[1] and all(file == __file__ for file, *_ in lines[0])
    made, again = create(jax.random.key(3)), fresh(jax.random.key(3))
    for path, leaf in example.items():
        assert (leaf.shape, leaf.dtype) == (again[path].shape, again[path].dtype)
        assert made[path].tobytes() == again[path].tobytes()


class Counting(nnx.Module):
    def __init__(self, key):
        self.kernel = nnx.Param(jnp.ones(2))
        self.calls = jnp.zeros(())


def counting(module, batch):
    module.calls = module.calls + 1
    return reading(module, batch)


def reading(module, batch):
    return {"values": {"y": batch["x"] * module.kernel[...] + module.calls}}


@pytest.mark.parametrize("program", ["reading", "counting"])
def test_a_program_that_changes_a_plain_array_is_refused(program):
    """The array is no result, so that no proof would cover it."""
    build = nnx_build(
        "toy",
        Counting,
        {"reading": (reading, {}), "counting": (counting, {})},
        inputs=lambda seed: {"x": np.ones(2, np.float32)},
        specs=lambda tree, mesh: {},
        input_specs=lambda leaves, mesh: {},
    )
    trace = jax.jit(build.programs[program].function).trace
    if program == "reading":
        assert set(trace(build.abstract, build.abstract_inputs).out_info) == {"values"}
        return
    with pytest.raises(ValueError, match="counting changes calls, which the module holds as plain arrays"):
        trace(build.abstract, build.abstract_inputs)
