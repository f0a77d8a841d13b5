"""Random layers, written and scanned, with a mistake planted or none: run as a script by its path.

What is shown with a mistake in it is run on both sides; it counts as wrong if numbers differ by more than rounding.
"""

import argparse
import collections
import os
import random
import sys

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np

from parity.builds.weights.transforms import Stack
from parity.prove.exact import Link, Named, Relation, equal
from parity.prove.exact.rounded import ROUNDED

LAYERS, ROWS, WIDTH = 3, 4, 6
SHARED = 1e-5

# Each pair: the effect of a layer on x with its weights w and b, and the same with one mistake.
STEPS = {
    "dot": (lambda x, w, b: x @ w, lambda x, w, b: x @ w.T),
    "dot of the transposed": (lambda x, w, b: jnp.einsum("oi,ri->ro", w, x), lambda x, w, b: x @ w),
    "bias": (lambda x, w, b: x + b, lambda x, w, b: x - b),
    "row of weights": (lambda x, w, b: x * w[1], lambda x, w, b: x * w[2]),
    "column of weights": (lambda x, w, b: x * w[:, 1], lambda x, w, b: x * w[1]),
    "tanh": (lambda x, w, b: jnp.tanh(x), lambda x, w, b: jnp.sin(x)),
    "gate": (lambda x, w, b: x * jax.nn.sigmoid(x + b), lambda x, w, b: b * jax.nn.sigmoid(x + b)),
    "softmax": (lambda x, w, b: jax.nn.softmax(x, -1), lambda x, w, b: jax.nn.softmax(x, 0)),
    "mean": (lambda x, w, b: x - x.mean(-1, keepdims=True), lambda x, w, b: x - x.mean(0, keepdims=True)),
    "norm": (
        lambda x, w, b: x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * b,
        lambda x, w, b: x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-3) * b,
    ),
    "roll": (lambda x, w, b: jnp.roll(x, 1, -1) + b, lambda x, w, b: jnp.roll(x, -1, -1) + b),
    "halves": (
        lambda x, w, b: jnp.concatenate([x[:, 3:], x[:, :3]], -1) * b,
        lambda x, w, b: jnp.concatenate([x[:, 2:], x[:, :2]], -1) * b,
    ),
    "heads": (
        lambda x, w, b: jnp.einsum("bhk,hkd->bd", x.reshape(ROWS, 2, 3), w.reshape(2, 3, WIDTH)),
        lambda x, w, b: jnp.einsum("bhk,khd->bd", x.reshape(ROWS, 2, 3), w.reshape(3, 2, WIDTH)),
    ),
    "mask": (
        lambda x, w, b: jnp.where(jnp.arange(WIDTH) < 3, x, b),
        lambda x, w, b: jnp.where(jnp.arange(WIDTH) <= 3, x, b),
    ),
    "causal": (
        lambda x, w, b: jnp.where(jnp.tril(jnp.ones((ROWS, ROWS), bool)), x @ x.T, -1e9) @ x * 1e-2,
        lambda x, w, b: jnp.where(jnp.tril(jnp.ones((ROWS, ROWS), bool), -1), x @ x.T, -1e9) @ x * 1e-2,
    ),
    "sort": (lambda x, w, b: jnp.sort(x, -1) * b, lambda x, w, b: jnp.sort(x, 0) * b),
    "cast": (
        lambda x, w, b: x.astype(jnp.bfloat16).astype(jnp.float32) + b,
        lambda x, w, b: x.astype(jnp.float16).astype(jnp.float32) + b,
    ),
    "clip": (lambda x, w, b: jnp.clip(x, -1.0, 1.5), lambda x, w, b: jnp.clip(x, -1.0, 1.25)),
    "largest": (
        lambda x, w, b: x - jnp.max(x, -1, keepdims=True) + b,
        lambda x, w, b: x - jnp.min(x, -1, keepdims=True) + b,
    ),
    "rows of a table": (
        lambda x, w, b: x + w[jnp.array([0, 2, 4, 1])],
        lambda x, w, b: x + w[jnp.array([0, 2, 3, 1])],
    ),
    "scatter": (lambda x, w, b: x.at[:, 1].add(b[1]), lambda x, w, b: x.at[:, 2].add(b[1])),
    "pad": (
        lambda x, w, b: jnp.pad(x[:, 1:], ((0, 0), (1, 0))) + b,
        lambda x, w, b: jnp.pad(x[:, :-1], ((0, 0), (1, 0))) + b,
    ),
    "residual of a product": (lambda x, w, b: x + (x @ w) * b, lambda x, w, b: x + (x @ w * b) * b),
    "running sum": (lambda x, w, b: jnp.cumsum(x, -1) * b, lambda x, w, b: jnp.cumsum(x, 0) * b),
}


