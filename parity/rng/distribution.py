"""Initial states of sides that do not share keys: the same distributions, leaf by leaf."""

from collections.abc import Mapping, Sequence

import numpy as np

from parity.verdicts import Finding

__all__ = ["ENOUGH", "compare_distributions", "gathered"]

ENOUGH = 8_192
"""So many numbers tell scales apart that differ by a tenth."""
MORE_THAN_ENOUGH = 8 * ENOUGH
"""No further state adds to a leaf that has so many: they would be sorted, and say nothing more."""
IMPROBABLE = 1e-7
SIGMAS = 6.0
LEAST = 0.05

Samples = Mapping[str, np.ndarray]


def compare_distributions(reference: Samples, candidate: Samples) -> list[Finding]:
    """Finds leaves whose initial numbers come from other distributions.

    A leaf of one number everywhere must be that number on both sides; others are compared by their standard
    deviations and by the two-sample Kolmogorov-Smirnov test.

    Args:
        reference, candidate: numbers of each leaf, of as many keys as it takes, under the same paths.
    """
    return [
        Finding(
            where=f"initial {path}",
            reference=_words(reference[path]),
            candidate=_words(candidate[path]),
            distance=distance,
            cause="another initializer, or another fan-in",
            next_step="compare the initializers of the leaf on both sides",
        )
        for path in sorted(set(reference) & set(candidate))
        if (distance := _distance(reference[path], candidate[path]))
    ]


def _distance(ours: np.ndarray, theirs: np.ndarray) -> str:
    """Returns how two samples differ, in words; empty where chance explains it."""
    fixed = [sample[0] if (sample == sample[0]).all() else None for sample in (ours, theirs)]
    if None not in fixed:
        return "" if fixed[0] == fixed[1] else "constants that differ"
    if fixed.count(None) == 1:
        return "a constant on one side only"
    spreads = [float(np.std(sample)) for sample in (ours, theirs)]
    gap = abs(np.log(spreads[1] / spreads[0])) if min(spreads) > 0 else np.inf
    chance = SIGMAS * np.sqrt(0.5 / len(ours) + 0.5 / len(theirs))
    if gap > max(chance, LEAST):
        return f"standard deviations {spreads[1] / spreads[0]:.3g} to 1"
    from scipy import stats  # a second to import, and most runs never come here

    chance = np.asarray(stats.ks_2samp(ours, theirs, method="asymp"))[1]
    if chance < IMPROBABLE:
        return "distributions of other shapes"
    return ""


def _words(sample: np.ndarray) -> str:
    if (sample == sample[0]).all():
        return f"{sample[0]:.6g} everywhere"
    return f"mean {np.mean(sample):.3g}, standard deviation {np.std(sample):.3g} of {len(sample):,} numbers"


def gathered(states: Sequence[Samples]) -> dict[str, np.ndarray]:
    """Returns the numbers of each leaf over initial states, as many whole ones as it needs, flat and in float64."""
    needed = {path: -(-MORE_THAN_ENOUGH // max(1, array.size)) for path, array in states[0].items()}
    return {
        path: np.concatenate([np.asarray(state[path], np.float64).ravel() for state in states[:count]])
        for path, count in needed.items()
    }
