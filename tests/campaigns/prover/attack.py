"""Runs programs that a rule of the prover equates: they must give the same bits on stress data at every level.

It is unspecified which of two NaNs an operation returns: compiled code chooses by the registers that it picks,
so that even the order of arguments matters.
"""

# B rows, D columns

import dataclasses
import random
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from campaigns.prover.execute import EXTREMES, same_numbers, wild_inputs
from campaigns.prover.modules import run_module
from campaigns.prover.variants import EDITS, Variant, exchange_operands, make_variant
from parity.ir.jax_internals import stablehlo_module
from parity.prove.proof import prove

__all__ = ["LEVELS", "Attack", "attack", "attacked", "different_bits"]

LEVELS = (0, 3)
"""Optimisation levels of LLVM in XLA's CPU backend: the first contracts nothing, the second is the default."""

B, D = 13, 24


@dataclasses.dataclass(frozen=True, kw_only=True)
class Attack:
    """One rule, or several together, against one program.

    Args:
        rules: the edits that the prover treats as benign.
        program: the program's name.
        applies: whether the program has operations that the edits change.
        proved: whether the prover proved all variants.
        differ: data sets and levels on which some variant gave different bits.
    """

    rules: tuple[str, ...]
    program: str
    applies: bool
    proved: bool
    differ: tuple[str, ...]


def _layer(x_BD: jax.Array, w_DD: jax.Array, scale_1D: jax.Array) -> jax.Array:
    hidden_BD, gate_BD = jnp.tanh(x_BD @ w_DD), jax.nn.sigmoid(x_BD)
    mixed_BD = hidden_BD * scale_1D + gate_BD * hidden_BD
    return mixed_BD * gate_BD - jnp.minimum(jnp.maximum(x_BD, scale_1D), 2.0) * hidden_BD


def _forward(x_BD: jax.Array, y_BD: jax.Array, w_DD: jax.Array, rows_B: jax.Array) -> tuple[Any, ...]:
    """A forward pass with fusable multiply-adds in a loop, in a branch, after barriers and next to a reduction."""
    scale_1D = jnp.linspace(0.5, 1.5, D)[None]
    small_BD = y_BD / (1.0 + jnp.abs(y_BD))

    def body(carry: tuple[Any, ...], iteration: jax.Array) -> tuple[Any, None]:
        x_BD, last_BD, total_BD, count = carry
        new_BD = jax.checkpoint(_layer)(x_BD, w_DD, scale_1D)
        total_BD = total_BD * small_BD + new_BD * last_BD
        return (new_BD, x_BD, total_BD, count * 3 + iteration), None

    start = (x_BD, small_BD, x_BD * small_BD, jnp.int32(1))
    (x_BD, last_BD, total_BD, count), _ = jax.lax.scan(body, start, jnp.arange(3))
    chosen_BD, other_BD = jax.lax.cond(
        rows_B[0] > rows_B[1],
        lambda a, b: (a * b + small_BD * last_BD, a - b * small_BD),
        lambda a, b: (a * small_BD - b, b * b + a * last_BD),
        x_BD,
        total_BD,
    )
    first_BD, second_BD = jax.lax.optimization_barrier((chosen_BD * small_BD, other_BD + y_BD))
    mixed_BD = first_BD * second_BD + jnp.minimum(chosen_BD, other_BD) * small_BD
    ranked_BD = jnp.sort(mixed_BD, axis=1) + jnp.square(mixed_BD) * mixed_BD[rows_B % B]
    whole_B = jnp.where((rows_B + count * rows_B) ^ (rows_B & 7) > 0, rows_B | count, jnp.minimum(rows_B, 5))
    weights_BD = jax.nn.softmax(mixed_BD, axis=1)
    return (
        ranked_BD,
        total_BD,
        jnp.sum(weights_BD * y_BD, axis=1),
        whole_B,
        mixed_BD,
        x_BD * y_BD + last_BD * x_BD,
    )