def layer(steps, wrong):
    def run(x, w, b):
        for place, name in enumerate(steps):
            x = STEPS[name][place == wrong](x, w, b)
        return x

    return run


def program(seed):
    """Returns two functions of the same weights, the names of their steps, and the mistake in the second.

    Args:
        seed: determines everything.
    """
    rng = random.Random(seed)
    steps = [rng.choice(list(STEPS)) for _ in range(rng.randint(1, 4))]
    mistake = rng.choice(["none", "a step", "order", "a weight twice", "backwards"])
    wrong = rng.randrange(len(steps)) if mistake == "a step" else -1
    left, right = layer(steps, -1), layer(steps, wrong)
    if rng.random() < 0.3:
        right = jax.checkpoint(right)
    order = {"order": [1, 0, 2], "a weight twice": [0, 1, 1]}.get(mistake, [0, 1, 2])
    unroll = rng.choice([1, 1, 2, LAYERS])

    def written(x, *leaves):
        for at in order:
            x = left(x, leaves[at], leaves[LAYERS + at])
        return x

    def scanned(x, w, b):
        backwards = mistake == "backwards"
        return jax.lax.scan(
            lambda x, leaf: (right(x, *leaf), None), x, (w, b), reverse=backwards, unroll=unroll
        )[0]

    return written, scanned, steps, mistake, rng.random() < 0.5


def derived(run, backward):
    """Returns a function for the loss, and for the gradient to every argument if ``backward``."""

    def both(*arguments):
        loss = lambda *each: jnp.sum(jnp.sin(run(*each)) * jnp.linspace(0.5, 1.5, WIDTH))  # noqa: E731
        if not backward:
            return (loss(*arguments),)
        value, gradients = jax.value_and_grad(loss, tuple(range(len(arguments))))(*arguments)
        return value, *gradients

    return both


def examine(seed):
    """Returns whether a random pair is shown, the planted mistake, its steps, and whether its numbers differ."""
    written, scanned, steps, mistake, backward = program(seed)
    x, w, b = (ROWS, WIDTH), (WIDTH, WIDTH), (WIDTH,)
    names = [[f"{leaf}{at}" for leaf in "wb" for at in range(LAYERS)], ["w", "b"]]
    shapes = [[x, *(w,) * LAYERS, *(b,) * LAYERS], [x, (LAYERS, *w), (LAYERS, *b)]]
    runs = [derived(run, backward) for run in (written, scanned)]
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        lowered = [
            jax.jit(run, keep_unused=True).lower(*[jax.ShapeDtypeStruct(s, jnp.float32) for s in each])
            for run, each in zip(runs, shapes, strict=True)
        ]
    sides = [
        Named(program=each, arguments=["x", *own], results=["out", *(["x", *own] if backward else [])])
        for each, own in zip(lowered, names, strict=True)
    ]
    links = [Link(reference=("x",), candidate=("x",))]
    links += [
        Link(
            reference=tuple(f"{leaf}{at}" for at in range(LAYERS)),
            candidate=(leaf,),
            transform=Stack(0, LAYERS),
        )
        for leaf in "wb"
    ]
    out = Link(reference=("out",), candidate=("out",))
    relation = Relation(arguments=links, results=[out, *(links if backward else [])])
    shown = equal(*sides, relation, arithmetic=ROUNDED).proved
    # Rounding may change a maximum and so single numbers by far: a wrong program differs on any data.
    return shown, mistake, steps, shown and all(_differ(lowered, shapes, draw) for draw in range(3))


def _differ(lowered, shapes, seed):
    rng = np.random.default_rng(seed)
    parts = [rng.standard_normal(shape).astype(np.float32) for shape in shapes[0]]
    stacks = [np.stack(parts[1 : 1 + LAYERS]), np.stack(parts[1 + LAYERS :])]
    left, right = lowered[0].compile()(*parts), lowered[1].compile()(parts[0], *stacks)
    if len(left) > 1:
        left = [left[0], left[1], np.stack(left[2 : 2 + LAYERS]), np.stack(left[2 + LAYERS :])]
    return any(
        np.linalg.norm(np.subtract(a, b)) > SHARED * (1 + np.linalg.norm(a))
        for a, b in zip(left, right, strict=True)
    )


def main():
    """Prints the outcome of the programs; returns 1 if one is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    found, failures = collections.Counter(), 0
    for seed in range(options.seed, options.seed + options.programs):
        shown, mistake, steps, differ = examine(seed)
        found[
            f"{'shown' if shown else 'not shown'}, {'no mistake' if mistake == 'none' else 'a mistake'}"
        ] += 1
        if differ or (not shown and mistake == "none"):
            failures += 1
            print(
                f"seed {seed}: {'WRONG' if differ else 'MISSED'}, planted {mistake}, steps {steps}",
                flush=True,
            )
    print(f"{options.programs} programs: {dict(found)}; {failures} wrong or missed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
