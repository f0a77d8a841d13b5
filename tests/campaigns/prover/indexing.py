"""A program of operations whose attributes define the source of numbers: gathers, scatters, windows."""

import jax
import jax.numpy as jnp

__all__ = ["indexed"]


def indexed(x: jax.Array, rows: jax.Array, kernel: jax.Array) -> tuple[jax.Array, ...]:
    """Gathers and scatters of all modes, windows with strides and dilations, a convolution, pads, slices.

    Args:
        x: floats ``[5, 7]``.
        rows: integers ``[3]``.
        kernel: floats ``[2, 3, 1, 2]``: height, width, in, out.
    """
    modes = ("clip", "fill", "promise_in_bounds", "drop")
    gathered = [x.at[rows].get(mode=mode) for mode in modes[:3]]
    sorted_once = x.at[rows].get(indices_are_sorted=True, unique_indices=True, mode="clip")
    update = x[:3] * 0.5
    placed = [
        x.at[rows].add(update, mode="drop"),
        x.at[rows].multiply(update, mode="clip"),
        x.at[:, rows].set(1.5, mode="promise_in_bounds"),
        x.at[rows].max(update, mode="drop", unique_indices=True),
        x.at[rows, rows].min(0.25, mode="drop", indices_are_sorted=True),
    ]
    pooled = jax.lax.reduce_window(
        x, 0.0, jax.lax.add, (2, 3), (1, 2), ((0, 1), (1, 0)), base_dilation=(1, 2), window_dilation=(2, 1)
    )
    chosen = jax.grad(
        lambda x: jnp.sum(jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (2, 2), (2, 1), "VALID") ** 2)
    )(x)
    image = x[None, :, :, None]
    convolved = jax.lax.conv_general_dilated(
        image,
        kernel,
        (1, 2),
        ((1, 0), (2, 1)),
        lhs_dilation=(1, 2),
        rhs_dilation=(2, 1),
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )
    padded = jax.lax.pad(x, 0.75, ((1, 2, 0), (-1, 0, 1)))
    cut = jax.lax.slice(x, (1, 0), (5, 6), (2, 3))
    moved = jax.lax.dynamic_slice(x, (rows[0], rows[1]), (2, 3))
    put = jax.lax.dynamic_update_slice(x, update[:2, :3], (rows[2], rows[0]))
    product = jax.lax.dot_general(x, x[:, :3], (((0,), (0,)), ((), ())))
    batched = jax.lax.dot_general(x[:, :, None], x[:, None], (((2,), (1,)), ((0,), (0,))))
    turned = jnp.flip(jnp.transpose(image, (0, 3, 2, 1)), axis=2)
    running = jax.lax.cumsum(x, axis=1), jax.lax.cummax(x, axis=0, reverse=True)
    counted = jax.lax.broadcasted_iota(jnp.int32, (5, 7), 1) // 2
    joined = jax.lax.concatenate([x, x[:2]], 0)
    return (
        *gathered,
        sorted_once,
        *placed,
        pooled,
        chosen,
        convolved,
        padded,
        cut,
        moved,
        put,
        product,
        batched,
        turned,
        *running,
        counted,
        joined,
    )
