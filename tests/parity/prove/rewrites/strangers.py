"""Rewrites as people write them, by subject: losses, norms, rotary positions, einsum and vmap, masks, and others.

Most give equal bits, some only almost; nobody chose them for a rule.
"""

# B batch, T positions, D features, H heads, K features of a head

import jax
import jax.numpy as jnp
from jax import lax
from steps import B, D, Step, T  # pyright: ignore[reportMissingImports]

H, K = 2, 4
LOW = jnp.bfloat16
TINY = 1e-6


def _labels(k):
    return k % D


def _hot(k):
    return jax.nn.one_hot(_labels(k), D)


def _picked(logits, k):
    return jnp.take_along_axis(logits, _labels(k)[..., None], -1)[..., 0]


def _weights(v, y):
    return v[:, None] * y[0, 0]


def _heads(x):
    return x.reshape(B, T, H, K)


def _merged(x):
    return x.reshape(B, T, D)


def _low(run):
    return lambda x, y, v, t, k: run(x.astype(LOW), y.astype(LOW), v.astype(LOW), t, k).astype(jnp.float32)


def _pair(name, one, other):
    return Step(name=name, one=one, other=other)


def _halves(x):
    return jnp.split(x, 2, -1)


def _angles(t):
    return t[:, None] * (1.0 / 10000 ** (jnp.arange(0, D, 2) / D))