def _gradient(x_BD: jax.Array, y_BD: jax.Array, w_DD: jax.Array, rows_B: jax.Array) -> tuple[Any, ...]:
    def loss(x_BD: jax.Array, y_BD: jax.Array, w_DD: jax.Array) -> jax.Array:
        ranked_BD, total_BD, sums_B, _, mixed_BD, last_BD = _forward(x_BD, y_BD, w_DD, rows_B)
        both_BD = total_BD * mixed_BD + last_BD * y_BD
        return jnp.sum(ranked_BD * y_BD) + jnp.sum(both_BD) + 3.5 * jnp.sum(sums_B * sums_B)

    return jax.grad(loss, argnums=(0, 1, 2))(x_BD, y_BD, w_DD)


def attacked(dtype: Any = jnp.float32) -> dict[str, Any]:
    """Returns the lowered programs that are attacked, a forward pass and its gradient."""
    shapes = [jax.ShapeDtypeStruct(shape, dtype) for shape in ((B, D), (B, D), (D, D))]
    inputs = (*shapes, jax.ShapeDtypeStruct((B,), jnp.int32))
    return {
        name: jax.jit(run).lower(*inputs) for name, run in (("forward", _forward), ("gradient", _gradient))
    }


class _Runs:
    """A program's results on every data set at one level.

    Args:
        module: the program.
        level: see `LEVELS`.
        seed: seed of the data.
    """

    def __init__(self, module: Any, level: int, seed: int):
        self._level = level
        self._inputs = {kind: wild_inputs(module, kind, seed) for kind in EXTREMES}
        self._results = self._run(module, range(len(self._inputs["tame"])))

    def _run(self, module: Any, order: Sequence[int]) -> dict[str, list[np.ndarray]]:
        fed = [[inputs[k] for k in order] for inputs in self._inputs.values()]
        return dict(zip(self._inputs, run_module(module, fed, self._level), strict=True))

    def differ(self, variant: Variant) -> list[str]:
        order = [old for old, new in sorted(variant.arguments, key=lambda pair: pair[1])]
        got = self._run(variant.module, order)
        places = [new for _, new in sorted(variant.results)]
        return [
            f"{kind} data at level {self._level}"
            for kind, results in self._results.items()
            if not same_numbers(results, [got[kind][k] for k in places])
        ]


def attack(
    program: str,
    attacks: Sequence[tuple[str, ...]] = tuple((rule,) for rule in EDITS),
    *,
    variants: int = 1,
    seed: int = 0,
) -> Iterator[Attack]:
    """Yields the outcome of rules on a program, run at every level on every kind of data.

    Args:
        program: ``forward`` or ``gradient``.
        attacks: names of the edits to make together.
        variants: how many variants of each.
        seed: selects the variants.
    """
    lowered = attacked()[program]
    module = stablehlo_module(lowered)
    runs = [_Runs(module, level, seed) for level in LEVELS]
    for rules in attacks:
        made = [
            make_variant(lowered, random.Random(f"{rules} {seed} {number}"), only=rules)
            for number in range(variants)
        ]
        proofs = [
            prove(lowered, each.module, arguments=each.arguments, results=each.results) for each in made
        ]
        yield Attack(
            rules=rules,
            program=program,
            applies=set(rules) <= {edit for each in made for edit in each.edits},
            proved=all(proof.proved for proof in proofs),
            differ=tuple(text for each in made for level in runs for text in level.differ(each)),
        )


def different_bits(program: str, *, seed: int = 0) -> tuple[str, ...]:
    """Returns the data sets and levels on which reordered float operands, which are not proved, change bits."""
    lowered = attacked()[program]
    module = stablehlo_module(lowered)
    other = exchange_operands(lowered, random.Random(seed))
    sides = [[(k, k) for k in range(count)] for count in (4, len(jax.tree.leaves(lowered.out_info)))]
    variant = Variant(module=other, edits=(), arguments=tuple(sides[0]), results=tuple(sides[1]))
    return tuple(text for level in LEVELS for text in _Runs(module, level, seed).differ(variant))
