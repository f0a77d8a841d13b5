"""A right value in the wrong place is blamed on the function that had both; consequences of a condition are not."""

import dataclasses
import importlib.util

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from parity.compare.origin import blame
from parity.compare.origin.alignment import Alignment, floors
from parity.compare.origin.divergence import Divergence, _stopped, find_divergences, omitted_before
from parity.compare.origin.evaluated import Evaluated, Result
from parity.compare.origin.operation import describe
from parity.compare.origin.sketch import PROJECTIONS, _directions, distance, sketch
from parity.compare.origin.trace import evaluate

X = np.random.default_rng(0).normal(size=(4, 6)).astype("float32")
W = np.random.default_rng(1).normal(size=(6, 6)).astype("float32")


def aligned(reference, candidate, *arguments):
    """Returns two functions evaluated together."""
    labels = [f"given_{at}" for at in range(len(arguments))]
    runs = (
        evaluate(jax.make_jaxpr(function)(*arguments), [jnp.asarray(each) for each in arguments], labels)
        for function in (reference, candidate)
    )
    left, right = runs
    return Alignment(left, right, floors(left, []))


def first(*given, **more):
    """Returns the finding of ``op`` for two functions whose results differ, and the functions that it blames."""
    alignment = aligned(*given)
    ends = list(zip(*(trace.outputs for trace in alignment.traces), strict=True))
    finding = describe(
        Evaluated(
            step=1,
            alignment=alignment,
            failing=(Result(group="values", path="result", in_floors=9.0),),
            divergences=tuple(find_divergences(alignment, ends)),
            **more,
        )
    )
    return finding, [frame and frame[2] for frame in finding.facts["first"]["blamed"]]


def shared(x, w):
    return jnp.tanh(x @ w)


def joined(parts):
    return jnp.concatenate(parts)


class Whole:
    def parted(self, x, w):
        return self.both(shared(x[:2], w), shared(x[2:], w))

    def both(self, one, other):
        return joined([one, other]), jnp.sum(other)

    def chosen(self, x, step):
        step = step + 1
        return jax.lax.cond(step > 2, lambda x: jnp.sin(x) * 3, lambda x: x, x)


class FirstHalfTwice(Whole):
    def parted(self, x, w):
        one, other = shared(x[:2], w), shared(x[2:], w)
        return self.both(one, other)

    def both(self, one, other):
        return joined([one, one]), jnp.sum(other)

    def chosen(self, x, step):
        return self.decided(x, step + 1 - 1)

    def decided(self, x, step):
        return jax.lax.cond(step > 2, lambda x: jnp.sin(x) * 3, lambda x: x, x)


def test_a_value_of_another_part_is_blamed_on_the_function_that_had_both():
    """Both halves and the function that joins them are right: passing one of them twice is the bug."""
    finding, blamed = first(Whole().parted, FirstHalfTwice().parted, X, W)
    assert blamed[1] == "FirstHalfTwice.both", finding.sentence


class Scaled:
    def __call__(self, x, v, w):
        self.given_1, self.given_2 = v, w
        return self.end(self.start(x))

    def start(self, x):
        return jnp.tanh(x * (1 + self.given_1))

    def end(self, x):
        return jnp.sin(x * (1 + self.given_2))


class ScaledByTheOther:
    def __call__(self, x, v, w):
        self.given_1, self.given_2 = v, w
        started = self.start(x)
        return self.end(started)

    def start(self, x):
        return jnp.tanh(x * (1 + self.given_2))

    def end(self, x):
        return jnp.sin(x * (1 + self.given_1))


def test_a_weight_read_instead_of_another_is_blamed_on_the_function_that_names_it():
    """Both are at hand where the methods are called, but the methods choose."""
    finding, blamed = first(Scaled(), ScaledByTheOther(), X, W[:4], W[2:])
    assert blamed == ["Scaled.start", "ScaledByTheOther.start"], finding.sentence


