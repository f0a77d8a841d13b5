"""Pairs next to the rules of floats, branches, updates and constants that differ for some input: none is proved."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

_SIX = np.arange(6, dtype=np.int32)
_GATHERED = lax.GatherDimensionNumbers((0, 1), (), (0,))
_SCATTERED = lax.ScatterDimensionNumbers((0, 1), (), (0,))


def _counted():
    """Returns a mask that is true everywhere, which no compiler folds."""
    return lax.iota(jnp.int32, 4)[:, None] >= -lax.iota(jnp.int32, 6)[None]


def _where(predicate, yes, no):
    return jnp.where(predicate, yes(), no())


def _either(choose, one, other):
    return choose(other[0, 0] > 0, lambda: one, lambda: other)


def _chosen(numbers, x, y):
    return jnp.where(numbers > 2, x * y, y) + x


def _joined(x, zeros, y):
    return x + jnp.concatenate([x[0, :1], zeros]).sum() * y


FLOATS = {
    "a vector by rows or by columns": (
        lambda x, y: lax.dot_general(y[0], x, (((0,), (1,)), ((), ()))),
        lambda x, y: y[0] @ x.T,
    ),
    "two transposed operands": (
        lambda x, y: (x[:, :3].T @ y[:3].T[:4]).sum() * x[:2],
        lambda x, y: lax.dot_general(x[:, :3], y[:3].T[:4], (((0,), (0,)), ((), ()))).sum() * x[:2],
    ),
    "an update, added to": (
        lambda x, y: lax.dynamic_update_slice(x, y[:1], (2, 0)) + y,
        lambda x, y: jnp.concatenate([x[:2], y[:1], x[3:]]) + y,
    ),
    "an update that a loop reads": (
        lambda x, y: lax.fori_loop(0, 3, lambda _, c: c * y, lax.dynamic_update_slice(x, y[:1], (2, 0))),
        lambda x, y: lax.fori_loop(0, 3, lambda _, c: c * y, jnp.concatenate([x[:2], y[:1], x[3:]])),
    ),
    "products through a unit axis": (
        lambda x, y: (x * 1.3) * y[:1],
        lambda x, y: ((x * 1.3)[None] * y[None, :1])[0],
    ),
    "quotients through a unit axis": (lambda x, y: (x / y) / y, lambda x, y: ((x / y)[None] / y[None])[0]),
    "quotient by a root through a unit axis": (
        lambda x, y: x / jnp.sqrt(y),
        lambda x, y: (x[None] / jnp.sqrt(y)[None])[0],
    ),
    "sum of added rows through a unit axis": (
        lambda x, y: jnp.zeros_like(x).at[y[:2, 0].astype(int)].add(y[:2]) + x,
        lambda x, y: (jnp.zeros_like(x).at[y[:2, 0].astype(int)].add(y[:2])[None] + x[None])[0],
    ),
    "converted boolean through a unit axis": (
        lambda x, y: x * (y > 0).astype(x.dtype),
        lambda x, y: (x[None] * (y > 0).astype(x.dtype)[None])[0],
    ),
    "free axes behind the contracted one": (
        lambda x, y: jnp.einsum("kfg,ki->fgi", x.reshape(4, 2, 3), y),
        lambda x, y: jnp.einsum("kf,ki->fi", x, y).reshape(2, 3, 6),
    ),
    "free axes before the contracted one": (
        lambda x, y: jnp.einsum("ik,fgk->ifg", y, x.reshape(2, 2, 6)),
        lambda x, y: jnp.einsum("ik,fk->if", y, x).reshape(4, 2, 2),
    ),
    "a maximum of one, on a unit axis": (
        lambda x, y: ((x * 1.3)[:, None].max(1)[None] * y[:1][None])[0],
        lambda x, y: (x * 1.3)[:, None].max(1) * y[:1],
    ),
    "a loop of one, on a unit axis": (
        lambda x, y: (lax.fori_loop(0, 1, lambda _, z: z * 1.3, x)[None] * y[:1][None])[0],
        lambda x, y: lax.fori_loop(0, 1, lambda _, z: z * 1.3, x) * y[:1],
    ),
    "a root of a square, with its factors computed twice": (
        lambda x, y: jnp.sqrt(jnp.tanh(x) * jnp.tanh(x)),
        lambda x, y: (lambda z: jnp.sqrt(z * z))(jnp.tanh(x)),
    ),
    "a quotient by a repeated float, reshaped": (
        lambda x, y: y / jnp.repeat(jnp.exp(x[:, 0]), 6).reshape(4, 6),
        lambda x, y: y / jnp.broadcast_to(jnp.exp(x[:, :1]), (4, 6)),
    ),
    "a quotient by a repeated float, transposed": (
        lambda x, y: y / jnp.broadcast_to(jnp.exp(x[:, 0]), (6, 4)).T,
        lambda x, y: y / jnp.broadcast_to(jnp.exp(x[:, :1]), (4, 6)),
    ),
    "products with a repeated float, divided by one": (
        lambda x, y: jnp.broadcast_to(x[0] * 1.1, (4, 6)) / 1.0 * 0.7 * 0.3 * y,
        lambda x, y: jnp.broadcast_to(x[0] * 1.1, (4, 6)) * 0.7 * 0.3 * y,
    ),
    "products through one known row": (
        lambda x, y: lax.dynamic_index_in_dim((x * 1.1)[None], 0, 0, False) * 0.7 * 0.3 + y,
        lambda x, y: x * 1.1 * 0.7 * 0.3 + y,
    ),
    "products through a sum of one": (
        lambda x, y: (x * 1.1)[None].sum(0) * 0.7 * 0.3 + y,
        lambda x, y: x * 1.1 * 0.7 * 0.3 + y,
    ),
    "products through a slice of copies": (
        lambda x, y: jnp.broadcast_to((x * 1.1)[None], (2, 4, 6))[0] * 0.7 * 0.3 + y,
        lambda x, y: x * 1.1 * 0.7 * 0.3 + y,
    ),
    "products through parts put together again": (
        lambda x, y: (lambda z: jnp.concatenate([z[:, :2], z[:, 2:]], 1))(x * 1.1) * 0.7 * 0.3 + y,
        lambda x, y: x * 1.1 * 0.7 * 0.3 + y,
    ),
    "a logarithm of the larger of two copies": (
        lambda x, y: jnp.log(jnp.maximum(jnp.exp(x), jnp.exp(x))) + y,
        lambda x, y: (lambda z: jnp.log(jnp.maximum(z, z)))(jnp.exp(x)) + y,
    ),
    "roots of two copies multiplied": (
        lambda x, y: jnp.sqrt(jnp.abs(x)) * jnp.sqrt(jnp.abs(x)) + y,
        lambda x, y: (lambda z: z * z)(jnp.sqrt(jnp.abs(x))) + y,
    ),
    "parts of two copies joined": (
        lambda x, y: jnp.concatenate([(x / 3)[:, :2], (x / 3)[:, 2:]], 1) * 0.3 + y,
        lambda x, y: (lambda z: jnp.concatenate([z[:, :2], z[:, 2:]], 1))(x / 3) * 0.3 + y,
    ),
    "two contracted axes, one of one element": (
        lambda x, y: jnp.einsum("abhk,abhk->ab", x[:, None, None], y[:, None, None]),
        lambda x, y: jnp.einsum("ahk,ahk->a", x[:, None], y[:, None])[:, None],
    ),
    "x + 0.0": (lambda x, y: lax.add(x, jnp.zeros_like(x)), lambda x, y: x),
    "0.0 + x": (lambda x, y: lax.add(jnp.zeros_like(x), x), lambda x, y: x),
    "x - -0.0": (lambda x, y: lax.sub(x, jnp.full_like(x, -0.0)), lambda x, y: x),
    "0.0 - x": (lambda x, y: lax.sub(jnp.zeros_like(x), x), lambda x, y: -x),
    "-0.0 - x, x": (lambda x, y: lax.sub(jnp.full_like(x, -0.0), x), lambda x, y: x),
    "1 / x": (lambda x, y: 1 / x, lambda x, y: x),
    "x * 0": (lambda x, y: x * 0.0, lambda x, y: jnp.zeros_like(x)),
    "x - x": (lambda x, y: x - x, lambda x, y: jnp.zeros_like(x)),
    "x / x": (lambda x, y: x / x, lambda x, y: jnp.ones_like(x)),
    "a third": (lambda x, y: x / 3, lambda x, y: x * (1 / 3)),
    "a tenth": (lambda x, y: x / 10, lambda x, y: x * 0.1),
    "a root of half": (lambda x, y: x / np.sqrt(0.5), lambda x, y: x * np.sqrt(2.0)),
    "half and a quarter": (lambda x, y: x / 2, lambda x, y: x * 0.25),
    "half and twice": (lambda x, y: x / 2, lambda x, y: x * 2),
    "minus half": (lambda x, y: x / -2, lambda x, y: x * 0.5),
    "c / x": (lambda x, y: 2 / x, lambda x, y: x * 0.5),
    "by infinity": (lambda x, y: x / jnp.inf, lambda x, y: x * 0.0),
    "max(x, inf)": (lambda x, y: jnp.maximum(x, jnp.inf), lambda x, y: x),
    "min(x, -inf)": (lambda x, y: jnp.minimum(x, -jnp.inf), lambda x, y: x),
    "max(x, lowest)": (lambda x, y: jnp.maximum(x, np.finfo(np.float32).min), lambda x, y: x),
    "max of zeros": (lambda x, y: jnp.maximum(x, 0.0), lambda x, y: jnp.maximum(x, -0.0)),
    "relu by choice": (lambda x, y: jnp.maximum(x, 0.0), lambda x, y: jnp.where(x > 0, x, 0.0)),
    "maximum by choice": (lambda x, y: jnp.maximum(x, y), lambda x, y: jnp.where(x > y, x, y)),
    "max and min": (lambda x, y: jnp.maximum(x, y), lambda x, y: jnp.minimum(x, y)),
    "bounds exchanged": (
        lambda x, y: jnp.minimum(jnp.maximum(x, 1.0), -1.0),
        lambda x, y: lax.clamp(x.dtype.type(-1), x, x.dtype.type(1)),
    ),
    "bounds apart": (
        lambda x, y: jnp.maximum(jnp.minimum(x, -1.0), 2.0),
        lambda x, y: jnp.minimum(jnp.maximum(x, 2.0), -1.0),
    ),
    "another bound": (
        lambda x, y: jnp.clip(x, -1.0, 1.0),
        lambda x, y: jnp.minimum(jnp.maximum(x, -1.0), 1.5),
    ),
    "one bound": (lambda x, y: jnp.clip(x, -1.0, 1.0), lambda x, y: jnp.maximum(x, -1.0)),
    "clamped bound": (
        lambda x, y: lax.clamp(x.dtype.type(-1), x, x.dtype.type(1)),
        lambda x, y: lax.clamp(x, -jnp.ones_like(x), jnp.ones_like(x)),
    ),
    "bounds of zeros": (
        lambda x, y: lax.clamp(x.dtype.type(-0.0), x, x.dtype.type(1)),
        lambda x, y: jnp.minimum(jnp.maximum(x, 0.0), 1.0),
    ),
    "computed bounds": (
        lambda x, y: jnp.minimum(jnp.maximum(x, y), 1.0),
        lambda x, y: jnp.maximum(jnp.minimum(x, 1.0), y),
    ),
    "x - y and y - x": (lambda x, y: x + -y, lambda x, y: y - x),
    "-(x - y), zero": (lambda x, y: -(x - y), lambda x, y: y - x),
    "-x - y": (lambda x, y: -x - y, lambda x, y: x + y),
    "-x - y as difference": (lambda x, y: -x - y, lambda x, y: y - x),
    "-(x + y)": (lambda x, y: -(x + y), lambda x, y: y - x),
    "times -1 twice": (lambda x, y: x * -1.0 * -1.0, lambda x, y: -x),
    "square of another": (lambda x, y: jnp.square(x), lambda x, y: x * y),
    "square and absolute": (lambda x, y: jnp.sqrt(jnp.square(x)), lambda x, y: jnp.abs(x)),
    "cube": (lambda x, y: x * jnp.square(x) * y, lambda x, y: x * (x * (x * y))),
    "doubled and squared": (lambda x, y: x + x, lambda x, y: x * x),
    "tripled": (lambda x, y: x + x + x, lambda x, y: x * 3),
    "doubled product": (lambda x, y: x * y + x * y, lambda x, y: x * y * 2),
    "sum of products": (lambda x, y: x * y + y * y, lambda x, y: y * y + x * y),
    "sum of three": (lambda x, y: (x + y) + 0.3, lambda x, y: x + (y + 0.3)),
    "product of three": (lambda x, y: (x * y) * 0.3, lambda x, y: x * (y * 0.3)),
    "distributed": (lambda x, y: (x + y) * 0.3, lambda x, y: x * 0.3 + y * 0.3),
    "quotient of products": (lambda x, y: x * y / y, lambda x, y: x),
    "choice at its bound": (
        lambda x, y: jnp.where(jnp.where(x > y, 1.0, 0.0) >= 0, x, y),
        lambda x, y: jnp.where(x > y, x, y),
    ),
    "choice of one": (
        lambda x, y: jnp.where(jnp.where(x > y, 1.0, 0.0) > 1, x, y),
        lambda x, y: jnp.where(x > y, x, y),
    ),
    "choice negated, NaN": (
        lambda x, y: jnp.where(jnp.where(x > y, 0.0, 1.0) > 0, x, y),
        lambda x, y: jnp.where(x < y, x, y),
    ),
    "choice of NaN": (
        lambda x, y: jnp.where(jnp.where(x > y, jnp.nan, 0.0) == jnp.nan, x, y),
        lambda x, y: jnp.where(x > y, x, y),
    ),
    "computed constants": (lambda x, y: x * lax.sqrt(jnp.float32(2)), lambda x, y: x * 1.4142134),
    "constants of two types": (
        lambda x, y: x * jnp.float32(0.1),
        lambda x, y: x * jnp.bfloat16(0.1).astype(jnp.float32),
    ),
    "integer to float": (
        lambda x, y: x * jnp.int32(2**24 + 1).astype(jnp.float32),
        lambda x, y: x * float(2**24 + 2),
    ),
    "branch taken": (lambda x, y: lax.cond(True, lambda: x, lambda: y), lambda x, y: y),
    "branch beyond": (lambda x, y: lax.switch(9, [lambda: x, lambda: y]), lambda x, y: x),
    "branch of data": (lambda x, y: lax.cond(x[0, 0] > 0, lambda: x, lambda: y), lambda x, y: x),
    "branch negated, NaN": (
        lambda x, y: lax.cond(x[0, 0] > 0, lambda: x, lambda: y),
        lambda x, y: lax.cond(x[0, 0] <= 0, lambda: y, lambda: x),
    ),
    "branch of another": (
        lambda x, y: lax.cond(x[0, 0] > 0, lambda: x, lambda: y),
        lambda x, y: lax.cond(x[0, 1] > 0, lambda: x, lambda: y),
    ),
    "row": (
        lambda x, y: lax.dynamic_update_slice(x, y[:1], (1, 0)),
        lambda x, y: jnp.concatenate([x[:2], y[:1], x[3:]]),
    ),
    "column": (
        lambda x, y: lax.dynamic_update_slice(x, y[:, :1], (0, 1)),
        lambda x, y: jnp.concatenate([x[:1], y[:1], x[2:]]),
    ),
    "corner": (
        lambda x, y: lax.dynamic_update_slice(x, y[:1, :1], (1, 1)),
        lambda x, y: jnp.concatenate([x[:1], y[:1], x[2:]]),
    ),
    "clamped row": (
        lambda x, y: lax.dynamic_update_slice(x, y[:2], (3, 0)),
        lambda x, y: jnp.concatenate([x[:3], y[:1]]),
    ),
    "row set or added": (lambda x, y: x.at[1].set(y[0]), lambda x, y: x.at[1].add(y[0])),
    "row set beyond or clamped": (
        lambda x, y: x.at[jnp.array(5)].set(y[0], mode="drop"),
        lambda x, y: lax.dynamic_update_slice(x, y[:1], (5, 0)),
    ),
    "row set twice": (
        lambda x, y: x.at[jnp.array([1, 1])].set(y[:2]),
        lambda x, y: jnp.concatenate([x[:1], y[:2], x[3:]]),
    ),
    "row set in each of a batch": (
        lambda x, y: jax.vmap(lambda a, b: a.at[1].set(b[0]))(x, y),
        lambda x, y: x.at[1].set(y[0]),
    ),
    "corner set": (lambda x, y: x.at[1, 1].set(y[0, 0]), lambda x, y: x.at[1].set(y[0])),
    "row taken beyond": (
        lambda x, y: jnp.take(x, jnp.array([7]), axis=0, mode="fill"),
        lambda x, y: x[3:],
    ),
    "row taken from the end": (
        lambda x, y: jnp.take(x, jnp.array([-1]), axis=0, mode="clip"),
        lambda x, y: x[3:],
    ),
    "rows sliced at an unsigned place": (
        lambda x, y: lax.dynamic_slice(x, (np.uint32(2**32 - 1), np.uint32(0)), (2, 6)),
        lambda x, y: x[2:],
    ),
    "rows put at an unsigned place": (
        lambda x, y: lax.dynamic_update_slice(x, y[:1], (np.uint8(200), np.uint8(0))),
        lambda x, y: jnp.concatenate([x[:3], y[:1]]),
    ),
    "row taken by a byte": (
        lambda x, y: lax.gather(x, np.array([200], np.uint8), _GATHERED, (2, 6), mode="promise_in_bounds"),
        lambda x, y: x[2:],
    ),
    "row set by a byte": (
        lambda x, y: lax.scatter(jnp.tile(x, (75, 1)), np.array([120], np.int8), y, _SCATTERED, mode="clip"),
        lambda x, y: jnp.concatenate([jnp.tile(x, (75, 1))[:120], y, jnp.tile(x, (75, 1))[124:]]),
    ),
    "differences exchanged": (lambda x, y: x - y, lambda x, y: y - x),
    "quotients exchanged": (lambda x, y: x / y, lambda x, y: y / x),
    "powers exchanged": (lambda x, y: jnp.power(x, y), lambda x, y: jnp.power(y, x)),
    "sum of products by turns": (
        lambda x, y: x * y + jnp.tanh(y) * x,
        lambda x, y: jnp.tanh(y) * x + y * x,
    ),
    "sum of sums": (lambda x, y: (x + y) + 2.0 * x, lambda x, y: 2.0 * x + (x + y)),
    "sum of functions that end in products": (
        lambda x, y: jnp.expm1(x) + jax.nn.silu(y),
        lambda x, y: jax.nn.silu(y) + jnp.expm1(x),
    ),
    "products of exponentials": (
        lambda x, y: jnp.exp(x * y) * jnp.exp(y),
        lambda x, y: jnp.exp(y) * jnp.exp(x * y),
    ),
    "products of exponentials behind others": (
        lambda x, y: jnp.exp(x * y) * jnp.abs(jnp.exp(y * y)),
        lambda x, y: jnp.abs(jnp.exp(y * y)) * jnp.exp(x * y),
    ),
    "products of exponentials of a loop": (
        lambda x, y: jnp.exp(x * y) * lax.fori_loop(0, 1, lambda _, a: jnp.exp(a), y * y),
        lambda x, y: lax.fori_loop(0, 1, lambda _, a: jnp.exp(a), y * y) * jnp.exp(x * y),
    ),
    "products of exponentials of a product of matrices": (
        lambda x, y: jnp.exp(x * y) * jnp.einsum("ab,->ab", jnp.exp(y * y), jnp.ones((), y.dtype)),
        lambda x, y: jnp.einsum("ab,->ab", jnp.exp(y * y), jnp.ones((), y.dtype)) * jnp.exp(x * y),
    ),
    "factors of a sum of two products": (
        lambda x, y: y * (x * jnp.tanh(x) + y * y),
        lambda x, y: (x * jnp.tanh(x) + y * y) * y,
    ),
    "maximum with a sum of two products": (
        lambda x, y: jnp.maximum(y, x * jnp.tanh(x) + y * y),
        lambda x, y: jnp.maximum(x * jnp.tanh(x) + y * y, y),
    ),
    "factors within one of two products that are added": (
        lambda x, y: jnp.abs(x * y) * x + y * y,
        lambda x, y: jnp.abs(y * x) * x + y * y,
    ),
    "difference next to a sum of two products": (
        lambda x, y: (x - y) * (x * x + y * y),
        lambda x, y: (-y + x) * (x * x + y * y),
    ),
    "comparison next to a sum of two products": (
        lambda x, y: jnp.where(x < y, x, y) * (x * x + y * y),
        lambda x, y: jnp.where(y > x, x, y) * (x * x + y * y),
    ),
    "selection next to a sum of two products": (
        lambda x, y: jnp.where(x < 0, x, y) * (x * x + y * y),
        lambda x, y: jnp.where(~(x < 0), y, x) * (x * x + y * y),
    ),
    "booleans next to a sum of two products": (
        lambda x, y: jnp.where((x > 0) & (y > 0), x, y) * (x * x + y * y),
        lambda x, y: jnp.where((y > 0) & (x > 0), x, y) * (x * x + y * y),
    ),
    "one of two products that are added, exchanged": (
        lambda x, y: x * jnp.cos(jnp.round(y)) + x * y,
        lambda x, y: jnp.cos(jnp.round(y)) * x + x * y,
    ),
    "one of two products that are subtracted, moved and exchanged": (
        lambda x, y: x * jnp.cos(y) - (y * jnp.sin(x)).reshape(2, 12).reshape(4, 6),
        lambda x, y: x * jnp.cos(y) - (jnp.sin(x) * y).reshape(2, 12).reshape(4, 6),
    ),
    "maximum of itself": (lambda x, y: jnp.maximum(x, y), lambda x, y: jnp.maximum(y, y)),
    "branches that a difference of products reads": (
        lambda x, y: _either(lax.cond, x, y) * x - _either(lax.cond, y, x) * y,
        lambda x, y: _either(_where, x, y) * x - _either(_where, y, x) * y,
    ),
    "branches of constants that a sum reads": (
        lambda x, y: lax.cond(x[0, 0] > 0, lambda: 0.1, lambda: 0.3) * 0.7 + 0.2 + x * y,
        lambda x, y: jnp.where(x[0, 0] > 0, 0.1, 0.3) * 0.7 + 0.2 + x * y,
    ),
    "selection by a count": (lambda x, y: jnp.where(_counted(), x * y, 0) + y, lambda x, y: x * y + y),
    "factor by a count": (
        lambda x, y: x * y * _counted().astype(jnp.int32).astype(x.dtype) + y,
        lambda x, y: x * y + y,
    ),
    "branch by a count": (
        lambda x, y: lax.cond(_counted()[1, 2], lambda: x * y, lambda: x) + y,
        lambda x, y: x * y + y,
    ),
    "branch by a choice": (
        lambda x, y: lax.cond(jnp.where(x[0, 0] > 0, 1.0, 2.0) < 3, lambda: x * y, lambda: x) + y,
        lambda x, y: x * y + y,
    ),
    "denormals compared": (
        lambda x, y: jnp.where(jnp.where(x[0, 0] > y[0, 0], np.float32(1e-40), np.float32(0)) > 0, x, y),
        lambda x, y: jnp.where(x[0, 0] > y[0, 0], x, y),
    ),
    "branches of a float": (
        lambda x, y: x * lax.cond(x[0, 0] > 0, lambda: 2.0, lambda: 3.0),
        lambda x, y: x * jnp.where(x[0, 0] >= 0, 2.0, 3.0),
    ),
    "branches that are switched": (
        lambda x, y: x * lax.switch(x[0, 0].astype(jnp.int32), [lambda: 3.0, lambda: 2.0]),
        lambda x, y: x * jnp.where(x[0, 0] > 0, 2.0, 3.0),
    ),
    "branches with a product": (
        lambda x, y: lax.cond(x[0, 0] > 0, lambda: x * y, lambda: y),
        lambda x, y: jnp.where(x[0, 0] > 0, x * y, y),
    ),
    "zeros compared": (
        lambda x, y: jnp.where(jnp.float32(-0.0) < jnp.float32(0.0), x, y),
        lambda x, y: x,
    ),
    "NaN compared": (
        lambda x, y: jnp.where(jnp.float32(jnp.nan) != jnp.float32(jnp.nan), x, y),
        lambda x, y: y,
    ),
    "unlike parts": (
        lambda x, y: jnp.concatenate([x[:2], x[:2]]),
        lambda x, y: jnp.concatenate([x[:2], x[1:3]]),
    ),
    "repeated elements": (lambda x, y: jnp.tile(x[:2], (2, 1)), lambda x, y: jnp.repeat(x[:2], 2, 0)),
    "three parts": (lambda x, y: jnp.concatenate([x[:1], x[2:3], x[3:]]), lambda x, y: x[::2]),
    "sum of a row set or joined": (
        lambda x, y: x.at[0].set(y[0]).sum(0),
        lambda x, y: jnp.concatenate([y[:1], x[1:]]).sum(0),
    ),
    "floats counted or converted": (
        lambda x, y: x * y + x * lax.iota(x.dtype, 6)[None],
        lambda x, y: x * y + x * lax.iota(jnp.int32, 6).astype(x.dtype)[None],
    ),
    "table compared before or after broadcast": (
        lambda x, y: jnp.where(jnp.broadcast_to(jnp.asarray(_SIX), (4, 6)) < 3, x * y, 0) + y,
        lambda x, y: jnp.where(jnp.broadcast_to(jnp.asarray(_SIX) < 3, (4, 6)), x * y, 0) + y,
    ),
    "slices of a repeated row put together again": (
        lambda x, y: (lambda a: jnp.concatenate([a[:2], a[2:]]).sum(0))(
            jnp.broadcast_to(x[:1] * y[:1], (4, 6))
        ),
        lambda x, y: jnp.broadcast_to(x[:1] * y[:1], (4, 6)).sum(0),
    ),
    "quotient of a table within a call": (
        lambda x, y: x * jax.jit(lambda t: t.astype(x.dtype) / 7)(_table()) + y,
        lambda x, y: x * (_table().astype(x.dtype) / 7) + y,
    ),
    "mask compared within a branch": (
        lambda x, y: (lambda m: lax.cond(x[0, 0] > 0, lambda: _chosen(m, x, y), lambda: x))(_columns()),
        lambda x, y: lax.cond(x[0, 0] > 0, lambda: _chosen(_columns(), x, y), lambda: x),
    ),
    "zeros that a loop carries or writes": (
        lambda x, y: lax.fori_loop(
            0, 2, lambda _, c: (_joined(c[0], c[1], y), c[1]), (x, jnp.zeros_like(x[0, :2]))
        )[0],
        lambda x, y: lax.fori_loop(0, 2, lambda _, c: _joined(c, jnp.zeros_like(c[0, :2]), y), x),
    ),
    "overlapping parts": (
        lambda x, y: jnp.concatenate([x[:, 0:2], x[:, 1:3], x[:, 2:4]], 1),
        lambda x, y: jnp.concatenate([x[:, 0:2], x[:, 2:4], x[:, 4:6]], 1),
    ),
}

_PLACES = np.arange(24, dtype=np.int32).reshape(4, 6)
_THIRDS = np.arange(1, 7, dtype=np.float32) / 9


def _third(integers):
    """Returns quotients that XLA rounds twice, as products with a reciprocal, unless it knows the integers."""
    return integers.astype(jnp.float32) / 3


def _rows(dtype=jnp.int32):
    return lax.broadcasted_iota(dtype, (4, 6), 0)


def _columns(dtype=jnp.int32):
    return lax.broadcasted_iota(dtype, (4, 6), 1)


def _table(array: np.ndarray = _PLACES):
    return jnp.asarray(array)


def _count():
    return lax.iota(jnp.int32, 24).reshape(4, 6)


def _from_bits(integers):
    return jnp.tanh(lax.bitcast_convert_type(integers * 1000 + 1065353216, jnp.float32))


KNOWN = {
    "table or count": (lambda: _third(_table()), lambda: _third(_count())),
    "table broadcast or written": (
        lambda: _third(jnp.broadcast_to(_table(_PLACES[1]), (4, 6))),
        lambda: _third(_table(np.tile(_PLACES[1], (4, 1)))),
    ),
    "table broadcast and added, or written": (
        lambda: _third(jnp.broadcast_to(_table(_PLACES[1]), (4, 6)) + _table()),
        lambda: _third(_table(np.tile(_PLACES[1], (4, 1)) + _PLACES)),
    ),
    "exclusive or of tables": (
        lambda: _third(_table() ^ _table(_PLACES[::-1])),
        lambda: _third(_table(_PLACES ^ _PLACES[::-1])),
    ),
    "table within a jit boundary": (
        lambda: _third(jax.jit(lambda t: t * 1)(_table())),
        lambda: _third(_table()),
    ),
    "choice between equals": (
        lambda: _third(jnp.where(_rows() > 2, _table(), _table())),
        lambda: _third(_table()),
    ),
    "table or count of a join": (
        lambda: _third(jnp.concatenate([_table(), _count()])[:4]),
        lambda: _third(jnp.concatenate([_count(), _table()])[:4]),
    ),
    "bits of floats": (lambda: _from_bits(_table()), lambda: _from_bits(_count())),
    "row of a broadcast table": (
        lambda: jnp.broadcast_to(_table(_THIRDS[None]), (4, 6))[1:2] / 3,
        lambda: _table(_THIRDS[None]) / 3,
    ),
    "entry at a counted place": (
        lambda: _table(_THIRDS)[lax.iota(jnp.int32, 8)[5]] / 3,
        lambda: _table(_THIRDS)[5] / 3,
    ),
    "row set in a table": (
        lambda: _table(_THIRDS).at[0].set(0.0) / 3,
        lambda: jnp.concatenate([jnp.zeros(1), _table(_THIRDS)[1:]]) / 3,
    ),
    "sum of one table": (lambda: _table(_THIRDS[None, None]).sum(0) / 3, lambda: _table(_THIRDS[None]) / 3),
}
"""Functions without inputs: a compiler computes one when it compiles, and the other when the program runs."""
FACTORS = {
    "triangle from a table or counted": (
        lambda: _table(np.tri(4, 6, dtype=bool)),
        lambda: _rows() >= _columns(),
    ),
    "nowhere": (lambda: _rows() < -_columns(), lambda: jnp.zeros((4, 6), bool)),
}
"""Masks that compilers make a selection, or keep as a factor, whose product with -1 is a negative zero."""


def _bits(run, *inputs):
    """Returns the bits of the first result of an optimised program."""
    run = jax.jit(run, compiler_options={"xla_backend_optimization_level": 3})
    return np.asarray(jax.tree.leaves(run(*inputs))[0]).tobytes()


@pytest.mark.parametrize("name", [*KNOWN, *FACTORS])
def test_what_one_compiler_knows_and_computes_is_not_what_a_program_computes(check, name):
    def use(known):
        return lambda x: (x * known().astype(x.dtype) if name in FACTORS else known(), x + x)

    one, other = map(use, (KNOWN | FACTORS)[name])
    x = -np.ones((4, 6), np.float32)
    if name != "exclusive or of tables" or jax.__version_info__ < (0, 12):  # JAX 0.12 computes equal bits
        assert _bits(one, x) != _bits(other, x), "the pair tests nothing"
    proof = check(one, other, (x,))
    assert not proof.proved, proof.outcome()


def _loop(step):
    return lambda x, y: lax.fori_loop(0, 3, lambda _, c: step(c, y), x)


BORDERS = {
    "loop": (_loop(lambda c, y: c / jnp.exp(y)), lambda x, y: _loop(lax.div)(x, jnp.exp(y))),
    "carry": (
        _loop(lambda c, y: c / jnp.exp(y)),
        lambda x, y: lax.fori_loop(0, 3, lambda _, c: (c[0] / c[1], c[1]), (x, jnp.exp(y)))[0],
    ),
    "branch": (
        lambda x, y: lax.cond(x[0, 0] > 0, lambda: x * y + y, lambda: x),
        lambda x, y: (lambda p: lax.cond(x[0, 0] > 0, lambda: p + y, lambda: x))(x * y),
    ),
    "sum of repeated": (
        lambda x, y: lax.cond(x[0, 0] > 0, lambda: jnp.broadcast_to(y[0], (4, 6)).sum(0), lambda: y[0]),
        lambda x, y: (lambda p: lax.cond(x[0, 0] > 0, lambda: p.sum(0), lambda: y[0]))(
            jnp.broadcast_to(y[0], (4, 6))
        ),
    ),
}
"""Floats computed inside of a loop or branch, or captured: XLA simplifies and fuses each by itself."""


@pytest.mark.parametrize("name", BORDERS)
def test_a_float_computed_outside_of_a_loop_or_branch_is_another_one(check, name):
    x, y = jax.random.normal(jax.random.key(0), (2, 4, 6)).at[:, 0, 0].set(1.0)
    y = -jnp.zeros_like(y) if name == "sum of repeated" else y
    bits = [_bits(run, x, y) for run in BORDERS[name]]
    if name not in ("loop", "carry") or jax.__version_info__ < (0, 12):  # JAX 0.12 computes equal bits
        assert bits[0] != bits[1], "the pair tests nothing"
    proof = check(*BORDERS[name], (x, y))
    assert not proof.proved, proof.outcome()


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("name", FLOATS)
def test_no_pair_that_differs_is_proved(check, name, dtype):
    one, other = FLOATS[name]
    x = jax.ShapeDtypeStruct((4, 6), dtype)
    sides = (lambda x, y, run=run: (run(x, y), x + y) for run in (one, other))  # both inputs are read
    proof = check(*sides, (x, x))
    assert not proof.proved, proof.outcome()


def test_a_product_with_a_known_small_number_keeps_its_bits(check):
    """Dividing by a power of two whose reciprocal is no normal number is no product."""
    x = jax.ShapeDtypeStruct((4,), jnp.float32)
    one, other = np.float32(2.0**127), np.float32(2.0**-127)
    assert not check(lambda a: a / one, lambda a: a * other, (x,)).proved
    assert check(lambda a: a / (one / 4), lambda a: a * (other * 4), (x,)).proved


@pytest.mark.parametrize(
    "hide",
    [lambda p: p[None].sum(0), lambda p: p - 0.0, lambda p: lax.cond(True, lambda q: q, jnp.negative, p)],
)
def test_the_order_of_factors_counts_behind_what_vanishes(check, hide):
    """A compiler rounds one of two added products together with the sum."""

    def added(other):
        return lambda x, y: (
            hide(y * _columns(x.dtype)) + (_columns(x.dtype) * x if other else x * _columns(x.dtype))
        )

    x = jax.ShapeDtypeStruct((4, 6), jnp.float32)
    assert check(added(False), added(False), (x, x)).proved
    proof = check(added(False), added(True), (x, x))
    assert not proof.proved, proof.outcome()


VANISHING = {
    "cumulative sum of one": lambda z: jnp.cumsum(z, 1),
    "selection by a constant": lambda z: lax.select(jnp.full(z.shape, True), z, -z),
    "selection of one": lambda z: lax.select(z > 0, z, z),
    "maximum of itself": lambda z: jnp.maximum(z, z),
    "sum with zero": lambda z: z + 0.0,
    "two negations": lambda z: jnp.negative(-z),
    "part of a complex number": lambda z: jnp.real(lax.complex(z, z)),
    "sorted": lambda z: jnp.sort(z, 1),
    "reversed twice": lambda z: lax.rev(lax.rev(z, (0,)), (0,)),
    "product of one": lambda z: z[None].prod(0),
    "product of matrices of one": lambda z: lax.dot_general(
        z, jnp.ones((4, 1, 1)), (((1,), (1,)), ((0,), (0,)))
    ).reshape(z.shape),
    "loop of one": lambda z: lax.fori_loop(0, 1, lambda _, c: c * 2.0, z),
}
"""Operations that XLA may remove from between two products."""


@pytest.mark.parametrize("name", VANISHING)
def test_a_unit_axis_counts_behind_what_vanishes(check, name):
    """XLA reorders products with constants, unless a reshape is between them."""
    one, other = (lambda x: (x * 1.3)[:, None]), (lambda x: x[:, None] * 1.3)
    x, y = jax.ShapeDtypeStruct((4, 6), jnp.float32), jax.ShapeDtypeStruct((1, 6), jnp.float32)
    reads = [lambda x, y, move=move: VANISHING[name](move(x)) * y[:, None] for move in (one, other)]
    assert check(reads[0], reads[0], (x, y)).proved
    proof = check(*reads, (x, y))
    assert not proof.proved, proof.outcome()
    back = [lambda x, y, move=move: move(VANISHING[name](one(x))[:, 0]) * y[:, None] for move in (one, other)]
    assert not check(*back, (x, y)).proved


TABLE = np.linspace(0.1, 2.0, 300, dtype=np.float32)


def in_loop(scaled):
    """Multiplies by a table that the loop's body scales."""
    return lambda x: jax.lax.scan(lambda carry, _: (carry * scaled(jnp.asarray(TABLE)), None), x, length=3)[0]


