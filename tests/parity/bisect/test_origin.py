"""Finds the cause away from the operation: a condition, a loop, a constructor, a loop that ended too soon."""

import dataclasses
import importlib.util
import types
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from parity.compare.origin import evaluated
from parity.compare.origin.trace import functions_around

spec = importlib.util.spec_from_file_location("handover", Path(__file__).with_name("test_handover.py"))
assert spec is not None and spec.loader is not None
handover = importlib.util.module_from_spec(spec)
spec.loader.exec_module(handover)
first, X, W = handover.first, handover.X, handover.W
GIVEN = {"given_0": ["given_0"]}
"""The weight map of a function of one leaf of the state."""
HALF = jax.sharding.PartitionSpec("half")


class Halves:
    def halved(self, x):
        return jax.lax.while_loop(self.goes_on, self.half, x)

    def goes_on(self, x):
        return jnp.sum(jnp.abs(x)) > 1.0

    def half(self, x):
        return x * 0.5


class EndsTooSoon(Halves):
    def goes_on(self, x):
        return jnp.sum(jnp.abs(x)) > 4.0


class EndsTooLate(Halves):
    def goes_on(self, x):
        return jnp.sum(jnp.abs(x)) > 0.1


@pytest.mark.parametrize("other", [EndsTooSoon, EndsTooLate])
def test_a_loop_that_ends_elsewhere_is_blamed_on_its_condition(other):
    finding, blamed = first(Halves().halved, other().halved, X)
    assert blamed[1] == f"{other.__name__}.goes_on" and "gt" in finding.sentence, finding.sentence


def test_the_trip_count_of_a_loop_is_blamed_on_the_code_that_counts():
    def counted(x, loop_indices):
        return jax.lax.fori_loop(0, loop_indices, lambda at, x: jnp.sin(x) * 0.5 + at, x)

    def one_less(x, loop_indices):
        return jax.lax.fori_loop(0, loop_indices - 1, lambda at, x: jnp.sin(x) * 0.5 + at, x)

    finding, blamed = first(counted, one_less, X, np.int32(5))
    assert blamed[1] is not None and blamed[1].endswith("one_less"), finding.sentence


class Layers:
    def run(self, x, layers):
        out, _ = jax.lax.scan(self.layer, x, layers)
        return out

    def layer(self, x, weight):
        return jnp.tanh(x @ weight), None


class Backwards(Layers):
    def layer(self, x, weight):
        """Applies a layer as `Layers.layer` does, at different lines."""
        return jnp.tanh(x @ weight), None

    def run(self, x, layers):
        out, _ = jax.lax.scan(lambda x, weight: self.layer(x, weight), x, layers, reverse=True)
        return out


def test_layers_in_another_order_are_blamed_on_the_loop():
    layers = np.stack([W, W.T, W * W])
    finding, blamed = first(Layers().run, Backwards().run, X, layers)
    assert blamed[1] is not None and blamed[1].startswith("Backwards.run"), finding.sentence


class Total:
    def summed(self, x, layers):
        start = self.start(layers[0]), 0.0
        return jax.lax.scan(self.iteration, start, layers)[0]

    def start(self, like):
        return jnp.zeros_like(like)

    def iteration(self, total, layer):
        grown = jnp.sin(layer)
        return (total[0] + grown, total[1] + jnp.sum(grown)), None


class TotalFromOne(Total):
    def summed(self, x, layers):
        start = self.start(layers[0]), 1.0
        return jax.lax.scan(self.iteration, start, layers)[0]

    def start(self, like):
        return jnp.ones_like(like)

    def iteration(self, total, layer):
        """Adds a layer as `Total.turn` does, at different lines."""
        grown = jnp.sin(layer)
        return (total[0] + grown, total[1] + jnp.sum(grown)), None


@pytest.mark.slow
def test_the_start_of_a_sum_is_blamed_on_its_maker():
    layers = np.stack([W, W.T, W * W])
    finding, blamed = first(Total().summed, TotalFromOne().summed, X, layers)
    assert blamed[1] == "TotalFromOne.start", finding.sentence