def _rotate(x, y):
    return jnp.concatenate([-x[..., D // 2 :], x[..., : D // 2]], -1) * y


def _causal():
    return jnp.tril(jnp.ones((T, T), bool))


def _scores(x, y):
    return jnp.einsum("btd,bsd->bts", x, y)


def _seen(mask, x, y, fill=-1e9):
    return jax.nn.softmax(jnp.where(mask, _scores(x, y), fill), -1) @ y


def _cross(k):
    return lambda logits: -_picked(jax.nn.log_softmax(logits), k)


def _masked_mean(loss, mask):
    return (loss * mask).sum() / jnp.maximum(mask.sum(), 1)


LOSSES = (
    _pair(
        "cross entropy by one hot or by index",
        lambda x, y, v, t, k: -(_hot(k) * jax.nn.log_softmax(x)).sum(-1)[..., None] * y,
        lambda x, y, v, t, k: _cross(k)(x)[..., None] * y,
    ),
    _pair(
        "cross entropy by vmap or at once",
        lambda x, y, v, t, k: (
            jax.vmap(lambda a, b: -jax.nn.log_softmax(a)[jnp.arange(T), b])(x, _labels(k))[..., None] * y
        ),
        lambda x, y, v, t, k: _cross(k)(x)[..., None] * y,
    ),
    _pair(
        "minus the mean, mean of minus",
        lambda x, y, v, t, k: -_picked(jax.nn.log_softmax(x), k).mean() * y,
        lambda x, y, v, t, k: (-_picked(jax.nn.log_softmax(x), k)).mean() * y,
    ),
    _pair(
        "mean or sum over count",
        lambda x, y, v, t, k: _cross(k)(x).mean() * y,
        lambda x, y, v, t, k: _cross(k)(x).sum() / (B * T) * y,
    ),
    _pair(
        "log softmax or logits minus logsumexp",
        lambda x, y, v, t, k: jax.nn.log_softmax(x) * y,
        lambda x, y, v, t, k: (x - jax.nn.logsumexp(x, -1, keepdims=True)) * y,
    ),
    _pair(
        "log softmax by hand",
        lambda x, y, v, t, k: jax.nn.log_softmax(x) * y,
        lambda x, y, v, t, k: (lambda s: (s - jnp.log(jnp.exp(s).sum(-1, keepdims=True))) * y)(
            x - lax.stop_gradient(x.max(-1, keepdims=True))
        ),
    ),
    _pair(
        "square by product or by power",
        lambda x, y, v, t, k: ((x - y) ** 2).mean() * y,
        lambda x, y, v, t, k: ((x - y) * (x - y)).mean() * y,
    ),
    _pair(
        "square by jnp.square or by power",
        lambda x, y, v, t, k: ((x - y) ** 2).mean(-1, keepdims=True) * y,
        lambda x, y, v, t, k: jnp.square(x - y).mean(-1, keepdims=True) * y,
    ),
    _pair(
        "mask by product or by selection",
        lambda x, y, v, t, k: _masked_mean(_cross(k)(x), (k > 2).astype(jnp.float32)) * y,
        lambda x, y, v, t, k: (jnp.where(k > 2, _cross(k)(x), 0.0).sum() / jnp.maximum((k > 2).sum(), 1)) * y,
    ),
    _pair(
        "mask counted as numbers or as floats",
        lambda x, y, v, t, k: _masked_mean(_cross(k)(x), (k > 2).astype(jnp.float32)) * y,
        lambda x, y, v, t, k: (
            ((_cross(k)(x) * (k > 2)).sum() / jnp.maximum((k > 2).astype(jnp.float32).sum(), 1.0)) * y
        ),
    ),
    _pair(
        "flattened tokens",
        lambda x, y, v, t, k: _cross(k.reshape(-1))(x.reshape(-1, D)).reshape(B, T, 1) * y,
        lambda x, y, v, t, k: _cross(k)(x)[..., None] * y,
    ),
    _pair(
        "logits in another precision cast early or late",
        lambda x, y, v, t, k: _cross(k)(x.astype(LOW).astype(jnp.float32))[..., None] * y,
        lambda x, y, v, t, k: (
            -_picked(jax.nn.log_softmax(x.astype(LOW).astype(jnp.float32), axis=-1), k)[..., None] * y
        ),
    ),
    _pair(
        "smoothed labels",
        lambda x, y, v, t, k: -((_hot(k) * 0.9 + 0.1 / D) * jax.nn.log_softmax(x)).sum(-1, keepdims=True) * y,
        lambda x, y, v, t, k: (
            -jnp.einsum("btd,btd->bt", 0.9 * _hot(k) + 0.1 / D, jax.nn.log_softmax(x))[..., None] * y
        ),
    ),
    _pair(
        "z loss added inside or outside",
        lambda x, y, v, t, k: (_cross(k)(x) + 1e-4 * jax.nn.logsumexp(x, -1) ** 2)[..., None] * y,
        lambda x, y, v, t, k: (_cross(k)(x) + 1e-4 * jnp.square(jax.nn.logsumexp(x, axis=-1)))[..., None] * y,
    ),
    _pair(
        "huber by where or by clip",
        lambda x, y, v, t, k: jnp.where(jnp.abs(x - y) < 1, 0.5 * (x - y) ** 2, jnp.abs(x - y) - 0.5),
        lambda x, y, v, t, k: jnp.where(jnp.abs(x - y) < 1.0, 0.5 * jnp.square(x - y), jnp.abs(x - y) - 0.5),
    ),
    _pair(
        "binary cross entropy by log sigmoid",
        lambda x, y, v, t, k: -(y * jax.nn.log_sigmoid(x) + (1 - y) * jax.nn.log_sigmoid(-x)),
        lambda x, y, v, t, k: y * jax.nn.softplus(-x) + (1.0 - y) * jax.nn.softplus(x),
    ),
)


def _layer(x, v, mean, var):
    return (x - mean) * lax.rsqrt(var + TINY) * v


NORMS = (
    _pair(
        "rms: product or square",
        lambda x, y, v, t, k: x * lax.rsqrt((x * x).mean(-1, keepdims=True) + TINY) * v,
        lambda x, y, v, t, k: x * lax.rsqrt(jnp.mean(jnp.square(x), axis=-1, keepdims=True) + TINY) * v,
    ),
    _pair(
        "rms: power or square",
        lambda x, y, v, t, k: x * lax.rsqrt((x**2).mean(-1, keepdims=True) + TINY) * v,
        lambda x, y, v, t, k: x * lax.rsqrt(jnp.mean(jnp.square(x), axis=-1, keepdims=True) + TINY) * v,
    ),
    _pair(
        "rms: rsqrt or one over sqrt",
        lambda x, y, v, t, k: x * lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + TINY) * v,
        lambda x, y, v, t, k: x / jnp.sqrt(jnp.square(x).mean(-1, keepdims=True) + TINY) * v,
    ),
    _pair(
        "rms: scale first or last",
        lambda x, y, v, t, k: x * lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + TINY) * v,
        lambda x, y, v, t, k: v * (x * lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + TINY)),
    ),
    _pair(
        "rms: scale joined with the root",
        lambda x, y, v, t, k: x * lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + TINY) * v,
        lambda x, y, v, t, k: x * (lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + TINY) * v),
    ),
    _pair(
        "rms: one plus scale",
        lambda x, y, v, t, k: x * lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + TINY) * (1 + v),
        lambda x, y, v, t, k: x * lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + TINY) * (v + 1.0),
    ),
    _pair(
        "rms: mean by sum over count",
        lambda x, y, v, t, k: x * lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + TINY) * v,
        lambda x, y, v, t, k: x * lax.rsqrt(jnp.square(x).sum(-1, keepdims=True) / D + TINY) * v,
    ),
    _pair(
        "rms: mean by sum times inverse count",
        lambda x, y, v, t, k: x * lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + TINY) * v,
        lambda x, y, v, t, k: x * lax.rsqrt(jnp.square(x).sum(-1, keepdims=True) * (1 / D) + TINY) * v,
    ),
    _pair(
        "rms: by einsum",
        lambda x, y, v, t, k: x * lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + TINY) * v,
        lambda x, y, v, t, k: x * lax.rsqrt(jnp.einsum("btd,btd->bt", x, x)[..., None] / D + TINY) * v,
    ),
    _pair(
        "rms: axis kept or put back",
        lambda x, y, v, t, k: x * lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + TINY) * v,
        lambda x, y, v, t, k: x * lax.rsqrt(jnp.square(x).mean(-1) + TINY)[..., None] * v,
    ),
    _pair(
        "rms: scale broadcast or not",
        lambda x, y, v, t, k: x * lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + TINY) * v,
        lambda x, y, v, t, k: (
            x * lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + TINY) * jnp.broadcast_to(v, x.shape)
        ),
    ),
    _pair(
        "rms: vmap over tokens",
        lambda x, y, v, t, k: x * lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + TINY) * v,
        lambda x, y, v, t, k: jax.vmap(jax.vmap(lambda a: a * lax.rsqrt(jnp.square(a).mean() + TINY) * v))(x),
    ),
    _pair(
        "rms: cast there and back",
        _low(
            lambda x, y, v, t, k: (
                lambda w: (w * lax.rsqrt(jnp.square(w).mean(-1, keepdims=True) + TINY)).astype(LOW) * v
            )(x.astype(jnp.float32))
        ),
        _low(
            lambda x, y, v, t, k: (
                lambda w: v * (w * lax.rsqrt(jnp.mean(w * w, -1, keepdims=True) + TINY)).astype(LOW)
            )(x.astype(jnp.float32))
        ),
    ),
    _pair(
        "layer: var by jnp.var or by hand",
        lambda x, y, v, t, k: _layer(x, v, x.mean(-1, keepdims=True), x.var(-1, keepdims=True)),
        lambda x, y, v, t, k: (lambda m: _layer(x, v, m, jnp.square(x - m).mean(-1, keepdims=True)))(
            x.mean(-1, keepdims=True)
        ),
    ),
    _pair(
        "layer: var by squares less squared mean, order",
        lambda x, y, v, t, k: (
            lambda m: _layer(x, v, m, jnp.square(x).mean(-1, keepdims=True) - jnp.square(m))
        )(x.mean(-1, keepdims=True)),
        lambda x, y, v, t, k: (lambda m: _layer(x, v, m, (x * x).mean(-1, keepdims=True) - m * m))(
            jnp.mean(x, -1, keepdims=True)
        ),
    ),
    _pair(
        "layer: bias added here or there",
        lambda x, y, v, t, k: _layer(x, v, x.mean(-1, keepdims=True), x.var(-1, keepdims=True)) + v,
        lambda x, y, v, t, k: v + _layer(x, v, x.mean(-1, keepdims=True), x.var(-1, keepdims=True)),
    ),
    _pair(
        "layer: sqrt or rsqrt",
        lambda x, y, v, t, k: _layer(x, v, x.mean(-1, keepdims=True), x.var(-1, keepdims=True)),
        lambda x, y, v, t, k: (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + TINY) * v,
    ),
    _pair(
        "layer: maximum of variance and zero",
        lambda x, y, v, t, k: _layer(
            x, v, x.mean(-1, keepdims=True), jnp.maximum(0.0, x.var(-1, keepdims=True))
        ),
        lambda x, y, v, t, k: _layer(
            x, v, x.mean(-1, keepdims=True), jnp.maximum(x.var(-1, keepdims=True), 0.0)
        ),
    ),
    _pair(
        "group: reshape before or after",
        lambda x, y, v, t, k: (
            lambda g: (
                _merged((g - g.mean(-1, keepdims=True)) * lax.rsqrt(g.var(-1, keepdims=True) + TINY)) * v
            )
        )(_heads(x)),
        lambda x, y, v, t, k: (
            lambda g: _merged((g - g.mean(-1)[..., None]) * lax.rsqrt(g.var(-1) + TINY)[..., None]) * v
        )(x.reshape(B, T, H, -1)),
    ),
    _pair(
        "l2: norm or root of sum of squares",
        lambda x, y, v, t, k: x / (jnp.linalg.norm(x, axis=-1, keepdims=True) + TINY) * y,
        lambda x, y, v, t, k: x / (jnp.sqrt((x * x).sum(-1, keepdims=True)) + TINY) * y,
    ),
    _pair(
        "batch: axes by one or by both",
        lambda x, y, v, t, k: (x - x.mean((0, 1))) * lax.rsqrt(x.var((0, 1)) + TINY) * v,
        lambda x, y, v, t, k: (lambda f: _merged((f - f.mean(0)) * lax.rsqrt(f.var(0) + TINY) * v))(
            x.reshape(-1, D)
        ),
    ),
    _pair(
        "query norm before or after the heads",
        lambda x, y, v, t, k: (
            lambda h: _merged(h * lax.rsqrt(jnp.square(h).mean(-1, keepdims=True) + TINY)) * y
        )(_heads(x)),
        lambda x, y, v, t, k: (
            lambda h: (
                (h * lax.rsqrt((h * h).mean(-1, keepdims=True) + TINY)).swapaxes(1, 2).reshape(B, T, D) * y
            )
        )(_heads(x).swapaxes(1, 2)),
    ),
)