def test_a_branch_that_one_side_takes_follows_from_its_condition():
    finding, blamed = first(Whole().chosen, FirstHalfTwice().chosen, X, np.int32(2))
    assert blamed[1] == "FirstHalfTwice.chosen" and "sub" in finding.sentence, finding.sentence
    assert all("sin" not in cell for row in finding.rows for cell in row), finding.rows


@pytest.mark.slow
def test_a_missing_gradient_is_blamed_on_the_call_that_differentiates():
    def loss(w, x):
        return jnp.sum(shared(x, w) ** 2)

    def taken(w, x):
        return jax.grad(loss)(w, x) / 3

    def captured(w, x):
        return jax.grad(lambda other: loss(w, x))(w) / 3

    finding, blamed = first(taken, captured, W, X)
    assert blamed[1].endswith("captured"), finding.sentence


def test_masks_whose_projections_agree_are_distinguished():
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
def test_integers_are_the_same_regardless_of_width(dtype):
    assert distance(sketch(np.arange(5, dtype="uint8")), sketch(np.arange(5, dtype=dtype))) == 0


def moments(inner, rate):
    """Returns a transform like those of optax, within ``inner`` further closures of its library."""

    def update(x):
        return x * rate

    def chained(x):
        return update(x)

    return chained if inner else update


@pytest.mark.parametrize("inner", [False, True])
def test_a_constant_in_closures_of_a_library_names_the_makers_of_both_sides(monkeypatch, inner):
    alignment = aligned(moments(False, 0.9), moments(inner, 0.5), X)
    (found,) = find_divergences(
        alignment, list(zip(*(trace.outputs for trace in alignment.traces), strict=True))
    )
    made = iter([[("optax.py", "moments")], [("optax.py", "moments"), *[("optax.py", "chain")] * inner]])
    monkeypatch.setattr(blame, "library_makers", lambda source: next(made))
    assert blame.makers_of_both(found) == ["moments"]


