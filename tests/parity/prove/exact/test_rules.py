"""Every operation and every rule: terms evaluated in float64 against JAX, and normal forms that must agree."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from campaigns.exact.evaluate import Evaluator

from parity.prove.exact.interpreter import Interpreter, Named, Shared
from parity.prove.exact.relation import atom

B, T, D, V = 3, 4, 5, 7


@functools.cache
def lowered(name):
    """Returns an operation's lowered program and JAX's results, in float64."""
    function, arrays = OPERATIONS[name]
    with jax.enable_x64(True), jax.numpy_rank_promotion("allow"):
        program = jax.jit(function).lower(*arrays)
        return program, [np.asarray(x) for x in jax.tree.leaves(program.compile()(*arrays))]


def walked(name, split_axes):
    """Returns the values of the terms of an operation."""
    arrays, (program, truth) = OPERATIONS[name][1], lowered(name)
    names = [f"x{i}" for i in range(len(arrays))]
    cache = Shared()
    results = [f"y{i}" for i in range(len(truth))]
    with jax.enable_x64(True):
        side = Interpreter(Named(program=program, arguments=names, results=results), cache)
        given = {
            name: atom(cache.tensors, name, *side.types[name], dims)
            for name, dims in zip(names, split_axes, strict=True)
        }
        made = side.walk(given)
    evaluator = Evaluator(cache.algebra.terms, dict(zip(names, arrays, strict=True)))
    return [evaluator.tensor(x) for x in made.values()]


def real(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).uniform(-2, 2, shape)


def whole(high, *shape, seed=0):
    return np.random.default_rng([seed, *shape]).integers(0, high, shape).astype(np.int32)


def loss(table, kernel, tokens, x):
    y = table[tokens] + x
    y = y * jax.lax.rsqrt(jnp.mean(jnp.square(y), -1, keepdims=True) + 1e-3)
    scores = jax.nn.softmax(
        jnp.where(tokens[:, :, None] > tokens[:, None], jnp.einsum("btd,bsd->bts", y, y), -9.0)
    )
    y = jnp.einsum("bts,bsd->btd", scores, y) @ kernel
    return jnp.sum(jax.nn.logsumexp(jnp.tanh(y), -1) * (tokens > 1))


OPERATIONS = {
    "arithmetic": (lambda x, y: (x + y - 2 * x * y / (3 + y * y), -x, jnp.abs(y)), (real(B, T), real(T))),
    "functions": (
        lambda x: (
            jnp.exp(x),
            jnp.tanh(x),
            jnp.sin(x) * jnp.cos(x),
            jax.nn.sigmoid(x),
            jnp.sign(x),
            jnp.floor(x),
        ),
        (real(B, T),),
    ),
    "exponentials": (
        lambda x, y: (
            jnp.exp(x + 2 * y - 0.5) * jnp.exp(-x),
            jnp.log(jnp.exp(x) * (2 + y * y) * 3),
            1 / jnp.exp(x) / jnp.exp(y).sum(),
            jnp.exp(jnp.log(1 + x * x) * 2 - jnp.log(2 + y * y)),
            jax.nn.logsumexp(x, 1) - jax.nn.softmax(y, 0)[:, 0] * jnp.exp(-jax.nn.logsumexp(x)),
            jnp.log(jnp.exp(x) * (jnp.exp(-x) + jnp.exp(y - x)) + 2 * jnp.exp(0 * y)),
            jnp.abs(jnp.exp(x) + y * y),
            jnp.exp(-jnp.inf + x) + jnp.maximum(-jnp.inf, y),
        ),
        (real(B, T), real(B, T, seed=1)),
    ),
    "roots": (lambda x: (jnp.sqrt(jnp.abs(x)), jnp.log(2 + jnp.abs(x)), (2.5 + x) ** 1.7), (real(B, T),)),
    "shapes": (
        lambda x: (
            x.reshape(B, 2, 2, D),
            x.transpose(2, 0, 1),
            x[:, None] + x[:, :, None],
            x.reshape(B * T, D) * 2,
        ),
        (real(B, T, D),),
    ),
    "split and joined": (lambda x: (x.reshape(B, 2, 2, D) * real(2, 1)).reshape(B, T, D), (real(B, T, D),)),
    "reshaped after a broadcast": (
        lambda x: (
            jnp.broadcast_to(x[:, None], (B, 6, T)).reshape(B, 2, 3, T).transpose(0, 2, 1, 3).reshape(B, 6, T)
        ),
        (real(B, T),),
    ),
    "slices": (lambda x: (x[1:, ::2], x[:, 1:3], x[:, 1:][:, 1:], x[2], x[:, -1]), (real(B, T),)),
    "parts of parts": (
        lambda x: (
            jnp.sin(x)[1:, :, 1:][..., ::2][:, ::2][1:, 1],
            jnp.sin(x)[:, 1:3, 1:][:, :1, 1:3],
            jnp.concatenate([jnp.cos(x)[:, 1:3, 2:], jnp.cos(x)[:, 3:, 2:]], 1)[..., 1],
            jnp.flip(jnp.tanh(x.reshape(B, T * D))[:, 1:13:3][:, 1:], 0),
        ),
        (real(B, T, D),),
    ),
    "sums of rows, some of them uniform": (
        lambda x: jnp.flip(jnp.concatenate([jnp.ones((1, T)), x, jnp.zeros((1, T))]).sum(1), 0),
        (real(B, T),),
    ),
    "joins": (
        lambda x, y: (
            jnp.concatenate([x, y], 1)[:, 2:6],
            jnp.concatenate([x[:, :2], x[:, 2:]], 1),
            jnp.stack([x, x]),
        ),
        (real(B, T), real(B, T, seed=1)),
    ),
    "padding": (
        lambda x: (jnp.pad(x, ((1, 0), (0, 2))), jax.lax.pad(x, 1.5, ((0, 0, 1), (-1, 2, 2)))),
        (real(B, T),),
    ),
    "sums": (
        lambda x: (x.sum(0), x.sum(1), x.sum(), (x + 1).sum(1), jnp.ones((B, T)).sum() * x),
        (real(B, T),),
    ),
    "extremes": (
        lambda x: (x.max(0), x.min(1), jnp.maximum(x, 0.5).max(), (x > 1).any(1), (x > -9).all()),
        (real(B, T),),
    ),
    "products": (
        lambda x, y: (
            jnp.einsum("btd,bsd->bts", x, y),
            jnp.einsum("btd,btd->bd", x, y),
            jnp.tensordot(x, y, 3),
        ),
        (real(B, T, D), real(B, T, D, seed=2)),
    ),
    "rows contracted": (lambda x, y: jnp.einsum("btd,bt->d", x, y), (real(B, T, D), real(B, T))),
    "one matrix twice": (lambda x: (x @ x.T, x.T @ x, x * x.T[:3, :3] @ x.T[:3, :3].T), (real(3, 3),)),
    "masks": (
        lambda x, i: (
            jnp.where(i[:, :, None] >= i[:, None], x[..., None] - x[:, None], -7.0),
            i % 3,
            i // 2 * 5,
        ),
        (real(B, T), whole(5, B, T)),
    ),
    "iota": (
        lambda i: (jnp.arange(T) * 2 + i, jax.nn.one_hot(i, V), jnp.arange(T)[:, None] >= jnp.arange(T)),
        (whole(V, B, T),),
    ),
    "table": (lambda table, i: table[i], (real(V, D), whole(V, B, T))),
    "tables of their own": (
        lambda table, i, x: (
            jax.vmap(lambda t, j: t[j])(table, i),
            jax.vmap(lambda t, j, y: t.at[j].add(y))(table, i, x),
        ),
        (real(B, V, D), whole(V, B, T), real(B, T, D)),
    ),
    "scatter": (lambda x, i: jnp.ones((V, D)).at[i].add(3 * x), (real(B, T, D), whole(V, B, T))),
    "rows of tables in two batch dimensions": (
        jax.grad(lambda x, i: jnp.sum(jnp.sin(jnp.take_along_axis(x, i, -1)))),
        (real(B, T, D), whole(D, B, T, 2)),
    ),
    "choice of constants": (
        lambda i: (jnp.where(i > 2, 3.0, -1.5), jnp.where(i > 2, 1.0, 0.0), jnp.where(i > 1, i < 3, i > 3)),
        (whole(5, B, T),),
    ),
    "scatter of one row": (lambda i: jnp.zeros((V, D)).at[i].add(2.0), (whole(V, B, T),)),
    "data": (lambda x: (x + real(B, T, seed=5)) * np.arange(T), (real(B, T),)),
    "loop": (
        lambda x: jax.lax.scan(lambda c, e: (c * 1.5 + e[0], c - e[1]), x[0], (x, jnp.arange(B))),
        (real(B, T),),
    ),
    "updates": (
        lambda x: jax.lax.fori_loop(
            0, B, lambda i, c: jax.lax.dynamic_update_index_in_dim(c, c[i] * i, i, 0), x
        ),
        (real(B, T),),
    ),
    "branch": (
        lambda x, i: jax.lax.cond(i[0, 0] > 2, lambda: x * 2, lambda: -x),
        (real(B, T), whole(5, B, T)),
    ),
    "switch": (
        lambda x, i: jax.lax.switch(
            i[0, 0],
            [lambda: x, lambda: x * 2, lambda: x * 3],
        ),
        (real(B, T), whole(3, B, T)),
    ),
    "roll and flip": (lambda x: (jnp.roll(x, 1, 0), jnp.flip(x, 0), jnp.flip(x, 1)), (real(B, T),)),
    "integers wrap": (
        lambda i: (i * 2**30 + 2**31 - 1, (i - 2).astype(jnp.uint32) // 2, (-i - 3) // 2),
        (whole(9, B, T),),
    ),
    "conversions": (
        lambda x, i: (x.astype(jnp.int32), (i > 1) * x, i.astype(float) / 2, x.astype(bool)),
        (real(B, T), whole(5, B, T)),
    ),
    "model": (loss, (real(V, D), real(D, V, seed=3), whole(V, B, T), real(B, T, D))),
    "gradient": (jax.grad(loss, (0, 1, 3)), (real(V, D), real(D, V, seed=3), whole(V, B, T), real(B, T, D))),
}


@pytest.mark.parametrize("rows", [True, False], ids=["apart", "whole"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_terms_evaluate_like_jax(name, rows):
    split_axes = [(0,) if rows and x.shape[0] == B else () for x in OPERATIONS[name][1]]
    for x, y in zip(walked(name, split_axes), lowered(name)[1], strict=True):
        assert x.shape == y.shape
        np.testing.assert_allclose(x.astype(float), y.astype(float), rtol=1e-9, atol=1e-11)