ROTARY = (
    _pair(
        "halves by split or by slice",
        lambda x, y, v, t, k: jnp.concatenate([-_halves(x)[1], _halves(x)[0]], -1) * y,
        lambda x, y, v, t, k: _rotate(x, y),
    ),
    _pair(
        "halves by reshape and stack",
        lambda x, y, v, t, k: (lambda h: jnp.stack([-h[:, :, 1], h[:, :, 0]], 2).reshape(B, T, D) * y)(
            x.reshape(B, T, 2, 4)
        ),
        lambda x, y, v, t, k: _rotate(x, y),
    ),
    _pair(
        "cos and sin doubled by concatenate or by tile",
        lambda x, y, v, t, k: (
            x * jnp.concatenate([jnp.cos(_angles(t))] * 2, -1)
            + _rotate(x, jnp.concatenate([jnp.sin(_angles(t))] * 2, -1))
        ),
        lambda x, y, v, t, k: (
            x * jnp.tile(jnp.cos(_angles(t)), 2) + _rotate(x, jnp.tile(jnp.sin(_angles(t)), 2))
        ),
    ),
    _pair(
        "angles doubled before or after cos",
        lambda x, y, v, t, k: (
            x * jnp.concatenate([jnp.cos(_angles(t))] * 2, -1)
            + _rotate(x, jnp.concatenate([jnp.sin(_angles(t))] * 2, -1))
        ),
        lambda x, y, v, t, k: (lambda a: x * jnp.cos(a) + _rotate(x, jnp.sin(a)))(
            jnp.concatenate([_angles(t)] * 2, -1)
        ),
    ),
    _pair(
        "halves joined at the end or rotated",
        lambda x, y, v, t, k: (
            lambda a, c, s: jnp.concatenate([a[0] * c - a[1] * s, a[1] * c + a[0] * s], -1)
        )(_halves(x), jnp.cos(_angles(t)), jnp.sin(_angles(t))),
        lambda x, y, v, t, k: (
            x * jnp.concatenate([jnp.cos(_angles(t))] * 2, -1)
            + _rotate(x, jnp.concatenate([jnp.sin(_angles(t))] * 2, -1))
        ),
    ),
    _pair(
        "angles by outer or by broadcast",
        lambda x, y, v, t, k: x * jnp.tile(jnp.cos(jnp.outer(t, v[:4])), 2),
        lambda x, y, v, t, k: x * jnp.tile(jnp.cos(t[:, None] * v[None, :4]), 2),
    ),
    _pair(
        "angles by einsum or by broadcast",
        lambda x, y, v, t, k: x * jnp.tile(jnp.cos(jnp.einsum("t,d->td", t, v[:4])), 2),
        lambda x, y, v, t, k: x * jnp.tile(jnp.cos(t[:, None] * v[None, :4]), 2),
    ),
    _pair(
        "pairs by stride or by reshape",
        lambda x, y, v, t, k: jnp.stack([-x[..., 1::2], x[..., ::2]], -1).reshape(x.shape) * y,
        lambda x, y, v, t, k: (lambda p: jnp.stack([-p[..., 1], p[..., 0]], -1).reshape(x.shape) * y)(
            x.reshape(B, T, K, 2)
        ),
    ),
    _pair(
        "positions broadcast early or late",
        lambda x, y, v, t, k: x * jnp.cos(k[..., None].astype(jnp.float32) * v),
        lambda x, y, v, t, k: x * jnp.cos(k.astype(jnp.float32)[:, :, None] * v[None, None, :]),
    ),
    _pair(
        "timescale by division or by product",
        lambda x, y, v, t, k: x * jnp.tile(jnp.cos(t[:, None] / (10000 ** (jnp.arange(0, D, 2) / D))), 2),
        lambda x, y, v, t, k: x * jnp.tile(jnp.cos(_angles(t)), 2),
    ),
)

