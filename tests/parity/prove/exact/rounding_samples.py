"""Layers against scans, and weights that the map moves, each with near misses."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from parity.builds.weights.transforms import (
    Concat,
    Identity,
    Permute,
    Reshape,
    Split,
    Stack,
    StackGrid,
    Unstack,
)
from parity.prove.exact import Link, Named, Relation, equal
from parity.prove.exact.rounded import ROUNDED

LAYERS, ROWS, WIDTH = 3, 4, 6


SHAPES = {"x": (ROWS, WIDTH), "w": (WIDTH, WIDTH), "b": (WIDTH,)}


def abstract(shape, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(shape, dtype)


def layer(x, w, b):
    return x + jnp.tanh(jnp.dot(x, w)) * jax.nn.softmax(x, -1) + b * 0.5


def written(body=layer, order=range(LAYERS), uses=range(LAYERS)):
    """N written-out layers, their weights as w0, b0, w1, ..."""

    def forward(x, *leaves):
        for place in order:
            at = uses[place]
            x = body(x, leaves[2 * at], leaves[2 * at + 1])
        return x

    return forward


def scanned(body=layer, **options):
    """The layers as a scan over stacked weights."""

    def forward(x, w, b):
        return jax.lax.scan(lambda x, leaf: (body(x, *leaf), None), x, (w, b), **options)[0]

    return forward


def gradient(forward):
    """Returns the loss's gradients to all arguments, and the loss."""

    def both(*arguments):
        loss, gradients = jax.value_and_grad(
            lambda *each: jnp.sum(forward(*each) ** 2), range(len(arguments))
        )(*arguments)
        return loss, *gradients

    return both


FLAT = [name for at in range(LAYERS) for name in (f"w{at}", f"b{at}")]


STACKS = [
    Link(
        reference=tuple(f"{leaf}{at}" for at in range(LAYERS)), candidate=(leaf,), transform=Stack(0, LAYERS)
    )
    for leaf in "wb"
]


X = Link(reference=("x",), candidate=("x",))


OUT = Link(reference=("out",), candidate=("out",))


PLAIN = Relation(arguments=[X], results=[OUT])


def claim(reference, candidate, *, relation, given, dtype: Any = jnp.float32, arithmetic=ROUNDED):
    """Returns the comparison of two functions; arguments are (names, shapes) of both sides."""
    (our_names, left), (their_names, right) = given
    sides = []
    for function, names, shapes, side in (
        (reference, our_names, left, "reference"),
        (candidate, their_names, right, "candidate"),
    ):
        kind = dtype if not isinstance(dtype, dict) else dtype[side]
        lowered = jax.jit(function, keep_unused=True).lower(*[abstract(shape, kind) for shape in shapes])
        linked = [name for link in relation.results for name in getattr(link, side)]
        sides.append(Named(program=lowered, arguments=names, results=linked))
    return equal(*sides, relation, arithmetic=arithmetic)


def layers_against_scan(reference, candidate, *, backward=False, dtype=jnp.float32, arithmetic=ROUNDED):
    flat = [SHAPES[name[0]] for name in FLAT]
    given = (
        (["x", *FLAT], [SHAPES["x"], *flat]),
        (["x", "w", "b"], [SHAPES["x"], *((LAYERS, *SHAPES[leaf]) for leaf in "wb")]),
    )
    if not backward:
        relation = Relation(arguments=[X, *STACKS], results=[OUT])
        return claim(reference, candidate, relation=relation, dtype=dtype, given=given, arithmetic=arithmetic)
    # Results in the order of each side: the loss, then a gradient for each argument.
    order = {"reference": ["out", "x", *FLAT], "candidate": ["out", "x", "w", "b"]}
    sides = [
        Named(
            program=jax.jit(gradient(function), keep_unused=True).lower(
                *[abstract(s, dtype) for s in shapes]
            ),
            arguments=names,
            results=order[side],
        )
        for function, (names, shapes), side in zip((reference, candidate), given, order, strict=True)
    ]
    relation = Relation(arguments=[X, *STACKS], results=[OUT, X, *STACKS])
    return equal(*sides, relation, arithmetic=arithmetic)


