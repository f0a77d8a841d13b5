"""First differences if one side is written differently everywhere, and wrong in one line."""

import functools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from parity.ir.functions import Frame
from parity.ir.location import SourceLocation, inlined_source
from parity.prove import prove, search
from parity.prove.frontier import MOST_ENTRIES, TABLE, Frontier, FrontierSide, _changed_sizes, difference
from parity.verdicts import Doubt, Verdict

# B batch, T positions, D features, H heads, K width of a head
B, T, D, H, K = 2, 6, 8, 2, 4
SHAPES = ((B, T, D), (D, H * K), (H * K,))


def reference(x, w, b):
    """Computes on flattened rows and splits the heads at the end."""
    y = x.reshape(B * T, D)
    y = y * lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-6)
    h = jnp.tanh(y @ w + b).reshape(B, T, H, K)  # activation
    h = jnp.exp(h - jnp.max(h, -1, keepdims=True))
    h = h[:, 1:] * jnp.sin(h[:, :-1])
    return h.transpose(0, 2, 1, 3)


def candidate(x, w, b, bug=""):
    """Computes by batch and position; each line can have a planted mistake."""
    x = x[:, ::-1] if bug == "reversed" else x  # reversed
    square = jnp.sum(x * x, 2) / D
    y = x * lax.rsqrt(square + (1e-5 if bug == "epsilon" else 1e-6))[:, :, None]  # epsilon
    y = y * 1.5 if bug == "scale" else y  # scale
    h = lax.dot_general(y, w, (((2,), (0,)), ((), ())))
    h = h - b[None, None] if bug == "sign" else h + b[None, None]  # sign
    h = h if bug == "activation" else jnp.tanh(h)
    h = h.reshape(B, T, K, H).transpose(0, 1, 3, 2) if bug == "heads" else h.reshape(B, T, H, K)  # heads
    h = jnp.exp(h - jnp.max(h, 2 if bug == "axis" else 3, keepdims=True))  # axis
    late, early = h[:, 1:], h[:, :-1] if bug != "shift" else h[:, 1:]  # shift
    h = late * (jnp.cos(early) if bug == "function" else jnp.sin(early))  # function
    h = h.transpose(2, 0, 1, 3)
    return h.transpose(1, 0, 2, 3) if bug != "order" else h.transpose(1, 0, 2, 3)[:, ::-1]  # order


BUGS = ["reversed", "epsilon", "scale", "sign", "activation", "heads", "axis", "shift", "function", "order"]


def looped(run):
    return lambda x, w, b: lax.scan(lambda x, _: (jnp.cos(x), run(x, w, b)), x, length=3)[1]


def slope(run):
    def loss(x, w, b):
        made = jnp.sin(run(x, w, b))
        return jnp.sum(made * jnp.arange(made.size).reshape(made.shape))

    return jax.grad(loss)


DERIVED = {"forward": lambda run: run, "loop": looped, "gradient": slope}


def compared(bug, derive):
    runs = reference, lambda x, w, b: candidate(x, w, b, bug)
    given = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in SHAPES]
    sides = [jax.jit(derive(run), keep_unused=True).lower(*given) for run in runs]
    return prove(*sides, arguments=[(k, k) for k in range(3)], results=[(0, 0)])


@pytest.fixture(autouse=True)
def as_people_write():
    with jax.numpy_rank_promotion("allow"):
        yield


@pytest.mark.parametrize("derive", ["forward", "loop"])
def test_both_are_one_function(derive):
    proof = compared("", DERIVED[derive])
    assert proof.rung is Verdict.REORDERED, proof.outcome()


@pytest.mark.parametrize("derive", DERIVED)
@pytest.mark.parametrize("bug", BUGS)
def test_the_line_of_the_mistake_is_named_first(bug, derive):
    """It is named on the side that has it: an omitted activation is in the reference."""
    proof = compared(bug, DERIVED[derive])
    lines = Path(__file__).read_text().splitlines()
    line = next(number for number, text in enumerate(lines, 1) if text.endswith(f"# {bug}"))
    side = "reference" if bug == "activation" else "candidate"
    assert proof.rung is Verdict.UNPROVED
    assert f"test_frontier.py:{line} in {side}" in proof.frontier[0].sentence(), proof.frontier


@pytest.mark.parametrize("count", [10, 40])
def test_the_search_reads_each_operation_once_if_all_differ(monkeypatch, count):
    read = []
    monkeypatch.setattr(search, "inlined_source", lambda op: read.append(id(op)) or inlined_source(op))

    def chain(function):
        return jax.jit(lambda x, w: functools.reduce(lambda y, row: y + function(row), w, x)).lower(
            jnp.ones(8), [jnp.ones(8)] * count
        )

    places = [(number, number) for number in range(1 + count)]
    proof = prove(chain(jnp.sin), chain(jnp.cos), arguments=places, results=[(0, 0)])
    assert proof.rung is Verdict.UNPROVED and proof.outcome()
    assert 0 < len(proof.frontier) <= MOST_ENTRIES
    assert len(set(read)) >= count
    assert len(read) <= len(set(read)) + 4 * MOST_ENTRIES, "further reads describe the differences shown"


