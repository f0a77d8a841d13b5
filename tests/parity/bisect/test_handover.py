"""A right value in the wrong place is blamed on who had both; what follows from a condition is not blamed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from parity.bisect.alignment import Alignment
from parity.bisect.evaluated import Evaluated, Result
from parity.bisect.matching import floors
from parity.bisect.operation import describe
from parity.bisect.place import site
from parity.bisect.sketch import PROJECTIONS, _directions, distance, sketch
from parity.bisect.trace import evaluate

X = np.random.default_rng(0).normal(size=(4, 6)).astype("float32")
W = np.random.default_rng(1).normal(size=(6, 6)).astype("float32")


def first(reference, candidate, *arguments):
    """Returns what ``op`` says of two functions whose results differ."""
    labels = [f"given_{at}" for at in range(len(arguments))]
    reference_run, candidate_run = (
        evaluate(jax.make_jaxpr(function)(*arguments), [jnp.asarray(each) for each in arguments], labels)
        for function in (reference, candidate)
    )
    noise = floors(reference_run, [])
    alignment = Alignment(
        reference_run, candidate_run, noise, lambda node: tuple(frame.function for frame in site(node).own)
    )
    ends = zip(reference_run.outputs, candidate_run.outputs, strict=True)
    finding = describe(
        Evaluated(
            step=1,
            alignment=alignment,
            failing=(Result(group="values", path="result", in_floors=9.0),),
            divergences=tuple(alignment.divergences(ends)),
        )
    )
    return finding, [frame and frame[2] for frame in finding.facts["first"]["blamed"]]


def shared(x, w):
    return jnp.tanh(x @ w)


def joined(parts):
    return jnp.concatenate(parts)


class Whole:
    def both(self, x, w):
        return joined([shared(x[:2], w), shared(x[2:], w)])

    def masked(self, x, keys):
        return self.seen(x, keys) + self.counted(keys)

    def seen(self, x, keys):
        return jnp.where((keys > 1)[:, None], x, 0)

    def counted(self, keys):
        return jnp.sum(jnp.cumsum(keys) * keys)

    def chosen(self, x, step):
        step = step + 1
        return jax.lax.cond(step > 2, lambda x: jnp.sin(x) * 3, lambda x: x, x)

    def summed(self, x, w):
        rate = rated(w)
        return self.scaled(x, w, rate)

    def scaled(self, x, w, rate=None):
        rate = rated(w) if rate is None else rate
        return x * rate


class FirstHalfTwice(Whole):
    def both(self, x, w):
        halves = [shared(x[:2], w), shared(x[2:], w)]
        return joined([halves[0], halves[0] + 0 * halves[1]])

    def masked(self, x, keys):
        other = jnp.cumsum(keys)
        return self.looked(x, other) + self.told(keys)

    def looked(self, x, keys):
        return jnp.where((keys > 1)[:, None], x, 0)

    def told(self, keys):
        return jnp.sum(jnp.cumsum(keys) * keys)

    def chosen(self, x, step):
        return self.decided(x, step + 1 - 1)

    def decided(self, x, step):
        return jax.lax.cond(step > 2, lambda x: jnp.sin(x) * 3, lambda x: x, x)


def rated(w):
    return 1 / jnp.sum(jnp.abs(w))


class RateOfItsPart(Whole):
    def summed(self, x, w):
        return self.part(x, w)

    def part(self, x, w):
        return self.scaled(x, w[:3])

    def scaled(self, x, w, rate=None):
        rate = rated(w) if rate is None else rate
        return x * rate


def test_a_value_of_another_part_is_blamed_on_who_had_both():
    """The mask is right where it was made and right where it is used: what was handed over is not."""
    keys = np.array([1, 1, 2, 3])
    finding, blamed = first(Whole().masked, FirstHalfTwice().masked, X, keys)
    assert "FirstHalfTwice.masked" in blamed, finding.sentence


def test_a_branch_that_one_side_takes_follows_from_its_condition():
    finding, blamed = first(Whole().chosen, FirstHalfTwice().chosen, X, np.int32(2))
    assert blamed[1] == "FirstHalfTwice.chosen" and "sub" in finding.sentence, finding.sentence
    assert all("sin" not in cell for row in finding.rows for cell in row), finding.rows


def test_who_hands_nothing_over_is_blamed_not_who_then_makes_it():
    def reference(x, w):
        return Whole().summed(x, w)

    finding, blamed = first(reference, RateOfItsPart().summed, X, W)
    assert blamed[1] == "RateOfItsPart.part", finding.sentence


def test_a_gradient_that_is_not_taken_is_blamed_on_who_differentiates():
    def loss(w, x):
        return jnp.sum(shared(x, w) ** 2)

    def taken(w, x):
        return jax.grad(loss)(w, x) / 3

    def captured(w, x):
        return jax.grad(lambda other: loss(w, x))(w) / 3

    finding, blamed = first(taken, captured, W, X)
    assert blamed[1].endswith("captured"), finding.sentence


def test_masks_whose_projections_agree_are_told_apart():
    size = 2**PROJECTIONS + 1  # two of so many columns of signs are the same
    columns: dict[bytes, int] = {}
    twins = next(
        (columns[sign.tobytes()], at)
        for at, sign in enumerate(_directions(size).T)
        if columns.setdefault(sign.tobytes(), at) != at
    )
    one, other = np.zeros((2, size), bool)
    one[twins[0]] = other[twins[1]] = True
    assert (sketch(one).projected == sketch(other).projected).all()
    assert distance(sketch(one), sketch(other)) == np.inf
    assert distance(sketch(one), sketch(one.reshape(1, -1))) == 0


@pytest.mark.parametrize("dtype", ["int32", "uint32"])
def test_integers_are_the_same_whatever_their_width(dtype):
    assert distance(sketch(np.arange(5, dtype="uint8")), sketch(np.arange(5, dtype=dtype))) == 0
