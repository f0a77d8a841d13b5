"""Settings of a library's functions that differ between two programs."""

import jax
import jax.numpy as jnp
import optax
import pytest

from parity.ir.settings import changed_setting

WEIGHTS = {"w": jnp.ones(3)}


def update(optimizer):
    """The jaxpr of an update."""
    return jax.make_jaxpr(lambda *given: optimizer.update(*given))(WEIGHTS, optimizer.init(WEIGHTS), WEIGHTS)


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
    assert [place.own[0].function for place in found[1:3]] == ["step.<locals>.<lambda>"] * 2


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
    assert changed_setting(*map(update, (reference, candidate))) is None


@pytest.mark.parametrize(
    ("reference", "candidate", "alone"),
    [
        *[
            (
                optax.apply_if_finite(optax.identity(), one),
                optax.apply_if_finite(optax.identity(), other),
                True,
            )
            for one, other in ((2, 5), (1, 5), (2, 4))
        ],
        (optax.scale_by_adam(b1=0.9), optax.scale_by_adam(b1=0.8), False),  # read as 0.9 and as 1 - 0.9
        (
            optax.chain(optax.scale(2.0), optax.scale(3.0)),
            optax.chain(optax.scale(6.0), optax.scale(1.0)),
            False,
        ),
        (
            optax.chain(optax.add_decayed_weights(0.02), optax.scale(-0.1)),
            optax.chain(optax.scale(-0.1), optax.add_decayed_weights(-0.002)),
            False,
        ),
    ],
)
def test_a_setting_is_alone_if_no_other_constant_may_cancel_it(reference, candidate, alone):
    found = changed_setting(*map(update, (reference, candidate)))
    assert found is not None and found.alone is alone


def test_a_setting_of_dead_code_is_none():
    def logged(rate):
        def step(weights):
            optax.cosine_decay_schedule(rate, 100)(weights["w"])
            return weights

        return jax.make_jaxpr(step)(WEIGHTS)

    assert changed_setting(logged(0.1), logged(0.2)) is None
