"""Values that the NNX twin keeps for its backward pass."""

import jax
import jax.numpy as jnp
from suite_remat import RematSuite, residuals
from twin_nnx import TWIN

from models_nnx.shared import ops
from models_nnx.shared.config import RematConfig, RematPolicy


class TestNnxRemat(RematSuite):
    twin = TWIN


def test_policies_of_a_lone_function():
    """The policy alone, without a model around it: two tagged products, the second with a batch dimension."""

    def kept(policy, names=()):
        def apply(x_BD, kernel_DF, other_BFH):
            hidden_BF = ops.tag(jnp.einsum("BD,DF->BF", jnp.sin(x_BD), kernel_DF), "query")
            return jnp.sin(ops.tag(jnp.einsum("BF,BFH->BH", jnp.cos(hidden_BF), other_BFH), "key"))

        remat = RematConfig(policy=policy, names=names)
        function = jax.checkpoint(apply, policy=ops.remat_policy(remat))
        return sorted(
            shape for shape, _ in residuals(function, jnp.ones((5, 3)), jnp.ones((3, 7)), jnp.ones((5, 7, 2)))
        )

    assert kept(RematPolicy.FULL) == []
    assert kept(RematPolicy.MINIMAL) == [(5, 7)]
    assert kept(RematPolicy.SAVE_NAMED, ("query",)) == [(5, 7)]
    assert kept(RematPolicy.SAVE_NAMED, ("key",)) == [(5, 2)]
    assert kept(RematPolicy.SAVE_NAMED, ("key", "query")) == [(5, 2), (5, 7)]
    assert kept(RematPolicy.SAVE_NAMED, ("value",)) == []
    assert {(5, 3), (5, 7)} < set(kept(RematPolicy.NONE))
