"""Steps of programs in two forms each, and a third, unequal one: the condition of a rule fails by one.

Each takes ``x, y`` of shape (B, T, D), ``v`` of shape (D,), ``t`` of shape (T,), whole numbers ``k`` of shape (B, T),
and returns (B, T, D).
"""

# B batch, T positions, D features

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

B, T, D = 3, 4, 8
SHAPES = ((B, T, D), (B, T, D), (D,), (T,), (B, T))

Spelling = Callable[..., jax.Array]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Step:
    """One step.

    Args:
        name: as text.
        one, other: two forms of one function.
        miss: a nearly equal function; None if ``misses`` of another step cover the rule.
    """

    name: str
    one: Spelling
    other: Spelling
    miss: Spelling | None = None


def _spread(v: Any, dims: tuple[int, ...], shape: tuple[int, ...] = (B, T, D)) -> jax.Array:
    return lax.broadcast_in_dim(v, shape, dims)


def _flat(x: jax.Array) -> jax.Array:
    return x.reshape(B * T, D)


def _back(x: jax.Array) -> jax.Array:
    return x.reshape(B, T, D)


def _bits(x: jax.Array, kind: Any) -> jax.Array:
    return x.astype(kind)


MOVES = (
    Step(
        name="unit axis by broadcast or by reshape",
        one=lambda x, y, v, t, k: x * _spread(lax.broadcast_in_dim(v, (1, 1, D), (2,)), (0, 1, 2)) + y,
        other=lambda x, y, v, t, k: x * _spread(lax.reshape(v, (1, 1, D)), (0, 1, 2)) + y,
        miss=lambda x, y, v, t, k: x * _spread(lax.reshape(v[::-1], (1, 1, D)), (0, 1, 2)) + y,
    ),
    Step(
        name="expand_dims, None, reshape",
        one=lambda x, y, v, t, k: x - jnp.expand_dims(jnp.expand_dims(t, 0), 2) * y,
        other=lambda x, y, v, t, k: x - t.reshape(1, T, 1) * y,
        miss=lambda x, y, v, t, k: x - t[::-1].reshape(1, T, 1) * y,
    ),
    Step(
        name="broadcast at once or twice",
        one=lambda x, y, v, t, k: _spread(_spread(v, (1,), (T, D)), (1, 2)) * x + y,
        other=lambda x, y, v, t, k: _spread(v, (2,)) * x + y,
    ),
    Step(
        name="two transpositions for none",
        one=lambda x, y, v, t, k: x.transpose(2, 0, 1).transpose(1, 2, 0) * y + x,
        other=lambda x, y, v, t, k: x * y + x,
        miss=lambda x, y, v, t, k: x.transpose(1, 0, 2).reshape(B, T, D) * y + x,
    ),
    Step(
        name="three transpositions for one",
        one=lambda x, y, v, t, k: (
            (x.transpose(1, 2, 0).transpose(1, 0, 2).transpose(1, 0, 2)).transpose(2, 0, 1) + y
        ),
        other=lambda x, y, v, t, k: x + y,
        miss=lambda x, y, v, t, k: (x.transpose(1, 0, 2).transpose(1, 0, 2)[::-1]) + y,
    ),
    Step(
        name="reshape of reshape",
        one=lambda x, y, v, t, k: x.reshape(B * T * D).reshape(T, B, D).reshape(B, T, D) * y - x,
        other=lambda x, y, v, t, k: x * y - x,
        miss=lambda x, y, v, t, k: x.reshape(T, B, D).transpose(1, 0, 2) * y - x,
    ),
    Step(
        name="reverse twice",
        one=lambda x, y, v, t, k: jnp.flip(jnp.flip(x, 2), 2) * y + x,
        other=lambda x, y, v, t, k: x * y + x,
        miss=lambda x, y, v, t, k: jnp.flip(jnp.flip(x, 2), 1) * y + x,
    ),
    Step(
        name="reverse by slice or by flip",
        one=lambda x, y, v, t, k: x[:, ::-1] + y,
        other=lambda x, y, v, t, k: jnp.flip(x, 1) + y,
        miss=lambda x, y, v, t, k: jnp.flip(x, 0) + y,
    ),
    Step(
        name="reverse across a merged axis",
        one=lambda x, y, v, t, k: _back(jnp.flip(_flat(x), 0)) - y,
        other=lambda x, y, v, t, k: jnp.flip(x, (0, 1)) - y,
        miss=lambda x, y, v, t, k: jnp.flip(x, (0, 2)) - y,
    ),
    Step(
        name="slices put together again",
        one=lambda x, y, v, t, k: jnp.concatenate([x[:, :1], x[:, 1:3], x[:, 3:]], 1) * y + x,
        other=lambda x, y, v, t, k: x * y + x,
        miss=lambda x, y, v, t, k: jnp.concatenate([x[:, 1:3], x[:, :1], x[:, 3:]], 1) * y + x,
    ),
    Step(
        name="slices of the last axis put together again",
        one=lambda x, y, v, t, k: jnp.concatenate([x[..., :5], x[..., 5:]], -1) * y,
        other=lambda x, y, v, t, k: x * y,
        miss=lambda x, y, v, t, k: jnp.concatenate([x[..., :5], y[..., 5:]], -1) * y,
    ),
    Step(
        name="stack of unstacked",
        one=lambda x, y, v, t, k: jnp.stack([x[:, j] for j in range(T)], 1) - y,
        other=lambda x, y, v, t, k: x - y,
        miss=lambda x, y, v, t, k: jnp.stack([x[:, j] for j in (0, 1, 3, 2)], 1) - y,
    ),
    Step(
        name="concatenate of concatenated",
        one=lambda x, y, v, t, k: (
            jnp.concatenate([jnp.concatenate([x[:, :1], y[:, :1]], 1), x[:, 2:]], 1) * x
        ),
        other=lambda x, y, v, t, k: jnp.concatenate([x[:, :1], y[:, :1], x[:, 2:]], 1) * x,
        miss=lambda x, y, v, t, k: jnp.concatenate([x[:, :1], x[:, :1], x[:, 2:]], 1) * x,
    ),
    Step(
        name="half of a concatenation",
        one=lambda x, y, v, t, k: jnp.concatenate([x, y], 2)[:, :, D:] * x,
        other=lambda x, y, v, t, k: y * x,
        miss=lambda x, y, v, t, k: jnp.concatenate([x, y], 2)[:, :, D - 1 : -1] * x,
    ),
    Step(
        name="slice of a slice",
        one=lambda x, y, v, t, k: x[:, 1:][:, 1:3][:, ::1].mean(1, keepdims=True) * y,
        other=lambda x, y, v, t, k: x[:, 2:4].mean(1, keepdims=True) * y,
        miss=lambda x, y, v, t, k: x[:, 1:3].mean(1, keepdims=True) * y,
    ),
    Step(
        name="strided slice of a strided slice",
        one=lambda x, y, v, t, k: x[:, :, ::2][:, :, ::2].repeat(4, 2) + y,
        other=lambda x, y, v, t, k: x[:, :, ::4].repeat(4, 2) + y,
        miss=lambda x, y, v, t, k: x[:, :, 1::4].repeat(4, 2) + y,
    ),
    Step(
        name="pad by nothing",
        one=lambda x, y, v, t, k: lax.pad(x, jnp.float32(0), ((0, 0, 0),) * 3) * y + x,
        other=lambda x, y, v, t, k: x * y + x,
        miss=lambda x, y, v, t, k: lax.pad(x, jnp.float32(0), ((0, 0, 0), (1, -1, 0), (0, 0, 0))) * y + x,
    ),
    Step(
        name="interior padding of an axis of size one",
        one=lambda x, y, v, t, k: lax.pad(x[:, :1], jnp.float32(0), ((0, 0, 0), (0, 0, 3), (0, 0, 0))) * y,
        other=lambda x, y, v, t, k: x[:, :1] * y,
        miss=lambda x, y, v, t, k: lax.pad(x, jnp.float32(0), ((0, 0, 0), (0, -3, 1), (0, 0, 0))) * y,
    ),
    Step(
        name="dynamic slice at a known start",
        one=lambda x, y, v, t, k: lax.dynamic_slice(x, (0, 1, 0), (B, 1, D)) * y,
        other=lambda x, y, v, t, k: x[:, 1:2] * y,
        miss=lambda x, y, v, t, k: x[:, 2:3] * y,
    ),
    Step(
        name="dynamic slice beyond the end",
        one=lambda x, y, v, t, k: lax.dynamic_slice(x, (0, T + 2, 0), (B, 1, D)) * y,
        other=lambda x, y, v, t, k: x[:, T - 1 :] * y,
        miss=lambda x, y, v, t, k: x[:, T - 2 : T - 1] * y,
    ),
    Step(
        name="heads split and merged",
        one=lambda x, y, v, t, k: (
            x.reshape(B, T, 2, 4).transpose(0, 2, 1, 3).transpose(0, 2, 1, 3).reshape(B, T, D) * y
        ),
        other=lambda x, y, v, t, k: x * y,
        miss=lambda x, y, v, t, k: x.reshape(B, T, 4, 2).swapaxes(2, 3).reshape(B, T, D) * y,
    ),
    Step(
        name="squeeze of a slice or an index",
        one=lambda x, y, v, t, k: jnp.squeeze(x[:, 1:2], 1)[:, None] - y,
        other=lambda x, y, v, t, k: x[:, 1][:, None] - y,
        miss=lambda x, y, v, t, k: x[:, 2][:, None] - y,
    ),
)

