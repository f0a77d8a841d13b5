"""Functions that may hold a cause: those of a whole region, and those that compute a constant ahead of the program."""

import importlib.util
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from parity.compare.origin.source import functions_around
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
