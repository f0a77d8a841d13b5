"""Runs the campaign: counts the mutants that the prover refuses, keeps and proves, and measures its cost."""

import collections
import dataclasses
import functools
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

from campaigns.prover.execute import random_inputs, same_bits, single_device
from campaigns.prover.harmless import Original
from campaigns.prover.modules import parse_module, run_module
from campaigns.prover.mutate import Mutant, mutants
from campaigns.prover.pairs import Pair
from campaigns.prover.programs import Sample
from campaigns.prover.variants import make_variant
from parity.ir.jax_internals import stablehlo_module
from parity.ir.stablehlo.reader import read_program
from parity.prove.proof import prove

__all__ = ["Cost", "Kept", "Kills", "cost_of_layers", "kill", "prove_pair", "prove_variants"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kept:
    """A mutant that the prover did not refuse.

    Args:
        mutant: the mutant.
        rule: why its meaning is the same; empty if no rule explains it, which is a hole in the prover.
        bits: whether it gave the same bits as the original on the CPU; None if it was not run.
    """

    mutant: Mutant
    rule: str
    bits: bool | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kills:
    """Outcomes of the mutants of one program.

    Args:
        program: its name.
        made: how many mutants there were, by kind.
        refused: how many were refused, by kind.
        reordered: how many of these only by the order of operands of float operations.
        kept: the others, and those refused by that order although no rule shows that they differ only by it.
        seconds: time spent proving.
    """

    program: str
    made: dict[str, int]
    refused: dict[str, int]
    reordered: int
    kept: tuple[Kept, ...]
    seconds: float

    def holes(self) -> tuple[Kept, ...]:
        """Returns the kept mutants that no rule explains or that gave different bits."""
        return tuple(each for each in self.kept if not each.rule or each.bits is False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cost:
    """Cost of proving a program with some number of unrolled layers."""

    layers: int
    operations: int
    seconds: float


def kill(sample: Sample, count: int, *, seed: int = 0, execute: bool = False) -> Kills:
    """Tries to prove mutants of a program equal to it.

    Args:
        sample: the program.
        count: how many mutants at most.
        seed: selects them.
        execute: whether to run all mutants that were not refused, if one device can. Mutants that only the rewriting
            rules prove always run, because no other check covers them.
    """
    program = read_program(sample.lowered)
    original = Original(program)
    runner = _Runner(sample)
    identity = [
        [(k, k) for k in range(len(side))] for side in (program.body.parameters, program.body.outputs)
    ]
    made: collections.Counter[str] = collections.Counter()
    refused: collections.Counter[str] = collections.Counter()
    kept, seconds, reordered = [], 0.0, 0
    for mutant in mutants(sample.lowered, random.Random(seed), count):
        made[mutant.kind] += 1
        try:
            proof = prove(program, mutant.module, arguments=identity[0], results=identity[1])
        except ValueError as error:  # such as a function that now calls itself
            assert "expected" in str(error), mutant
            refused[mutant.kind] += 1
            continue
        seconds += proof.seconds
        if proof.proved:
            bits = runner.agrees(mutant.module) if execute or proof.rules else None
            ruled = f"rules ({', '.join(proof.rules)})" if proof.rules else ""
            kept.append(Kept(mutant=mutant, rule=ruled or original.benign(mutant), bits=bits))
        else:
            assert proof.frontier, mutant
            refused[mutant.kind] += 1
            reordered += proof.reordered
            if proof.reordered and not proof.rules and not original.reorders(mutant):
                kept.append(Kept(mutant=mutant, rule="", bits=None))
    return Kills(
        program=sample.name,
        made=dict(made),
        refused=dict(refused),
        reordered=reordered,
        kept=tuple(kept),
        seconds=seconds,
    )


class _Runner:
    """Runs a program once, on first use, and others against it."""

    def __init__(self, sample: Sample):
        self._sample = sample

    @functools.cached_property
    def _single(self) -> Any | None:
        return single_device(stablehlo_module(self._sample.lowered)) if self._sample.runs else None

    @functools.cached_property
    def _inputs(self) -> list[Any]:
        return random_inputs(self._single, 0)

    @functools.cached_property
    def _expected(self) -> list[Any]:
        return self._run(self._single)

    def _run(self, module: Any) -> list[Any]:
        return run_module(module, [self._inputs])[0]

    def agrees(self, module: Any) -> bool | None:
        other = None if self._single is None else single_device(module)
        return None if other is None else same_bits(self._expected, self._run(other))


def prove_variants(sample: Sample, count: int, *, seed: int = 0, edits: int = 6) -> Iterator[tuple[Any, Any]]:
    """Yields benign variants of a program with the prover's result.

    Args:
        sample: the program.
        count: how many variants.
        seed: selects them.
        edits: how many random edits each has.
    """
    program = read_program(sample.lowered)
    for number in range(count):
        variant = make_variant(sample.lowered, random.Random(f"{seed} {number}"), edits=edits)
        yield variant, prove(program, variant.module, arguments=variant.arguments, results=variant.results)


def cost_of_layers(layers: int) -> Cost:
    """Measures proving the gradient of a network of unrolled layers equal to itself, reading included."""
    width = 16
    kernel = jax.ShapeDtypeStruct((width, width), jnp.float32)
    weights = [{"gate": kernel, "up": kernel, "down": kernel} for _ in range(layers)]
    lowered = jax.jit(jax.grad(_unrolled)).lower(weights, jax.ShapeDtypeStruct((4, width), jnp.float32))
    lowered.compiler_ir("stablehlo")
    arguments, results = [(k, k) for k in range(3 * layers + 1)], [(k, k) for k in range(3 * layers)]
    started = time.perf_counter()
    proof = prove(lowered, lowered, arguments=arguments, results=results)
    assert proof.proved, proof.outcome()
    return Cost(layers=layers, operations=sum(proof.operations), seconds=time.perf_counter() - started)


def _unrolled(weights: list[dict[str, jax.Array]], x: jax.Array) -> jax.Array:
    layer: Callable = jax.checkpoint(
        lambda x, w: x + (jax.nn.silu(x @ w["gate"]) * (x @ w["up"])) @ w["down"],
    )
    for w in weights:
        x = layer(x, w)
    return jnp.sum(x)


def prove_pair(pair: Pair, prover: Callable[..., Any] | None = None) -> Any:
    """Applies the prover, or `is_one_program`, to a hand-written pair."""
    like = stablehlo_module(jax.jit(jnp.sin).lower(jax.ShapeDtypeStruct((), jnp.float32)))
    sides = [read_program(parse_module(text, like)) for text in (pair.reference, pair.candidate)]
    order = pair.arguments or range(len(sides[0].body.parameters))
    outputs = range(len(sides[0].body.outputs))
    pairs = {"arguments": tuple(enumerate(order)), "results": tuple(zip(outputs, outputs, strict=True))}
    return (prover or prove)(*sides, **pairs)
