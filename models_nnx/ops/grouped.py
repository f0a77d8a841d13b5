"""Products of rows with one matrix per group of rows, also under a vmap, where libtpu compiles no batched form.

R row, E group (expert), D contracted, F resulting width.
"""

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

__all__ = ["grouped_product"]

# The rows are contracted group by group: both operands are ragged in them, and the result has a matrix per group.
PER_GROUP = jax.lax.RaggedDotDimensionNumbers(
    dot_dimension_numbers=(((0,), (0,)), ((), ())), lhs_ragged_dimensions=(0,), rhs_group_dimensions=()
)


def _one_by_one(product):
    """Under a vmap, ``product`` runs once per index. Where stages lie on a mesh, a device has one index."""
    batched = custom_vmap(product)

    @batched.def_vmap
    def unrolled(size, are_batched, *operands):
        pairs = tuple(zip(operands, are_batched, strict=True))
        products = [batched(*(x[index] if over else x for x, over in pairs)) for index in range(size)]
        return jnp.stack(products), True

    return batched


@_one_by_one
def _rows(x_RD, weights_EDF, rows_E):
    return jax.lax.ragged_dot(x_RD, weights_EDF, rows_E)


@_one_by_one
def _matrices(x_RD, grad_RF, rows_E):
    return jax.lax.ragged_dot_general(x_RD, grad_RF, rows_E, PER_GROUP)


@jax.custom_vjp
def grouped_product(x_RD: jax.Array, weights_EDF: jax.Array, rows_E: jax.Array) -> jax.Array:
    """Returns each row times its group's matrix, ``[R, F]`` in the operands' dtype.

    The gradient is written out because JAX has none for a function with a batching rule of its own.

    Args:
        x_RD: rows, those of one group next to each other.
        weights_EDF: one matrix per group, in the rows' dtype.
        rows_E: int32, how many rows each group has. Rows past the last group come out, forward and backward,
            with whatever was there.
    """
    return _rows(x_RD, weights_EDF, rows_E)


def _forward(x_RD, weights_EDF, rows_E):
    return _rows(x_RD, weights_EDF, rows_E), (x_RD, weights_EDF, rows_E)


def _backward(kept, grad_RF):
    x_RD, weights_EDF, rows_E = kept
    grad_RD = _rows(grad_RF, jnp.swapaxes(weights_EDF, 1, 2), rows_E)
    return grad_RD, _matrices(x_RD, grad_RF, rows_E), None


grouped_product.defvjp(_forward, _backward)