class Scaled:
    def __init__(self, rate):
        self.rate = rate

    def __call__(self, x):
        return x * self.rate


class Twice:
    def __init__(self):
        self.before, self.after = Scaled(0.5), Scaled(0.25)

    def __call__(self, x):
        x = jnp.sin(self.before(x))
        return jnp.cos(self.after(x))


class TwiceAlike(Twice):
    def __init__(self):
        self.before, self.after = Scaled(0.5), Scaled(0.5)

    def __call__(self, x):
        x = jnp.sin(self.before(x))
        return jnp.cos(self.after(x) * 1.0)


def test_a_constant_in_shared_code_is_blamed_on_the_constructor_call():
    finding, blamed = first(Twice().__call__, TwiceAlike().__call__, X)
    assert blamed[1] == "TwiceAlike.__init__", finding.sentence


class Affine:
    def __call__(self, x, w, b):
        return jnp.sum(jnp.sin(self.affine(x, w, b)))

    def affine(self, x, w, b):
        raised = x @ w
        return raised + b


class Bare(Affine):
    def __call__(self, x, w, b):
        return jnp.sum(jnp.sin(self.product(x, w)))

    def product(self, x, w):
        return jnp.matmul(w.T, x.T).T


def test_an_omission_at_the_end_of_a_function_is_blamed_on_it():
    finding, blamed = first(Affine(), Bare(), X, W, W[:1])
    assert blamed[1] == "Bare.product", finding.sentence
    assert ", with a value from " in finding.sentence and "called at" not in finding.sentence


def gradients(scores):
    return lambda x, w: jax.grad(lambda w: jnp.sum(scores(x, w) ** 2))(w)


@pytest.mark.long
def test_a_stopped_gradient_differs_from_one_that_changes_nothing():
    def plain(x, w):
        return jax.nn.softmax(x @ w) @ jnp.sin(w)

    def stopped(x, w):
        scores = jnp.exp(jax.lax.stop_gradient(x @ w))
        return scores / jnp.sum(scores, -1, keepdims=True) @ jnp.sin(w)

    finding, blamed = first(gradients(plain), gradients(stopped), X, W)
    assert "stop_gradient" in finding.sentence and blamed[1].endswith("stopped"), finding.sentence


def test_a_stopped_constant_is_not_blamed_for_a_stopped_gradient():
    def rate(at):
        return jnp.cos(jnp.arange(3.0))[at]

    def plain(x, w):
        return jax.lax.stop_gradient(rate(1)) * jnp.tanh(x @ w) * jnp.sin(x @ w)

    def stopped(x, w):
        return rate(1) * jax.lax.stop_gradient(jnp.tanh(x @ w)) * jnp.sin(x @ w)

    finding, _ = first(gradients(plain), gradients(stopped), X, W)
    assert finding.facts["first"]["operations"][1] == "stop_gradient", finding.sentence


class Terms:
    def summed(self, x, v, w):
        return self.term(x, v) + self.term(x, w)

    def term(self, x, w):
        return 0.5 * jnp.tanh(x @ w)


class LastTerm(Terms):
    def summed(self, x, v, w):
        self.term(x, v)
        return self.term(x, w)

    def term(self, x, w):
        return 0.25 * (2 * jnp.tanh(x @ w))


def test_a_result_that_is_right_elsewhere_is_not_searched_for_its_own_difference():
    finding, blamed = first(Terms().summed, LastTerm().summed, X, W.T, W)
    assert finding.sentence.startswith("add / mul"), finding.sentence
    assert "Terms.summed" in blamed, finding.sentence


@jax.custom_vjp
def kept(x):
    return x


def weakened(x):
    return x * 1.0


kept.defvjp(lambda x: (x, None), lambda rest, g: (-0.3 * g,))
passed = jax.custom_vjp(weakened)


def turned(rest, g):
    return (-g,)


passed.defvjp(lambda x: (x, None), turned)


