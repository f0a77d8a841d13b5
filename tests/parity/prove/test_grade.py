"""First differences that numbers cannot excuse, and correct code that is only written differently."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx
from jax import lax

import parity
from parity.cases.accepted import Waiver
from parity.channels import ALL
from parity.compare.evidence import Evidence
from parity.prove import prove
from parity.prove.exact import Equality
from parity.prove.frontier import Frontier, Trait, Unlike
from parity.prove.grade import grade, regrouped
from parity.run.request import Request
from parity.run.run import case_runner
from parity.verdicts import Verdict

# B batch, D features
B, D = 4, 8
X, W, STEP = ((B, D), "float32"), ((D, D), "float32"), ((), "int32")


@pytest.fixture(autouse=True)
def as_people_write():
    with jax.numpy_rank_promotion("allow"):
        yield


def compared(left, right, given):
    shapes = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in given]
    sides = [jax.jit(side, keep_unused=True).lower(*shapes) for side in (left, right)]
    results = len(jax.tree.leaves(sides[0].out_info))
    pairs = [(k, k) for k in range(len(shapes))]
    return prove(*sides, arguments=pairs, results=[(k, k) for k in range(results)])


def grades(proof):
    return [reason for entry in proof.frontier if (reason := grade(entry))]


def normed(epsilon, before=lambda x: x):
    def run(x):
        x = before(x)
        return (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + epsilon)

    return run


def rotated(base):
    return lambda x: jnp.sin(x / base ** (jnp.arange(D) / D))


def capped(cap):
    return lambda x: cap * jnp.tanh(x / cap)


def slope(run):
    return jax.grad(lambda x, *rest: jnp.sum(jnp.sin(jax.tree.leaves(run(x, *rest))[0])))


def looped(run):
    return lambda x: lax.scan(lambda x, _: (run(x), None), x, length=3)[0]


def scheduled(rate):
    """A step with a schedule, and its next counter."""
    return lambda x, step: (x * rate(step), step + 1)


def cosine(step):
    return jnp.cos(step.astype("float32") / 7)


def piecewise(boundary, direction=jnp.less):
    return lambda step: jnp.where(direction(step, boundary), jnp.cos(step.astype("float32")), 0.1)


CONSTANT, COMPARISON, COUNTER = (
    "another constant",
    "another comparison",
    "another value of an integer counter",
)


def edited(table, place, number):
    table = table.copy()
    table[place] = number
    return table


TABLE = np.linspace(0.1, 0.2, 500, dtype="float32")
EDITED = edited(TABLE, 250, 0.4)
FLAT, FLAT_EDITED = np.full(500, 0.01, "float32"), edited(np.full(500, 0.01, "float32"), 250, 0.02)
READS = {
    "an entry of a table": lambda table: lambda step: jnp.asarray(table)[jnp.clip(step, 0, 499)],
    "an entry of a table with other bounds": lambda table: lambda step: jnp.take(table, step % 500),
    "an entry of whole numbers": lambda table: (
        lambda step: jnp.asarray((table * 1000).astype("int32"))[jnp.clip(step, 0, 499)].astype("float32")
    ),
    "one entry of a constant table": lambda table: (
        lambda step: jnp.asarray(FLAT if table is TABLE else FLAT_EDITED)[jnp.clip(step, 0, 499)]
    ),
    "two columns": lambda table: (
        lambda step: jnp.asarray(table.reshape(250, 2))[jnp.clip(step, 0, 249)].sum()
    ),
}
DIFFERENT = {
    "a count taken off before a bound": (
        scheduled(lambda step: 1 / jnp.sqrt(jnp.maximum(step, 4000) / 4000)),
        scheduled(lambda step: 1 / jnp.sqrt(jnp.maximum(step - 1, 4000) / 4000)),
        (X, STEP),
        COUNTER,
    ),
    "the epsilon of a norm": (normed(1e-3), normed(1e-6), (X,), CONSTANT),
    "of its gradient": (slope(normed(1e-3)), slope(normed(1e-6)), (X,), CONSTANT),
    "in a loop": (looped(normed(1e-3)), looped(normed(1e-6)), (X,), CONSTANT),
    "beside another spelling": (normed(1e-5), normed(1e-6, lambda x: x), (X,), CONSTANT),
    "before another spelling": (
        lambda x, w: (normed(1e-5)(x) * 0.125) @ w,
        lambda x, w: (normed(1e-6)(x) @ w) * 0.125,
        (X, W),
        CONSTANT,
    ),
    "a scale": (lambda x: jnp.sin(x * 2.0), lambda x: jnp.sin(x * 3.0), (X,), CONSTANT),
    "a scale after its operand": (lambda x: jnp.sin(x * 2.0), lambda x: jnp.sin(3.0 * x), (X,), CONSTANT),
    "a slope": (lambda x: jax.nn.leaky_relu(x, 0.01), lambda x: jax.nn.leaky_relu(x, 0.2), (X,), CONSTANT),
    "a cap of scores": (capped(30.0), capped(50.0), (X,), CONSTANT),
    "a cap in its gradient": (slope(capped(30.0)), slope(capped(50.0)), (X,), CONSTANT),
    "a clip": (lambda x: jnp.clip(x, -3, 3), lambda x: jnp.clip(x, -3, 5), (X,), CONSTANT),
    "a threshold": (
        lambda x: jnp.where(x > 4.0, jnp.sin(x), x),
        lambda x: jnp.where(x > 5.0, jnp.sin(x), x),
        (X,),
        CONSTANT,
    ),
    "a power": (lambda x: jnp.abs(x) ** 1.5, lambda x: jnp.abs(x) ** 1.25, (X,), CONSTANT),
    "the base of a table of rates": (rotated(1e6), rotated(5e5), (X,), CONSTANT),
    "how often a loop turns": (
        lambda x: lax.fori_loop(0, 10, lambda _, x: jnp.sin(x), x),
        lambda x: lax.fori_loop(0, 11, lambda _, x: jnp.sin(x), x),
        (X,),
        CONSTANT,
    ),
    "the boundary of a schedule": (
        scheduled(piecewise(1000)),
        scheduled(piecewise(2000)),
        (X, STEP),
        CONSTANT,
    ),
    "on which side of it": (
        scheduled(piecewise(1000)),
        scheduled(piecewise(1000, jnp.less_equal)),
        (X, STEP),
        COMPARISON,
    ),
    "the derivative at zero": (
        lambda x: jnp.where(x > 0, jnp.sin(x), x),
        lambda x: jnp.where(x >= 0, jnp.sin(x), x),
        (X,),
        COMPARISON,
    ),
    "the rate of the next step": (
        scheduled(cosine),
        scheduled(lambda step: cosine(step + 1)),
        (X, STEP),
        COUNTER,
    ),
    "the rate of the step before": (
        scheduled(cosine),
        scheduled(lambda step: cosine(jnp.maximum(step - 1, 0))),
        (X, STEP),
        COUNTER,
    ),
    **{
        name: (scheduled(read(TABLE)), scheduled(read(EDITED)), (X, STEP), CONSTANT)
        for name, read in READS.items()
    },
    "an entry of a table that is multiplied": (
        lambda x: x * np.linspace(1, 2, D, dtype="float32"),
        lambda x: x * edited(np.linspace(1, 2, D, dtype="float32"), 3, 9),
        (X,),
        CONSTANT,
    ),
    "another precision": (
        lambda x, w: jnp.dot(x, w, precision="default"),
        lambda x, w: jnp.dot(x, w, precision="highest"),
        (X, W),
        "another precision",
    ),
}


IDS = (D, B), "int32"


def summed(x, ids):
    return jnp.sin(x) * 2 + ids.sum()


def rare(condition, run=summed):
    def scaled(x, ids):
        value = run(x, ids)
        return jnp.where(condition(x, ids), value * 1.5, value)

    return scaled


CONDITIONS = {
    "an entry": lambda x, ids: (ids == 777).any(),
    "a large entry": lambda x, ids: (ids > 998).any(),
    "one place": lambda x, ids: ids[1, 3] == 777,
    "a sum": lambda x, ids: ids.sum() == 4321,
    "two equal rows": lambda x, ids: (ids[0] == ids[1]).all(),
    "all signs": lambda x, ids: (x < 0).all(),
    "a float": lambda x, ids: x[2, 3] == 1.0,
    "the largest": lambda x, ids: jnp.abs(x).max() > 55,
    "each entry": lambda x, ids: jnp.abs(x) > 2.0**20,
    "two conditions": lambda x, ids: (x[0, 0] > 3) & ~(ids == 5).any(),
    "a product": lambda x, ids: (x @ x.T)[0, 1] > 4e3,
}
RATES = {
    "the end of an integer": lambda step: step == 2**31 - 1,
    "below zero": lambda step: step < 0,
    "bits": lambda step: lax.population_count(step) == 13,
    "a remainder": lambda step: step % 977 == 976,
}


def masked(mask):
    """Combines masks as numbers, as ``flax.linen.combine_masks`` does."""

    def run(x, ids):
        own = (x > 0).astype(jnp.float32)
        combined = jnp.logical_and(own, mask(ids)).astype(jnp.float32) if mask else own
        return jnp.where(combined, jnp.sin(x), -1e9)

    return run


def padding(query, key):
    return (query[:B, :1] * key[:B, 1:2].astype(jnp.float32)).astype(jnp.float32)


ONE_SIDED = {
    **{
        f"{name}, {word}": (derive(summed), derive(rare(each)), (X, IDS))
        for name, each in CONDITIONS.items()
        for word, derive in (("forward", lambda run: run), ("gradient", slope))
    },
    **{
        name: (
            scheduled(lambda step: 1e-2),
            scheduled(lambda step, each=each: jnp.where(each(step), 2e-2, 1e-2)),
            (X, STEP),
        )
        for name, each in RATES.items()
    },
    **{
        f"a factor, {word}": (
            derive(lambda x, ids: jnp.sin(x)),
            derive(lambda x, ids: jnp.sin(x) * (ids[:B, :1] != 777).astype(jnp.float32)),
            (X, IDS),
        )
        for word, derive in (("forward", lambda run: run), ("gradient", slope))
    },
    **{
        name: (
            lambda x, ids: jax.nn.softmax(jnp.sin(x)),
            lambda x, ids, bias=bias: jax.nn.softmax(jnp.sin(x) + bias((ids.T > 0).astype(jnp.float32))),
            (X, IDS),
        )
        for name, bias in {
            "a sum with one minus a mask": lambda mask: (1.0 - mask) * -1e9,
            "a sum with a mask minus one": lambda mask: (mask - 1.0) * 1e9,
        }.items()
    },
    "a factor of a mask": (
        masked(None),
        masked(lambda ids: padding(ids > 0, ids > 0)),
        (X, IDS),
    ),
    **{
        f"a fill of {fill:g}": (
            lambda x, ids: jax.nn.softmax(jnp.sin(x)),
            lambda x, ids, fill=fill: jax.nn.softmax(jnp.where(ids.T > 0, jnp.sin(x), fill)),
            (X, IDS),
        )
        for fill in (-jnp.inf, float(jnp.finfo("float32").min))
    },
    "a branch": (
        jnp.sin,
        lambda x: lax.cond(x[0, 0] == 5, jnp.cos, lambda x: x, jnp.sin(x)),
        (X,),
    ),
    "in a loop": (
        looped(jnp.sin),
        looped(lambda x: jnp.where((x < 0).all(), x * 1.5, jnp.sin(x))),
        (X,),
    ),
    "a safe division": (lambda x, w: w / x[0], lambda x, w: w / jnp.where(x[0] == 0, 1, x[0]), (X, W)),
    "beside a shared one": (
        lambda x, ids: jnp.where((ids[:B, :1] > 3), jnp.sin(x), x),
        lambda x, ids: jnp.where((ids[:B, :1] > 3) & (ids.sum() != 9), jnp.sin(x), x),
        (X, IDS),
    ),
}


def guarded(x):
    """One of many conditions that both sides have behind a difference."""
    for _ in range(14):
        x = jnp.where(jnp.abs(x) > 3, jnp.sin(x), x * 2)
    return x


@pytest.mark.parametrize("turned", [False, True], ids=["candidate", "reference"])
def test_a_condition_behind_many_that_both_sides_have_is_graded(turned):
    def rarely(x, ids):
        return guarded(jnp.where((ids == 777).any(), x * 1.5, x)).sum()

    left, right = (lambda x, ids: guarded(x).sum()), rarely
    proof = compared(*((right, left) if turned else (left, right)), (X, IDS))
    assert grades(proof)[:1] == ["a condition that only one side has"], proof.frontier


@pytest.mark.parametrize("turned", [False, True], ids=["candidate", "reference"])
@pytest.mark.parametrize("name", ONE_SIDED)
def test_a_condition_that_only_one_side_has_is_graded(name, turned):
    left, right, given = ONE_SIDED[name]
    proof = compared(*((right, left) if turned else (left, right)), given)
    assert grades(proof)[:1] == ["a condition that only one side has"], proof.frontier
    first = proof.frontier[0]
    assert (first.candidate is None, first.reference is None) == (turned, not turned)
    assert f"{__file__.rpartition('/')[2]}:" in proof.findings()[0].sentence()


def shifted(x, constant):
    return x + constant if constant > 0 else x - -constant if constant else x


def thrice(constant):
    def run(x):
        for _ in range(3):
            x = jnp.exp(x) / shifted(jnp.sum(jnp.exp(x), -1, keepdims=True), constant)
        return x

    return run


ONE_SIDED_SUMS = {
    "after a cast": lambda added: (
        lambda x: jnp.sin(shifted(x.astype(jnp.bfloat16).astype(jnp.float32), added))
    ),
    "one of two": lambda added: lambda x: jnp.sin(shifted(jnp.exp(shifted(jnp.cos(x), 1e-6)), added)),
    "less": lambda added: lambda x: jnp.sin(shifted(x, -added)),
    "each divisor": thrice,
    "a gradient": lambda added: jax.grad(lambda x: jnp.sum(jnp.sin(shifted(jnp.exp(x), added)))),
}


@pytest.mark.parametrize("turned", [False, True], ids=["candidate", "reference"])
@pytest.mark.parametrize("name", ONE_SIDED_SUMS)
def test_a_constant_that_only_one_side_adds_is_graded(name, turned):
    sides = [ONE_SIDED_SUMS[name](added) for added in (0, 1e-6)]
    proof = compared(*(sides[::-1] if turned else sides), (X,))
    assert grades(proof)[:1] == ["another constant"], proof.frontier
    found = proof.findings()[0].sentence()
    assert "only the " + ("reference" if turned else "candidate") + " has (constant 1e-06)" in found


@pytest.mark.parametrize("name", DIFFERENT)
def test_differences_that_no_number_settles(name):
    left, right, given, reason = DIFFERENT[name]
    proof = compared(left, right, given)
    assert proof.rung is Verdict.UNPROVED
    assert grades(proof) and grades(proof)[0].startswith(reason), proof.frontier
    assert f"{__file__.rpartition('/')[2]}:" in proof.findings()[0].sentence()


def attention(before, after, fill=-1e9):
    def run(x, w):
        scores = ((x * before) @ w) * after
        return jax.nn.softmax(jnp.where(x > 0, scores, fill))

    return run


def wrapped(x, step):
    return x[jnp.where(step < 0, step + B, step)], step + 1


def clipped(x, step):
    return lax.dynamic_index_in_dim(x, step, keepdims=False), step + 1


HARMLESS = {
    "a softmax of moved numbers": (jax.nn.softmax, lambda x: jax.nn.softmax(x - 5.0), (X,)),
    "a constant that sums absorb": (
        lambda x: jnp.exp(x) / (1 + jnp.sum(jnp.exp(x))),
        lambda x: jnp.exp(x) / (1 + jnp.sum(jnp.exp(x)) + 1e-20),
        (X,),
    ),
    "a branch of equals": (jnp.sin, lambda x: lax.cond(x[0, 0] == 5, jnp.sin, lambda x: jnp.sin(x), x), (X,)),
    "half": (lambda x: x / 2, lambda x: x * 0.5, (X,)),
    "a root that is folded": (lambda x: x * (1 / jnp.sqrt(64.0)), lambda x: x * 0.125, (X,)),
    "a root to divide by": (lambda x: x / jnp.sqrt(64.0), lambda x: x / 8, (X,)),
    "a scale elsewhere": (attention(0.125, 1.0), attention(1.0, 0.125), (X, W)),
    "a sign on both sides of a cap": (capped(-30.0), capped(30.0), (X,)),
    "factors of a cap in one": (lambda x: jnp.tanh(x * 2.0 * 4.0), lambda x: jnp.tanh(x * 8.0), (X,)),
    "a scale in two parts": (attention(0.5, 0.25), attention(0.25, 0.5), (X, W)),
    "a scale all in one": (lambda x: jnp.sin(x * 2.0 * 4.0), lambda x: jnp.sin(x * 8.0), (X,)),
    "two scales exchanged": (lambda x: jnp.sin(x * 2.0 * 3.0), lambda x: jnp.sin(x * 3.0 * 2.0), (X,)),
    "three turned": (lambda x: x * 2.0 * 3.0 * 5.0, lambda x: x * 3.0 * 5.0 * 2.0, (X,)),
    "other factors of one product": (lambda x: x * 2.0 * 8.0, lambda x: x * 4.0 * 4.0, (X,)),
    "a scaled loss": (
        lambda x: jax.grad(lambda x: jnp.sum(jnp.sin(x)) * 1024.0)(x) / 1024.0,
        lambda x: jax.grad(lambda x: jnp.sum(jnp.sin(x)) * 4096.0)(x) / 4096.0,
        (X,),
    ),
    "summands in one": (lambda x: jnp.sin(x + 1.0 + 2.0), lambda x: jnp.sin(x + 3.0), (X,)),
    "summands exchanged": (lambda x: x + 1.0 + 2.0, lambda x: x + 2.0 + 1.0, (X,)),
    "bounds in one": (lambda x: jnp.maximum(jnp.maximum(x, 0), 1), lambda x: jnp.maximum(x, 1), (X,)),
    "a clip as two bounds": (
        lambda x: jnp.clip(x, 0, 6),
        lambda x: jnp.minimum(jnp.maximum(x, 0.0), 6.0),
        (X,),
    ),
    "bounds in another order": (
        lambda x: jnp.maximum(jnp.minimum(x, 6.0), 0.0),
        lambda x: jnp.minimum(jnp.maximum(x, 0.0), 6.0),
        (X,),
    ),
    "another fill": (attention(0.5, 2.0), attention(0.5, 2.0, -1e30), (X, W)),
    "an infinite fill": (
        attention(0.5, 2.0, -jnp.inf),
        attention(0.5, 2.0, jnp.finfo("float32").min),
        (X, W),
    ),
    "a fill that is added": (
        lambda x: jax.nn.softmax(x + (x > 0) * -1e9),
        lambda x: jax.nn.softmax(x + (x > 0) * -1e10),
        (X,),
    ),
    "where a maximum starts": (
        lambda x: lax.reduce(x, -jnp.inf, lax.max, (1,)),
        lambda x: lax.reduce(x, np.float32(-3e38), lax.max, (1,)),
        (X,),
    ),
    "a value that is never taken": (
        lambda x: jnp.where(x > 0, jnp.log(jnp.where(x > 0, x, 1.0)), 0.0),
        lambda x: jnp.where(x > 0, jnp.log(jnp.where(x > 0, x, 2.0)), 0.0),
        (X,),
    ),
    "six digits": (
        lambda x: jnp.tanh(x * 0.7978845608028654),
        lambda x: jnp.tanh(x * 0.797885),
        (X,),
    ),
    "one ulp": (lambda x: jnp.sin(x * 0.1), lambda x: jnp.sin(x * np.nextafter(np.float32(0.1), 1)), (X,)),
    "the other branch first": (
        lambda x: jnp.where(x >= 0, jnp.sin(x), x),
        lambda x: jnp.where(x < 0, x, jnp.sin(x)),
        (X,),
    ),
    "ties between equals": (lambda x: jnp.where(x > 0, x, 0), lambda x: jnp.where(x >= 0, x, 0), (X,)),
    "the larger of two": (
        lambda x, w: jnp.where(x[:1] < w, w, x[:1]),
        lambda x, w: jnp.where(x[:1] > w, x[:1], w),
        (X, W),
    ),
    "one less, and equal": (
        scheduled(piecewise(5)),
        scheduled(piecewise(4, jnp.less_equal)),
        (X, STEP),
    ),
    "a counter made a float first": (
        scheduled(lambda step: jnp.cos((step + 1).astype("float32"))),
        scheduled(lambda step: jnp.cos(step.astype("float32") + 1)),
        (X, STEP),
    ),
    "a negative index": (lambda x, step: (lax.dynamic_index_in_dim(x, step), step + 1), wrapped, (X, STEP)),
    "places counted or listed": (
        lambda x: x * jnp.arange(D, dtype="float32"),
        lambda x: x * np.linspace(0, D - 1, D, dtype="float32"),
        (X,),
    ),
    "a table in float64": (
        lambda x: x * jnp.asarray(10_000.0 ** (-np.arange(D) / D), "float32"),
        lambda x: x * jnp.float32(10_000.0) ** (-jnp.arange(D, dtype="float32") / D),
        (X,),
    ),
    "a rectifier that chooses": (lambda x: jnp.where(x > 0, x, 0), lambda x: jnp.maximum(x, 0), (X,)),
    "a bound that chooses": (lambda x: jnp.sin(jnp.where(x > 7, 7, x)), jnp.sin, (X,)),
    "an index that wraps": (lambda x, step: (x[step], step + 1), clipped, (X, STEP)),
    "indices out of bounds": (
        lambda x, ids: jnp.take(x, ids, axis=0),
        lambda x, ids: jnp.take(x, ids, axis=0, mode="clip"),
        (X, IDS),
    ),
    "the sign of a remainder": (
        scheduled(lambda step: jnp.cos((step % 7).astype("float32"))),
        scheduled(lambda step: jnp.cos(lax.rem(step, 7).astype("float32"))),
        (X, STEP),
    ),
    "the sign of a quotient": (
        scheduled(lambda step: jnp.cos((step // 7).astype("float32"))),
        scheduled(lambda step: jnp.cos(lax.div(step, 7).astype("float32"))),
        (X, STEP),
    ),
    "an index that its table bounds anyway": (
        lambda x, step: x * jnp.arange(16.0)[jnp.minimum(step, 15)],
        lambda x, step: x * jnp.arange(16.0)[step],
        (X, STEP),
    ),
    "a mask of a bounded position": (
        lambda x, step: x * (jnp.arange(x.shape[-1]) <= jnp.minimum(step, x.shape[-1] - 1)),
        lambda x, step: x * (jnp.arange(x.shape[-1]) <= step),
        (X, STEP),
    ),
    "a counter that stops at its end": (
        lambda x, step: (x, jnp.where(step < 2**31 - 1, step + 1, 2**31 - 1)),
        lambda x, step: (x, step + 1),
        (X, STEP),
    ),
    "a logarithm of a sum": (
        lambda x: jax.nn.logsumexp(x, -1),
        lambda x: jnp.log(jnp.exp(x - x.max(-1, keepdims=True)).sum(-1)) + x.max(-1),
        (X,),
    ),
    "a softplus": (
        jax.nn.softplus,
        lambda x: jnp.maximum(x, 0) + jnp.log1p(jnp.exp(-jnp.abs(x))),
        (X,),
    ),
    "a check for numbers that are not finite": (jnp.nan_to_num, lambda x: x, (X,)),
    "a mask that is a factor already": (
        lambda x, mask: jnp.where(mask != 0, mask * jnp.sin(x), 0),
        lambda x, mask: mask * jnp.sin(x),
        (X, X),
    ),
    "a mask that hides twice": (
        lambda x, w: jnp.where(x[0] > 0, jax.nn.softmax(jnp.where(x[0] > 0, w, -1e9)), 0),
        lambda x, w: jax.nn.softmax(jnp.where(x[0] > 0, w, -1e9)),
        (X, W),
    ),
    "a mask that is a constant": (
        lambda x: jax.nn.softmax(jnp.where(jnp.tril(jnp.ones((1, 1))) > 0, x, -1e9)),
        lambda x: jax.nn.softmax(x),
        (X,),
    ),
    **{
        f"{name} as numbers": (
            scheduled(
                lambda step: jnp.asarray(np.sin(np.arange(64)).astype("float32"))[jnp.clip(step, 0, 63)]
            ),
            scheduled(lambda step, other=other: jnp.asarray(other)[jnp.clip(step, 0, 63)]),
            (X, STEP),
        )
        for name, other in {
            "a table rounded otherwise": np.sin(np.arange(64, dtype="float32") * np.float32(1.0000001)),
            "one ulp of a table": edited(
                np.sin(np.arange(64)).astype("float32"),
                9,
                np.nextafter(np.sin(np.float64(9)).astype("float32"), np.float32(9)),
            ),
        }.items()
    },
    "an epsilon of a mean or of a sum": (
        lambda x: lax.rsqrt(jnp.sum(x * x, -1) / D + 1e-6),
        lambda x: lax.rsqrt(jnp.sum(x * x, -1) + D * 1e-6) * D**0.5,
        (X,),
    ),
}


DIFFER_IN_GRADIENTS = {("ties between equals", "gradient"), ("a bound that chooses", "gradient")}


@pytest.mark.parametrize(
    ("name", "derive"),
    [
        pytest.param(name, derive, id=f"{name}, {word}")
        for name in HARMLESS
        for word, derive in (("forward", lambda run: run), ("gradient", slope))
        if (name, word) not in DIFFER_IN_GRADIENTS
    ],
)
def test_rewrites_rest_on_numbers(name, derive):
    left, right, given = HARMLESS[name]
    proof = compared(derive(left), derive(right), given)
    assert not grades(proof), proof.frontier


# --- the grade as a function of data ---


def unlike(reference, candidate, element="f32", **more):
    fields = {"trait": Trait.CONSTANT, "operation": "stablehlo.multiply", "decides": True, **more}
    return Unlike(reference=reference, candidate=candidate, element=element, **fields)


@pytest.mark.parametrize(
    ("found", "graded"),
    [
        (unlike("2.000000e+00", "3.000000e+00"), True),
        (unlike("2.000000e+00", "3.000000e+00", decides=False), False),
        (unlike("2.000000e+00", "3.000000e+00", decides=False, lasts=True), True),
        (unlike("1.000000e+00", "1.00000012"), False),
        (unlike("1.000000e+00", "1.000010e+00"), True),
        (unlike("1.000000e+00", "1.007810e+00", "bf16"), False),
        (unlike("1.000000e+00", "1.031250e+00", "bf16"), True),
        (unlike("1000", "1001", "i32"), True),
        (unlike("-1.000000e+09", "-1.000000e+30"), False),
        (unlike("-1.000000e+02", "-1.000000e+30"), True),
        (unlike("0xFF800000", "-1.000000e+30"), False),
        (unlike("sqrt(64)", "8.000000e+00"), False),
        (unlike("0.000000e+00", "1.000000e-06"), True),
        (unlike("a", "b", "", trait=Trait.COUNTER), True),
        (None, False),
    ],
)
def test_the_grade_reads_data(found, graded):
    assert bool(grade(Frontier(where="it", unlike=found))) is graded


def decayed(rate, turned):
    """A choice, perhaps turned, and a mean in two forms, before a decay."""

    def run(x):
        chosen = jnp.where(x >= 1, x, 0.5) if turned else jnp.where(x < 1, 0.5, x)
        mean = jnp.einsum("bd->b", chosen) / D if turned else chosen.mean(-1)
        return jnp.sin(chosen - mean[:, None]) + rate * x

    return run


def test_another_constant_comes_before_differences_that_may_be_harmless():
    first, *others = compared(decayed(0.01, False), decayed(0.0101, True), [X]).findings()
    assert others and first.where == "multiply (operand 0: 0.01 against 0.0101)", first
    turned = compared(decayed(0.01, False), decayed(0.01, True), [X])
    assert not any("multiply" in each.where for each in turned.findings()), turned.findings()


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([("2", "3")], False),
        ([("2", "3"), ("3", "2")], True),
        ([("2", "4"), ("8", "4")], True),
        ([("2", "3"), ("5", "7")], False),
        ([("1", "2"), ("2.5", "1.5")], True),
        ([("2", "3"), ("2", "3")], False),
        ([("2", "3"), ("sqrt(4)", "5")], True),
    ],
)
def test_constants_that_were_only_grouped_differently(pairs, expected):
    assert regrouped([unlike(*pair) for pair in pairs]) is expected


# --- cases ---


class LinenNorm(linen.Module):
    """A norm and a layer."""

    @linen.compact
    def __call__(self, x):
        return linen.Dense(3, name="out")(linen.LayerNorm(epsilon=1e-3, name="norm")(x))


class NnxNorm(nnx.Module):
    """The twin of `LinenNorm`, with a configurable epsilon."""

    def __init__(self, epsilon=1e-6, *, rngs):
        self.norm = nnx.LayerNorm(D, epsilon=epsilon, rngs=rngs)
        self.out = nnx.Linear(D, 3, rngs=rngs)

    def __call__(self, x):
        return self.out(self.norm(x))


def large(seed):
    rng = np.random.default_rng(seed)
    return {"x": (1000 * rng.normal(size=(B, D))).astype("float32"), "y": rng.normal(size=(B, 3))}


def norms(epsilon, channels=ALL, arithmetic=False, **options):
    def squares(outputs, batch):
        return jnp.mean((outputs - batch["y"].astype("float32")) ** 2)

    pair = parity.twins(
        "norms",
        linen=LinenNorm,
        nnx=lambda rngs: NnxNorm(epsilon, rngs=rngs),
        inputs=large,
        loss=squares,
        arguments=("x",),
        programs=("forward", "train_step"),
        **options,
    )
    cases = [case.with_accept(prove_exact=arithmetic) for case in pair.cases({})]
    return list(map(case_runner(Request(channels=channels)), cases))


@pytest.mark.long
def test_an_epsilon_that_inputs_hide_fails_with_both_constants_and_both_lines():
    for result in norms(1e-6):
        program = result.channels["program"]
        assert (result.verdict, program.verdict) == ("failed", "failed")
        said = program.findings[0].sentence()
        for words in (
            "0.001 against 1e-06",
            "flax/linen/normalization.py:",
            "another constant",
        ):
            assert words in said
        assert "flax/nnx/nn/normalization.py:" in said
    assert {str(result.verdict) for result in norms(1e-3)} == {"passed"}


@pytest.mark.long
def test_a_waiver_accepts_it():
    waiver = Waiver(channel="program", reason="both epsilons are far below the inputs")
    forward, _ = norms(1e-6, waivers=[waiver])
    assert forward.channels["program"].verdict == "waived"


@pytest.mark.long
def test_a_proof_in_exact_arithmetic_settles_it(monkeypatch):
    monkeypatch.setattr(Evidence, "exact_proof", Equality(proved=True))
    program = norms(1e-6, channels=("program",), arithmetic=True)[0].channels["program"]
    assert program.verdict == "unproved"


def test_a_counter_of_a_branch_rests_on_numbers():
    """The argument that it comes from is not known there."""

    def branched(late):
        def rate(step):
            return jnp.cos(jnp.minimum(step + 1 if late else step, 5).astype("float32"))

        return lambda x, step: lax.cond(x[0, 0] > 0, lambda at: x * rate(at), lambda at: x, step)

    proof = compared(branched(False), branched(True), (X, STEP))
    assert proof.frontier and not grades(proof)