EINSUM = (
    _pair(
        "scores by einsum or by swapped matmul",
        lambda x, y, v, t, k: _scores(x, y) @ y,
        lambda x, y, v, t, k: (x @ y.swapaxes(-1, -2)) @ y,
    ),
    _pair(
        "head scores by einsum or by matmul",
        lambda x, y, v, t, k: jnp.einsum("bthk,bshk->bhts", _heads(x), _heads(y)).sum(1) @ y,
        lambda x, y, v, t, k: (_heads(x).transpose(0, 2, 1, 3) @ _heads(y).transpose(0, 2, 3, 1)).sum(1) @ y,
    ),
    _pair(
        "heads merged by einsum or by reshape",
        lambda x, y, v, t, k: jnp.einsum("bthk,hkd->btd", _heads(x), _weights(v, y).reshape(H, K, D)),
        lambda x, y, v, t, k: x @ _weights(v, y),
    ),
    _pair(
        "heads split by einsum or by reshape",
        lambda x, y, v, t, k: _merged(jnp.einsum("btd,dhk->bthk", x, _weights(v, y).reshape(D, H, K))) + y,
        lambda x, y, v, t, k: x @ _weights(v, y) + y,
    ),
    _pair(
        "matmul, dot, tensordot",
        lambda x, y, v, t, k: jnp.dot(x, _weights(v, y)) + y,
        lambda x, y, v, t, k: jnp.tensordot(x, _weights(v, y), axes=1) + y,
    ),
    _pair(
        "matmul of vmapped rows",
        lambda x, y, v, t, k: jax.vmap(lambda a: a @ _weights(v, y))(x) + y,
        lambda x, y, v, t, k: x @ _weights(v, y) + y,
    ),
    _pair(
        "vmap of vmap",
        lambda x, y, v, t, k: jax.vmap(jax.vmap(lambda a: a @ _weights(v, y)))(x) + y,
        lambda x, y, v, t, k: x @ _weights(v, y) + y,
    ),
    _pair(
        "vector from the left",
        lambda x, y, v, t, k: jax.vmap(jax.vmap(lambda a: _weights(v, y).T @ a))(x) + y,
        lambda x, y, v, t, k: x @ _weights(v, y) + y,
    ),
    _pair(
        "operands in the other order",
        lambda x, y, v, t, k: jnp.einsum("btd,de->bte", x, _weights(v, y)) + y,
        lambda x, y, v, t, k: jnp.einsum("de,btd->bte", _weights(v, y), x) + y,
    ),
    _pair(
        "named otherwise",
        lambda x, y, v, t, k: jnp.einsum("btd,de->bte", x, _weights(v, y)) + y,
        lambda x, y, v, t, k: jnp.einsum("...i,io->...o", x, _weights(v, y)) + y,
    ),
    _pair(
        "weighted sum by einsum or by product and sum",
        lambda x, y, v, t, k: jnp.einsum("btd,btd->bt", x, y)[..., None] * y,
        lambda x, y, v, t, k: (x * y).sum(-1)[..., None] * y,
    ),
    _pair(
        "outer product by einsum or by broadcast",
        lambda x, y, v, t, k: jnp.einsum("bt,d->btd", x[..., 0], v) + y,
        lambda x, y, v, t, k: x[..., 0, None] * v + y,
    ),
    _pair(
        "product by einsum or by star",
        lambda x, y, v, t, k: jnp.einsum("btd,d->btd", x, v) + y,
        lambda x, y, v, t, k: x * v + y,
    ),
    _pair(
        "grouped heads repeated or by einsum",
        lambda x, y, v, t, k: _merged(jnp.repeat(_heads(x)[:, :, :1], H, 2)) * y,
        lambda x, y, v, t, k: _merged(jnp.broadcast_to(_heads(x)[:, :, :1], (B, T, H, K))) * y,
    ),
    _pair(
        "tile or repeat of one head",
        lambda x, y, v, t, k: jnp.tile(x[..., :K], (1, 1, H)) * y,
        lambda x, y, v, t, k: _merged(jnp.repeat(x[:, :, None, :K], H, 2)) * y,
    ),
    _pair(
        "fused projection split or two",
        lambda x, y, v, t, k: (lambda z: jax.nn.silu(z[..., :D]) * z[..., D:])(
            x @ jnp.concatenate([_weights(v, y), _weights(v, x)], 1)
        ),
        lambda x, y, v, t, k: jax.nn.silu(x @ _weights(v, y)) * (x @ _weights(v, x)),
    ),
    _pair(
        "split by jnp.split or by slices",
        lambda x, y, v, t, k: (lambda a, b: jnp.concatenate([jax.nn.silu(a) * b] * 2, -1))(*_halves(x)) * y,
        lambda x, y, v, t, k: jnp.concatenate([jax.nn.silu(x[..., :K]) * x[..., K:]] * 2, -1) * y,
    ),
    _pair(
        "batch transposed around a product",
        lambda x, y, v, t, k: jnp.einsum("tbd,de->tbe", x.swapaxes(0, 1), _weights(v, y)).swapaxes(0, 1) + y,
        lambda x, y, v, t, k: x @ _weights(v, y) + y,
    ),
    _pair(
        "accumulated in float32, cast or preferred type",
        _low(
            lambda x, y, v, t, k: jnp.einsum(
                "btd,de->bte", x, _weights(v, y), preferred_element_type=jnp.float32
            ).astype(LOW)
        ),
        _low(
            lambda x, y, v, t, k: lax.dot_general(
                x, _weights(v, y), (((2,), (0,)), ((), ())), preferred_element_type=jnp.float32
            ).astype(LOW)
        ),
    ),
    _pair(
        "scale on queries or on scores, a power of two",
        lambda x, y, v, t, k: _scores(x * 0.5, y) @ y,
        lambda x, y, v, t, k: (_scores(x, y) * 0.5) @ y,
    ),
    _pair(
        "vmap over heads",
        lambda x, y, v, t, k: (
            _merged(jax.vmap(lambda a: jnp.tanh(a) * 2.0, in_axes=2, out_axes=2)(_heads(x))) * y
        ),
        lambda x, y, v, t, k: jnp.tanh(x) * 2.0 * y,
    ),
    _pair(
        "vmap over positions",
        lambda x, y, v, t, k: jax.vmap(lambda a, b: a * v + b, in_axes=1, out_axes=1)(x, y),
        lambda x, y, v, t, k: x * v + y,
    ),
    _pair(
        "transposes by T, swapaxes, moveaxis",
        lambda x, y, v, t, k: jnp.moveaxis(_heads(x), 2, 1).reshape(B, D, T).swapaxes(1, 2) * y,
        lambda x, y, v, t, k: jnp.transpose(_heads(x), (0, 2, 1, 3)).reshape(B, D, T).transpose(0, 2, 1) * y,
    ),
)