def test_a_backward_rule_is_named_with_its_call():
    def left(w, x):
        return jnp.sum(jnp.sin(kept(jnp.tanh(x @ w))))

    def right(w, x):
        return jnp.sum(jnp.sin(passed(jnp.tanh(x @ w))))

    finding, _ = first(jax.grad(left), jax.grad(right), W, X)
    assert "right, with the backward rule at " in finding.sentence
    assert " in turned" in finding.sentence.partition(", candidate ")[2], finding.sentence


class Rounded:
    def slope(self, w, x):
        return jax.grad(self.loss)(w, x)

    def loss(self, w, x):
        made = jnp.tanh(x @ w)
        return jnp.sum(jnp.sin(self.rounded(made) @ W)) + jnp.sum(made * made)

    def rounded(self, made):
        return made + jax.lax.stop_gradient(jnp.round(4 * made) - made)


class RoundedWithoutGradient(Rounded):
    def rounded(self, made):
        return jnp.round(4 * made) + jax.lax.stop_gradient(made - made)


def test_a_gradient_that_one_side_lacks_leaves_doubt():
    finding, _ = first(Rounded().slope, RoundedWithoutGradient().slope, W, X)
    assert "only one side adds a gradient here" in finding.sentence and not finding.found, finding.sentence
    stops = finding.facts["doubt"].partition(" may stop: ")[2]
    assert "in Rounded.rounded" in stops and "in RoundedWithoutGradient.rounded" in stops, stops


@pytest.mark.slow
def test_permutations_are_not_mistaken_for_computations():
    weights = np.tril(0.5 ** np.abs(np.arange(4)[:, None] - np.arange(4))).astype("float32")

    def product(x):
        return jnp.sum(jnp.sin(jnp.einsum("ts,bsf->btf", weights, x)))

    def looped(x):
        def body(state, each):
            state = 0.25 * state + each
            return state, state

        _, states = jax.lax.scan(body, jnp.zeros((3, 6)), jnp.swapaxes(x, 0, 1))
        return jnp.sum(jnp.sin(jnp.swapaxes(states, 0, 1)))

    finding, blamed = first(product, looped, np.stack([X, 2 * X, X * X]))
    assert blamed[1] is not None and blamed[1].endswith("looped.<locals>.body"), finding.sentence


def on_parts(x):
    """Returns twice a number, each half on a different device."""
    mesh = jax.make_mesh((2,), ("half",), axis_types=(jax.sharding.AxisType.Auto,))

    def local(x):
        return 2 * x

    return jnp.sin(jax.shard_map(local, mesh=mesh, in_specs=HALF, out_specs=HALF)(x))


def on_wrong_parts(x):
    mesh = jax.make_mesh((2,), ("half",), axis_types=(jax.sharding.AxisType.Auto,))

    def local(x):
        return 2 * x * jax.lax.axis_index("half")

    return jnp.sin(jax.shard_map(local, mesh=mesh, in_specs=HALF, out_specs=HALF)(x))


def test_a_per_device_body_is_one_operation():
    finding, blamed = first(on_parts, on_wrong_parts, X)
    assert blamed[1] == "on_wrong_parts" and "shard_map" in finding.sentence, finding.sentence


def joined(x):
    return jnp.stack([jnp.sin(x), jnp.cos(x)], axis=1).reshape(-1, 6)


def joined_the_other_way(x):
    return jnp.stack([jnp.cos(x), jnp.sin(x)], axis=1).reshape(-1, 6)


def test_parts_that_are_joined_in_another_order_match_neither_the_stack_nor_its_reshape():
    alignment = handover.aligned(joined, joined_the_other_way, X)
    assert max(match for side in alignment.matches for match in side[-2:]) < 0, alignment.matches


@jax.custom_vjp
def snapped(x):
    return jnp.round(x)


snapped.defvjp(lambda x: (jnp.round(x), x), lambda x, g: (jnp.where(abs(x) < 1, g, 0.0),))


class Custom:
    def slope(self, w, x):
        return jax.grad(self.loss)(w, x)

    def loss(self, w, x):
        return jnp.sum(jnp.sin(self.scaled(self.snap(x @ w))))

    def snap(self, made):
        return snapped(made)

    def scaled(self, made):
        return kept(made)