def stepped(lost):
    """The gradient of a rematerialised layer; one side loses that of its second result."""

    @jax.checkpoint
    def layer(x, w):
        y = jnp.tanh(x @ w)
        return y, jnp.sum(lax.stop_gradient(jnp.sin(y)) if lost else jnp.sin(y))

    def loss(w, x):
        y, more = layer(x, w)
        return jnp.sum(y * y) * more

    return jax.grad(loss)


def test_a_difference_behind_a_barrier_comes_before_the_barrier():
    given = [jax.ShapeDtypeStruct((D, D), jnp.float32)] * 2
    sides = [jax.jit(stepped(lost)).lower(*given) for lost in (False, True)]
    found = prove(*sides, arguments=[(0, 0), (1, 1)], results=[(0, 0)]).findings()
    assert "optimization_barrier" not in found[0].sentence(), found
    assert "in stepped.<locals>.layer" in found[0].sentence()


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ("3.000000e+01", "2.000000e+01", "30 against 20"),
        ("0.899999976", "9.000001e-01", "0.899999976 against 0.9000001"),
        ("false", "true", "false against true"),
        ("array<i64: 0, 2>", "array<i64: 0, 4>", "0, 2 against 0, 4"),
        ("#stablehlo<comparison_direction EQ>", "#stablehlo<comparison_direction GE>", "EQ against GE"),
    ],
)
def test_two_texts_show_their_difference_in_few_characters(left, right, expected):
    assert difference(left, right) == expected


def test_two_tables_of_constants_are_not_printed():
    def scaled(factor):
        table = np.arange(6.0, dtype="float32") ** factor
        return jax.jit(lambda x: x * table).lower(jnp.ones(6))

    found = prove(scaled(2), scaled(3), arguments=[(0, 0)], results=[(0, 0)]).frontier[0].sentence()
    assert f"(operand 1: {TABLE})" in found


def seats(x, count):
    return jnp.sum(jax.nn.one_hot(jnp.int32(x), count), 0)


def places(values, size):
    return jax.nn.one_hot(jnp.int32(values), size).sum(0)


def seated(x, w):
    return jnp.max(seats(x, 3 + len(w)))


def placed(x, w):
    return jnp.max(places(x, 2 + len(w)))


@pytest.mark.parametrize("unsure", [True, False])
@pytest.mark.parametrize("single", [True, False])
def test_a_constraint_beside_an_operation_without_a_counterpart_is_of_one_side(single, unsure):
    """One that may have a counterpart further on is another operation."""
    names = ("sdy.sharding_constraint" if not single else "stablehlo.dot_general", "sdy.sharding_constraint")
    left, right = (
        FrontierSide(operation=name, place=SourceLocation(frames=(Frame(f"{side}.py", 3, side),)), type="f32")
        for name, side in zip(names, ("one", "two"), strict=True)
    )
    found = Frontier(where="", reference=left, candidate=right, unsure=unsure).finding()
    assert ("only the candidate has" in found.sentence()) is (single and unsure), found
    assert (Doubt.PLACE in found.doubts) is (unsure and not single)
    assert ("another operation" in found.sentence()) is (single and not unsure)


def test_the_caller_that_gives_a_size_is_named():
    found = first_sentence((seated, placed), jnp.ones(5), jnp.ones(4))
    assert "(result type: tensor<5x7x" in found, found
    for name, caller in (("seats", "seated"), ("places", "placed")):
        (side,) = (part for part in found.split(", candidate ") if f" in {name}, " in part)
        assert side.endswith(f" in {caller}"), found


class Hall:
    columns: int = 17


class Yard:
    columns: int = 16


def halls(x, w):
    return jnp.max(jnp.broadcast_to(x[:, None], (5, Hall.columns)))


def yards(x, w):
    return jnp.max(jnp.broadcast_to(x[:, None], (5, Yard.columns)))


def test_the_line_that_holds_a_size_is_named():
    one, other = first_sentence((halls, yards), jnp.ones(5), jnp.ones(4)).split(", candidate ")
    assert one.endswith(" in Hall") and ", set at " in one, one
    assert " in Yard" in other and ", set at " in other, other


@pytest.mark.parametrize(
    ("types", "sizes"),
    [
        ("tensor<4x2xf32> against tensor<4x5xf32>", (2, 5)),
        ("tensor<4x32xf32> against tensor<4x32xbf16>", (None, None)),
        ("tensor<4x2xf32> against tensor<3x5xf32>", (None, None)),
        ("tensor<f32> against tensor<4xf32>", (None, None)),
    ],
)
def test_the_bits_of_a_type_are_no_size(types, sizes):
    assert _changed_sizes(f"result type: {types}") == sizes


