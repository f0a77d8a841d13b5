"""Steps about comparisons, negations, selections, masks, conversions, whole numbers, indices."""

# B batch, T positions, D features

import jax
import jax.numpy as jnp
from jax import lax
from steps import B, D, Step, T  # pyright: ignore[reportMissingImports]

LOW = jnp.bfloat16


def _not(p):
    return jnp.logical_not(p)


def _mask(m, x, y):
    return jnp.where(m, x, y * jnp.float32(0.5))


ROWS = lambda: lax.broadcasted_iota(jnp.int32, (T, D), 0)  # noqa: E731
COLUMNS = lambda: lax.broadcasted_iota(jnp.int32, (T, D), 1)  # noqa: E731

LOGIC = (
    Step(
        name="greater or less",
        one=lambda x, y, v, t, k: jnp.where(x > y, x, y * v),
        other=lambda x, y, v, t, k: jnp.where(y < x, x, y * v),
        miss=lambda x, y, v, t, k: jnp.where(y <= x, x, y * v),
    ),
    Step(
        name="greater or equal",
        one=lambda x, y, v, t, k: jnp.where(x >= y, x, y * v),
        other=lambda x, y, v, t, k: jnp.where(y <= x, x, y * v),
        miss=lambda x, y, v, t, k: jnp.where(x <= y, x, y * v),
    ),
    Step(
        name="equal in either order",
        one=lambda x, y, v, t, k: jnp.where(x == y * v, x, y),
        other=lambda x, y, v, t, k: jnp.where(y * v == x, x, y),
        miss=lambda x, y, v, t, k: jnp.where(y * v != x, x, y),
    ),
    Step(
        name="not equal as unequal",
        one=lambda x, y, v, t, k: jnp.where(_not(x == y), x * v, y),
        other=lambda x, y, v, t, k: jnp.where(x != y, x * v, y),
        miss=lambda x, y, v, t, k: jnp.where(_not(x < y), x * v, y),
    ),
    Step(
        name="selection by the opposite",
        one=lambda x, y, v, t, k: jnp.where(_not(x < y), x * v, y),
        other=lambda x, y, v, t, k: jnp.where(x < y, y, x * v),
        miss=lambda x, y, v, t, k: jnp.where(x >= y, x * v, y),
    ),
    Step(
        name="not less is greater or equal, of whole numbers",
        one=lambda x, y, v, t, k: jnp.where(_not(k < 3)[..., None], x, y * v),
        other=lambda x, y, v, t, k: jnp.where((k >= 3)[..., None], x, y * v),
        miss=lambda x, y, v, t, k: jnp.where((k > 3)[..., None], x, y * v),
    ),
    Step(
        name="not not",
        one=lambda x, y, v, t, k: jnp.where(_not(_not(x < y)), x, y * v),
        other=lambda x, y, v, t, k: jnp.where(x < y, x, y * v),
        miss=lambda x, y, v, t, k: jnp.where(_not(x < y), x, y * v),
    ),
    Step(
        name="minus minus",
        one=lambda x, y, v, t, k: jnp.negative(-x) * y + x,
        other=lambda x, y, v, t, k: x * y + x,
        miss=lambda x, y, v, t, k: jnp.negative(-x) * -y + x,
    ),
    Step(
        name="minus on the flattened, minus again",
        one=lambda x, y, v, t, k: -((-x.reshape(B * T, D)).reshape(B, T, D)) * y,
        other=lambda x, y, v, t, k: x * y,
        miss=lambda x, y, v, t, k: (0.0 - (-x)) * y,
    ),
    Step(
        name="selection by a constant",
        one=lambda x, y, v, t, k: jnp.where(jnp.ones((B, T, D), bool), x, y) * v,
        other=lambda x, y, v, t, k: x * v,
        miss=lambda x, y, v, t, k: jnp.where(jnp.ones((B, T, D), bool).at[0, 0, 0].set(False), x, y) * v,
    ),
    Step(
        name="selection between equals",
        one=lambda x, y, v, t, k: lax.select(x < y, x * v, x * v) + y,
        other=lambda x, y, v, t, k: x * v + y,
        miss=lambda x, y, v, t, k: lax.select(x < y, x * v, -x * v) + y,
    ),
    Step(
        name="and with true, or with false",
        one=lambda x, y, v, t, k: jnp.where(
            ((x < y) & jnp.full(x.shape, True)) | jnp.full(x.shape, False), x, y * v
        ),
        other=lambda x, y, v, t, k: jnp.where(x < y, x, y * v),
        miss=lambda x, y, v, t, k: jnp.where((x < y) | jnp.full(x.shape, True), x, y * v),
    ),
    Step(
        name="triangle by tril or by comparison",
        one=lambda x, y, v, t, k: _mask(jnp.tril(jnp.ones((T, D), bool)), x, y),
        other=lambda x, y, v, t, k: _mask(ROWS() >= COLUMNS(), x, y),
        miss=lambda x, y, v, t, k: _mask(ROWS() > COLUMNS(), x, y),
    ),
    Step(
        name="triangle by subtraction",
        one=lambda x, y, v, t, k: _mask(jnp.arange(T)[:, None] - jnp.arange(D)[None] >= 0, x, y),
        other=lambda x, y, v, t, k: _mask(jnp.arange(D)[None] <= jnp.arange(T)[:, None], x, y),
        miss=lambda x, y, v, t, k: _mask(jnp.arange(D)[None] <= jnp.arange(T)[:, None] + 1, x, y),
    ),
    Step(
        name="window by two comparisons",
        one=lambda x, y, v, t, k: _mask((ROWS() >= COLUMNS()) & (ROWS() - COLUMNS() < 2), x, y),
        other=lambda x, y, v, t, k: _mask(_not((COLUMNS() > ROWS()) | (ROWS() - 2 >= COLUMNS())), x, y),
        miss=lambda x, y, v, t, k: _mask(_not((COLUMNS() > ROWS()) | (ROWS() - 3 >= COLUMNS())), x, y),
    ),
    Step(
        name="mask with unit axes or without",
        one=lambda x, y, v, t, k: _mask(jnp.tril(jnp.ones((1, T, D), bool)), x, y),
        other=lambda x, y, v, t, k: _mask(
            jnp.broadcast_to(jnp.tril(jnp.ones((T, D), bool))[None], x.shape), x, y
        ),
        miss=lambda x, y, v, t, k: _mask(jnp.tril(jnp.ones((1, T, D), bool), -1), x, y),
    ),
    Step(
        name="lengths as a mask",
        one=lambda x, y, v, t, k: _mask((jnp.arange(T)[None] < k)[..., None], x, y),
        other=lambda x, y, v, t, k: _mask((k[..., None] > jnp.arange(T)[None, :, None]), x, y),
        miss=lambda x, y, v, t, k: _mask((k[..., None] >= jnp.arange(T)[None, :, None]), x, y),
    ),
    Step(
        name="whole numbers: plus zero, times one, folded",
        one=lambda x, y, v, t, k: x * ((k + 0) * 1 + (3 - 1)).astype(jnp.float32)[..., None],
        other=lambda x, y, v, t, k: x * (k + 2).astype(jnp.float32)[..., None],
        miss=lambda x, y, v, t, k: x * (k + 3).astype(jnp.float32)[..., None],
    ),
    Step(
        name="folded arithmetic that wraps",
        one=lambda x, y, v, t, k: (
            x + (k + (jnp.full((B, T), 2**31 - 1, jnp.int32) + jnp.full((B, T), 3, jnp.int32)))[..., None]
        ),
        other=lambda x, y, v, t, k: x + (k + jnp.int32(-(2**31) + 2))[..., None],
        miss=lambda x, y, v, t, k: x + (k + jnp.int32(-(2**31) + 3))[..., None],
    ),
    Step(
        name="positions counted or added up",
        one=lambda x, y, v, t, k: (
            x * (jnp.arange(T) + jnp.zeros((B, T), jnp.int32))[..., None].astype(jnp.float32)
        ),
        other=lambda x, y, v, t, k: (
            x * lax.broadcasted_iota(jnp.int32, (B, T), 1).astype(jnp.float32)[..., None]
        ),
        miss=lambda x, y, v, t, k: (
            x * (jnp.arange(T) + jnp.ones((B, T), jnp.int32))[..., None].astype(jnp.float32)
        ),
    ),
)