class Stopping(Custom):
    def snap(self, made):
        held = jnp.clip(made, -1, 1)
        return held + (jnp.round(jax.lax.stop_gradient(made)) - jax.lax.stop_gradient(held))

    def scaled(self, made):
        return jax.lax.stop_gradient(made * 1.3) - 0.3 * made


class NotHeld(Stopping):
    def snap(self, made):
        return made + (jnp.round(jax.lax.stop_gradient(made)) - jax.lax.stop_gradient(made))


class NotReversed(Stopping):
    def scaled(self, made):
        return jax.lax.stop_gradient(made * 0.7) + 0.3 * made


@pytest.mark.parametrize(
    ("other", "function"), [(NotHeld, "Custom.snap"), (NotReversed, "NotReversed.scaled")]
)
def test_a_gradient_that_is_stopped_beside_a_backward_rule_is_no_cause(other, function):
    finding, blamed = first(Custom().slope, other().slope, W, X)
    assert function in blamed and "stop_gradient" not in finding.sentence, finding.sentence


class Objective:
    """A loss whose gradient alone is returned; ``term`` is added with a sign and a weight."""

    def slope(self, w, x):
        return jax.grad(self.loss)(w, x)

    def loss(self, w, x):
        made = jnp.tanh(x @ w)
        return self.joined(jnp.mean(jnp.square(made)), self.entropy(made))

    def joined(self, fit, term):
        return fit - 0.3 * term

    def entropy(self, made):
        logs = jax.nn.log_softmax(made)
        return -jnp.mean(jnp.sum(jnp.exp(logs) * logs, axis=-1))


class AddsTheTerm(Objective):
    def joined(self, fit, term):
        return fit + 0.3 * term

    def entropy(self, made):
        """Does what `Objective.entropy` does, in other words."""
        logs = made - jax.nn.logsumexp(made, axis=-1, keepdims=True)
        return jnp.mean(-jnp.sum(jnp.exp(logs) * logs, axis=-1))


def test_a_program_that_returns_gradients_alone_differs_first_on_the_way_to_its_loss():
    finding, blamed = first(Objective().slope, AddsTheTerm().slope, W, X)
    assert blamed == ["Objective.joined", "AddsTheTerm.joined"] and "forward" in finding.sentence


def fitted(w, x):
    gradient = jax.grad(lambda w: jnp.sum(jnp.tanh(x @ w)))(w)
    return shrunk(w) - 0.1 * gradient


def shrunk(w):
    return w * 0.9


def fitted_without_decay(w, x):
    gradient = jax.grad(lambda w: turned_round(w, x))(w)
    return w - 0.1 * gradient


def turned_round(w, x):
    return jnp.sum(jnp.tanh(-x @ -w))


def test_an_update_that_one_side_lacks_is_placed_in_the_update_of_the_other():
    alignment = handover.aligned(fitted, fitted_without_decay, W, X)
    nodes, others = (trace.nodes for trace in alignment.traces)
    at = next(at for at, node in enumerate(nodes) if functions_around(node)[:1] == ("shrunk",))
    instead = alignment.instead(0, at)
    assert instead is not None and functions_around(others[instead]) == ("fitted_without_decay",)


def counting(given, kept):
    return counted_inside(given), kept


def counted_inside(given):
    return updated_there(given)


def updated_there(given):
    return 0.9 * given + 0.1


def not_counting(given, kept):
    counted_inside(given)
    return given, kept


def test_a_state_that_is_returned_as_it_is_given_leaves_doubt_about_the_callers():
    finding, _ = first(counting, not_counting, X, W, partners=GIVEN)
    assert finding.facts["doubt"].startswith("because the candidate returns given_0 as it is given"), (
        finding.sentence
    )
    assert "updated_there, " in finding.sentence and " in counting" in finding.sentence


def damped(given, kept):
    return jnp.sin(damped_inside(given)), kept


def damped_inside(given):
    return damped_there(given)


def damped_there(given):
    return 0.9 * given


def not_damped(given, kept):
    return jnp.sin(given), kept


def test_a_leaf_that_is_used_as_it_is_given_is_no_state_that_is_returned():
    finding, _ = first(damped, not_damped, X, W, partners=GIVEN)
    assert "as it is given" not in finding.sentence, finding.sentence