def layer(path, text):
    """Returns the layer of a written file."""
    path.parent.mkdir()
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(f"{path.stem}_{path.parent.name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Layer().__call__


def test_a_weight_that_the_map_pairs_by_guess_is_no_certain_cause():
    given = (lambda x, v, w: jnp.sin(x * v), lambda x, v, w: jnp.sin(x * w), X, W[:4], W[2:])
    finding, _ = first(*given)
    assert finding.found and "operand 1: given_1 against given_2" in finding.sentence
    finding, _ = first(*given, guessed=frozenset({"given_2"}))
    assert not finding.found and "of given_1, which the weight map guesses: values" in finding.sentence


NORMED = """
import jax.numpy as jnp

def turned(h):
    {words}
    return jnp.concatenate([h[:, :3] * jnp.cos(1.1), h[:, 3:] * jnp.sin(1.1)], 1)

class Norm:
    def __call__(self, h):
        return h * (1 / jnp.sqrt(jnp.mean(jnp.square(h), -1, keepdims=True)))

class Layer:
    def __call__(self, x, w):
        key = {key}
        return jnp.tanh(turned(key))
"""


def test_an_omitted_norm_is_blamed_on_the_call_in_twins_whose_files_have_other_names(tmp_path):
    reference = layer(
        tmp_path / "one" / "linen_layers.py", NORMED.format(words='"""A"""', key="Norm()(x @ w)")
    )
    candidate = layer(tmp_path / "other" / "layers.py", NORMED.format(words='"""B"""', key="x @ w"))
    finding, blamed = first(reference, candidate, X, W)
    assert blamed[1] == "Layer.__call__", finding.sentence


LOSSES = """
import jax.numpy as jnp

def both(x):
    return x + jnp.sum(x), x * jnp.sum(x)

def total(x, mask):
    loss, other = both(x)
    loss = loss * mask
    other = other * mask
    return jnp.sum(loss), jnp.sum(other)

def step(x, mask):
    return total(x, mask)
"""


def test_values_that_both_sides_have_are_not_set_from_outside(tmp_path):
    """Equal code makes both values on both sides; what is left out is a step after it."""
    calls = []
    for side, text in enumerate((LOSSES, LOSSES.replace("    other = other * mask\n", ""))):
        path = tmp_path / str(side) / "losses.py"
        path.parent.mkdir()
        path.write_text(text)
        spec = importlib.util.spec_from_file_location(f"losses_{side}", path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        calls.append(module.step)
    finding, blamed = first(*calls, X, (X > 0).astype("float32"))
    assert finding.found and "total" in blamed, finding.sentence


def test_a_maximum_does_not_cause_what_its_operands_differ_by():
    def largest(factor):
        return lambda x, w: jnp.max(((x @ w) * factor).astype(jnp.bfloat16).astype(jnp.float32), axis=-1)

    finding, _ = first(largest(1.0), largest(1.002), X, W)
    assert not finding.found and "differ by as much, within their own rounding" in finding.sentence, finding


def test_a_gradient_that_only_one_side_stops_is_certain():
    """Its value is equal on both sides, and so are its operands: nothing differs by as much."""

    def gradient(stop):
        return lambda x, w: jax.grad(lambda w: jnp.sum(jnp.tanh(x @ w) @ stop(w).T))(w)

    finding, _ = first(gradient(jax.lax.stop_gradient), gradient(lambda w: w), X, W)
    assert finding.found and "stop_gradient" in finding.sentence, finding


def stepped(read):
    def step(queue, x):
        pushed = push(queue, x)
        return jnp.sum(jnp.sin(against(x, read(queue, pushed)))), pushed

    return step


def push(queue, x):
    return jnp.concatenate([queue[len(x) :], jnp.tanh(x)])


def against(x, queue):
    return x @ queue.T


def test_a_value_that_is_read_after_its_update_is_blamed_on_the_function_that_does_both():
    finding, blamed = first(
        stepped(lambda queue, pushed: queue),
        lambda queue, x: stepped(lambda queue, pushed: pushed)(queue, x),
        np.concatenate([W, 2 * X]),
        X,
    )
    assert blamed[1].endswith("stepped.<locals>.step"), finding.sentence


def test_another_axis_of_a_softmax_is_found_where_one_side_maps_an_axis():
    """The mapped axis is in another place, so all values in between have another shape; only one side scales first."""

    def batched(q, k):
        return jnp.sin(jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k) / 2, axis=-1)).sum()

    def mapped(q, k):
        def one(q, k):
            return jax.nn.softmax((q / 2) @ k.transpose(0, 2, 1), axis=1)

        return jnp.sin(jax.vmap(one, in_axes=(2, 2), out_axes=2)(q, k)).sum()

    rng = np.random.default_rng(0)
    q, k = (rng.normal(size=(3, length, 2, 4)).astype("float32") for length in (5, 7))
    finding, _ = first(batched, mapped, q, k)
    assert finding.sentence.startswith("reduce_max"), finding.sentence


def test_a_formula_of_weights_in_a_later_layer_is_not_the_first_difference():
    def mixed(x, w, v):
        x = jnp.tanh(x @ w)
        return jnp.sum(jnp.sin(x * v[:1] + x[::-1] * (1 - v[:1])))

    def blended(x, w, v):
        x = jnp.sin(x @ w)
        return jnp.sum(jnp.sin(x[::-1] + (x - x[::-1]) * v[:1]))

    finding, _ = first(mixed, blended, X, W, W)
    assert finding.sentence.startswith("tanh / sin"), finding.sentence


class WholeRate:
    def __call__(self, x, w):
        return self.outer(jnp.sin(x), w, self.rate(w))

    def rate(self, w):
        return jnp.exp(jnp.mean(w * w))

    def outer(self, x, w, rate):
        return self.middle(x, w[:3], rate)

    def middle(self, x, w, rate):
        return self.inner(x, w, rate)

    def inner(self, x, w, rate):
        return jnp.tanh(x) * (self.rate(w) if rate is None else rate)


