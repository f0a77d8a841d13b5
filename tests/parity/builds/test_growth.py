"""The cost of weight maps grows in proportion to leaves: counted in calls, not in seconds."""

import random

import pytest
from calls import calls

from parity.builds.tree import Leaf, Role
from parity.builds.weights import inference, modules
from parity.builds.weights.map import MapError

GROWTH = 4


def words(letters, count):
    """Returns distinct names of random letters."""
    rng = random.Random(letters)
    return ["/".join("".join(rng.choices(letters, k=8)) for _ in range(2)) for _ in range(count)]


def leaves(names, prefix, shape=(5, 5), role=Role.PARAMS):
    paths = [f"{prefix}/{name}" for name in names]
    return {path: Leaf(path=path, shape=shape, dtype="float32", role=role) for path in paths}


def layered(count, template, modules):
    return [template.format(layer, module) for layer in range(count // 4) for module in modules]


NAMES = {
    "nothing in common": lambda count: (words("abcdefgh", count), words("stuvwxyz", count)),
    "numbers in common": lambda count: (
        layered(count, "layers_{}/{}/kernel", ("q", "k", "v", "o")),
        layered(count, "blocks/{}/attention/{}/weight", ("query", "key", "value", "out")),
    ),
    "one left over": lambda count: (words("abcdefgh", count), words("stuvwxyz", count - 1)),
}


def infer(count, kind):
    """Infers the map of parameters and their moments; a leftover leaf is an error like any other result."""
    sides = NAMES[kind](count)
    states = [
        leaves(names, holder) | leaves(names, f"opt_state/0/mu/{holder}", role=Role.OPTIMIZER)
        for names, holder in zip(sides, ("params", "model"), strict=True)
    ]
    try:
        return inference.infer(*states)
    except MapError as error:
        return error


@pytest.mark.parametrize("kind", NAMES)
def test_a_weight_map_grows_like_its_leaves(kind):
    infer(8, kind)  # imports and caches
    few, many = (calls(lambda count=count: infer(count, kind)) for count in (100, 100 * GROWTH))
    assert many < 1.25 * GROWTH * few


def test_layers_with_other_names_are_paired_by_their_numbers():
    weights = infer(400, "numbers in common")
    pairs = [(entry.reference[0], entry.candidate[0]) for entry in weights.entries]
    assert len(pairs) == 800
    assert all(
        left.split("layers_")[1].split("/")[0] == right.split("blocks/")[1].split("/")[0]
        for left, right in pairs
    )


def test_many_names_are_paired_like_few_if_the_nearest_is_clear():
    """All pairs of few names are rated; of many names only neighbours are."""
    rng = random.Random(7)
    names = words("abcdefghijklmnop", 60)
    others = [f"model/{name}x" for name in names]
    rng.shuffle(others)
    expected = {name: f"model/{name}x" for name in names}
    assert dict(modules.pair_nearest(names[:16], [expected[name] for name in names[:16]])) == {
        name: expected[name] for name in names[:16]
    }
    found = dict(modules.pair_nearest([f"params/{name}" for name in names], others))
    assert found == {f"params/{name}": other for name, other in expected.items()}


@pytest.mark.parametrize("sizes", [(0, 3), (3, 0), (1, 1), (17, 40), (40, 17)])
def test_every_name_of_the_smaller_side_finds_one_partner(sizes):
    left, right = words("abcd", sizes[0]), words("wxyz", sizes[1])
    found = modules.pair_nearest(left, right)
    assert len(found) == len(dict(found)) == len({other for _, other in found}) == min(sizes)
