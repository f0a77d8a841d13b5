"""Settings of a library's functions that differ between two programs."""

import jax
import jax.numpy as jnp
import optax
import pytest

from parity.ir.settings import changed_setting

WEIGHTS = {"w": jnp.ones(3)}


def step(steps=4, every=2, eps=1e-8):
    """The jaxpr of an update that accumulates gradients, so that a branch holds the optimizer."""
    schedule = optax.linear_schedule(1.0, 0.1, steps)
    optimizer = optax.MultiSteps(optax.adam(schedule, eps=eps), every)
    return jax.make_jaxpr(lambda *given: optimizer.update(*given))(WEIGHTS, optimizer.init(WEIGHTS), WEIGHTS)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"steps": 40}, "clip (constant: 4 against 40)"),
        ({"eps": 1e-4}, "add (constant: 1e-08 against 0.0001)"),
        ({"every": 3}, "(constant: 1 against 2)"),
    ],
)
def test_a_setting_inside_a_branch_is_found_with_its_place(options, text):
    found = changed_setting(step(), step(**options))
    assert found is not None and text in found[0], found
    assert [place.own[0].function for place in found[1:]] == ["step.<locals>.<lambda>"] * 2


def test_equal_settings_and_those_of_one_side_are_none():
    assert changed_setting(step(), step(eps=1.00000001e-8)) is None
    assert changed_setting(step(), jax.make_jaxpr(jnp.sin)(1.0)) is None


@pytest.mark.parametrize(
    ("reference", "candidate"),
    [
        (optax.contrib.schedule_free_adamw(0.1), optax.contrib.schedule_free_adamw(0.1)),  # reads NaN
        (optax.sgd(0.1), optax.chain(optax.scale(-1.0), optax.scale(0.1))),
    ],
)
def test_the_same_setting_in_another_grouping_is_none(reference, candidate):
    sides = (
        jax.make_jaxpr(lambda *given, one=one: one.update(*given))(WEIGHTS, one.init(WEIGHTS), WEIGHTS)
        for one in (reference, candidate)
    )
    assert changed_setting(*sides) is None