class OwnRate(WholeRate):
    def __call__(self, x, w):
        return self.outer(jnp.sin(x), w, self.rate(w))

    def outer(self, x, w, rate):
        return self.middle(x, w[:3], None)

    def middle(self, x, w, rate):
        return self.inner(x, w, rate)[:, :]

    def inner(self, x, w, rate):
        h = jnp.tanh(x)
        return h * (self.rate(w) if rate is None else rate)


def test_a_right_value_that_is_lost_on_the_way_to_its_use_leaves_the_functions_on_the_way():
    finding, _ = first(WholeRate(), OwnRate(), X, W)
    suspects = [function for _, _, function in finding.facts["suspects"]]
    assert not finding.found and "OwnRate.outer" in suspects, finding.sentence


def capped(x, most):
    return jnp.tanh(x) * most


class Capped:
    def __init__(self, doubled):
        self.doubled = doubled

    def __call__(self, x):
        if self.doubled:
            return capped(x, 2 * 0.7)
        return capped(x, 0.7)


def test_a_constant_that_another_branch_of_one_function_passes_is_blamed_on_that_function():
    finding, blamed = first(Capped(doubled=False), Capped(doubled=True), X)
    assert blamed == ["Capped.__call__", "Capped.__call__"], finding.sentence


SHUT = jnp.arange(6) < 5


def weighed(x):
    return jax.nn.softmax(jnp.where(SHUT, x, -1e7))


def weighed_alike(x):
    open_ = jnp.where(SHUT, x, -1e7)
    return jax.nn.softmax(open_)


def halved(x):
    return weighed(jnp.sin(x) * 0.5)


def nearly_halved(x):
    return weighed_alike(jnp.sin(x) * 0.51)


def test_a_mask_does_not_hide_the_difference_of_the_other_entries():
    finding, blamed = first(halved, nearly_halved, X)
    assert blamed == ["halved", "nearly_halved"], finding.sentence


def chosen(x):
    return jax.lax.top_k(x.sum(1), 2)[1]


def grown(x, w):
    return jnp.tanh(x @ w)


def shrunk(x, w):
    return jnp.tanh(0.9 * (x @ w))


def routed(x, w):
    rows = chosen(x)
    return x.at[rows].add(grown(x[rows], w))


def routed_by_products(x, w):
    rows = jax.nn.one_hot(chosen(x), len(x))
    return x + rows.T @ shrunk(rows @ x, w)


def test_another_form_that_gives_equal_values_is_not_blamed():
    """The one_hot makes the rows that the gather makes, so it is right; the sums differ because of `shrunk`."""
    finding, blamed = first(routed, routed_by_products, X, W)
    assert blamed == ["grown", "shrunk"], finding.sentence


def logarithm(x):
    return jnp.log(x) * (x > 0)


def guarded(x):
    return jnp.cumsum(jnp.where(x > 0, jnp.log(jnp.where(x > 0, x, 1)), 0))


def test_nan_of_one_side_is_blamed_on_the_operation_that_makes_it():
    finding, blamed = first(guarded, lambda x: jnp.cumsum(logarithm(x)), X[:1])
    assert "NaN of log (" in finding.sentence and blamed == [None, "logarithm"], finding.sentence


def test_nan_that_follows_from_another_value_is_not_the_cause():
    """The other logarithm is right: the value that it is given is wrong."""

    def lowered(x):
        return logarithm(x - 10)

    finding, blamed = first(lambda x: logarithm(jnp.abs(x) + 1), lambda x: lowered(jnp.abs(x) + 1), X[:1])
    assert "NaN" not in finding.sentence and blamed[1].endswith("lowered"), finding.sentence