ELEMENTWISE = (
    Step(
        name="flattened and back",
        one=lambda x, y, v, t, k: _back(jnp.tanh(_flat(x)) * _flat(y) + v),
        other=lambda x, y, v, t, k: jnp.tanh(x) * y + v,
        miss=lambda x, y, v, t, k: _back(jnp.tanh(_flat(x)) * _flat(y[::-1]) + v),
    ),
    Step(
        name="on the transposed and back",
        one=lambda x, y, v, t, k: (x.T * y.T + v[:, None, None]).T,
        other=lambda x, y, v, t, k: x * y + v,
        miss=lambda x, y, v, t, k: (x.T * y.T + v[::-1, None, None]).T,
    ),
    Step(
        name="on the reversed and back",
        one=lambda x, y, v, t, k: jnp.flip(jnp.flip(x, 1) * jnp.flip(y, 1) + jnp.flip(x, 1), 1),
        other=lambda x, y, v, t, k: x * y + x,
        miss=lambda x, y, v, t, k: jnp.flip(jnp.flip(x, 1) * jnp.flip(y, 1) + x, 1),
    ),
    Step(
        name="product before or after broadcast",
        one=lambda x, y, v, t, k: _spread(v * jnp.tanh(v), (2,)) * x + y,
        other=lambda x, y, v, t, k: _spread(v, (2,)) * _spread(jnp.tanh(v), (2,)) * x + y,
        miss=lambda x, y, v, t, k: _spread(v * jnp.tanh(jnp.broadcast_to(v[:1], v.shape)), (2,)) * x + y,
    ),
    Step(
        name="product of broadcasts added to",
        one=lambda x, y, v, t, k: _spread(v * v, (2,)) + y,
        other=lambda x, y, v, t, k: _spread(v, (2,)) * _spread(v, (2,)) + y,
        miss=lambda x, y, v, t, k: _spread(v + v, (2,)) + y,
    ),
    Step(
        name="product and sum before or after broadcast",
        one=lambda x, y, v, t, k: _spread(t * t + t, (1,)) * y - x,
        other=lambda x, y, v, t, k: (_spread(t, (1,)) * _spread(t, (1,)) + _spread(t, (1,))) * y - x,
        miss=lambda x, y, v, t, k: _spread(t * t - t, (1,)) * y - x,
    ),
    Step(
        name="scaled and shifted rows, kept or dropped axis",
        one=lambda x, y, v, t, k: ((x.sum(-1) / D) * t + t)[..., None] * y,
        other=lambda x, y, v, t, k: ((x.sum(-1)[..., None] / D) * t[:, None] + t[:, None]) * y,
        miss=lambda x, y, v, t, k: ((x.sum(-1)[..., None] / (D + 1)) * t[:, None] + t[:, None]) * y,
    ),
    Step(
        name="division and unit axis in either order",
        one=lambda x, y, v, t, k: x - jnp.expand_dims(y.sum(-1) / D, -1),
        other=lambda x, y, v, t, k: x - jnp.expand_dims(y.sum(-1), -1) / D,
        miss=lambda x, y, v, t, k: x - jnp.expand_dims(y.sum(-1), -1) * (1.0 / (D + 1)),
    ),
    Step(
        name="scalar constants as splat or as broadcast",
        one=lambda x, y, v, t, k: x * jnp.full((B, T, D), 1.5) + y * jnp.full((), 0.3),
        other=lambda x, y, v, t, k: x * 1.5 + y * 0.3,
        miss=lambda x, y, v, t, k: x * 1.5 + y * 0.30000004,
    ),
    Step(
        name="clip by arrays or by scalars",
        one=lambda x, y, v, t, k: lax.clamp(jnp.float32(-1), x, jnp.float32(1)) * y,
        other=lambda x, y, v, t, k: lax.clamp(jnp.full((B, T, D), -1.0), x, jnp.full((B, T, D), 1.0)) * y,
        miss=lambda x, y, v, t, k: lax.clamp(jnp.float32(-1), x, jnp.float32(2)) * y,
    ),
    Step(
        name="vmap against whole arrays",
        one=lambda x, y, v, t, k: jax.vmap(lambda a, b: a * b + v)(x, y),
        other=lambda x, y, v, t, k: x * y + v,
        miss=lambda x, y, v, t, k: jax.vmap(lambda a, b: a * b - v)(x, y),
    ),
    Step(
        name="vmap over the last axis",
        one=lambda x, y, v, t, k: jax.vmap(lambda a, b: a * b + t, in_axes=2, out_axes=2)(x, y),
        other=lambda x, y, v, t, k: x * y + t[:, None],
        miss=lambda x, y, v, t, k: jax.vmap(lambda a, b: a * b + t[::-1], in_axes=2, out_axes=2)(x, y),
    ),
    Step(
        name="rotary halves",
        one=lambda x, y, v, t, k: jnp.concatenate([-x[..., 4:], x[..., :4]], -1) * y + x * v,
        other=lambda x, y, v, t, k: (
            jnp.concatenate([-(x.reshape(B, T, 2, 4)[:, :, 1]), x.reshape(B, T, 2, 4)[:, :, 0]], -1) * y
            + x * v
        ),
        miss=lambda x, y, v, t, k: jnp.concatenate([x[..., 4:], -x[..., :4]], -1) * y + x * v,
    ),
    Step(
        name="gelu on heads",
        one=lambda x, y, v, t, k: jax.nn.gelu(x.reshape(B, T, 2, 4)).reshape(B, T, D) * y + x,
        other=lambda x, y, v, t, k: jax.nn.gelu(x) * y + x,
        miss=lambda x, y, v, t, k: jax.nn.gelu(x, approximate=False) * y + x,
    ),
    Step(
        name="gate on the transposed",
        one=lambda x, y, v, t, k: (jax.nn.silu(x.transpose(1, 0, 2)) * y.transpose(1, 0, 2)).transpose(
            1, 0, 2
        ),
        other=lambda x, y, v, t, k: jax.nn.silu(x) * y,
        miss=lambda x, y, v, t, k: jax.nn.silu(y) * x,
    ),
)
