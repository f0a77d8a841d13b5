"""Products of rows with one matrix per group of rows, also under a vmap, for which libtpu compiles no batched form.

R row, E group (expert), D contracted, F resulting width.
"""

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

__all__ = ["grouped_product"]

Dims = jax.lax.RaggedDotDimensionNumbers


def _product(dims: Dims, *operands: jax.Array) -> jax.Array:
    """Returns the product by ``dims``. Under a vmap it runs once per index, of which a device of a pipeline has one."""

    # Created in each call: JAX 0.12 caches the trace, with the source lines of the first caller.
    @custom_vmap
    def product(lhs, rhs, rows_E):
        return jax.lax.ragged_dot_general(lhs, rhs, rows_E, dims)

    @product.def_vmap
    def one_by_one(size, are_batched, *operands):
        pairs = tuple(zip(operands, are_batched, strict=True))
        products = [product(*(x[index] if over else x for x, over in pairs)) for index in range(size)]
        return jnp.stack(products), True

    return product(*operands)


# [R, D] x [E, D, F] -> [R, F];  [R, F] x [E, D, F] -> [R, D];  [R, D] x [R, F] -> [E, D, F]
ROWS = Dims((((1,), (1,)), ((), ())), lhs_ragged_dimensions=(0,), rhs_group_dimensions=(0,))
ROWS_BACK = Dims((((1,), (2,)), ((), ())), lhs_ragged_dimensions=(0,), rhs_group_dimensions=(0,))
MATRICES = Dims((((0,), (0,)), ((), ())), lhs_ragged_dimensions=(0,), rhs_group_dimensions=())


@jax.custom_vjp
def grouped_product(x_RD: jax.Array, weights_EDF: jax.Array, rows_E: jax.Array) -> jax.Array:
    """Returns each row times its group's matrix, ``[R, F]`` in the operands' dtype.

    The gradient is written out because JAX has none for a function with a custom batching rule.

    Args:
        x_RD: rows, those of one group next to each other.
        weights_EDF: one matrix per group, in the rows' dtype.
        rows_E: int32, number of rows of each group. Rows past the last group have arbitrary values, forward and
            backward.
    """
    return _product(ROWS, x_RD, weights_EDF, rows_E)


def _forward(x_RD, weights_EDF, rows_E):
    return _product(ROWS, x_RD, weights_EDF, rows_E), (x_RD, weights_EDF, rows_E)


def _backward(kept, grad_RF):
    x_RD, weights_EDF, rows_E = kept
    grad_RD = _product(ROWS_BACK, grad_RF, weights_EDF, rows_E)
    return grad_RD, _product(MATRICES, x_RD, grad_RF, rows_E), None


grouped_product.defvjp(_forward, _backward)
