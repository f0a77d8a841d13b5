"""The weight map: pairs the leaves of the candidate with those of the reference.

Leaves are paired by explicit rules, then by normalised paths (also across stacked and per-layer
layouts), then by role, shape, dtype and the nearest name. The result is one-to-one and total, or a
`MapError` that lists every unmatched leaf of both sides.
"""

import dataclasses
import functools
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from parity.builds.tree import Leaf, Role
from parity.builds.weights.transforms import Identity, Transform
from parity.verdicts import SIDES

GUESSED = "axis guessed:"
NEAREST = "shape and nearest name"
USED = "use in the program"
USED_ALONE = f"{USED} alone"
ORDER = "order of use"
ORDER_ALONE = f"{ORDER} alone"
RELATED = "related name"
FOLLOWS = "parameter it belongs to"
AGAINST_USE = "name, although the programs use it like "
HOLDERS = frozenset({"inner", "params", "model", "optimizer", "opt_state", "routing_bias"})
"""Names of containers, which do not identify a leaf."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rule:
    r"""An explicit pairing, for leaves that names and shapes leave ambiguous.

    Args:
        reference: regular expressions for whole normalised paths of the reference; the groups of the
            first fill the other expressions and the candidate templates (``\1``).
        candidate: templates of normalised candidate paths.

    Raises:
        TypeError: a text in place of a tuple.
        ValueError: a malformed expression.
    """

    reference: tuple[str, ...]
    candidate: tuple[str, ...]
    transform: Transform = Identity()

    def __post_init__(self):
        for side in SIDES:
            if isinstance(given := getattr(self, side), str):
                raise TypeError(f"weight rule: {side}: got {given!r}, expected a tuple of them, ({given!r},)")
        for pattern in self.reference[:1]:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(
                    f"weight rule: reference: got {pattern!r}, expected a regular expression: {error}"
                ) from error


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
    """Leaves of the reference and the leaves of the candidate that hold the same numbers."""

    reference: tuple[str, ...]
    candidate: tuple[str, ...]
    transform: Transform
    role: Role
    matched_by: str

    @property
    def is_guess(self) -> bool:
        """True if sizes, names and use leave the pair ambiguous; a proof, a probe or a rule settles it."""
        guesses = (NEAREST, RELATED, ORDER_ALONE, AGAINST_USE)
        return GUESSED in self.matched_by or self.matched_by.startswith(guesses)

    @property
    def is_unnamed(self) -> bool:
        """True if no rule and no name decides between leaves of one size: two that are exchanged would pass."""
        return self.matched_by.startswith((USED_ALONE, ORDER, NEAREST))


class RuleError(ValueError):
    """A weight rule pairs nothing, or its transform does not fit."""


class MapError(ValueError):
    """Leaves have no partner.

    Args:
        hints: weight rules that pair nothing, as sentences.
    """

    def __init__(self, reference: Sequence[Leaf], candidate: Sequence[Leaf], hints: Sequence[str] = ()):
        self.reference, self.candidate, self.hints = tuple(reference), tuple(candidate), tuple(hints)

        def listed(leaves: Sequence[Leaf]) -> str:
            return ", ".join(f"{leaf.path} {leaf.dtype}{list(leaf.shape)}" for leaf in leaves) or "none"

        super().__init__(
            f"weight map: leaves without a partner: reference {listed(reference)}; candidate "
            f"{listed(candidate)}; expected a one-to-one map of all leaves; "
            + ("; ".join(self.hints) or "add the parameter, or a weight rule")
        )


class ConflictError(MapError):
    """Two programs of the pair require different maps, so that no state fits both.

    Args:
        partners: program -> the leaf of the candidate that the program uses in the same way.
        leaves: the leaf at ``path``, and its partners.
    """

    def __init__(self, path: str, partners: Mapping[str, str], leaves: tuple[Leaf, Sequence[Leaf]]):
        super().__init__([leaves[0]], leaves[1])
        self.path, self.partners = path, partners

    def __str__(self) -> str:
        words = ", ".join(f"{program} uses it as {partner}" for program, partner in self.partners.items())
        return f"weight map: {self.path}: {words}; expected one partner for all programs of the two builds"


@dataclasses.dataclass(frozen=True)
class WeightMap:
    """A total one-to-one map between the leaves of two states.

    Args:
        alone: RNG leaves that only the reference, or only the candidate has: Linen receives its keys as
            arguments, NNX keeps streams in the model.
    """

    entries: tuple[Entry, ...]
    alone: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())

    @property
    def guessed(self) -> list[Entry]:
        """The entries that are guesses."""
        return [entry for entry in self.entries if entry.is_guess]

    @property
    def is_identity(self) -> bool:
        """True if every leaf has one partner with the same array."""
        return all(isinstance(entry.transform, Identity) for entry in self.entries)

    def to_candidate(self, flat: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Returns the reference's arrays as the candidate's; ``flat`` may hold some of the leaves."""
        return _carried(flat, ((one.reference, one.candidate, one.transform.apply) for one in self.entries))

    def to_reference(self, flat: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Returns the candidate's arrays as the reference's; ``flat`` may hold some of the leaves."""
        return _carried(flat, ((one.candidate, one.reference, one.transform.invert) for one in self.entries))


def _carried(flat: Mapping[str, np.ndarray], moves: Iterable[tuple]) -> dict[str, np.ndarray]:
    """Returns the arrays that moves ``(source paths, target paths, function of arrays)`` make of whole sources."""
    out: dict[str, np.ndarray] = {}
    for source, target, move in moves:
        if all(path in flat for path in source):
            out.update(zip(target, move([flat[path] for path in source]), strict=True))
    return out


@functools.lru_cache(maxsize=65_536)
def normalise(path: str) -> str:
    """Returns ``path`` without holder prefixes and with ``layers_3`` written ``layers/3``.

    Prefixes such as ``params``, ``model`` or ``optimizer/opt_state`` name the holder, not the leaf.
    """
    return "/".join(re.sub(r"_(\d+)$", r"/\1", part) for part in strip_container(path).split("/"))


def strip_container(path: str) -> str:
    """Returns ``path`` without holder prefixes and without ``params`` of a part, otherwise unchanged."""
    *above, last = path.split("/")
    held = itertools.dropwhile(HOLDERS.__contains__, above)
    return "/".join([*(part for part in held if part != "params"), last])