MASKS = (
    _pair(
        "triangle by tril or by comparison",
        lambda x, y, v, t, k: _seen(_causal(), x, y),
        lambda x, y, v, t, k: _seen(jnp.arange(T)[:, None] >= jnp.arange(T)[None], x, y),
    ),
    _pair(
        "triangle by iota",
        lambda x, y, v, t, k: _seen(
            lax.broadcasted_iota(jnp.int32, (T, T), 0) >= lax.broadcasted_iota(jnp.int32, (T, T), 1), x, y
        ),
        lambda x, y, v, t, k: _seen(jnp.arange(T)[:, None] >= jnp.arange(T)[None], x, y),
    ),
    _pair(
        "triangle as float, compared",
        lambda x, y, v, t, k: _seen(jnp.tril(jnp.ones((T, T))) > 0, x, y),
        lambda x, y, v, t, k: _seen(_causal(), x, y),
    ),
    _pair(
        "triangle as float, equal to zero",
        lambda x, y, v, t, k: jnp.where(jnp.tril(jnp.ones((T, T))) == 0, -1e9, _scores(x, y)) @ y,
        lambda x, y, v, t, k: jnp.where(_causal(), _scores(x, y), -1e9) @ y,
    ),
    _pair(
        "triu with an offset",
        lambda x, y, v, t, k: jnp.where(jnp.triu(jnp.ones((T, T), bool), 1), -1e9, _scores(x, y)) @ y,
        lambda x, y, v, t, k: jnp.where(_causal(), _scores(x, y), -1e9) @ y,
    ),
    _pair(
        "bias added or selected",
        lambda x, y, v, t, k: jax.nn.softmax(_scores(x, y) + jnp.where(_causal(), 0.0, -1e9), -1) @ y,
        lambda x, y, v, t, k: _seen(_causal(), x, y),
    ),
    _pair(
        "additive bias by two ways",
        lambda x, y, v, t, k: jax.nn.softmax(_scores(x, y) + jnp.where(_causal(), 0.0, -1e9), -1) @ y,
        lambda x, y, v, t, k: jax.nn.softmax(_scores(x, y) + jnp.where(~_causal(), -1e9, 0.0), -1) @ y,
    ),
    _pair(
        "bias by product with one minus mask",
        lambda x, y, v, t, k: (
            jax.nn.softmax(_scores(x, y) + (1.0 - _causal().astype(jnp.float32)) * -1e9, -1) @ y
        ),
        lambda x, y, v, t, k: jax.nn.softmax(_scores(x, y) + jnp.where(_causal(), 0.0, -1e9), -1) @ y,
    ),
    _pair(
        "mask and mask, product of masks",
        lambda x, y, v, t, k: _seen(_causal() & (k[:, None] > 2), x, y),
        lambda x, y, v, t, k: _seen((_causal().astype(jnp.int32) * (k[:, None] > 2)).astype(bool), x, y),
    ),
    _pair(
        "logical and by name or by sign",
        lambda x, y, v, t, k: _seen(jnp.logical_and(_causal()[None], (k > 2)[:, None, :]), x, y),
        lambda x, y, v, t, k: _seen((k[:, None, :] > 2) & _causal(), x, y),
    ),
    _pair(
        "window by two comparisons",
        lambda x, y, v, t, k: (lambda q, s: _seen((q >= s) & (q - s < 2), x, y))(
            jnp.arange(T)[:, None], jnp.arange(T)[None]
        ),
        lambda x, y, v, t, k: (lambda q, s: _seen((s <= q) & (s > q - 2), x, y))(
            jnp.arange(T)[:, None], jnp.arange(T)[None]
        ),
    ),
    _pair(
        "segments by equality",
        lambda x, y, v, t, k: _seen(k[:, :, None] == k[:, None, :], x, y),
        lambda x, y, v, t, k: _seen(jnp.equal(jnp.expand_dims(k, 1), jnp.expand_dims(k, 2)), x, y),
    ),
    _pair(
        "padding by greater than zero or not zero",
        lambda x, y, v, t, k: jnp.where((k % 4 > 0)[..., None], x, 0.0) * y,
        lambda x, y, v, t, k: jnp.where((k % 4 != 0)[..., None], x, 0.0) * y,
    ),
    _pair(
        "where either way round",
        lambda x, y, v, t, k: jnp.where((k >= 2)[..., None], x, -1e9) * y,
        lambda x, y, v, t, k: jnp.where((k < 2)[..., None], -1e9, x) * y,
    ),
    _pair(
        "fill by full or by scalar",
        lambda x, y, v, t, k: (
            lax.select(jnp.broadcast_to((k > 2)[..., None], x.shape), x, jnp.full_like(x, -1e9)) * y
        ),
        lambda x, y, v, t, k: jnp.where((k > 2)[..., None], x, -1e9) * y,
    ),
    _pair(
        "mask as a number, product",
        lambda x, y, v, t, k: x * (k > 2)[..., None] * y,
        lambda x, y, v, t, k: x * (k > 2).astype(jnp.float32)[..., None] * y,
    ),
    _pair(
        "length mask by arange",
        lambda x, y, v, t, k: jnp.where((jnp.arange(T)[None] < k[:, :1])[..., None], x, 0.0) * y,
        lambda x, y, v, t, k: jnp.where((k[:, 0][:, None] > jnp.arange(T))[:, :, None], x, 0.0) * y,
    ),
)