def remat(body):
    return jax.checkpoint(body, prevent_cse=False)


def flattened(x, w, b):
    """The layer's elementwise functions on a different shape."""
    gate = (jnp.tanh(jnp.dot(x, w)).reshape(-1) * jax.nn.softmax(x, -1).reshape(-1)).reshape(ROWS, WIDTH)
    return (x.reshape(2, -1) + gate.reshape(2, -1)).reshape(ROWS, WIDTH) + b * 0.5


def other(change: Callable[..., Any]):
    return scanned(change)


NEAR: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "layers in another order": (written(order=[1, 0, 2]), scanned()),
    "the last layers swapped": (written(order=[0, 2, 1]), scanned()),
    "a layer's weights used twice": (written(uses=[0, 1, 1]), scanned()),
    "a layer too few": (written(order=[0, 1]), scanned()),
    "a layer too many": (written(order=[0, 1, 2, 2]), scanned()),
    "backwards": (written(), scanned(reverse=True)),
    "another axis of the softmax": (
        written(),
        scanned(lambda x, w, b: x + jnp.tanh(jnp.dot(x, w)) * jax.nn.softmax(x, 0) + b * 0.5),
    ),
    "weights transposed": (
        written(),
        scanned(lambda x, w, b: x + jnp.tanh(jnp.dot(x, w.T)) * jax.nn.softmax(x, -1) + b * 0.5),
    ),
    "another constant": (
        written(),
        scanned(lambda x, w, b: x + jnp.tanh(jnp.dot(x, w)) * jax.nn.softmax(x, -1) + b * 0.25),
    ),
    "another order of additions": (
        written(),
        scanned(lambda x, w, b: x + (jnp.tanh(jnp.dot(x, w)) * jax.nn.softmax(x, -1) + b * 0.5)),
    ),
    "a difference for a sum": (
        written(),
        scanned(lambda x, w, b: x + jnp.tanh(jnp.dot(x, w)) * jax.nn.softmax(x, -1) - b * 0.5),
    ),
    "a half added": (
        written(),
        scanned(lambda x, w, b: layer(x, w, b) + jax.lax.optimization_barrier(jnp.full((), 0.5, x.dtype))),
    ),
    "a product with one": (written(), scanned(lambda x, w, b: layer(x, w, b) * jnp.ones((1,), x.dtype))),
    "rounded on the way": (
        written(),
        scanned(lambda x, w, b: layer(x, w, b).astype(jnp.bfloat16).astype(x.dtype)),
    ),
    "widened on the way": (
        written(lambda x, w, b: x + (x.astype(jnp.bfloat16) * b.astype(jnp.bfloat16)).astype(jnp.float32)),
        scanned(lambda x, w, b: x + (x.astype(jnp.float16) * b.astype(jnp.float16)).astype(jnp.float32)),
    ),
    "sorted along another axis": (
        written(lambda x, w, b: layer(x, w, jax.lax.sort(x * b, 0))),
        scanned(lambda x, w, b: layer(x, w, jax.lax.sort(x * b, 1))),
    ),
    "another precision": (
        written(),
        scanned(
            lambda x, w, b: x + jnp.tanh(jnp.dot(x, w, precision="highest")) * jax.nn.softmax(x, -1) + b * 0.5
        ),
    ),
    "rows of a product are no products of rows": (
        written(lambda x, w, b: jnp.dot(x, w) + b),
        scanned(lambda x, w, b: jnp.stack([jnp.dot(row, w) for row in x]) + b),
    ),
    "a mean by a product": (
        written(lambda x, w, b: x - x.mean(-1, keepdims=True) + b),
        scanned(lambda x, w, b: x - x.sum(-1, keepdims=True) * (1 / WIDTH) + b),
    ),
    "operands of a difference": (
        written(lambda x, w, b: x - b),
        scanned(lambda x, w, b: b - x),
    ),
    "more ones to add": (
        written(lambda x, w, b: x + b * jnp.sum(jnp.ones((4,)) * x[0, 0])),
        scanned(lambda x, w, b: x + b * jnp.sum(jnp.ones((5,)) * x[0, 0])),
    ),
    "a product over another axis": (
        written(lambda x, w, b: x + (b * w @ w)[:ROWS]),
        scanned(lambda x, w, b: x + jnp.einsum("io,jo->ij", b * w, w)[:ROWS]),
    ),
    "a maximum for a minimum": (
        written(lambda x, w, b: jnp.maximum(x, b)),
        scanned(lambda x, w, b: jnp.minimum(x, b)),
    ),
    "a strict comparison": (
        written(lambda x, w, b: jnp.where(x > b, x, w[0])),
        scanned(lambda x, w, b: jnp.where(x >= b, x, w[0])),
    ),
    "a comparison negated": (
        written(lambda x, w, b: jnp.where(x > b, x, w[0])),
        scanned(lambda x, w, b: jnp.where(x <= b, w[0], x)),
    ),
    "minus zero": (
        written(lambda x, w, b: jnp.where(x > b, x, 0.0)),
        scanned(lambda x, w, b: jnp.where(x > b, x, -0.0)),
    ),
    "a sum from another start": (
        written(lambda x, w, b: x + jax.lax.reduce(x, np.float32(0.0), jax.lax.add, (1,))[:, None] + b),
        scanned(lambda x, w, b: x + jax.lax.reduce(x, np.float32(1e-30), jax.lax.add, (1,))[:, None] + b),
    ),
    "a product for a sum": (
        written(lambda x, w, b: x + jax.lax.reduce(x, np.float32(1.0), jax.lax.add, (1,))[:, None] + b),
        scanned(lambda x, w, b: x + jax.lax.reduce(x, np.float32(1.0), jax.lax.mul, (1,))[:, None] + b),
    ),
    "a row of weights one off": (
        written(lambda x, w, b: x * w[1] + b),
        scanned(lambda x, w, b: x * w[2] + b),
    ),
    "sorted the other way": (
        written(lambda x, w, b: jnp.sort(x, -1) + b),
        scanned(lambda x, w, b: -jnp.sort(-x, -1) + b),
    ),
    "padded on the other side": (
        written(lambda x, w, b: jnp.pad(x[:, 1:], ((0, 0), (1, 0))) + b),
        scanned(lambda x, w, b: jnp.pad(x[:, 1:], ((0, 0), (0, 1))) + b),
    ),
    "rolled by one": (
        written(lambda x, w, b: jnp.roll(x, 1, -1) + b),
        scanned(lambda x, w, b: jnp.roll(x, 2, -1) + b),
    ),
    "the same shape by another order": (
        written(lambda x, w, b: x.reshape(WIDTH, ROWS).T + b),
        scanned(lambda x, w, b: x.T.reshape(WIDTH, ROWS).T + b),
    ),
    "the constant table turned": (
        written(lambda x, w, b: x * jnp.arange(1.0, WIDTH + 1, dtype=x.dtype) + b),
        scanned(lambda x, w, b: x * jnp.arange(WIDTH, 0, -1, dtype=x.dtype) + b),
    ),
    "a constant table with one other number": (
        written(lambda x, w, b: x * np.array([1, 2, 3, 4, 5, 6.5], np.float32) + b),
        scanned(lambda x, w, b: x * np.array([1, 2, 3, 4, 5, 6.75], np.float32) + b),
    ),
}


