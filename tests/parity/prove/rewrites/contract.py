"""Steps about sums and products of matrices, softmax and norms written by hand, jit boundaries, loops."""

# B batch, T positions, D features

import jax
import jax.numpy as jnp
from jax import lax
from steps import B, D, Step, T  # pyright: ignore[reportMissingImports]


def _norm(x, axis_kept):
    mean = x.mean(-1, keepdims=True) if axis_kept else jnp.expand_dims(x.sum(-1) / D, -1)
    centred = x - mean
    var = (
        (centred * centred).mean(-1, keepdims=True)
        if axis_kept
        else ((centred * centred).sum(-1) / D)[..., None]
    )
    return centred * lax.rsqrt(var + 1e-6)


def _rms(x, flat):
    shape = x.shape
    x = x.reshape(-1, shape[-1]) if flat else x
    return (x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)).reshape(shape)


def _attention(x, y, masked):
    scores = jnp.einsum("btd,bsd->bts", x, y) * 0.3
    return jnp.einsum("bts,bsd->btd", jax.nn.softmax(masked(scores), -1), y)


LOWEST = -1e9

SUMS = (
    Step(
        name="mean with its axis kept or put back",
        one=lambda x, y, v, t, k: _norm(x, True) * v + y,
        other=lambda x, y, v, t, k: _norm(x, False) * v + y,
        miss=lambda x, y, v, t, k: _norm(y, False) * v + x,
    ),
    Step(
        name="sum of the flattened, of leading axes",
        one=lambda x, y, v, t, k: (x.reshape(B * T, D).sum(-1)).reshape(B, T, 1) * y,
        other=lambda x, y, v, t, k: x.sum(-1)[..., None] * y,
        miss=lambda x, y, v, t, k: (x.reshape(B * T, D).max(-1)).reshape(B, T, 1) * y,
    ),
    Step(
        name="norm of the flattened",
        one=lambda x, y, v, t, k: _rms(x, True) * y,
        other=lambda x, y, v, t, k: _rms(x, False) * y,
        miss=lambda x, y, v, t, k: _rms(x * 2, False) * y,
    ),
    Step(
        name="sum by vmap",
        one=lambda x, y, v, t, k: jax.vmap(lambda a: a.sum(-1, keepdims=True))(x) * y,
        other=lambda x, y, v, t, k: x.sum(-1, keepdims=True) * y,
        miss=lambda x, y, v, t, k: jax.vmap(lambda a: a.sum(0, keepdims=True))(x) * y,
    ),
    Step(
        name="sum over an axis and a unit axis",
        one=lambda x, y, v, t, k: x[:, None].sum((1, 3))[..., None] * y,
        other=lambda x, y, v, t, k: x.sum(2)[..., None] * y,
        miss=lambda x, y, v, t, k: x[:, None].sum((1, 2))[:, None] * y,
    ),
    Step(
        name="largest of heads",
        one=lambda x, y, v, t, k: x.reshape(B, T, 2, 4).max(-1).repeat(4, -1).reshape(B, T, D) - y,
        other=lambda x, y, v, t, k: x.reshape(B * T, 2, 4).max(2).reshape(B, T, 2).repeat(4, -1) - y,
        miss=lambda x, y, v, t, k: x.reshape(B, T, 4, 2).max(2).repeat(4, -1).reshape(B, T, D) - y,
    ),
    Step(
        name="softmax of the flattened",
        one=lambda x, y, v, t, k: jax.nn.softmax(x.reshape(B * T, D), -1).reshape(B, T, D) * y,
        other=lambda x, y, v, t, k: jax.nn.softmax(x, -1) * y,
        miss=lambda x, y, v, t, k: jax.nn.softmax(x, 1) * y,
    ),
)