NUMBERS = (
    _pair(
        "half by division or by product", lambda x, y, v, t, k: x / 2 + y, lambda x, y, v, t, k: x * 0.5 + y
    ),
    _pair("a quarter of a sum", lambda x, y, v, t, k: (x + y) / 4.0, lambda x, y, v, t, k: 0.25 * (x + y)),
    _pair(
        "a third, which is inexact", lambda x, y, v, t, k: x / 3 + y, lambda x, y, v, t, k: x * (1 / 3) + y
    ),
    _pair(
        "over root of size, a power of two",
        lambda x, y, v, t, k: x / jnp.sqrt(4.0) * y,
        lambda x, y, v, t, k: x * 4**-0.5 * y,
    ),
    _pair(
        "over root of size, inexact",
        lambda x, y, v, t, k: x / jnp.sqrt(8.0) * y,
        lambda x, y, v, t, k: x * 8**-0.5 * y,
    ),
    _pair("half in bf16", _low(lambda x, y, v, t, k: x / 2 + y), _low(lambda x, y, v, t, k: x * 0.5 + y)),
    _pair(
        "clip or minimum of maximum",
        lambda x, y, v, t, k: jnp.clip(x, -1, 1) * y,
        lambda x, y, v, t, k: jnp.minimum(jnp.maximum(x, -1), 1) * y,
    ),
    _pair(
        "clip or lax.clamp",
        lambda x, y, v, t, k: jnp.clip(x, -1.0, 1.0) * y,
        lambda x, y, v, t, k: lax.clamp(-1.0, x, 1.0) * y,
    ),
    _pair(
        "clip or maximum of minimum",
        lambda x, y, v, t, k: jnp.clip(x, -1, 1) * y,
        lambda x, y, v, t, k: jnp.maximum(jnp.minimum(x, 1.0), -1.0) * y,
    ),
    _pair("minus by negate or subtract", lambda x, y, v, t, k: x + (-y), lambda x, y, v, t, k: x - y),
    _pair("minus by product", lambda x, y, v, t, k: -x * y, lambda x, y, v, t, k: (-1.0 * x) * y),
    _pair("doubled", lambda x, y, v, t, k: (x + x) * y, lambda x, y, v, t, k: 2 * x * y),
    _pair("square", lambda x, y, v, t, k: x**2 + y, lambda x, y, v, t, k: x * x + y),
    _pair("jnp.square", lambda x, y, v, t, k: jnp.square(x) + y, lambda x, y, v, t, k: x * x + y),
    _pair("cube", lambda x, y, v, t, k: x**3 + y, lambda x, y, v, t, k: x * x * x + y),
    _pair(
        "one over or reciprocal",
        lambda x, y, v, t, k: jnp.reciprocal(x) * y,
        lambda x, y, v, t, k: (1 / x) * y,
    ),
    _pair("power of minus one", lambda x, y, v, t, k: x**-1 * y, lambda x, y, v, t, k: (1 / x) * y),
    _pair("times one, plus zero", lambda x, y, v, t, k: 1.0 * x * y, lambda x, y, v, t, k: x * y),
    _pair("minus zero", lambda x, y, v, t, k: (x - 0.0) * y, lambda x, y, v, t, k: x * y),
    _pair("over one", lambda x, y, v, t, k: (x / 1.0) * y, lambda x, y, v, t, k: x * y),
    _pair(
        "root by power",
        lambda x, y, v, t, k: jnp.abs(x) ** 0.5 * y,
        lambda x, y, v, t, k: jnp.sqrt(jnp.abs(x)) * y,
    ),
    _pair("sum in the other order", lambda x, y, v, t, k: x + y * v, lambda x, y, v, t, k: v * y + x),
    _pair(
        "residual first or last", lambda x, y, v, t, k: x + jnp.tanh(y), lambda x, y, v, t, k: jnp.tanh(y) + x
    ),
    _pair(
        "whole numbers doubled",
        lambda x, y, v, t, k: x * (k + k)[..., None],
        lambda x, y, v, t, k: x * (2 * k)[..., None],
    ),
    _pair(
        "whole number minus",
        lambda x, y, v, t, k: x * (k - 1)[..., None],
        lambda x, y, v, t, k: x * (k + -1)[..., None],
    ),
    _pair(
        "relu or maximum",
        lambda x, y, v, t, k: jax.nn.relu(x) * y,
        lambda x, y, v, t, k: jnp.maximum(x, 0) * y,
    ),
    _pair(
        "relu or where",
        lambda x, y, v, t, k: jax.nn.relu(x) * y,
        lambda x, y, v, t, k: jnp.where(x > 0, x, 0.0) * y,
    ),
    _pair(
        "silu by hand",
        lambda x, y, v, t, k: jax.nn.silu(x) * y,
        lambda x, y, v, t, k: x * jax.nn.sigmoid(x) * y,
    ),
    _pair(
        "swish or silu", lambda x, y, v, t, k: jax.nn.swish(x) * y, lambda x, y, v, t, k: jax.nn.silu(x) * y
    ),
    _pair(
        "sigmoid by exp",
        lambda x, y, v, t, k: jax.nn.sigmoid(x) * y,
        lambda x, y, v, t, k: 1 / (1 + jnp.exp(-x)) * y,
    ),
    _pair(
        "gelu by hand",
        lambda x, y, v, t, k: jax.nn.gelu(x) * y,
        lambda x, y, v, t, k: 0.5 * x * (1 + jnp.tanh(jnp.sqrt(2 / jnp.pi) * (x + 0.044715 * x**3))) * y,
    ),
    _pair(
        "soft cap",
        lambda x, y, v, t, k: jnp.tanh(x / 32.0) * 32.0 * y,
        lambda x, y, v, t, k: 32.0 * jnp.tanh(x * 0.03125) * y,
    ),
    _pair(
        "softmax by hand",
        lambda x, y, v, t, k: jax.nn.softmax(x) * y,
        lambda x, y, v, t, k: (
            (lambda e: e / e.sum(-1, keepdims=True))(jnp.exp(x - lax.stop_gradient(x.max(-1, keepdims=True))))
            * y
        ),
    ),
    _pair(
        "python float or array",
        lambda x, y, v, t, k: x * jnp.asarray(0.3, x.dtype) + y,
        lambda x, y, v, t, k: x * 0.3 + y,
    ),
    _pair(
        "root of embedding size",
        lambda x, y, v, t, k: x * jnp.sqrt(jnp.float32(16)) * y,
        lambda x, y, v, t, k: x * 4.0 * y,
    ),
    _pair(
        "cast twice",
        lambda x, y, v, t, k: jnp.asarray(x.astype(jnp.float32), jnp.float32) * y,
        lambda x, y, v, t, k: x * y,
    ),
)


