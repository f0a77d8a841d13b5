"""The axis ``weight``: the change of the weight map that makes the failure disappear."""

import dataclasses
import itertools
import os.path
from collections.abc import Iterator, Mapping

from parity.bisect.axis import Question
from parity.builds.tree import Role
from parity.builds.weights.map import Entry, WeightMap
from parity.builds.weights.transforms import Identity, Permute
from parity.channels import CHANNELS
from parity.compare.evidence import Evidence
from parity.compare.origin.result import SearchResult
from parity.verdicts import BLOCKING

MOST_CHANGES = 200


def changes(work: Evidence) -> Iterator[tuple[str, WeightMap]]:
    """Yields maps in which two parameters of one shape are exchanged, or a square one is transposed, with texts."""
    weights, leaves = work.weights, work.builds[1].leaves
    params = {
        number: entry
        for number, entry in enumerate(weights.entries)
        if entry.role is Role.PARAMS and len(entry.candidate) == 1
    }
    shapes = {number: leaves[entry.candidate[0]].shape for number, entry in params.items()}

    def changed(entries: Mapping[int, Entry]) -> WeightMap:
        both = dict(enumerate(weights.entries)) | dict(entries)
        return dataclasses.replace(weights, entries=tuple(both.values()))

    near = sorted(
        itertools.combinations(params.items(), 2),
        key=lambda pair: -len(os.path.commonprefix([one.candidate[0].split("/") for _, one in pair])),
    )
    for (one, left), (other, right) in near:
        if shapes[one] == shapes[other]:
            words = (
                f"{left.reference[0]} is {right.candidate[0]} and {right.reference[0]} is {left.candidate[0]}"
            )
            exchanged = {
                one: dataclasses.replace(left, candidate=right.candidate),
                other: dataclasses.replace(right, candidate=left.candidate),
            }
            yield words, changed(exchanged)
    for number, entry in params.items():
        shape = shapes[number]
        for one, other in itertools.combinations(range(len(shape)), 2):
            if isinstance(entry.transform, Identity) and shape[one] == shape[other]:
                order = list(range(len(shape)))
                order[one], order[other] = other, one
                words = f"{entry.reference[0]} has its dimensions {one} and {other} exchanged"
                yield words, changed({number: dataclasses.replace(entry, transform=Permute(tuple(order)))})


def search_weights(question: Question) -> SearchResult:
    """Tries maps with one change until the failure disappears."""
    work, tried = question.work(), 0
    channel = CHANNELS[question.signature.channel]
    if channel.group is None:
        return SearchResult.nothing("weight", f"the channel {channel.name} compares no numbers")
    for words, weights in itertools.islice(changes(work), MOST_CHANGES):
        tried += 1
        question.notify(f"weight: change {tried} of the map: {words}")
        if channel.look(work.under(weights)).verdict not in BLOCKING:
            return SearchResult(
                axis="weight",
                sentence=f"the failure vanishes if {words}: look at who reads these weights, "
                f"or give a weight rule ({tried} tried)",
                facts={"change": words, "tried": tried},
            )
    return SearchResult.nothing(
        "weight", f"none of {tried} changes of the map makes the failure vanish: no weight is to blame"
    )