DOTS = (
    Step(
        name="matmul, dot, einsum",
        one=lambda x, y, v, t, k: x @ (v[:, None] * v) + y,
        other=lambda x, y, v, t, k: jnp.einsum("btd,de->bte", x, v[:, None] * v) + y,
        miss=lambda x, y, v, t, k: jnp.einsum("btd,de->bte", x, (v[:, None] * v)[::-1]) + y,
    ),
    Step(
        name="matmul of the flattened",
        one=lambda x, y, v, t, k: (x.reshape(B * T, D) @ (v[:, None] * v)).reshape(B, T, D) + y,
        other=lambda x, y, v, t, k: x @ (v[:, None] * v) + y,
        miss=lambda x, y, v, t, k: (x[::-1].reshape(B * T, D) @ (v[:, None] * v)).reshape(B, T, D) + y,
    ),
    Step(
        name="heads in the weights",
        one=lambda x, y, v, t, k: (
            jnp.einsum("btd,dhk->bthk", x, (v[:, None] * v).reshape(D, 2, 4)).reshape(B, T, D) + y
        ),
        other=lambda x, y, v, t, k: x @ (v[:, None] * v) + y,
        miss=lambda x, y, v, t, k: (
            jnp.einsum("btd,dkh->bthk", x, (v[:, None] * v).reshape(D, 4, 2)).reshape(B, T, D) + y
        ),
    ),
    Step(
        name="scores batched by einsum or by vmap",
        one=lambda x, y, v, t, k: jnp.einsum("btd,bsd->bts", x, y) @ y,
        other=lambda x, y, v, t, k: jax.vmap(lambda a, b: jnp.einsum("td,sd->ts", a, b))(x, y) @ y,
        miss=lambda x, y, v, t, k: jax.vmap(lambda a, b: jnp.einsum("td,sd->ts", b, a))(x, y) @ y,
    ),
    Step(
        name="operand with a unit axis",
        one=lambda x, y, v, t, k: (x[:, :, None] @ (v[:, None] * v))[:, :, 0] + y,
        other=lambda x, y, v, t, k: x @ (v[:, None] * v) + y,
        miss=lambda x, y, v, t, k: (x[:, :, None] @ (v[:, None] - v))[:, :, 0] + y,
    ),
    Step(
        name="weights written transposed",
        one=lambda x, y, v, t, k: x @ (v[:, None] * y[0, 0]).T + y,
        other=lambda x, y, v, t, k: lax.dot_general(x, v[:, None] * y[0, 0], (((2,), (1,)), ((), ()))) + y,
        miss=lambda x, y, v, t, k: lax.dot_general(x, v[:, None] * y[0, 0], (((2,), (0,)), ((), ()))) + y,
    ),
    Step(
        name="attention with its mask built twice",
        one=lambda x, y, v, t, k: _attention(
            x, y, lambda s: jnp.where(jnp.tril(jnp.ones((T, T), bool)), s, LOWEST)
        ),
        other=lambda x, y, v, t, k: _attention(
            x, y, lambda s: jnp.where(jnp.arange(T)[None] > jnp.arange(T)[:, None], LOWEST, s)
        ),
        miss=lambda x, y, v, t, k: _attention(
            x, y, lambda s: jnp.where(jnp.arange(T)[None] >= jnp.arange(T)[:, None], LOWEST, s)
        ),
    ),
    Step(
        name="heads moved before or after the scores",
        one=lambda x, y, v, t, k: (
            jnp.einsum("bthk,bshk->bhts", x.reshape(B, T, 2, 4), y.reshape(B, T, 2, 4)).sum(1) @ y
        ),
        other=lambda x, y, v, t, k: (
            jnp.einsum(
                "bhtk,bhsk->bhts", x.reshape(B, T, 2, 4).swapaxes(1, 2), y.reshape(B, T, 2, 4).swapaxes(1, 2)
            ).sum(1)
            @ y
        ),
        miss=lambda x, y, v, t, k: (
            jnp.einsum(
                "bhtk,bhsk->bhts",
                x.reshape(B, T, 4, 2).transpose(0, 3, 1, 2),
                y.reshape(B, T, 2, 4).swapaxes(1, 2),
            ).sum(1)
            @ y
        ),
    ),
)