def _slot(k):
    return k[0, 0] % T


CACHE = (
    _pair(
        "row by dynamic_update_slice or at.set",
        lambda x, y, v, t, k: lax.dynamic_update_slice(x, y[:, :1], (0, _slot(k), 0)),
        lambda x, y, v, t, k: x.at[:, _slot(k)].set(y[:, 0]),
    ),
    _pair(
        "row by dynamic_update_slice or in_dim",
        lambda x, y, v, t, k: lax.dynamic_update_slice(x, y[:, :1], (0, _slot(k), 0)),
        lambda x, y, v, t, k: lax.dynamic_update_slice_in_dim(x, y[:, :1], _slot(k), axis=1),
    ),
    _pair(
        "row by dynamic_update_slice or index_in_dim",
        lambda x, y, v, t, k: lax.dynamic_update_slice(x, y[:, :1], (0, _slot(k), 0)),
        lambda x, y, v, t, k: lax.dynamic_update_index_in_dim(x, y[:, 0], _slot(k), 1),
    ),
    _pair(
        "row by where or dynamic_update_slice",
        lambda x, y, v, t, k: jnp.where((jnp.arange(T) == _slot(k))[None, :, None], y[:, :1], x),
        lambda x, y, v, t, k: lax.dynamic_update_slice(x, y[:, :1], (0, _slot(k), 0)),
    ),
    _pair(
        "row by one hot or where",
        lambda x, y, v, t, k: (lambda h: x * (1 - h) + y[:, :1] * h)(
            jax.nn.one_hot(_slot(k), T)[None, :, None]
        ),
        lambda x, y, v, t, k: jnp.where((jnp.arange(T) == _slot(k))[None, :, None], y[:, :1], x),
    ),
    _pair(
        "known row by dynamic_update_slice or at.set",
        lambda x, y, v, t, k: lax.dynamic_update_slice(x, y[:, :1], (0, 2, 0)) * y,
        lambda x, y, v, t, k: x.at[:, 2].set(y[:, 0]) * y,
    ),
    _pair(
        "known row by dynamic_update_slice or concatenate",
        lambda x, y, v, t, k: lax.dynamic_update_slice(x, y[:, :1], (0, 2, 0)) * y,
        lambda x, y, v, t, k: jnp.concatenate([x[:, :2], y[:, :1], x[:, 3:]], 1) * y,
    ),
    _pair(
        "known rows by at.set or concatenate",
        lambda x, y, v, t, k: x.at[:, :2].set(y[:, :2]) * y,
        lambda x, y, v, t, k: jnp.concatenate([y[:, :2], x[:, 2:]], 1) * y,
    ),
    _pair(
        "shifted tokens by pad or concatenate",
        lambda x, y, v, t, k: jnp.pad(x[:, :-1], ((0, 0), (1, 0), (0, 0))) * y,
        lambda x, y, v, t, k: jnp.concatenate([jnp.zeros_like(x[:, :1]), x[:, :-1]], 1) * y,
    ),
    _pair(
        "row read by dynamic_slice or take",
        lambda x, y, v, t, k: lax.dynamic_slice_in_dim(x, _slot(k), 1, 1) * y,
        lambda x, y, v, t, k: jnp.take(x, _slot(k)[None], axis=1, mode="clip") * y,
    ),
    _pair(
        "last row by index or slice",
        lambda x, y, v, t, k: x[:, -1:] * y,
        lambda x, y, v, t, k: lax.dynamic_slice_in_dim(x, T - 1, 1, 1) * y,
    ),
    _pair(
        "embedding by take or by brackets",
        lambda x, y, v, t, k: jnp.take(x.reshape(-1, D), k % 12, axis=0) * y,
        lambda x, y, v, t, k: x.reshape(-1, D)[k % 12] * y,
    ),
    _pair(
        "embedding by take or one hot",
        lambda x, y, v, t, k: jnp.take(x.reshape(-1, D), k % 12, axis=0) * y,
        lambda x, y, v, t, k: jax.nn.one_hot(k % 12, 12) @ x.reshape(-1, D) * y,
    ),
    _pair(
        "rolled by roll or concatenate",
        lambda x, y, v, t, k: jnp.roll(x, 1, 1) * y,
        lambda x, y, v, t, k: jnp.concatenate([x[:, -1:], x[:, :-1]], 1) * y,
    ),
)

