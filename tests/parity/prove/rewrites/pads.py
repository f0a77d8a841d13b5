"""Steps about pads, and updates of a constant."""

# B batch, T positions, D features

import jax.numpy as jnp
from jax import lax
from steps import B, D, Step, T  # pyright: ignore[reportMissingImports]

ZERO = jnp.float32(0)


def _rows(x, low, high, gap=0, value=ZERO):
    """Pads positions."""
    return lax.pad(x, value, ((0, 0, 0), (low, high, gap), (0, 0, 0)))


def _into(value, x, start):
    """Puts x into an array of one value everywhere."""
    return lax.dynamic_update_slice(jnp.full((B, T, D), value, jnp.float32), x, (0, start, 0))


PADS = (
    Step(
        name="pad of a pad",
        one=lambda x, y, v, t, k: _rows(_rows(x[:, :1], 1, 0), 0, 2) * y + x,
        other=lambda x, y, v, t, k: _rows(x[:, :1], 1, 2) * y + x,
        miss=lambda x, y, v, t, k: _rows(_rows(x[:, :1], 0, 1), 0, 2) * y + x,
    ),
    Step(
        name="pad of a pad with another number",
        one=lambda x, y, v, t, k: _rows(_rows(x[:, :1], 1, 0, value=jnp.float32(1)), 0, 2) * y + x,
        other=lambda x, y, v, t, k: _rows(_rows(x[:, :1], 1, 0, value=jnp.float32(1)), 0, 2) * y + x,
        miss=lambda x, y, v, t, k: _rows(x[:, :1], 1, 2) * y + x,
    ),
    Step(
        name="pad between, then around",
        one=lambda x, y, v, t, k: _rows(_rows(x[:, :2], 0, 0, 1), 1, 0) * y + x,
        other=lambda x, y, v, t, k: _rows(x[:, :2], 1, 0, 1) * y + x,
        miss=lambda x, y, v, t, k: _rows(_rows(x[:, :2], 0, 0, 1), 0, 1) * y + x,
    ),
    Step(
        name="pad around, then between",
        one=lambda x, y, v, t, k: _rows(_rows(x[:, :1], 1, 0), 1, 0, 1) * y + x,
        other=lambda x, y, v, t, k: _rows(x[:, :1], 3, 0) * y + x,
        miss=lambda x, y, v, t, k: _rows(x[:, :1], 2, 1) * y + x,
    ),
    Step(
        name="pads of two axes in either order",
        one=lambda x, y, v, t, k: (
            _rows(lax.pad(x[:, 1:, 2:], ZERO, ((0, 0, 0), (0, 0, 0), (2, 0, 0))), 1, 0) * y
        ),
        other=lambda x, y, v, t, k: (
            lax.pad(_rows(x[:, 1:, 2:], 1, 0), ZERO, ((0, 0, 0), (0, 0, 0), (2, 0, 0))) * y
        ),
        miss=lambda x, y, v, t, k: (
            lax.pad(_rows(x[:, 1:, 2:], 1, 0), ZERO, ((0, 0, 0), (0, 0, 0), (0, 2, 0))) * y
        ),
    ),
    Step(
        name="put into zeros, or padded",
        one=lambda x, y, v, t, k: _into(0.0, x[:, :2], 1) * y + x,
        other=lambda x, y, v, t, k: _rows(x[:, :2], 1, 1) * y + x,
        miss=lambda x, y, v, t, k: _rows(x[:, :2], 2, 0) * y + x,
    ),
    Step(
        name="put into minus zeros, or padded",
        one=lambda x, y, v, t, k: _into(-0.0, x[:, :2], 1) + y * 0.0,
        other=lambda x, y, v, t, k: _rows(x[:, :2], 1, 1, value=jnp.float32(-0.0)) + y * 0.0,
        miss=lambda x, y, v, t, k: _rows(x[:, :2], 1, 1) + y * 0.0,
    ),
    Step(
        name="put beyond the end of ones, or padded",
        one=lambda x, y, v, t, k: _into(1.0, x[:, :2], T) * y + x,
        other=lambda x, y, v, t, k: _rows(x[:, :2], 2, 0, value=jnp.float32(1)) * y + x,
        miss=lambda x, y, v, t, k: _rows(x[:, :2], 1, 1, value=jnp.float32(1)) * y + x,
    ),
)