def rows(bug):
    """A loop over rows, whose candidate also stacks the carries if it has a bug."""

    def body(x, row):
        one, other = row[:2], row[2:]
        whole = jnp.concatenate([other, one] if bug == "joined" else [one, other])
        return jnp.tanh(x + (jnp.cos(whole) if bug == "carries" else jnp.sin(whole))), x

    def run(x, w):
        y, more = lax.scan(body, x, w)
        return y * jnp.sum(more) if bug == "carries" else y

    return run


def kept(bug):
    def body(carry, row):
        x, memory = carry
        made = jnp.sin(row)
        return (jnp.tanh(x * row), memory if bug == "carry" else jnp.maximum(memory, made)), made

    def run(x, w):
        (y, memory), more = lax.scan(body, (x, x), w)
        return y + memory + jnp.sum(w if bug == "stack" else more)

    return run


@pytest.mark.parametrize(("bug", "words"), [("carry", "reference maximum"), ("stack", "reference sine")])
def test_a_value_that_one_loop_does_not_keep_is_placed_where_the_other_makes_it(bug, words):
    found = first_sentence((kept(""), kept(bug)), jnp.ones(5), jnp.ones((3, 5)))
    assert found.startswith("a value that only the reference loop carries: "), found
    assert words in found and "in kept.<locals>.body" in found, found


def started(late):
    """A loop whose carry starts one later; the other start is in both programs."""

    def run(x, w):
        starts = x, x + 1
        y, _ = lax.scan(lambda x, row: (jnp.tanh(x * row), None), starts[late], w)
        return y + starts[1 - late] * starts[late]

    return run


def test_a_loop_that_starts_from_another_value_is_placed_where_that_is_made():
    found = first_sentence((started(0), started(1)), jnp.ones(5), jnp.ones((3, 5)))
    assert found.startswith("a loop carry that starts from another value: "), found
    assert "candidate add at " in found and "in started.<locals>.run" in found, found


def switch(number, x, branches):
    return lax.switch(number, branches, x)


def two(number, x):
    return sum(switch(number, x, [lambda x: (x, x * 2), lambda x: (jnp.sin(x), x)]))


def one(number, x):
    return switch(number, x, [lambda x: x, jnp.cos])


def first_finding(sides, *given):
    lowered = [jax.jit(side, keep_unused=True).lower(*given) for side in sides]
    places = [(number, number) for number in range(len(given))]
    return prove(*lowered, arguments=places, results=[(0, 0)]).frontier[0].finding()


def first_sentence(sides, *given):
    return first_finding(sides, *given).sentence()


@pytest.mark.parametrize(
    ("sides", "doubts"),
    [
        ((lambda x, y: x - y, lambda x, y: x - x), (Doubt.OPERAND,)),
        ((lambda x, y: x - 3.0, lambda x, y: y - 2.0), (Doubt.ALSO_OPERAND,)),
        ((lambda x, y: x - 3.0, lambda x, y: x - 2.0), ()),
    ],
)
def test_a_value_of_an_operand_comes_from_elsewhere(sides, doubts):
    found = first_finding(sides, jnp.ones(5), jnp.ones(5))
    assert found.doubts == doubts and found.where.startswith("subtract ("), found


@pytest.mark.parametrize(("bug", "words"), [("carries", "sine"), ("joined", "concatenate")])
def test_a_difference_in_the_body_of_a_loop_comes_before_the_loop(bug, words):
    """It does so if only one loop has a carry, and if the difference is the order of parts, which rules follow."""
    found = first_sentence((rows(""), rows(bug)), jnp.ones(5), jnp.ones((3, 5)))
    assert words in found and "in rows.<locals>.body" in found, found


def test_two_choices_between_other_branches_are_no_counterparts():
    found = first_sentence(
        (lambda n, x: one(n, two(n, x)), lambda n, x: two(n, one(n, x))), np.int32(1), jnp.ones(5)
    )
    assert found.startswith("not sure, operations without a counterpart: reference case at "), found
    assert found.endswith("in one") and "in two, candidate case" in found, found


def warmed_up(warmup):
    """An update in a branch, which reads a number computed outside of it."""

    def run(x, w):
        rate = jnp.exp(x.sum())

        def update():
            return w - jnp.where(rate < warmup, x, 0.5 * x)

        return lax.cond(w[0] > 0, update, lambda: w)

    return jax.jit(run).lower(jnp.ones(3), jnp.ones(3))


def test_a_difference_in_a_branch_that_reads_a_computed_value_is_named():
    pairs = [(0, 0), (1, 1)]
    found = prove(warmed_up(2), warmed_up(3), arguments=pairs, results=[(0, 0)])
    assert found.frontier[0].sentence().startswith("compare (operand 1: 2 against 3)")
