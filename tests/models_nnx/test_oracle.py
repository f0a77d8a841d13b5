"""The oracles agree with each other on code that was written twice."""

import jax.numpy as jnp
import numpy as np
import oracle_decoder
import oracle_ops
import oracle_train
import pytest
from oracle_decoder import SMALL, random_batch, random_params


def test_batched_attention_is_attention_one_by_one():
    rng, segments = np.random.default_rng(0), random_batch(29)["segments"]
    query, key, value = (rng.normal(size=(8, 17, heads, 10)) for heads in (6, 3, 3))
    np.testing.assert_allclose(
        oracle_ops.attention(query, key, value, oracle_ops.visible(segments)),
        oracle_ops.attention_one_by_one(query, key, value, segments),
        rtol=1e-12,
        atol=1e-15,
    )


@pytest.mark.long
@pytest.mark.usefixtures("x64", "quick")
def test_the_gradient_is_the_finite_difference():
    """Along one random direction in each parameter."""
    params, batch = random_params(SMALL), random_batch(SMALL.vocab)
    loss, grads = oracle_train.gradients(SMALL, 0.1)(params, batch)
    assert loss == pytest.approx(oracle_decoder.mean_loss(params, batch, SMALL, 0.1), rel=1e-12)
    rng, step = np.random.default_rng(1), 1e-5
    for name, leaf in params.items():
        direction = rng.normal(size=leaf.shape)
        ends = [
            oracle_decoder.mean_loss({**params, name: leaf + sign * step * direction}, batch, SMALL, 0.1)
            for sign in (1, -1)
        ]
        slope = np.sum(grads[name] * direction)
        assert (ends[0] - ends[1]) / (2 * step) == pytest.approx(slope, rel=1e-5, abs=1e-8), name
    assert jnp.zeros(()).dtype == np.float64