@dataclasses.dataclass(frozen=True)
class Moved:
    """One weight that the map moves, and the functions of both sides that use it."""

    transform: Any
    reference: tuple[tuple[int, ...], ...]
    candidate: tuple[tuple[int, ...], ...]
    left: Callable[..., Any]
    right: Callable[..., Any]
    near: Callable[..., Any]


MOVED = {
    "transposed": Moved(
        Permute((1, 0)),
        ((6, 5),),
        ((5, 6),),
        lambda x, w: x @ w,
        lambda x, w: x @ w.T,
        lambda x, w: x @ w.T[::-1],
    ),
    "contracted along the other axis": Moved(
        Permute((1, 0)),
        ((6, 5),),
        ((5, 6),),
        lambda x, w: x @ w,
        lambda x, w: jnp.einsum("ri,oi->ro", x, w),
        lambda x, w: jnp.einsum("ri,oi->ro", x[:, ::-1], w),
    ),
    "reshaped": Moved(
        Reshape((6, 2, 3), (6, 6)),
        ((6, 2, 3),),
        ((6, 6),),
        lambda x, w: jnp.sum(x @ w[:, 1]),
        lambda x, w: jnp.sum(x @ w[:, 3:]),
        lambda x, w: jnp.sum(x @ w[:, 2:5]),
    ),
    "split": Moved(
        Split(1, (2, 4)),
        ((6, 6),),
        ((6, 2), (6, 4)),
        lambda x, w: (x @ w[:, :2]).sum() + (x @ w[:, 2:]).sum(),
        lambda x, a, b: (x @ a).sum() + (x @ b).sum(),
        lambda x, a, b: (x @ a).sum() + (x @ b[:, ::-1]).sum(),
    ),
    "concatenated": Moved(
        Concat(0, (2, 4)),
        ((2, 6), (4, 6)),
        ((6, 6),),
        lambda x, a, b: x[:, :2] @ a + x[:, 2:] @ b,
        lambda x, w: x[:, :2] @ w[:2] + x[:, 2:] @ w[2:],
        lambda x, w: x[:, :2] @ w[:2] + x[:, 2:] @ w[1:5],
    ),
    "stacked": Moved(
        Stack(1, 2),
        ((6, 6), (6, 6)),
        ((6, 2, 6),),
        lambda x, a, b: x @ a @ b,
        lambda x, w: x @ w[:, 0] @ w[:, 1],
        lambda x, w: x @ w[:, 1] @ w[:, 0],
    ),
    "unstacked": Moved(
        Unstack(0, 2),
        ((2, 6, 6),),
        ((6, 6), (6, 6)),
        lambda x, w: x @ w[0] @ w[1],
        lambda x, a, b: x @ a @ b,
        lambda x, a, b: x @ b @ a,
    ),
    "stacked as a grid": Moved(
        StackGrid((2, 2)),
        ((6, 6),) * 4,
        ((2, 2, 6, 6),),
        lambda x, *w: x @ w[0] @ w[1] @ w[2] @ w[3],
        lambda x, w: x @ w[0, 0] @ w[0, 1] @ w[1, 0] @ w[1, 1],
        lambda x, w: x @ w[0, 0] @ w[1, 0] @ w[0, 1] @ w[1, 1],
    ),
    "the same": Moved(
        Identity(), ((6, 6),), ((6, 6),), lambda x, w: x @ w, lambda x, w: x @ w, lambda x, w: w @ x.T
    ),
}


def moved(case, right, transform=None, arithmetic=ROUNDED):
    names = tuple(f"w{at}" for at in range(len(case.reference)))
    others = tuple(f"v{at}" for at in range(len(case.candidate)))
    link = Link(reference=names, candidate=others, transform=transform or case.transform)
    sides = []
    for function, shapes, given in ((case.left, case.reference, names), (right, case.candidate, others)):
        lowered = jax.jit(gradient(function)).lower(*[abstract(s) for s in ((4, 6), *shapes)])
        sides.append(Named(program=lowered, arguments=["x", *given], results=["out", "x", *given]))
    return equal(*sides, Relation(arguments=[X, link], results=[OUT, X, link]), arithmetic=arithmetic)
