"""Pairs of arguments and results by the weight map, with leaves that only one side has."""

from types import SimpleNamespace

from parity.builds.tree import Role
from parity.builds.weights.map import Entry, WeightMap
from parity.builds.weights.transforms import Identity
from parity.compare.pairing import pair_positions


def test_a_leaf_without_partner_may_have_the_name_that_another_leaf_is_renamed_to():
    """The candidate's own ``rngs/count`` has no partner; its ``count`` is the reference's ``rngs/count``."""
    entry = Entry(
        reference=("rngs/count",),
        candidate=("count",),
        transform=Identity(),
        role=Role.RNG,
        matched_by="path",
    )
    weights = WeightMap(entries=(entry,), alone=((), ("rngs/count",)))
    one, two = ("state", "rngs/count"), ("state", "count")
    reference = SimpleNamespace(read_arguments={0: one}, results=[one])
    candidate = SimpleNamespace(read_arguments={0: one, 1: two}, results=[one, two])
    pairing = pair_positions(reference, candidate, weights)
    assert pairing.arguments == pairing.results == [(0, 1)]
    assert pairing.alone.arguments == pairing.alone.results == ((), (0,))
    assert not pairing.unmatched