@pytest.mark.parametrize(
    ("left", "right", "shape"),
    [
        (lambda x: jnp.zeros((1, *x.shape)).at[0].set(x * 1.3)[0] * 1.7, lambda x: x * 1.3 * 1.7, (4, 6)),
        (in_loop(lambda t: ((t * 1.3)[None] * 1.7)[0]), in_loop(lambda t: t * 1.3 * 1.7), (300,)),
    ],
    ids=["written whole", "a table in a loop"],
)
def test_a_move_between_products_is_seen(check, left, right, shape):
    assert not check(left, right, (jax.ShapeDtypeStruct(shape, jnp.float32),)).proved


def test_a_sum_reads_a_quotient_in_any_shape(check):
    """A norm may put its axis back before or after it divides."""
    x = jax.ShapeDtypeStruct((4, 6), jnp.float32)
    means = (lambda x: (x * x).mean(-1, keepdims=True), lambda x: (x * x).mean(-1)[..., None])
    norms = [lambda x, mean=mean: jax.lax.rsqrt(mean(x) + 1e-6) for mean in means]
    assert check(*norms, (x,)).proved


@pytest.mark.parametrize("number", [1, 2**63 + 5, 2**64 - 1])
def test_a_difference_of_large_whole_numbers_is_a_sum(check, number):
    with jax.enable_x64(True):
        x = jax.ShapeDtypeStruct((4,), jnp.uint64)
        one, other = np.uint64(number), np.uint64(2**64 - number)
        assert check(lambda a: a - one, lambda a: a + other, (x,)).proved
        assert not check(lambda a: a - one, lambda a: a + one, (x,)).proved