CASTS = (
    Step(
        name="there and back through a wider type",
        one=lambda x, y, v, t, k: (x.astype(LOW).astype(jnp.float32).astype(LOW) * y.astype(LOW)).astype(
            jnp.float32
        ),
        other=lambda x, y, v, t, k: (x.astype(LOW) * y.astype(LOW)).astype(jnp.float32),
        miss=lambda x, y, v, t, k: (x.astype(jnp.float16).astype(LOW) * y.astype(LOW)).astype(jnp.float32),
    ),
    Step(
        name="half there and back",
        one=lambda x, y, v, t, k: (
            x.astype(jnp.float16).astype(jnp.float32).astype(jnp.float16).astype(jnp.float32) + y
        ),
        other=lambda x, y, v, t, k: x.astype(jnp.float16).astype(jnp.float32) + y,
        miss=lambda x, y, v, t, k: x.astype(LOW).astype(jnp.float32) + y,
    ),
    Step(
        name="to its own type",
        one=lambda x, y, v, t, k: (
            lax.convert_element_type_p.bind(x, new_dtype=jnp.dtype("float32"), weak_type=True, sharding=None)
            * y
        ),
        other=lambda x, y, v, t, k: x * y,
        miss=lambda x, y, v, t, k: x.astype(LOW).astype(jnp.float32) * y,
    ),
    Step(
        name="bytes widened twice",
        one=lambda x, y, v, t, k: x + k.astype(jnp.int8).astype(jnp.int16).astype(jnp.int32)[..., None],
        other=lambda x, y, v, t, k: x + k.astype(jnp.int8).astype(jnp.int32)[..., None],
        miss=lambda x, y, v, t, k: x + k.astype(jnp.int8).astype(jnp.uint8).astype(jnp.int32)[..., None],
    ),
    Step(
        name="boolean to number at once",
        one=lambda x, y, v, t, k: (x < y).astype(jnp.int32).astype(jnp.float32) * x,
        other=lambda x, y, v, t, k: (x < y).astype(jnp.float32) * x,
        miss=lambda x, y, v, t, k: (x <= y).astype(jnp.float32) * x,
    ),
    Step(
        name="cast before or after reshape",
        one=lambda x, y, v, t, k: (
            (x.astype(LOW).reshape(B * T, D) * y.reshape(B * T, D).astype(LOW))
            .astype(jnp.float32)
            .reshape(B, T, D)
        ),
        other=lambda x, y, v, t, k: (
            (x.reshape(B * T, D).astype(LOW) * y.astype(LOW).reshape(B * T, D))
            .reshape(B, T, D)
            .astype(jnp.float32)
        ),
        miss=lambda x, y, v, t, k: (
            (x.reshape(B * T, D) * y.reshape(B * T, D)).astype(LOW).reshape(B, T, D).astype(jnp.float32)
        ),
    ),
    Step(
        name="cast before or after transposition",
        one=lambda x, y, v, t, k: x.transpose(0, 2, 1).astype(LOW).transpose(0, 2, 1).astype(jnp.float32) * y,
        other=lambda x, y, v, t, k: x.astype(LOW).astype(jnp.float32) * y,
        miss=lambda x, y, v, t, k: (
            x.transpose(0, 2, 1).astype(jnp.float16).transpose(0, 2, 1).astype(jnp.float32) * y
        ),
    ),
)

