"""Mutates a lowered plan and claims each mutant equal to the plain program; the accepted ones run on random inputs."""

import dataclasses
import functools
import itertools
import random
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from campaigns.prover.modules import with_module
from campaigns.prover.mutate import Mutant, mutants
from parity.compare.backends.backend import UNOPTIMISED
from parity.compare.evidence import Evidence
from parity.compare.exactness import named, relation
from parity.compare.session import Session
from parity.prove.exact import Equality, equal

__all__ = ["Campaign", "Kept"]

NEAR = 1e-3
"""Largest relative difference of a leaf that counts as rounding; mutations cause larger ones."""


@dataclasses.dataclass(frozen=True)
class Kept:
    """A mutant that was claimed equal.

    Args:
        mutant: the change and the changed module.
        distance: relative difference of its results from the original's; None if it does not compile.
    """

    mutant: Mutant
    distance: float | None

    @property
    def wrong(self) -> bool:
        """True if running shows that it computes a different result."""
        return self.distance is not None and not self.distance < NEAR


class Campaign:
    """Mutants of one sample.

    Args:
        name: of `campaigns.exact.samples.SAMPLES`.
    """

    def __init__(self, name: str):
        from campaigns.exact.samples import sample  # imported here: the engine works without these models

        self.evidence = Evidence.of(sample(name), Session())
        self._sides = named(self.evidence.reference), named(self.evidence.candidate)
        self._relation = relation(self.evidence.reference, self.evidence.weights, self.evidence.case)
        first = equal(*self._sides, self._relation)
        assert first.proved, first
        self._most = 10 * first.steps

    def claim(self, module: Any) -> Equality:
        """Returns whether a module in the place of the candidate is equal to the sequence."""
        reference, candidate = self._sides
        return equal(
            reference, dataclasses.replace(candidate, program=module), self._relation, most_steps=self._most
        )

    def results(self, count: int, seed: int, part: slice = slice(None)) -> Iterator[tuple[Mutant, Equality]]:
        """Yields mutants and the claim about each.

        Args:
            count: how many are made.
            seed: seed of the choice.
            part: slice of them that is tried.
        """
        made = mutants(self.evidence.candidate.lowered, random.Random(seed), 4 * count)
        telling = (mutant for mutant in made if "precision" not in mutant.detail)  # precision is rounding
        tried = itertools.islice(itertools.islice(telling, count), part.start, part.stop, part.step)
        for mutant in tried:
            yield mutant, self.claim(mutant.module)

    @functools.cached_property
    def _truth(self) -> Any:
        return self._run(self.evidence.candidate.lowered)

    @functools.cached_property
    def _arguments(self) -> Any:
        side = self.evidence.candidate
        batch = side.build.inputs(0)
        flat = [*(self.evidence.candidate_state[path] for path in side.state_paths)]
        flat += [batch[name] for name in sorted(batch)]
        shapes = jax.tree.leaves(side.arguments)
        return [
            jax.device_put(
                jax.random.wrap_key_data(jnp.asarray(x))
                if jnp.issubdtype(like.dtype, jax.dtypes.prng_key)
                else x,
                like.sharding,
            )
            for x, like in zip(flat, shapes, strict=True)
        ]

    def _run(self, lowered: Any) -> Any:
        arguments = jax.tree.unflatten(
            jax.tree.structure(self.evidence.candidate.arguments), [x.copy() for x in self._arguments]
        )
        return jax.tree.map(_host, lowered.compile(UNOPTIMISED)(*arguments))

    def distance(self, module: Any) -> float | None:
        """Returns the largest difference of any leaf between a module and the candidate, relative to the leaf.

        None if the compiler refuses the module.
        """
        try:
            made = self._run(with_module(self.evidence.candidate.lowered, module))
        except jax.errors.JaxRuntimeError:
            return None
        pairs = zip(jax.tree.leaves(self._truth), jax.tree.leaves(made), strict=True)
        return max(_distance(left, right) for left, right in pairs)


def _host(x: jax.Array) -> np.ndarray:
    return np.asarray(jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x)


def _distance(left: np.ndarray, right: np.ndarray) -> float:
    left, right = (x.astype(np.float64) for x in (left, right))
    difference = np.abs(left - right).max(initial=0.0)
    size = np.abs(left).max(initial=0.0)
    return float(difference / size) if size else float(difference)
