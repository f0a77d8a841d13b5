"""Functions that may hold a cause: those of a whole region, and those that compute a constant ahead of the program."""

import functools
import importlib.util
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from parity.compare.origin.divergence import find_divergences
from parity.compare.origin.trace import functions_around, site
from parity.ir.functions import deciding_call
from parity.ir.location import Frame
from parity.ir.makers import table_makers

spec = importlib.util.spec_from_file_location("handover", Path(__file__).with_name("test_handover.py"))
assert spec is not None and spec.loader is not None
handover = importlib.util.module_from_spec(spec)
spec.loader.exec_module(handover)
W, X, aligned, first = handover.W, handover.X, handover.aligned, handover.first


@jax.jit
def positive_part(x):
    return jax.lax.cond(x[0, 0] > -9, lambda x: jnp.maximum(jnp.sinh(x), 0), lambda x: x, x)


def calls_it(x):
    def body(carry, _):
        return positive_part(carry), None

    return jax.lax.scan(body, x, None, length=2)[0]


def test_the_call_stack_goes_on_outside_of_branches_and_loops():
    (trace, _) = aligned(calls_it, calls_it, X).traces
    inside = next(node for node in trace.nodes if node.name == "sinh")
    assert {"positive_part", "calls_it.<locals>.body", "calls_it"} <= {*functions_around(inside)}


def places(length):
    return np.sin(np.arange(length, dtype="float32"))


def places_from_one(length):
    return np.sin(np.arange(1, length + 1, dtype="float32"))


def placed(x):
    return jnp.tanh(jnp.exp(x) + places(6)[None])


def placed_from_one(x):
    return jnp.tanh(jnp.exp(x) + places_from_one(6)[None])


def test_a_table_names_the_functions_that_compute_it_ahead_of_the_program():
    finding, _ = first(placed, placed_from_one, X)
    left, _, right = finding.sentence.partition(", candidate ")
    assert "with a constant from " in left and " in places" in left, finding.sentence
    assert " in places_from_one" in right and "or" not in right.partition(" in places_from_one")[2][:4]


OUTSIDE = places_from_one(6)


def placed_by_name(x):
    table = places_from_one(6)
    return jnp.tanh(jnp.exp(x) + table[None])


def placed_from_outside(x):
    return jnp.tanh(jnp.exp(x) + OUTSIDE[None])


@pytest.mark.parametrize("other", [placed_by_name, placed_from_outside])
def test_a_table_that_a_line_knows_by_name_has_the_functions_that_compute_it(other):
    finding, _ = first(placed, other, X)
    assert " in places_from_one" in finding.sentence.partition(", candidate ")[2], finding.sentence


class Table:
    def __init__(self):
        self.values = places(6)

    def __call__(self, x):
        return x + self.values


def test_a_maker_assigns_the_attribute_and_neither_both_sides_nor_operations_count():
    file = __file__
    line = Table.__call__.__code__.co_firstlineno + 1
    one, other = Frame(file, line, "Table.__call__"), Frame(file, 1, "nothing")
    (made, _) = table_makers(one, other, ((), ()))
    assert [frame.function for frame in made] == ["Table.__init__", "places"]
    assert table_makers(one, one, ((), ())) == ((), ())


def whole(x, w):
    scores = jax.nn.log_softmax(jnp.sin(x @ w))
    return -jnp.mean(scores[jnp.arange(4), jnp.arange(4)] * 3)


def normalised(x):
    return jnp.log(jnp.sum(jnp.exp(x), -1))


def shifted(x):
    return 1.5 - normalised(x)


def weighed(x, w):
    return jnp.mean(shifted(jnp.sin(x @ w)))


def test_several_functions_between_the_last_equal_values_and_the_result_leave_doubt():
    finding, _ = first(whole, weighed, X, W)
    assert not finding.found, finding.sentence
    assert "not sure of the cause, one of " in finding.sentence
    assert [name for *_, name in finding.facts["suspects"]] == ["normalised", "shifted", "weighed"]


def test_one_operation_with_another_constant_leaves_no_doubt():
    finding, blamed = first(lambda x, w: jnp.sin(x @ w) * 3, lambda x, w: jnp.sin(x @ w) * 4, X, W)
    assert finding.found and finding.facts["suspects"] == [], finding.sentence
    assert "<lambda>" in blamed[1]


def commitment(code, x):
    return jnp.mean((jax.lax.stop_gradient(code) - x) ** 2)


