"""Routing decisions: tokens whose choices differ between the sides, and the ties among them.

A program that chooses (experts of a layer, for example) returns ``LAYER/preferred`` and ``LAYER/margin`` in the group
``routing``: integers ``[..., K]``, and the margin of the last choice over the best remaining one, ``[...]``.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from parity.values.ladder import FLOOR_FACTOR
from parity.values.noise import resolution
from parity.verdicts import Finding

Flat = Mapping[str, np.ndarray]
PREFERRED, MARGIN, FORCED = "/preferred", "/margin", "forced/"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChangedChoice:
    """A token whose choices differ between the two sides.

    Args:
        reference, candidate: the choices that only one side makes.
        margin: margin of the reference's last choice over the best remaining one.
        noise: typical effect of rounding on a margin of that layer.
    """

    layer: str
    token: tuple[int, ...]
    reference: tuple[int, ...]
    candidate: tuple[int, ...]
    margin: float
    noise: float

    @property
    def is_tie(self) -> bool:
        """True if rounding decides the choice."""
        return self.margin <= FLOOR_FACTOR * self.noise

    def finding(self) -> Finding:
        """Returns the change as a finding."""
        cause = "a tie that rounding decides" if self.is_tie else "another choice, which no rounding explains"
        return Finding(
            where=f"{self.layer} token {list(self.token)}",
            reference=f"choice {', '.join(map(str, self.reference))}",
            candidate=f"choice {', '.join(map(str, self.candidate))}",
            distance=f"margin {self.margin:.3g}, noise of a margin {self.noise:.3g}",
            cause=cause,
        )


def find_flips(reference: Flat, candidate: Flat, noise: Mapping[str, float]) -> list[ChangedChoice]:
    """Returns the tokens whose sets of choices differ; sorted with ties last, then by decreasing margin.

    Args:
        noise: noise of the margins of each layer, as from `margin_noise`.
    """
    flips = []
    for path in sorted(reference):
        if not path.endswith(PREFERRED):
            continue
        layer = path.removesuffix(PREFERRED)
        left, right = (np.sort(side[path], axis=-1) for side in (reference, candidate))
        for token in zip(*np.nonzero((left != right).any(axis=-1)), strict=True):
            token = tuple(map(int, token))
            choices = [set(side[token].tolist()) for side in (left, right)]
            flips.append(
                ChangedChoice(
                    layer=layer,
                    token=token,
                    reference=tuple(sorted(choices[0] - choices[1])),
                    candidate=tuple(sorted(choices[1] - choices[0])),
                    margin=float(reference[layer + MARGIN][token]),
                    noise=noise.get(layer, 0.0),
                )
            )
    return sorted(flips, key=lambda flip: (flip.is_tie, -flip.margin))


def margin_noise(reference: Flat, others: Sequence[Flat]) -> dict[str, float]:
    """Returns the effect of rounding on a margin of each layer: the median over tokens, the largest over runs.

    It takes the median, because tokens with other choices in a run do not measure noise.

    Args:
        reference: the group ``routing`` of the reference.
        others: others of the reference with perturbed inputs, or in a wider type; all with the reference's choices.
    """
    return {
        path.removesuffix(MARGIN): max(
            resolution(margin), *(_typical(margin, run[path]) for run in others if path in run)
        )
        for path, margin in reference.items()
        if path.endswith(MARGIN)
    }


def _typical(margin: np.ndarray, other: np.ndarray) -> float:
    open_choice = np.isfinite(margin) & np.isfinite(other)
    if not open_choice.any():
        return 0.0
    return float(np.median(np.abs(margin[open_choice].astype(np.float64) - other[open_choice])))


def forced_inputs(routing: Flat) -> dict[str, np.ndarray]:
    """Returns the inputs that force the choices in ``routing``."""
    return {
        FORCED + path.removesuffix(PREFERRED): np.array(choices)
        for path, choices in routing.items()
        if path.endswith(PREFERRED)
    }
