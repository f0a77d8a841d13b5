"""The axis ``weight``: the change of the weight map that makes the failure disappear."""

import dataclasses
import itertools
from collections.abc import Iterator

from parity.bisect.axis import Question, Search, SearchResult
from parity.builds.tree import Role
from parity.builds.weights.map import Entry, WeightMap
from parity.builds.weights.transforms import Identity, Permute
from parity.channels import CHANNELS
from parity.compare.evidence import Evidence
from parity.verdicts import BLOCKING

__all__ = ["AXIS", "Change", "changes"]

MOST = 200
"""Maximum number of changes that are tried."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Change:
    """A weight map with one change.

    Args:
        words: description of the change.
        weights: the map.
    """

    words: str
    weights: WeightMap


def changes(work: Evidence) -> Iterator[Change]:
    """Yields maps in which two parameters of one shape are exchanged, or a square one is transposed.

    Args:
        work: the case.
    """
    weights, leaves = work.weights, work.builds[1].leaves
    params = [
        (number, entry)
        for number, entry in enumerate(weights.entries)
        if entry.role is Role.PARAMS and len(entry.candidate) == 1
    ]
    near = sorted(
        itertools.combinations(params, 2),
        key=lambda pair: -_common(pair[0][1].candidate[0], pair[1][1].candidate[0]),
    )
    for (one, left), (other, right) in near:
        if leaves[left.candidate[0]].shape == leaves[right.candidate[0]].shape:
            entries = list(weights.entries)
            entries[one] = dataclasses.replace(left, candidate=right.candidate)
            entries[other] = dataclasses.replace(right, candidate=left.candidate)
            words = (
                f"{left.reference[0]} is {right.candidate[0]} and {right.reference[0]} is {left.candidate[0]}"
            )
            yield Change(words=words, weights=dataclasses.replace(weights, entries=tuple(entries)))
    for number, entry in params:
        yield from _transposed(weights, number, entry, leaves[entry.candidate[0]].shape)


def _transposed(weights: WeightMap, number: int, entry: Entry, shape: tuple[int, ...]) -> Iterator[Change]:
    if not isinstance(entry.transform, Identity):
        return
    for one, other in itertools.combinations(range(len(shape)), 2):
        if shape[one] == shape[other]:
            order = list(range(len(shape)))
            order[one], order[other] = other, one
            entries = list(weights.entries)
            entries[number] = dataclasses.replace(entry, transform=Permute(tuple(order)))
            words = f"{entry.reference[0]} has its dimensions {one} and {other} exchanged"
            yield Change(words=words, weights=dataclasses.replace(weights, entries=tuple(entries)))


def _common(left: str, right: str) -> int:
    """Returns the number of leading parts that two paths share; close paths are exchanged more often."""
    parts = zip(left.split("/"), right.split("/"), strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], parts))


def look(question: Question) -> SearchResult:
    """Tries maps with one change until the failure disappears."""
    work, tried = question.work(), 0
    channel = CHANNELS[question.signature.channel]
    if channel.group is None:
        return SearchResult(
            axis="weight", found=False, sentence=f"the channel {channel.name} compares no numbers"
        )
    for change in itertools.islice(changes(work), MOST):
        tried += 1
        question.notify(f"weight: change {tried} of the map: {change.words}")
        if _passes(work, change, question):
            return SearchResult(
                axis="weight",
                sentence=f"the failure vanishes if {change.words}: look at who reads these weights, "
                f"or give a weight rule ({tried} tried)",
                facts={"change": change.words, "tried": tried},
            )
    return SearchResult(
        axis="weight",
        found=False,
        sentence=f"none of {tried} changes of the map makes the failure vanish: no weight is to blame",
    )


def _passes(work: Evidence, change: Change, question: Question) -> bool:
    other = work.under(change.weights)
    return CHANNELS[question.signature.channel].look(other).verdict not in BLOCKING


AXIS = Search(name="weight", about="the change of the weight map that makes the failure vanish", look=look)
