"""Weights in two layouts, with functions that read them, and one that reads them almost right."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from parity.prove import UnpairedPositions, WeightView
from parity.verdicts import Verdict

# B rows, D features, H heads, K width of a head
B, D, H, K = 5, 6, 2, 3


@dataclasses.dataclass(frozen=True)
class Layout:
    """A weight in two layouts: parts on the left, a whole on the right, and functions that read them.

    ``near`` reads the whole almost right.
    """

    shapes: tuple[tuple[int, ...], ...]
    whole: tuple[int, ...]
    steps: tuple[tuple[str, tuple[int, ...]], ...]
    left: Callable
    right: Callable
    near: Callable
    rung: Verdict = Verdict.PROVED

    def join(self, parts):
        """Joins the parts with NumPy: an oracle independent of the prover."""
        arrays = list(parts)
        for name, numbers in self.steps:
            if name == "join":
                arrays = [np.concatenate(arrays, numbers[0])]
            else:
                move = np.reshape if name == "reshape" else np.transpose
                arrays = [move(array, numbers) for array in arrays]
        return arrays[0]


def stacked(count, shape, axis):
    return (("reshape", (*shape[:axis], 1, *shape[axis:])), ("join", (axis,)))


LAYOUTS = {
    "heads apart": Layout(
        shapes=((D, H * K),),
        whole=(D, H, K),
        steps=(("reshape", (D, H, K)),),
        left=lambda x, w: jnp.tanh(x @ w).reshape(B, H, K),
        right=lambda x, w: jnp.tanh(jnp.einsum("bd,dhk->bhk", x, w).reshape(B, H * K)).reshape(B, H, K),
        near=lambda x, w: jnp.tanh(jnp.einsum("bd,dhk->bkh", x, w).reshape(B, H * K)).reshape(B, H, K),
        rung=Verdict.REORDERED,  # a product of matrices is read in another shape
    ),
    "a flat bias": Layout(
        shapes=((H, K),),
        whole=(H * K,),
        steps=(("reshape", (H * K,)),),
        left=lambda x, b: x + b.reshape(H * K),
        right=lambda x, b: x + b,
        near=lambda x, b: x + b[::-1],
    ),
    "stacked layers": Layout(
        shapes=((D, D), (D, D), (D, D)),
        whole=(3, D, D),
        steps=stacked(3, (D, D), 0),
        left=lambda x, *w: jnp.tanh(jnp.tanh(x @ w[0]) @ w[1]) @ w[2],
        right=lambda x, w: jnp.tanh(jnp.tanh(x @ w[0]) @ w[1]) @ w[2],
        near=lambda x, w: jnp.tanh(jnp.tanh(x @ w[0]) @ w[2]) @ w[1],
    ),
    "stacked along the middle": Layout(
        shapes=((D, D), (D, D)),
        whole=(D, 2, D),
        steps=stacked(2, (D, D), 1),
        left=lambda x, *w: x @ w[0] * (x @ w[1]),
        right=lambda x, w: x @ w[:, 0] * (x @ w[:, 1]),
        near=lambda x, w: x @ w[:, 0] * (x @ w[:, 0]),
    ),
    "gate beside up": Layout(
        shapes=((D, 4), (D, 4)),
        whole=(D, 8),
        steps=(("join", (1,)),),
        left=lambda x, a, b: jnp.tanh(x @ a) * (x @ b),
        right=lambda x, w: jnp.tanh(x @ w[:, :4]) * (x @ w[:, 4:]),
        near=lambda x, w: jnp.tanh(x @ w[:, :4]) * (x @ w[:, 3:7]),
    ),
    "whole on one side, parts joined on the other": Layout(
        shapes=((D, 2), (D, 4)),
        whole=(D, 6),
        steps=(("join", (1,)),),
        left=lambda x, a, b: jnp.tanh(x @ jnp.concatenate([a, b], 1)),
        right=lambda x, w: jnp.tanh(x @ w),
        near=lambda x, w: jnp.tanh(x @ jnp.roll(w, 2, 1)),
    ),
    "transposed": Layout(
        shapes=((D, 4),),
        whole=(4, D),
        steps=(("transpose", (1, 0)),),
        left=lambda x, w: x @ w,
        right=lambda x, w: x @ w.T,
        near=lambda x, w: x @ w.T[:, ::-1],
        rung=Verdict.REORDERED,
    ),
}


def lowered(run, shapes):
    return jax.jit(run, keep_unused=True).lower(
        *[jax.ShapeDtypeStruct(s, jnp.float32) for s in ((B, D), *shapes)]
    )


def moves(layout, *, gradients=False, side=0, steps=None):
    group = WeightView(
        name="w",
        side=side,
        parts=tuple(range(1, 1 + len(layout.shapes))),
        shapes=layout.shapes,
        whole=1,
        steps=layout.steps if steps is None else steps,
    )
    back = dataclasses.replace(group, name="gradient of w")
    return UnpairedPositions(moved_arguments=(group,), moved_results=(back,) if gradients else ())
