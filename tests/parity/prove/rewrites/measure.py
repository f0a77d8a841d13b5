"""Proves and runs pairs of forms; see ``__main__``."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from campaigns.prover.execute import EXTREMES, same_numbers, wild_inputs
from campaigns.prover.modules import run_module
from contract import DOTS, STRUCTURE, SUMS  # pyright: ignore[reportMissingImports]
from floats import FLOATS  # pyright: ignore[reportMissingImports]
from further import FURTHER  # pyright: ignore[reportMissingImports]
from logic import CASTS, INDICES, LOGIC  # pyright: ignore[reportMissingImports]
from modules import MODULES, Module  # pyright: ignore[reportMissingImports]
from steps import ELEMENTWISE, MOVES, SHAPES, Step  # pyright: ignore[reportMissingImports]
from strangers import SUBJECTS  # pyright: ignore[reportMissingImports]

from parity.ir.hlo.anonymous import compiled_digest
from parity.ir.jax_internals import stablehlo_module
from parity.prove import prove
from parity.prove.exact import Equality, Link, Named, Relation, equal

STEPS: tuple[Step, ...] = (
    *MOVES,
    *ELEMENTWISE,
    *LOGIC,
    *CASTS,
    *INDICES,
    *SUMS,
    *DOTS,
    *STRUCTURE,
    *FLOATS,
)
INPUTS = tuple(jax.ShapeDtypeStruct(s, jnp.int32 if n == 4 else jnp.float32) for n, s in enumerate(SHAPES))
LEVELS = (0, 3)
MOST_STEPS = 100_000


@functools.cache
def gradient(run):
    def loss(x, y, v, t, k):
        return jnp.sum(run(x, y, v, t, k) * (1.0 + jnp.tanh(y)))

    return jax.grad(loss, argnums=(0, 1, 2, 3))


@functools.lru_cache(maxsize=8)  # a program takes a megabyte; those of one attack come one after another
def lower(run, placement=None):
    with jax.numpy_rank_promotion("allow"):
        return jax.jit(run, keep_unused=True).lower(*_placed(INPUTS, placement))


def _placed(leaves, placement):
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=placement), leaves)


def compare(one, other, placement=None):
    left, right = lower(one, placement), lower(other, placement)
    return left, right, proved(left, right)


def proved(left, right):
    count = len(jax.tree.leaves(left.out_info))
    same = [[(k, k) for k in range(n)] for n in (len(INPUTS), count)]
    return prove(left, right, arguments=same[0], results=same[1])


def differ(left, right, seed=0):
    """Returns the data and levels on which two programs give different numbers."""
    modules = [stablehlo_module(each) for each in (left, right)]
    found = []
    fed = [wild_inputs(modules[0], kind, seed) for kind in EXTREMES]
    for inputs in fed:
        inputs[4] = inputs[4] % 16
    for level in LEVELS:
        runs = [run_module(module, fed, level) for module in modules]
        found += [
            f"{kind} data at level {level}"
            for kind, a, b in zip(EXTREMES, *runs, strict=True)
            if not same_numbers(a, b)
        ]
    return found


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rewrite:
    """One function in two forms, forward or its gradient.

    Args:
        name: as text.
        prove: lowers both, for a place or JAX's default, and proves them.
        runs: True if both take the inputs of the steps.
        subject: part of the list.
    """

    name: str
    prove: Callable[..., tuple[Any, Any, Any]]
    runs: bool = True
    subject: str = "migrations"


def exact(left: Any, right: Any) -> Equality:
    """Asks whether two lowered programs are equal if numbers are exact."""
    arguments, results = (
        [f"{word}{place}" for place in range(len(jax.tree.leaves(tree)))]
        for word, tree in (("a", left.args_info), ("r", left.out_info))
    )
    links = [[Link(reference=(name,), candidate=(name,)) for name in names] for names in (arguments, results)]
    named = [Named(program=side, arguments=arguments, results=results) for side in (left, right)]
    return equal(*named, Relation(arguments=links[0], results=links[1]), most_steps=MOST_STEPS)


def settled(left: Any, right: Any, proof: Any, backend: Any) -> str:
    """Returns the strongest claim for all inputs: proved, one program, exact; empty if there is none."""
    if proof.proved:
        return "proved"
    digests = [compiled_digest(backend.start(side)()) for side in (left, right)]
    if digests[0] == digests[1] is not None:
        return "one program"
    return "exact" if proof.reordered or exact(left, right).proved else ""


def _of_step(step: Step, derive: Callable, kind: str, subject: str = "migrations") -> Rewrite:
    def prove(placement: Any = None) -> tuple[Any, Any, Any]:
        return compare(derive(step.one), derive(step.other), placement)

    return Rewrite(name=f"{step.name}, {kind}", prove=prove, subject=subject)


def _of_module(module: Module, derived: bool) -> Rewrite:
    def slope(run: Callable) -> Callable:
        places = (0, 1) if module.inputs[0].dtype == jnp.float32 else (0,)
        return jax.grad(lambda p, *x: jnp.sum(jnp.tanh(run(p, *x))), argnums=places)

    def find(placement: Any = None) -> tuple[Any, Any, Any]:
        runs = [slope(run) if derived else run for run in (module.run_linen, module.run_nnx)]
        given = _placed((module.parameters(), *module.inputs), placement)
        left, right = (jax.jit(run, keep_unused=True).lower(*given) for run in runs)
        same = [[(k, k) for k in range(len(jax.tree.leaves(tree)))] for tree in (given, left.out_info)]
        return left, right, prove(left, right, arguments=same[0], results=same[1])

    name = f"{module.name} of Linen and NNX, {'gradient' if derived else 'forward'}"
    return Rewrite(name=name, prove=find, runs=False)


KINDS = ((lambda run: run, "forward"), (gradient, "gradient"))
REWRITES: tuple[Rewrite, ...] = (
    *(_of_step(step, *how) for step in STEPS for how in KINDS),
    *(_of_module(module, derived) for module in MODULES for derived in (False, True)),
)
STRANGERS: tuple[Rewrite, ...] = tuple(
    _of_step(step, *how, subject)
    for subject, several in (SUBJECTS | FURTHER).items()
    for step in several
    for how in KINDS
)