BRANCHES = (
    _pair(
        "cond on a constant",
        lambda x, y, v, t, k: lax.cond(True, lambda a: a * y, lambda a: a - y, x),
        lambda x, y, v, t, k: x * y,
    ),
    _pair(
        "cond on a computed constant",
        lambda x, y, v, t, k: lax.cond(jnp.array(3) > 2, lambda a: a * v + y, lambda a: a - y, x),
        lambda x, y, v, t, k: x * v + y,
    ),
    _pair(
        "switch on a constant",
        lambda x, y, v, t, k: lax.switch(1, [lambda a: a - y, lambda a: a * y, lambda a: a], x),
        lambda x, y, v, t, k: x * y,
    ),
    _pair(
        "cond of equal branches",
        lambda x, y, v, t, k: lax.cond(k[0, 0] > 1, lambda a: a * y, lambda a: a * y, x),
        lambda x, y, v, t, k: x * y,
    ),
    _pair(
        "cond or select of scalars",
        lambda x, y, v, t, k: x * lax.cond(k[0, 0] > 1, lambda: 2.0, lambda: 3.0),
        lambda x, y, v, t, k: x * jnp.where(k[0, 0] > 1, 2.0, 3.0),
    ),
    _pair(
        "cond the other way round",
        lambda x, y, v, t, k: lax.cond(k[0, 0] > 1, lambda a: a * y, lambda a: a - y, x),
        lambda x, y, v, t, k: lax.cond(k[0, 0] <= 1, lambda a: a - y, lambda a: a * y, x),
    ),
    _pair(
        "loop of one turn",
        lambda x, y, v, t, k: lax.fori_loop(0, 1, lambda j, c: c * v + y, x),
        lambda x, y, v, t, k: x * v + y,
    ),
    _pair(
        "scan or fori_loop",
        lambda x, y, v, t, k: lax.scan(lambda c, _: (jnp.tanh(c) * v + y, None), x, None, length=3)[0],
        lambda x, y, v, t, k: lax.fori_loop(0, 3, lambda j, c: jnp.tanh(c) * v + y, x),
    ),
    _pair(
        "scan or written turns",
        lambda x, y, v, t, k: lax.scan(lambda c, a: (jnp.tanh(c) * a, None), x, y)[0],
        lambda x, y, v, t, k: jnp.tanh(jnp.tanh(jnp.tanh(x) * y[0]) * y[1]) * y[2],
    ),
    _pair(
        "checkpoint and jit boundaries",
        lambda x, y, v, t, k: jax.jit(lambda a, b: jax.nn.gelu(a) * b)(x, y),
        lambda x, y, v, t, k: jax.nn.gelu(x) * y,
    ),
)

SUBJECTS: dict[str, tuple[Step, ...]] = {
    "losses": LOSSES,
    "norms": NORMS,
    "rotary": ROTARY,
    "einsum and vmap": EINSUM,
    "masks": MASKS,
    "numbers": NUMBERS,
    "cache": CACHE,
    "branches": BRANCHES,
}
