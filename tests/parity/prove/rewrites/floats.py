"""Steps about floats that round nothing, bounds, branches, and parts that repeat."""

# B batch, T positions, D features

import jax.numpy as jnp
import numpy as np
from jax import lax
from steps import B, D, Step, T  # pyright: ignore[reportMissingImports]


def _real(value):
    return jnp.float32(value)


def _full(value):
    return jnp.full((B, T, D), value, jnp.float32)


FLOATS = (
    Step(
        name="square or product",
        one=lambda x, y, v, t, k: jnp.square(x) * y,
        other=lambda x, y, v, t, k: (x * x) * y,
        miss=lambda x, y, v, t, k: jnp.square(y) * y,
    ),
    Step(
        name="half by division or by product",
        one=lambda x, y, v, t, k: x / 4.0 + y,
        other=lambda x, y, v, t, k: x * 0.25 + y,
        miss=lambda x, y, v, t, k: x / 8.0 + y,
    ),
    Step(
        name="neutral floats",
        one=lambda x, y, v, t, k: (lax.add(lax.sub(x, _full(0.0)), _full(-0.0)) / 1.0) * y,
        other=lambda x, y, v, t, k: (1.0 * x) * y,
        miss=lambda x, y, v, t, k: lax.add(x, _full(0.0)) * y,
    ),
    Step(
        name="maximum of the lowest",
        one=lambda x, y, v, t, k: jnp.maximum(-jnp.inf, x) * y,
        other=lambda x, y, v, t, k: x * y,
        miss=lambda x, y, v, t, k: jnp.maximum(np.finfo(np.float32).min, x) * y,
    ),
    Step(
        name="constants computed or written",
        one=lambda x, y, v, t, k: x * lax.sqrt(_real(16)) + y * (_real(1) / _real(3)),
        other=lambda x, y, v, t, k: x * 4.0 + y * (np.float32(1) / np.float32(3)),
        miss=lambda x, y, v, t, k: x * 4.0 + y * np.nextafter(np.float32(1) / np.float32(3), np.float32(1)),
    ),
    Step(
        name="minus as plus the negated",
        one=lambda x, y, v, t, k: (x + -y) * 3.0,
        other=lambda x, y, v, t, k: (x + y * -1.0) * 3.0,
        miss=lambda x, y, v, t, k: (y - x) * 3.0,
    ),
    Step(
        name="clip by bounds in either order",
        one=lambda x, y, v, t, k: jnp.minimum(jnp.maximum(x, -1.0), 2.0) * y,
        other=lambda x, y, v, t, k: jnp.maximum(-1.0, jnp.minimum(x, 2.0)) * y,
        miss=lambda x, y, v, t, k: jnp.maximum(2.0, jnp.minimum(x, -1.0)) * y,
    ),
    Step(
        name="mask of numbers compared",
        one=lambda x, y, v, t, k: jnp.where(jnp.where(x > y, 1.0, 0.0) > 0, x, y * v),
        other=lambda x, y, v, t, k: jnp.where(x > y, x, y * v),
        miss=lambda x, y, v, t, k: jnp.where(jnp.where(x > y, 1.0, 0.0) >= 0, x, y * v),
    ),
    Step(
        name="whole numbers: less a constant",
        one=lambda x, y, v, t, k: x * (k + k - 3)[..., None].astype(jnp.float32),
        other=lambda x, y, v, t, k: x * (2 * k + -3)[..., None].astype(jnp.float32),
        miss=lambda x, y, v, t, k: x * (k + k - 4)[..., None].astype(jnp.float32),
    ),
    Step(
        name="row put in place or joined",
        one=lambda x, y, v, t, k: lax.dynamic_update_slice(x, y[:, :1], (0, 2, 0)) * y,
        other=lambda x, y, v, t, k: jnp.concatenate([x[:, :2], y[:, :1], x[:, 3:]], 1) * y,
        miss=lambda x, y, v, t, k: lax.dynamic_update_slice(x, y[:, :1], (0, 1, 0)) * y,
    ),
    Step(
        name="row set or joined",
        one=lambda x, y, v, t, k: x.at[:, 2].set(y[:, 0]) * y,
        other=lambda x, y, v, t, k: jnp.concatenate([x[:, :2], y[:, :1], x[:, 3:]], 1) * y,
        miss=lambda x, y, v, t, k: x.at[:, 1].set(y[:, 0]) * y,
    ),
    Step(
        name="operands in either order",
        one=lambda x, y, v, t, k: jnp.maximum(x + jnp.tanh(x * y) * v, y),
        other=lambda x, y, v, t, k: jnp.maximum(y, v * jnp.tanh(y * x) + x),
        miss=lambda x, y, v, t, k: jnp.maximum(y, v * jnp.tanh(y * y) + x),
    ),
    Step(
        name="branch by a constant",
        one=lambda x, y, v, t, k: lax.switch(7, [lambda a: a - y, lambda a: a * v], x) * y,
        other=lambda x, y, v, t, k: (x * v) * y,
        miss=lambda x, y, v, t, k: lax.switch(-1, [lambda a: a - y, lambda a: a * v], x) * y,
    ),
    Step(
        name="branches exchanged",
        one=lambda x, y, v, t, k: lax.cond(k[0, 0] > 1, lambda a: a * v, lambda a: a - y, x),
        other=lambda x, y, v, t, k: lax.cond(k[0, 0] <= 1, lambda a: a - y, lambda a: a * v, x),
        miss=lambda x, y, v, t, k: lax.cond(k[0, 0] > 2, lambda a: a * v, lambda a: a - y, x),
    ),
    Step(
        name="parts repeated",
        one=lambda x, y, v, t, k: jnp.concatenate([x[..., :4], x[..., :4]], -1) * y,
        other=lambda x, y, v, t, k: jnp.tile(x[..., :4], 2) * y,
        miss=lambda x, y, v, t, k: jnp.repeat(x[..., :4], 2, -1) * y,
    ),
)