@pytest.mark.parametrize(("decides", "number"), [(True, 0), (False, 1)])
def test_a_stop_that_only_decides_stops_no_gradient(decides, number):
    def cost(w, x, stop):
        h = shared(x, w)
        kept = stop(h * 2)
        return jnp.sum(jnp.where(kept > 0.1, jnp.sin(h), 0 if decides else kept))

    def cut(w, x):
        return cost(w, x, jax.lax.stop_gradient)

    def uncut(w, x):
        return cost(w, x, lambda h: h)

    assert len(_stopped(aligned(jax.grad(cut), jax.grad(uncut), W, X), ["given_0"])) == number


def test_a_stop_in_a_statistic_stops_no_gradient():
    """It is made of fewer leaves than the value whose gradient only one side stops."""

    def cost(w, x, y, stops):
        h = shared(x, w)
        return jnp.sum(jnp.sin(stops[0](h * y) + h)), 0.9 * jnp.sum(x) + 0.1 * stops[1](jnp.mean(h))

    def keeping(w, x, y):
        return cost(w, x, y, (lambda h: h, jax.lax.stop_gradient))

    def stopping(w, x, y):
        return cost(w, x, y, (jax.lax.stop_gradient, lambda h: h))

    sides = (jax.grad(each, has_aux=True) for each in (stopping, keeping))
    alignment = aligned(*sides, W, X, X + 1)
    (found,) = _stopped(alignment, ["a leaf of the loss"])
    assert alignment.pair(*found.ends)[0].sketch.kind[0] == X.size


def scaled(x, shift, scale):
    return x * (1 + scale) + shift


def modulated(x, shift, scale):
    return shift + (scale + 1) * x


def test_the_order_of_a_product_is_no_difference():
    def right(x):
        one, other = jnp.tanh(x), jnp.sin(x)
        return 3.25 * one, one + other

    def exchanged(x):
        one, other = jnp.tanh(x), jnp.sin(x)
        return other * 3.25, one + other

    finding, _ = first(right, exchanged, X)
    assert "operand 1 / 0: tanh of given_0 against sin of given_0" in finding.sentence


def test_operands_that_are_the_same_in_either_order_are_none_to_name():
    y = aligned(lambda x: -1.0001 + jnp.exp(x), lambda x: jnp.exp(x) + -1.0001, X)
    (left, right) = (trace.outputs[0] for trace in y.traces)
    assert y.unlike(left, right) == () and not y.follows(left, right)


def test_the_caller_that_exchanges_arguments_is_named():
    def right(x, w):
        shift, scale = jnp.tanh(x @ w), jnp.sin(x @ w)
        return scaled(x, shift, scale)

    def exchanged(x, w):
        shift, scale = jnp.tanh(x @ w), jnp.sin(x @ w)
        return modulated(x, scale, shift)

    finding, blamed = first(right, exchanged, X, W)
    assert blamed[1] == "modulated" and finding.sentence.count(", called at") == 2, finding.sentence
    assert "<locals>.exchanged" in finding.sentence


def first_half(x, w):
    return jnp.tanh(x @ w)


def second_half(x, h):
    return jnp.sin(x * h)


def both_halves(x, left, right, w):
    return second_half(first_half(left, w), right) + x


def other_halves(x, left, right, w):
    return x + second_half(first_half(left, w), right)


def in_halves(x, w):
    left, right = jnp.split(jnp.cos(x), 2)
    return both_halves(x[:2], left, right, w)


def exchanged_halves(x, w):
    right, left = jnp.split(jnp.cos(x), 2)
    return other_halves(x[:2], left, right, w)


def test_values_that_are_exchanged_in_all_their_uses_are_of_the_function_around_them():
    _, blamed = first(in_halves, exchanged_halves, X, W)
    assert blamed == ["in_halves", "exchanged_halves"]


