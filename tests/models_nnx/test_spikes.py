"""The history of losses and the counters of skipped spikes, against a list that is kept in Python."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from models_nnx.shared import ops
from models_nnx.shared.config import OptimizerConfig

pytestmark = pytest.mark.usefixtures("quick")
STEPS = 14
LOSS = st.one_of(st.integers(1, 9), st.integers(10, 1000), st.sampled_from([math.nan, math.inf]))


@pytest.fixture(scope="module")
def quick():
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@functools.cache
def run(window, most):
    """``losses -> (state after each step, parameter after each step)``, compiled; every update subtracts one."""
    config = OptimizerConfig(spike_window=window, spike_factor=2.0, max_bad_steps=most)
    optimizer = ops.skip_spikes(optax.sgd(1.0), config)

    def step(carry, loss):
        x, state = carry
        update, state = optimizer.update(jnp.float32(1.0), state, x, loss=loss)
        return (x + update, state), (state, x + update)

    start = jnp.float32(0.0), optimizer.init(jnp.float32(0.0))
    return jax.jit(lambda losses: jax.lax.scan(step, start, losses)[1])


def expected(losses, window, most):
    """``(losses kept, seen, consecutive skips, total skips, updates)`` after each step."""
    kept, skipped, total, updates, rows = [], 0, 0, 0, []
    for loss in losses:
        last = kept[-window:]
        limit = np.mean(last) + 2.0 * np.std(last) if len(last) == window else math.inf
        assume(not math.isfinite(limit) or not abs(loss - limit) < 1e-3 * limit)
        spike = loss > limit
        skipped = skipped + 1 if spike else 0
        total += spike
        if not spike or skipped > most:
            updates += 1
            kept += [loss] if math.isfinite(loss) else []
        rows.append((kept[-window:], len(kept), skipped, total, updates))
    return rows


@pytest.mark.parametrize("window", [2, 3, 5])
@pytest.mark.parametrize("most", [1, 3])
@settings(deadline=None, max_examples=60)
@given(losses=st.lists(LOSS, min_size=STEPS, max_size=STEPS))
def test_the_history_is_the_last_losses_that_led_to_an_update(window, most, losses):
    """It is checked at every step, because a wrong entry may have no visible effect for many steps."""
    states, moved = jax.device_get(run(window, most)(jnp.asarray(losses, jnp.float32)))
    for number, (kept, seen, skipped, total, updates) in enumerate(expected(losses, window, most)):
        history = sorted(states.losses_W[number].tolist())
        assert history == sorted(kept + [0.0] * (window - len(kept)))
        found = (states.seen[number], states.skipped[number], states.total_skipped[number], -moved[number])
        assert tuple(map(int, found)) == (seen, skipped, total, updates)