def _loop(body, start):
    return lax.fori_loop(0, 3, body, start)


STRUCTURE = (
    Step(
        name="jit boundary around a reshape",
        one=lambda x, y, v, t, k: jax.jit(lambda a: a.reshape(B * T, D) * v)(x).reshape(B, T, D) + y,
        other=lambda x, y, v, t, k: x * v + y,
        miss=lambda x, y, v, t, k: jax.jit(lambda a: a.reshape(B * T, D) * v[::-1])(x).reshape(B, T, D) + y,
    ),
    Step(
        name="hoisted out of a loop",
        one=lambda x, y, v, t, k: _loop(lambda j, c: jnp.tanh(c) * (v * v) + y, x),
        other=lambda x, y, v, t, k: (lambda w: _loop(lambda j, c: jnp.tanh(c) * w + y, x))(v * v),
        miss=lambda x, y, v, t, k: (lambda w: _loop(lambda j, c: jnp.tanh(c) * w + y, x))(v + v),
    ),
    Step(
        name="hoisted and reshaped out of a loop",
        one=lambda x, y, v, t, k: _loop(lambda j, c: jnp.tanh(c) * v.reshape(1, 1, D) + y, x),
        other=lambda x, y, v, t, k: (lambda w: _loop(lambda j, c: jnp.tanh(c) * w + y, x))(
            lax.broadcast_in_dim(v, (1, 1, D), (2,))
        ),
        miss=lambda x, y, v, t, k: (lambda w: _loop(lambda j, c: jnp.tanh(c) * w + y, x))(
            v[::-1].reshape(1, 1, D)
        ),
    ),
    Step(
        name="flattened inside of a loop",
        one=lambda x, y, v, t, k: _loop(
            lambda j, c: (jnp.tanh(c.reshape(B * T, D)) * v).reshape(B, T, D) + y, x
        ),
        other=lambda x, y, v, t, k: _loop(lambda j, c: jnp.tanh(c) * v + y, x),
        miss=lambda x, y, v, t, k: _loop(
            lambda j, c: (jnp.tanh(c.reshape(B * T, D)) * v).reshape(B, T, D) - y, x
        ),
    ),
    Step(
        name="inside of a branch",
        one=lambda x, y, v, t, k: lax.cond(
            k[0, 0] > 1, lambda a: (a.reshape(B * T, D) * v).reshape(B, T, D), lambda a: a - y, x
        ),
        other=lambda x, y, v, t, k: lax.cond(k[0, 0] > 1, lambda a: a * v, lambda a: a - y, x),
        miss=lambda x, y, v, t, k: lax.cond(k[0, 0] > 1, lambda a: a - y, lambda a: a * v, x),
    ),
    Step(
        name="remat around another spelling",
        one=lambda x, y, v, t, k: (
            jax.checkpoint(lambda a: jnp.tanh(a.reshape(B * T, D)).reshape(B, T, D) * v)(x) + y
        ),
        other=lambda x, y, v, t, k: jax.checkpoint(lambda a: jnp.tanh(a) * v)(x) + y,
        miss=lambda x, y, v, t, k: jax.checkpoint(lambda a: jnp.tanh(a) * v)(y) + x,
    ),
    Step(
        name="scan over positions of the transposed",
        one=lambda x, y, v, t, k: lax.scan(lambda c, a: (c * v + a, c), x[:, 0], x.transpose(1, 0, 2))[
            1
        ].transpose(1, 0, 2),
        other=lambda x, y, v, t, k: jnp.moveaxis(
            lax.scan(lambda c, a: (c * v + a, c), x[:, 0, :], jnp.moveaxis(x, 1, 0))[1], 0, 1
        ),
        miss=lambda x, y, v, t, k: jnp.moveaxis(
            lax.scan(lambda c, a: (c * v - a, c), x[:, 0, :], jnp.moveaxis(x, 1, 0))[1], 0, 1
        ),
    ),
)