def moved_on(given):
    return 0.9 * given + 0.1


def moved_once_more(given):
    return moved_on(given)


def once(given, kept):
    return moved_on(given), kept


def once_and_again(given, kept):
    return moved_once_more(moved_on(given)), kept


def test_a_value_that_is_updated_once_more_leaves_doubt_about_the_callers():
    doubt = first(once, once_and_again, X, W, partners=GIVEN)[0].facts["doubt"]
    assert doubt.startswith("because the reference returns the value from before, as a caller may decide"), (
        doubt
    )
    assert "in moved_once_more" in doubt and "in once_and_again" in doubt


def is_due(step):
    return (step + 1) % 3 == 0


def is_due_now(step):
    return (1 + step) % 3 == 0


def at_the_count(step, kept):
    return jnp.where(is_due(step), jnp.sin(kept), kept), step + 1


def after_the_count(step, kept):
    after = step + 1
    return jnp.where(is_due_now(after), jnp.sin(kept), kept), after


def test_a_given_value_in_place_of_its_update_is_placed_where_it_is_used():
    finding, blamed = first(at_the_count, after_the_count, np.int32(5), W)
    assert blamed == ["is_due", "is_due_now"] and finding.sentence.startswith("add "), finding.sentence


def product(kept):
    return kept[0] * kept[1]


def mixed(old, new):
    return 0.9 * old + 0.1 * new


def blended(before, now):
    return 0.9 * before + 0.1 * now


def kept_up(given, kept):
    return kept_up_inside(given, kept), kept


def kept_up_inside(given, kept):
    return mixed(given, product(kept))


def kept_down(given, kept):
    return kept_down_inside(given, kept), kept


def kept_down_inside(given, kept):
    return blended(product(kept), given)


def test_exchanged_arguments_of_equal_code_are_of_its_callers_and_leave_no_doubt():
    """A function of other names is equal code, and a value that does not come from the leaf is not its update."""
    finding, blamed = first(kept_up, kept_down, X[0], W, partners=GIVEN)
    assert blamed == ["kept_up_inside", "kept_down_inside"], finding.sentence
    assert not finding.facts["doubt"], finding.sentence


def advanced_twice(given, kept):
    return advanced(advanced(given)), kept


def advanced(given):
    return advanced_inside(given)


def advanced_inside(given):
    return jnp.cos(given)


def advanced_once(given, kept):
    return advanced(given), kept


def test_a_state_that_is_used_as_it_is_given_though_it_is_updated_leaves_doubt():
    finding, _ = first(advanced_twice, advanced_once, X, W, partners=GIVEN)
    assert "the candidate uses given_0 as it is given" in finding.facts["doubt"], finding.sentence
    assert not first(advanced_twice, advanced_once, X, W)[0].facts["doubt"]  # an input of the batch


@pytest.mark.parametrize(
    ("typed", "first", "chosen"), [(True, False, "rounded"), (True, True, "typed"), (False, False, "typed")]
)
def test_a_type_of_the_backward_pass_is_no_cause_of_a_difference_before_it(monkeypatch, typed, first, chosen):
    def divergence(name, backward):
        node = types.SimpleNamespace(around=types.SimpleNamespace(backward=backward))
        return types.SimpleNamespace(name=name, nodes=[node, None])

    wide = evaluated.Evaluated(step=1, alignment=None, failing=(), divergences=())
    narrow = dataclasses.replace(wide, failing=("result",), divergences=(divergence("rounded", first),))
    monkeypatch.setattr(evaluated, "rounds", lambda jaxpr: True)
    monkeypatch.setattr(evaluated, "_until_different", lambda *given, wide: runs[wide])
    monkeypatch.setattr(evaluated, "_first_of_other_type", lambda alignment: (divergence("typed", typed),))
    runs, side = {True: wide, False: narrow}, types.SimpleNamespace(traced=types.SimpleNamespace(jaxpr=None))
    found = evaluated.evaluate_case(types.SimpleNamespace(sides=(side, side)), trial=object())
    assert found.divergences[0].name == chosen
