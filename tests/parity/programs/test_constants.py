"""Which plain arrays of an NNX module are constants."""

import jax
import jax.numpy as jnp
from flax import nnx

from parity.programs.constants import take_apart, traceable


class Drawn(nnx.Module):
    def __init__(self, rngs):
        self.table = jnp.arange(3.0)
        self.kernel = nnx.Param(jnp.ones(2))
        for number in range(8):
            setattr(self, f"sign_{number}", jax.random.bernoulli(rngs.params()))


def test_truth_values_that_a_key_draws_are_no_constants():
    """Two keys draw half of them alike."""
    _, state, constants, _ = take_apart(traceable(lambda key: Drawn(nnx.Rngs(key))))
    held = {"/".join(map(str, path)) for path, _ in nnx.to_flat_state(state)}
    assert held == {"kernel", *(f"sign_{number}" for number in range(8))}
    assert [path for path, _ in nnx.to_flat_state(constants.states()[0])] == [("table",)]