def test_a_result_that_follows_from_another_one_is_no_cause():
    """The decay of the weights has another form, and is correct; the gradient in their moment is wrong."""

    def loss(w, x):
        return jnp.sum(jnp.tanh(x @ w))

    def stopped(w, x):
        y = x @ w
        return jnp.sum(jnp.tanh(jax.lax.stop_gradient(y)) + 0.1 * (y - jax.lax.stop_gradient(y)))

    def decayed(x, w, mean):
        mean = 0.9 * mean + 0.1 * jax.grad(loss)(w, x)
        return w * (1 - 0.1 * 0.01) - 0.1 * mean, mean

    def moved(x, w, mean):
        mean = 0.9 * mean + 0.1 * jax.grad(stopped)(w, x)
        return w - 0.1 * (mean + 0.01 * w), mean

    finding, _ = first(decayed, moved, X, W, W * 2 + 1)
    assert "stop_gradient" in finding.finding.where, finding.sentence


def test_what_both_compute_differently_comes_before_what_one_side_computes_alone():
    def shares(x, w):
        counts = [jnp.sum(jnp.sin(x), 1), jnp.sum(x @ w, 1)]
        return counts[0] / 7 + counts[1] / 7

    def mean_share(x, w):
        counts = jnp.stack([jnp.sum(jnp.sin(x), 1), jnp.sum(x @ w + 0.5, 1)])
        return jnp.sum(counts, 0) / 7

    finding, _ = first(shares, mean_share, X, W)
    assert "add" in finding.finding.where, finding.sentence


class Divided:
    def run(self, x):
        return self.weigh(jnp.sin(x), jnp.cos(x))

    def weigh(self, one, other):
        return self.cap(one) * other

    def cap(self, x):
        return x / 7


class Squashed:
    def start(self, x):
        return self.count(jnp.sin(x), jnp.cos(x))

    def count(self, one, other):
        return one * self.lift(other)

    def lift(self, x):
        return jnp.tanh(x)


@pytest.mark.parametrize("length", [0, 3])
def test_values_that_each_side_computes_alone_leave_doubt_in_later_iterations(length):
    """They may follow from what an earlier iteration carries on."""

    def turned(function):
        def body(carry, at):
            x, carried = carry
            return (x + 1, jnp.where(at > 1, function(x), carried)), None

        return lambda x: jax.lax.scan(body, (x, x), jnp.arange(length))[0][1] if length else function(x)

    finding, _ = first(turned(Divided().run), turned(Squashed().start), X)
    assert ("lacks" in finding.facts["doubt"]) == bool(length), finding.sentence


def timed(start, size, swapped=False):
    """Integrates from ``start`` in two steps; each reads the time, as one of two factors."""

    def run(x, w):
        def body(x, at):
            time = start + at * size
            seen = jnp.stack([time, 2 * time]) if swapped else jnp.array([time, 2 * time])
            gate, push = jax.nn.sigmoid(seen.astype(jnp.float32) @ w[:2])[None], x @ w
            return x + size * (push * gate if swapped else gate * push), None

        return jax.lax.scan(body, x, jnp.arange(2.0))[0]

    return run


def test_a_constant_is_found_behind_factors_in_another_order_and_a_vector_of_another_form():
    finding, _ = first(timed(1.0, -0.5, swapped=True), timed(0.5, 0.5), X, W)
    assert finding.finding.where.startswith(("add (", "mul (")), finding.sentence
    assert "operand" in finding.sentence and "logistic" not in finding.sentence, finding.sentence


def seen(tokens):
    return tokens > 1


def biased(kept):
    return jnp.where(kept, 2.0, -1.0)


def summed(bias):
    return jnp.cumsum(bias, axis=1)


def test_another_comparison_of_one_value_is_no_region_of_code():
    def inline(x, tokens):
        return x * jnp.sin(jnp.cumsum(jnp.where(tokens != 0, 2.0, -1.0), axis=1))

    def apart(x, tokens):
        return x * jnp.sin(summed(biased(seen(tokens))))

    tokens = np.arange(24, dtype="int32").reshape(4, 6) % 5
    finding, blamed = first(inline, apart, X, tokens)
    assert finding.found and finding.finding.where.startswith("ne / gt"), finding.sentence
    assert blamed[1] == "seen"


