"""Further rewrites as people write them, in the styles of Equinox, of Haiku, and by hand; written before any rule."""

# B batch, T positions, D features, H heads, K features of a head

import jax
import jax.numpy as jnp
from jax import lax
from steps import B, D, Step, T  # pyright: ignore[reportMissingImports]

H, K = 2, 4


def _pair(name, one, other):
    return Step(name=name, one=one, other=other)


def _key_mask(k):
    return k > 3


EQUINOX = (
    _pair(
        "linear with bias by vmap of W x + b",
        lambda x, y, v, t, k: jax.vmap(jax.vmap(lambda a: jnp.outer(v, y[0, 0]).T @ a + v))(x),
        lambda x, y, v, t, k: x @ jnp.outer(v, y[0, 0]) + v,
    ),
    _pair(
        "layer norm on one token by vmap",
        lambda x, y, v, t, k: jax.vmap(
            jax.vmap(lambda a: (a - a.mean()) * lax.rsqrt(a.var() + 1e-5) * v + y[0, 0])
        )(x),
        lambda x, y, v, t, k: (
            (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * v + y[0, 0]
        ),
    ),
    _pair(
        "layer norm with max(0, var)",
        lambda x, y, v, t, k: (lambda m, s: (x - m) * lax.rsqrt(jnp.maximum(0.0, s) + 1e-5) * v)(
            x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        ),
        lambda x, y, v, t, k: (lambda m, s: v * ((x - m) * lax.rsqrt(jnp.maximum(s, 0.0) + 1e-5)))(
            x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        ),
    ),
    _pair(
        "rms norm, inverse root first",
        lambda x, y, v, t, k: (lambda r: (r * x) * v)(lax.rsqrt(jnp.mean(x**2, -1, keepdims=True) + 1e-5)),
        lambda x, y, v, t, k: (lambda r: v * (x * r))(
            lax.rsqrt(1e-5 + jnp.mean(jnp.square(x), -1, keepdims=True))
        ),
    ),
    _pair(
        "mlp residual, vmapped or whole",
        lambda x, y, v, t, k: jax.vmap(lambda a: a + jax.nn.gelu(a * v))(x) * y,
        lambda x, y, v, t, k: (jax.nn.gelu(v * x) + x) * y,
    ),
)
HAIKU = (
    _pair(
        "haiku layer norm: scale times inverse root first",
        lambda x, y, v, t, k: (lambda m, s: v * lax.rsqrt(s + 1e-5) * (x - m) + y)(
            x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        ),
        lambda x, y, v, t, k: (lambda m, s: (x - m) * (v * lax.rsqrt(s + 1e-5)) + y)(
            x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        ),
    ),
    _pair(
        "haiku attention logits scaled before or after",
        lambda x, y, v, t, k: jax.nn.softmax(0.5 * jnp.einsum("btd,bsd->bts", x, y)) @ y,
        lambda x, y, v, t, k: jax.nn.softmax(jnp.einsum("btd,bsd->bts", x, y) / 2.0) @ y,
    ),
    _pair(
        "heads by reshape of leading axes",
        lambda x, y, v, t, k: (
            x.reshape(*x.shape[:2], H, K).transpose(0, 2, 1, 3).reshape(B * H, T, K).sum(0)[None, :, :1] + y
        ),
        lambda x, y, v, t, k: (
            jnp.einsum("bthk->bhtk", x.reshape(B, T, H, K)).reshape(-1, T, K).sum(0)[None, :, :1] + y
        ),
    ),
    _pair(
        "embedding by one lookup or split rows",
        lambda x, y, v, t, k: x.reshape(-1, D)[jnp.asarray(k % 12)] * y,
        lambda x, y, v, t, k: jnp.asarray(x.reshape(-1, D))[(k % 12,)] * y,
    ),
)
LOSSES = (
    _pair(
        "mean squared error, order of the difference",
        lambda x, y, v, t, k: jnp.mean((x - y) ** 2, -1, keepdims=True) * y,
        lambda x, y, v, t, k: jnp.mean(jnp.square(x - y), axis=-1, keepdims=True) * y,
    ),
    _pair(
        "weighted loss, weights first or last",
        lambda x, y, v, t, k: (v * jnp.abs(x - y)).sum(-1, keepdims=True) * y,
        lambda x, y, v, t, k: (jnp.abs(x - y) * v).sum(-1, keepdims=True) * y,
    ),
    _pair(
        "focal weight by power or product",
        lambda x, y, v, t, k: (lambda p: (1 - p) ** 2 * jnp.log(p) * y)(jax.nn.sigmoid(x)),
        lambda x, y, v, t, k: (lambda p: jnp.log(p) * jnp.square(1.0 - p) * y)(jax.nn.sigmoid(x)),
    ),
    _pair(
        "masked mean by where sum",
        lambda x, y, v, t, k: (
            jnp.sum(x * _key_mask(k)[..., None], where=None) / jnp.maximum(jnp.sum(_key_mask(k)), 1) * y
        ),
        lambda x, y, v, t, k: (
            jnp.sum(_key_mask(k)[..., None] * x) / jnp.maximum(1, jnp.sum(_key_mask(k))) * y
        ),
    ),
    _pair(
        "mean with a where argument",
        lambda x, y, v, t, k: jnp.mean(x, -1, keepdims=True, where=_key_mask(k)[..., None]) * y,
        lambda x, y, v, t, k: (
            lambda m: (
                jnp.sum(jnp.where(m, x, 0), -1, keepdims=True)
                / jnp.sum(m.astype(jnp.float32), -1, keepdims=True)
                * y
            )
        )(jnp.broadcast_to(_key_mask(k)[..., None], x.shape)),
    ),
    _pair(
        "z loss coefficient first",
        lambda x, y, v, t, k: (1e-4 * jnp.square(jax.nn.logsumexp(x, -1)))[..., None] * y,
        lambda x, y, v, t, k: (jax.nn.logsumexp(x, axis=-1, keepdims=True) ** 2 * 1e-4) * y,
    ),
    _pair(
        "auxiliary loss scaled and added",
        lambda x, y, v, t, k: x.mean() * v + 0.01 * y,
        lambda x, y, v, t, k: y * 0.01 + v * jnp.mean(x),
    ),
    _pair(
        "one minus smoothing",
        lambda x, y, v, t, k: x * (1.0 - 0.1) + 0.1 / D * y,
        lambda x, y, v, t, k: 0.9 * x + y * (0.1 / D),
    ),
    _pair(
        "kl: p (log p - log q)",
        lambda x, y, v, t, k: jnp.exp(x) * (x - y),
        lambda x, y, v, t, k: (x - y) * jnp.exp(x),
    ),
)
ROTARY = (
    _pair(
        "rotate by negative concatenate, cos last",
        lambda x, y, v, t, k: x * jnp.cos(y) + jnp.concatenate([-x[..., 4:], x[..., :4]], -1) * jnp.sin(y),
        lambda x, y, v, t, k: jnp.cos(y) * x + jnp.sin(y) * jnp.concatenate([-x[..., 4:], x[..., :4]], -1),
    ),
    _pair(
        "rotate by roll with a sign",
        lambda x, y, v, t, k: jnp.concatenate([-x[..., 4:], x[..., :4]], -1) * y,
        lambda x, y, v, t, k: jnp.roll(x, 4, -1) * jnp.concatenate([-jnp.ones(4), jnp.ones(4)]) * y,
    ),
    _pair(
        "inverse frequency times position",
        lambda x, y, v, t, k: x * jnp.sin(jnp.einsum("t,d->td", t, v)),
        lambda x, y, v, t, k: x * jnp.sin(jnp.outer(t, v)),
    ),
    _pair(
        "positions as floats of a range",
        lambda x, y, v, t, k: x * jnp.cos(jnp.arange(T, dtype=jnp.float32)[:, None] * v),
        lambda x, y, v, t, k: x * jnp.cos(v * jnp.arange(T)[:, None].astype(jnp.float32)),
    ),
    _pair(
        "halves from split or from indexing",
        lambda x, y, v, t, k: (lambda a, b: jnp.concatenate([a * 2.0, -b], -1) * y)(
            *jnp.split(x, 2, axis=-1)
        ),
        lambda x, y, v, t, k: jnp.concatenate([2.0 * x[:, :, : D // 2], -x[:, :, D // 2 :]], axis=2) * y,
    ),
)
MASKS = (
    _pair(
        "additive mask: where or product with a big number",
        lambda x, y, v, t, k: x + jnp.where(_key_mask(k), 0.0, -1e9)[..., None] + y,
        lambda x, y, v, t, k: jnp.where(_key_mask(k), 0.0, -1e9)[:, :, None] + x + y,
    ),
    _pair(
        "causal by k <= q or q >= k",
        lambda x, y, v, t, k: (
            jnp.where(
                jnp.arange(T)[None, :] <= jnp.arange(T)[:, None], jnp.einsum("btd,bsd->bts", x, y), -jnp.inf
            )
            @ y
        ),
        lambda x, y, v, t, k: (
            jnp.where(jnp.tril(jnp.ones((T, T))) == 1, jnp.einsum("btd,bsd->bts", x, y), -jnp.inf) @ y
        ),
    ),
    _pair(
        "combine masks by product or logical and",
        lambda x, y, v, t, k: jnp.where((_key_mask(k) & (k < 9))[..., None], x, 0.0) * y,
        lambda x, y, v, t, k: jnp.where(jnp.logical_and(k < 9, k > 3)[..., None], x, 0.0) * y,
    ),
    _pair(
        "padding mask by not equal",
        lambda x, y, v, t, k: jnp.where((k != 0)[..., None], x, 0.0) * y,
        lambda x, y, v, t, k: jnp.where((k == 0)[..., None], 0.0, x) * y,
    ),
    _pair(
        "invert and fill",
        lambda x, y, v, t, k: jnp.where(~_key_mask(k)[..., None], jnp.finfo(jnp.float32).min, x) * y,
        lambda x, y, v, t, k: (
            jnp.where(_key_mask(k)[..., None], x, jnp.full((), jnp.finfo(jnp.float32).min)) * y
        ),
    ),
    _pair(
        "segment mask times positions",
        lambda x, y, v, t, k: (
            jnp.where(
                (k[:, :, None] == k[:, None, :]) & (jnp.arange(T)[:, None] >= jnp.arange(T)),
                x[:, :, :T],
                -1e10,
            )
            @ y
        ),
        lambda x, y, v, t, k: (
            jnp.where(
                (jnp.arange(T) <= jnp.arange(T)[:, None]) & jnp.equal(k[:, None, :], k[:, :, None]),
                x[..., :T],
                -1e10,
            )
            @ y
        ),
    ),
)
CACHE = (
    _pair(
        "append by dynamic_update_slice or at.set, known place",
        lambda x, y, v, t, k: lax.dynamic_update_slice(x, y[:, 2:3], (0, 3, 0)) * v,
        lambda x, y, v, t, k: x.at[:, 3:4].set(y[:, 2:3]) * v,
    ),
    _pair(
        "append by dynamic_update_slice_in_dim",
        lambda x, y, v, t, k: lax.dynamic_update_slice_in_dim(x, y[:, :1], k[0, 0], 1) * v,
        lambda x, y, v, t, k: lax.dynamic_update_slice(x, y[:, :1], (0, k[0, 0], 0)) * v,
    ),
    _pair(
        "first row by set or concatenate",
        lambda x, y, v, t, k: x.at[:, 0].set(y[:, 0]) * v,
        lambda x, y, v, t, k: jnp.concatenate([y[:, :1], x[:, 1:]], 1) * v,
    ),
    _pair(
        "shift the window",
        lambda x, y, v, t, k: jnp.concatenate([x[:, 1:], y[:, :1]], 1) * v,
        lambda x, y, v, t, k: jnp.roll(x, -1, 1).at[:, -1].set(y[:, 0]) * v,
    ),
    _pair(
        "index plus one",
        lambda x, y, v, t, k: x * (k[0, 0] + 1) * y,
        lambda x, y, v, t, k: x * (1 + k[0, 0]) * y,
    ),
)
ROUTING = (
    _pair(
        "router softmax then pick or where of a mask",
        lambda x, y, v, t, k: (jax.nn.softmax(x) * jax.nn.one_hot(k % D, D)) * y,
        lambda x, y, v, t, k: (jax.nn.one_hot(k % D, D) * jax.nn.softmax(x)) * y,
    ),
    _pair(
        "combine by einsum or weighted sum",
        lambda x, y, v, t, k: jnp.einsum("btd,btd->bt", x, y)[..., None] * y,
        lambda x, y, v, t, k: jnp.sum(y * x, -1, keepdims=True) * y,
    ),
    _pair(
        "expert mask by comparison or one hot",
        lambda x, y, v, t, k: x * (k[..., None] == jnp.arange(D)).astype(jnp.float32) * y,
        lambda x, y, v, t, k: x * jax.nn.one_hot(k, D) * y,
    ),
    _pair(
        "normalised weights, sum last",
        lambda x, y, v, t, k: (lambda w: w / w.sum(-1, keepdims=True) * y)(jnp.exp(x)),
        lambda x, y, v, t, k: (lambda w: w / jnp.sum(w, axis=-1)[..., None] * y)(jnp.exp(x)),
    ),
    _pair(
        "load: mean of a mask times probabilities",
        lambda x, y, v, t, k: (
            (jax.nn.one_hot(k % D, D).mean((0, 1)) * jax.nn.softmax(x).mean((0, 1))).sum() * y
        ),
        lambda x, y, v, t, k: (
            jnp.sum(
                jnp.mean(jax.nn.softmax(x), axis=(0, 1)) * jnp.mean(jax.nn.one_hot(k % D, D), axis=(0, 1))
            )
            * y
        ),
    ),
)
UPDATES = (
    _pair(
        "gated unit, gate first or last",
        lambda x, y, v, t, k: jax.nn.silu(x) * y,
        lambda x, y, v, t, k: y * (x * jax.nn.sigmoid(x)),
    ),
    _pair(
        "soft cap, either order",
        lambda x, y, v, t, k: 30.0 * jnp.tanh(x / 30.0) + y,
        lambda x, y, v, t, k: y + jnp.tanh(x / 30.0) * 30.0,
    ),
    _pair(
        "scale by depth",
        lambda x, y, v, t, k: x + y * (1.0 / jnp.sqrt(2.0)),
        lambda x, y, v, t, k: x + (1.0 / jnp.sqrt(2.0)) * y,
    ),
    _pair(
        "exponential moving average",
        lambda x, y, v, t, k: 0.9 * x + (1 - 0.9) * y,
        lambda x, y, v, t, k: x * 0.9 + y * (1 - 0.9),
    ),
    _pair(
        "weight decay added",
        lambda x, y, v, t, k: x - 0.1 * (y + 0.01 * x),
        lambda x, y, v, t, k: x - (0.01 * x + y) * 0.1,
    ),
    _pair("momentum", lambda x, y, v, t, k: 0.9 * y + x, lambda x, y, v, t, k: x + y * 0.9),
    _pair(
        "cond on a flag of the config",
        lambda x, y, v, t, k: lax.cond(jnp.asarray(False), lambda a: a * v, lambda a: a + y, x),
        lambda x, y, v, t, k: y + x,
    ),
)
FURTHER: dict[str, tuple[Step, ...]] = {
    "in the style of Equinox": EQUINOX,
    "in the style of Haiku": HAIKU,
    "losses by hand": LOSSES,
    "rotary by hand": ROTARY,
    "masks by hand": MASKS,
    "cache by hand": CACHE,
    "routing": ROUTING,
    "updates": UPDATES,
}
