"""Grouped products against a plain loop, their gradients, and that a stage of a pipeline computes only its own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params
from meshes import make_mesh

from models_nnx.shared.ops.grouped import grouped_product
from parity.ir.hlo.collectives import read_collectives

RNG = np.random.default_rng(5)
S, R, E, D, F = 2, 9, 4, 3, 5
X, WEIGHTS, GRAD = (RNG.normal(size=shape) for shape in ((S, R, D), (S, E, D, F), (S, R, F)))
ROWS = np.array([[2, 0, 3, 4], [1, 5, 1, 0]])


def expected(x_RD, weights_EDF, grad_RF, rows_E):
    """Returns the product and both gradients, row by row; nan past the last group."""
    out_RF, grad_RD, grad_EDF = np.full((R, F), np.nan), np.full((R, D), np.nan), np.zeros((E, D, F))
    for row, group in enumerate(np.repeat(np.arange(E), rows_E)):
        out_RF[row] = x_RD[row] @ weights_EDF[group]
        grad_RD[row] = weights_EDF[group] @ grad_RF[row]
        grad_EDF[group] += np.outer(x_RD[row], grad_RF[row])
    return out_RF, grad_RD, grad_EDF


def products(x_RD, weights_EDF, grad_RF, rows_E):
    out_RF, pull = jax.vjp(lambda x, weights: grouped_product(x, weights, rows_E), x_RD, weights_EDF)
    return out_RF, *pull(grad_RF)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("stages", [False, True])
def test_values_and_gradients_row_by_row(stages):
    arguments = tuple(map(jnp.asarray, (X, WEIGHTS, GRAD, ROWS)))
    got = (
        jax.vmap(products)(*arguments) if stages else [x[None] for x in products(*(a[1] for a in arguments))]
    )
    for index, stage in enumerate(range(S) if stages else [1]):
        wanted = expected(X[stage], WEIGHTS[stage], GRAD[stage], ROWS[stage])
        for here, there in zip(got, wanted, strict=True):
            known = ~np.isnan(there)
            np.testing.assert_allclose(np.asarray(here[index])[known], there[known], rtol=1e-12, atol=1e-12)
            assert known.any()


@pytest.mark.usefixtures("x64")
def test_weights_that_all_stages_share_are_no_batch():
    got = jax.vmap(grouped_product, in_axes=(0, None, 0))(
        jnp.asarray(X), jnp.asarray(WEIGHTS[0]), jnp.asarray(ROWS)
    )
    wanted = np.stack([expected(X[stage], WEIGHTS[0], GRAD[stage], ROWS[stage])[0] for stage in range(S)])
    known = ~np.isnan(wanted)
    np.testing.assert_allclose(np.asarray(got)[known], wanted[known], rtol=1e-12)


@pytest.mark.slow
def test_the_dtype_of_the_operands_stays():
    narrow = [jnp.asarray(x[0], "bfloat16") for x in (X, WEIGHTS, GRAD)]
    assert {x.dtype for x in products(*narrow, jnp.asarray(ROWS[0], "int32"))} == {jnp.dtype("bfloat16")}


def grouped_operands(jaxpr):
    """Yields the ranks of the operands of each grouped product."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "ragged_dot_general":
            yield tuple(x.aval.ndim for x in equation.invars[:2])
        for inner in jaxprs_in_params(equation.params):
            yield from grouped_operands(inner)


@pytest.mark.slow
def test_stages_on_a_mesh_compute_separate_products_and_none_is_batched():
    def stage(*operands):
        inner = jax.sharding.PartitionSpec()
        return jax.shard_map(products, in_specs=(inner,) * 4, out_specs=(inner,) * 3, check_vma=False)(
            *operands
        )

    arguments = (*(jnp.asarray(x, "float32") for x in (X, WEIGHTS, GRAD)), jnp.asarray(ROWS, "int32"))
    with jax.set_mesh(make_mesh({"stage": S, "fsdp": 4}, "auto")):
        traced = jax.jit(jax.vmap(stage, spmd_axis_name="stage")).trace(*arguments)
        moved = read_collectives(traced.lower().compile())
    assert sorted(grouped_operands(traced.jaxpr.jaxpr)) == [(2, 2), (2, 3), (2, 3)]
    assert not moved


def test_each_caller_has_separate_source_lines():
    """JAX 0.12 caches the trace of a `custom_vmap`, so the second twin was reported at the lines of the first."""
    weights, rows = jnp.asarray(WEIGHTS[0], "float32"), jnp.asarray(ROWS[0], "int32")

    def first_caller(x):
        return grouped_product(x, weights, rows).sum()

    def second_caller(x):
        return grouped_product(x, weights, rows).sum()

    x = jnp.asarray(X[0], "float32")
    callers = (first_caller, second_caller)
    texts = [jax.jit(jax.grad(caller)).lower(x).as_text(debug_info=True) for caller in callers]
    assert "second_caller" in texts[1] and "first_caller" not in texts[1]
