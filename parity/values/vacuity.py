"""Guards against checks that cannot fail: empty sets, constant leaves, dead gradients, aliased buffers."""

import fnmatch
from collections.abc import Mapping, Sequence

import jax.numpy as jnp
import numpy as np

from parity.verdicts import Finding, expected_got

NOT_FINITE = "look for the first: an overflow, a logarithm of a negative number, a mask that hides everything"
RANDOMISE = "randomise it"
MEANT = "declare the leaf in the pair's zero_gradients if that is meant"

Flat = Mapping[str, np.ndarray]


def constant_leaves(what: str, flat: Flat, next_step: str = RANDOMISE) -> list[Finding]:
    """Returns a finding for each leaf of more than one element with a single value, NaN included, and for an empty set.

    With a batch of one segment, all-ones weights or a scale that was never randomised, the property under test holds
    regardless of the code.
    """
    if not flat:
        return [
            vacuous_finding(what, "no leaf", "at least one leaf", "check the program's outputs and inputs")
        ]
    return [
        vacuous_finding(
            f"{what} {path}",
            f"all {array.size} entries are {array.flat[0] or array.dtype.type(0)}",  # -0.0 is 0.0
            "entries that differ",
            next_step,
        )
        for path, array in flat.items()
        if array.size > 1 and ((array == array.flat[0]).all() or (array != array).all())
    ]


def dead_gradients(gradients: Flat, declared: Sequence[str]) -> list[Finding]:
    """Returns a finding for each gradient that is zero throughout, unless its leaf is declared to have none."""
    zeros = [path for path, array in gradients.items() if not array.any()]
    return _undeclared(zeros, declared, "a gradient of zeros", "a gradient that is not zero", MEANT)


def nothing_moved(before: Flat, after: Flat, declared: Sequence[str]) -> list[Finding]:
    """Returns a finding for each parameter that training steps left unchanged."""
    still = [path for path in before if path in after and before[path].tobytes() == after[path].tobytes()]
    wanted = "a parameter that training moves"
    return _undeclared(still, declared, "the same bits after the steps", wanted, MEANT)


def not_finite(flat: Flat, declared: Sequence[str] = ()) -> list[Finding]:
    """Returns a finding for each leaf with NaN or infinity, which hides earlier differences."""
    odd = [
        path
        for path, array in flat.items()
        if jnp.issubdtype(array.dtype, jnp.inexact) and not np.isfinite(array).all()
    ]
    return _undeclared(odd, declared, "entries that are not finite", "finite numbers", NOT_FINITE)


def is_declared(path: str, globs: Sequence[str]) -> bool:
    """True if a case declares that a leaf is an exception."""
    return any(fnmatch.fnmatch(path, glob) for glob in globs)


def _undeclared(paths: Sequence[str], globs: Sequence[str], *words: str) -> list[Finding]:
    return [vacuous_finding(path, *words) for path in paths if not is_declared(path, globs)]


def same_buffers(reference: Flat, candidate: Flat) -> list[Finding]:
    """Returns a finding for each leaf whose two sides share a buffer, so that any comparison holds."""
    return [
        vacuous_finding(path, "one buffer on both sides", "distinct buffers", "copy before comparing")
        for path in reference
        if path in candidate and np.shares_memory(reference[path], candidate[path])
    ]


def vacuous_finding(where: str, got: str, expected: str, next_step: str = RANDOMISE) -> Finding:
    """Returns a finding on a property of both sides that makes a check vacuous."""
    return expected_got(where, expected, got, cause="a check that cannot fail", next_step=next_step)