INDICES = (
    Step(
        name="static index or slice and reshape",
        one=lambda x, y, v, t, k: x[:, 2][:, None] * y,
        other=lambda x, y, v, t, k: lax.slice(x, (0, 2, 0), (B, 3, D)).reshape(B, 1, D) * y,
        miss=lambda x, y, v, t, k: lax.slice(x, (0, 3, 0), (B, 4, D)).reshape(B, 1, D) * y,
    ),
    Step(
        name="negative index",
        one=lambda x, y, v, t, k: x[:, -1][:, None] * y,
        other=lambda x, y, v, t, k: x[:, T - 1][:, None] * y,
        miss=lambda x, y, v, t, k: x[:, -2][:, None] * y,
    ),
    Step(
        name="index_in_dim",
        one=lambda x, y, v, t, k: lax.index_in_dim(x, 1, 1) * y,
        other=lambda x, y, v, t, k: x[:, 1:2] * y,
        miss=lambda x, y, v, t, k: lax.index_in_dim(x, 2, 1) * y,
    ),
    Step(
        name="dynamic index of a constant",
        one=lambda x, y, v, t, k: lax.dynamic_index_in_dim(x, jnp.int32(1), 1) * y,
        other=lambda x, y, v, t, k: x[:, 1:2] * y,
        miss=lambda x, y, v, t, k: lax.dynamic_index_in_dim(x, jnp.int32(0), 1) * y,
    ),
    Step(
        name="table looked up by rows, clipped, or one row at a time",
        one=lambda x, y, v, t, k: x.reshape(B * T, D).at[k].get(mode="clip") * y,
        other=lambda x, y, v, t, k: jnp.take(x.reshape(B * T, D), k, axis=0, mode="clip") * y,
        miss=lambda x, y, v, t, k: jnp.take(x.reshape(B * T, D), k, axis=0, mode="wrap") * y,
    ),
    Step(
        name="index in brackets or at.get",
        one=lambda x, y, v, t, k: x.reshape(B * T, D)[k % 4] * y,
        other=lambda x, y, v, t, k: x.reshape(B * T, D).at[k % 4].get() * y,
        miss=lambda x, y, v, t, k: x.reshape(B * T, D).at[k % 5].get(mode="fill") * y,
    ),
    Step(
        name="lookup with a table of unit axes",
        one=lambda x, y, v, t, k: jnp.take(x.reshape(1, B * T, D)[0], k, axis=0, mode="clip") * y,
        other=lambda x, y, v, t, k: jnp.take(x.reshape(B * T, D), k, axis=0, mode="clip") * y,
        miss=lambda x, y, v, t, k: jnp.take(x.reshape(B * T, D)[::-1], k, axis=0, mode="clip") * y,
    ),
    Step(
        name="one hot by comparison",
        one=lambda x, y, v, t, k: jax.nn.one_hot(k, D) * x + y,
        other=lambda x, y, v, t, k: (jnp.arange(D) == k[..., None]).astype(jnp.float32) * x + y,
        miss=lambda x, y, v, t, k: (jnp.arange(D) == (k + 1)[..., None]).astype(jnp.float32) * x + y,
    ),
    Step(
        name="rows at a remainder, with bounds or without",
        one=lambda x, y, v, t, k: jnp.take(x.reshape(B * T, D), k % (B * T), axis=0) * y,
        other=lambda x, y, v, t, k: x.reshape(B * T, D)[k % (B * T)] * y,
        miss=lambda x, y, v, t, k: x.reshape(B * T, D)[k % (B * T + 1)] * y,
    ),
    Step(
        name="row at a remainder, put in place",
        one=lambda x, y, v, t, k: x.at[:, k[0, 0] % T].set(y[:, 0]),
        other=lambda x, y, v, t, k: lax.dynamic_update_slice(x, y[:, :1], (0, k[0, 0] % T, 0)),
        miss=lambda x, y, v, t, k: lax.dynamic_update_slice(x, y[:, :1], (0, k[0, 0] % (T - 1), 0)),
    ),
    Step(
        name="row at a remainder, by dynamic_slice or take",
        one=lambda x, y, v, t, k: lax.dynamic_slice_in_dim(x, k[0, 0] % T, 1, 1) * y,
        other=lambda x, y, v, t, k: jnp.take(x, k[0, 0][None] % T, axis=1, mode="clip") * y,
        miss=lambda x, y, v, t, k: jnp.take(x, k[0, 0][None] % (T - 1), axis=1, mode="clip") * y,
    ),
)