def commitment_of_both(code, x):
    return jnp.mean((code - x) ** 2)


def looked_up(w, x, penalty):
    code = jnp.tanh(x @ w)
    return jnp.sum(jnp.sin(code)) + penalty(code, x)


@pytest.mark.parametrize("turned", [False, True])
def test_a_stopped_gradient_is_named_where_it_is_used(turned):
    pair = [lambda w, x, each=each: looked_up(w, x, each) for each in (commitment, commitment_of_both)]
    finding, blamed = first(*map(jax.grad, pair[::-1] if turned else pair), W, X)
    assert set(blamed) == {"commitment", "commitment_of_both"}, finding.sentence


def with_places(x, table):
    return jnp.concatenate([x, table], 1)


def attended(x, w, seen, table, shut):
    """Both queries are right; the keys hold the table."""
    whole = with_places(x, table)
    one = jax.nn.softmax(shut((jnp.sin(x) @ w) @ whole.T, seen)) @ x
    return one + jax.nn.softmax(shut((jnp.cos(x) @ w) @ whole.T, seen)) @ x


def filled(scores, seen):
    return jnp.where(seen, scores, -1e30)


def lowered(scores, seen):
    return scores + jnp.where(seen, 0.0, -1e30)


def test_a_mask_of_another_form_comes_after_what_it_is_added_to():
    def left(x, w, seen):
        return attended(x, w, seen, places(4)[:, None], filled)

    def right(x, w, seen):
        return attended(x, w, seen, places_from_one(4)[:, None], lowered)

    finding, _ = first(left, right, X, np.concatenate([W, W[:, :1]], 1), X[None, :, 0] > 0)
    assert finding.sentence.startswith("concatenate (forward)"), finding.sentence


def seen_by_each(h, memory, w):
    return jnp.tile(memory, (len(h), 1)) @ w


def seen_by_all(h, memory, w):
    return memory @ w


def kept_in_range(h):
    return jnp.tanh(h + 0.5 * jnp.sin(h))


def kept(h):
    return jnp.tanh(h)


def recurrent(x, w, seen, keep):
    memory, h = jnp.cos(x[:1]), x
    for _ in range(3):
        h = keep(jnp.exp(jnp.sin(h) + seen(h, memory, w)))
    return h


def test_what_is_computed_once_for_all_rows_is_not_blamed():
    left, right = (
        lambda x, w, form=form: recurrent(x, w, *form)
        for form in ((seen_by_each, kept_in_range), (seen_by_all, kept))
    )
    finding, blamed = first(left, right, X, W)
    assert blamed[0] == "kept_in_range", finding.sentence


def backwards(x, done):
    later, found = x[-1], []
    for at in reversed(range(len(x) - 1)):
        found.append(x[at] * 0.5 + later * (1 - done[at]))
        later = x[at]
    return jnp.stack(found[::-1])


def at_once(x, done):
    alive = 1 - jnp.roll(done, -1)
    return x[:-1] * 0.5 + x[1:] * alive[:-1, None]


def test_parts_of_other_sizes_are_not_blamed():
    finding, _ = first(backwards, at_once, X, np.float32([0, 1, 0, 0]))
    assert "slice (forward)" not in finding.sentence, finding.sentence


def masked(x, keep):
    return jnp.exp(jnp.where(keep, jnp.sin(x), 0))


def hidden_by(x, keep=None):
    scores = jnp.sin(x)
    if keep is not None:
        scores = jnp.where(keep, scores, 0)
    return jnp.exp(scores)


def layer(x, mask=None):
    return hidden_by(x, keep=mask)


def drops_the_mask(x, keep):
    return layer(x)


def test_a_call_that_drops_an_argument_is_named_behind_those_that_pass_it_on():
    finding, _ = first(masked, drops_the_mask, X, X > 0)
    (_, _, right) = finding.sentence.partition(", candidate ")
    assert " in hidden_by, called at " in right and " in drops_the_mask" in right, finding.sentence
    inner = aligned(masked, layer, X, X > 0).traces[1].nodes[-1]
    assert deciding_call(site(inner).own[:2]) is None  # `layer` passes it on


def counted(x, before=0):
    return jnp.exp(x) + (before + jnp.floor(x))


def counted_from_the_prompt(x, prompt=5):
    return counted(x, prompt + 1)


def counted_from_later(x, prompt=5):
    return counted(x, prompt + 2)