def test_a_value_within_wide_noise_is_no_partner():
    """It is equal to any number, so it would hide the difference."""

    def noisy(x, scale):
        total = jnp.sum(jnp.sin(x) * scale)
        return total, jnp.sum(jnp.cos(x)) / 7

    sides = (lambda x: noisy(x, 3), lambda x: noisy(x, 4))
    labels, arguments = ["x"], [jnp.asarray(X)]
    left, right = (evaluate(jax.make_jaxpr(side)(X), arguments, labels) for side in sides)
    noise = floors(left, [])
    quotient = left.outputs[1]
    off = distance(left.nodes[quotient].sketch, right.nodes[right.outputs[0]].sketch)
    noise[quotient] = off / 5  # so that ten times the noise is more
    assert off > 0.1
    matches = Alignment(left, right, noise).matches[1]
    assert matches[right.outputs[0]] == -1 and matches[right.outputs[1]] == quotient


@pytest.mark.parametrize(
    ("stopped", "words"),
    [
        (("one", "other"), "both sides stop as many gradients, perhaps in other places"),
        (("", "one other"), "several gradients are stopped on one side only"),
    ],
    ids=["as many", "more"],
)
def test_several_stopped_gradients_leave_doubt_if_gradients_are_of_no_leaf(stopped, words):
    def norm(names):
        def kept(name, value):
            return jax.lax.stop_gradient(value) if name in names else value

        def loss(w, x):
            return jnp.sum(jnp.tanh(kept("one", x @ w)) * kept("other", jnp.sin(x @ w)))

        return lambda w, x: jnp.sum(jax.grad(loss)(w, x) ** 2)

    finding, _ = first(*(norm(names.split()) for names in stopped), W, X)
    assert words in finding.facts["doubt"], finding.sentence


def test_a_key_that_is_folded_with_zero_is_none_that_is_split():
    """Both are the same numbers, so that a step that folds nothing in seems to have the key."""

    def folded(key, x):
        return x * jax.random.normal(jax.random.split(jax.random.fold_in(key, 0))[0], x.shape)

    def plain(key, x):
        return x * jax.random.normal(jax.random.split(key)[0], x.shape)

    key = jax.random.key(3)
    assert (
        jax.random.key_data(jax.random.split(key)[0]) == jax.random.key_data(jax.random.fold_in(key, 0))
    ).all()
    finding, blamed = first(folded, plain, key, X)
    assert "fold_in" in finding.sentence and blamed[0] and blamed[0].endswith("folded"), finding.sentence


def planes_of_the_other(x):
    board = -jnp.sign(jnp.round(3 * x))
    return jnp.stack([board == 1, board == -1]).astype("float32")


def planes_of_the_same(x):
    board = jnp.sign(jnp.round(3 * x))
    return jnp.stack([board > 0, board < 0]).astype("float32")


def test_a_step_left_out_comes_before_another_form_of_what_follows():
    alignment = aligned(planes_of_the_other, planes_of_the_same, X)
    left, right = ([node.name for node in trace.nodes] for trace in alignment.traces)
    step = Divergence(alignment, (left.index("neg"), None), 0)
    forms = Divergence(alignment, (left.index("eq"), right.index("gt")), 0)
    same = Divergence(alignment, (left.index("round"), right.index("round")), 0)
    assert omitted_before(alignment, [forms, step]) == [step]
    assert omitted_before(alignment, [same, step]) == []
    assert omitted_before(alignment, [forms, dataclasses.replace(step, kept=True)]) == []
    assert omitted_before(alignment, [forms, Divergence(alignment, (left.index("eq"), None), 0)]) == []