def test_a_number_that_a_call_computes_names_the_call():
    finding, _ = first(counted_from_the_prompt, counted_from_later, X)
    left, _, right = finding.sentence.partition(", candidate ")
    assert " in counted, called at " in left and " in counted_from_the_prompt" in left, finding.sentence
    assert " in counted, called at " in right and " in counted_from_later" in right, finding.sentence


def halves(x, second):
    one, other = jnp.split(jnp.sin(x), 2)
    return (other, one) if second else (one, other)


def coupled(w, x):
    one, other = halves(x, second=False)
    return jnp.tanh(one @ w) + other.sum()


def coupled_otherwise(w, x):
    one, other = halves(x, second=True)
    return jnp.tanh(one @ w) + other.sum()


def test_operands_of_one_name_say_where_they_are_made():
    finding, _ = first(coupled, coupled_otherwise, W, X)
    assert re.search(r"\(operand 0: two values of split at \S+ in halves\)", finding.sentence)


def falls(x):
    return jnp.where(x > 0, jnp.sin(x) * 3, -9.0)


def falls_by_less(x):
    return jnp.where(x <= 0, -9.0, 2.5 * jnp.sin(x))


def test_a_mask_and_its_opposite_are_no_cause():
    finding, _ = first(falls, falls_by_less, X)
    assert finding.sentence.startswith("mul ("), finding.sentence


def averaged(x):
    return 0.5 * jnp.sin(x)


def averaged_first(x):
    rule = optax.chain(optax.trace(0.9), optax.scale(0.5))
    return updated(rule, jnp.sin(x))


def updated(rule, x):
    return rule.update(x, rule.init(x))[1]


def test_the_call_that_made_a_closure_of_a_library_is_named():
    finding, _ = first(averaged, averaged_first, X)
    (_, _, right) = finding.sentence.partition(", candidate ")
    assert " in updated " in right and ", made at " in right and " in averaged_first" in right, right


def selected(x, step):
    return jnp.sin(x) * jnp.where(step > 2, 0.25, 0.75 * step)


def selected_later(x, step):
    return jnp.sin(x) * jnp.where(step > 3, 0.25, 0.75 * step)


def test_another_choice_between_right_values_is_blamed_on_its_condition():
    finding, _ = first(selected, selected_later, X, np.float32(3))
    assert finding.sentence.startswith("gt ("), finding.sentence


def kept_if_finite(x, w):
    h = x @ w
    return jnp.where(jnp.all(jnp.isfinite(h)), jnp.tanh(h) * 3, h)


def kept_by_product(x, w, factor=2.5, least=-1.0):
    h = x @ w
    sound = jnp.isfinite(jnp.sum(jnp.abs(h) * 0)) & (jnp.cosh(h).min() > least)
    return jax.lax.select(jnp.broadcast_to(sound, h.shape), jnp.tanh(h) * factor, h)


def test_a_condition_that_is_equal_on_both_sides_is_no_cause():
    finding, blamed = first(kept_if_finite, kept_by_product, X, W)
    assert finding.sentence.startswith("mul (") and "(operand 1: 3 against 2.5)" in finding.sentence
    assert blamed == ["kept_if_finite", "kept_by_product"]


def test_a_condition_that_differs_is_the_cause():
    finding, _ = first(kept_if_finite, functools.partial(kept_by_product, factor=3.0, least=9e9), X, W)
    assert finding.sentence.startswith("reduce_and / and ("), finding.sentence


def with_large(x, w, divisor=4.0):
    return jnp.stack([jnp.tanh(0.3 * (x @ w)).sum() / divisor, 1e4 * jnp.exp(x).sum()])


def bent_with_large(x, w):
    return jnp.stack([jnp.arctan(0.3 * (x @ w)).sum() / 4.0, 1e4 * jnp.exp(x).sum()])


def test_a_place_that_reaches_only_noise_is_sure_for_another_constant_alone():
    finding, _ = first(with_large, functools.partial(with_large, divisor=4.004), X, W)
    assert finding.found and "(operand 1: 4 against 4.004)" in finding.sentence
    finding, _ = first(with_large, bent_with_large, X, W)
    assert not finding.found and "are equal up to noise, except some entries" in finding.sentence


def test_results_that_are_equal_up_to_noise_are_no_place():
    alignment = aligned(jnp.exp, lambda x: jnp.exp(x) * (1 + 1e-7), X)
    assert (
        find_divergences(alignment, list(zip(*(trace.outputs for trace in alignment.traces), strict=True)))
        == []
    )
