"""Small constants of two programs, counted."""

import functools

import jax
import jax.numpy as jnp
import optax
import pytest

from parity.ir.epsilons import changed_epsilons

X = jax.ShapeDtypeStruct((3, 5), jnp.float32)
CAPTURED = jnp.float32(1e-6)


def norm(x, epsilon=1e-6):
    return x / jnp.sqrt(jnp.mean(x * x, -1, keepdims=True) + epsilon)


def chain(*epsilons):
    def function(x):
        for epsilon in epsilons:
            x = norm(x, epsilon)
        return x

    return function


def scanned(x):
    return jax.lax.scan(lambda x, _: (norm(x), None), x, length=3)[0]


def changed(reference, candidate):
    return changed_epsilons(*(jax.make_jaxpr(one)(X) for one in (reference, candidate)))


def test_one_of_several_is_named_with_its_place():
    reference, candidate = changed(chain(1e-6, 1e-6, 1e-6), chain(1e-6, 1e-5, 1e-6))
    assert reference.startswith("add 1e-06 3 times (the other side 2), at ") and reference.endswith("in norm")
    assert candidate.startswith("add 1e-05 once, at ") and candidate.endswith("in norm")


def test_of_equal_constants_at_several_places_none_is_named():
    reference, _ = changed(lambda x: rms(norm(x)), lambda x: norm(rms(x), 1e-5))
    assert reference == "add 1e-06 2 times (the other side 1)"


def adam(epsilon):
    return optax.adam(1e-2, eps=epsilon)


def updated(x, epsilon):
    optimizer = adam(epsilon)
    return optimizer.update(norm(x), optimizer.init(x))[0]


def test_a_constant_of_the_library_is_named_with_the_call_that_sets_it():
    _, candidate = changed(functools.partial(updated, epsilon=1e-5), functools.partial(updated, epsilon=1e-8))
    assert candidate.startswith("add 1e-08 once, at ") and candidate.endswith(" in adam")


def rms(x):
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)


def rms_of_a_sum(x):
    return x * jnp.sqrt(5.0) * jax.lax.rsqrt(jnp.sum(x * x, -1, keepdims=True) + 5e-6)


def recomputed(x, first, second):
    return jax.grad(lambda x: jnp.sum(second(first(x))))(x)


def both(first, second):
    return lambda x: recomputed(
        x,
        *(
            wrap(functools.partial(norm, epsilon=epsilon))
            for wrap, epsilon in ((first, 1e-6), (second, 1e-5))
        ),
    )


def shares(epsilon):
    return lambda x: jnp.sum(x * jnp.exp(x) / (jnp.exp(x).sum() + epsilon))


def plain(function):
    return function


@pytest.mark.parametrize(
    ("reference", "candidate"),
    [
        (chain(1e-6, 1e-6), chain(1e-6, 1e-6)),
        (chain(1e-6, 1e-6, 1e-6), scanned),  # once in the body
        (chain(1e-6, 1e-6), lambda x: 1 / (x + jnp.float32(1e-6))),  # once less
        (jax.nn.softmax, lambda x: jnp.exp(x - x.max()) / (jnp.exp(x - x.max()).sum() + 1e-9)),
        (jax.grad(shares(0.0)), jax.grad(shares(1e-9))),
        (lambda x: 1 / (x + 1e-6), lambda x: 1 / (x + CAPTURED)),
        (lambda x: 1 / jnp.maximum(x, 1e-6), lambda x: 1 / jnp.where(x < 1e-6, 1e-6, x)),
        (lambda x: 1 / (x + 1e-6), lambda x: 1 / (x + 1.0000001e-6)),
        (lambda x: 1 / (x + 1e-6), lambda x: 1 / (x - -1e-6)),
        (lambda x: 1 / (x + 0.5), lambda x: 1 / (x + 0.25)),  # numbers show it
        (lambda x: x + x * 1e-6, lambda x: x + x * 1e-5),
        (lambda x: x * (1e-4 + jnp.sum(x)), lambda x: x * (1e-3 - jnp.sum(x))),  # a learning rate
        (rms, rms_of_a_sum),
        (lambda x: x / jnp.maximum(jnp.sqrt(x), 1e-6), lambda x: x * jax.lax.rsqrt(jnp.maximum(x, 1e-12))),
        (lambda x: x / jnp.clip(jnp.sqrt(x), 1e-6), lambda x: x * jax.lax.rsqrt(jnp.clip(x, 1e-12))),
        (both(jax.checkpoint, plain), both(plain, jax.checkpoint)),
        (
            lambda x: 1 / jnp.clip(x, 1e-6) + 1 / jnp.maximum(x, 1e-8),
            lambda x: 1 / jnp.maximum(x, 1e-6) + 1 / jnp.clip(x, 1e-8),
        ),
        (lambda x: 1 / jnp.maximum(x, jnp.float32(1e-3)), lambda x: 1 / jnp.clip(x, 1e-3)),  # the largest
    ],
)
def test_other_forms_are_no_change(reference, candidate):
    assert changed(reference, candidate) is None


@pytest.mark.parametrize(
    ("reference", "candidate"),
    [
        (lambda x: 1 / jnp.maximum(x, 1e-12), lambda x: 1 / jnp.maximum(1e-8, x)),
        (lambda x: jnp.log(jax.jit(lambda x: x + 1e-6)(x)), lambda x: jnp.log(x + 1e-5)),
        (lambda x: jax.jit(norm)(x, 1e-6), lambda x: jax.jit(norm)(x, 1e-5)),
        (lambda x: 1 / jnp.clip(x, 1e-6), lambda x: 1 / jnp.clip(x, 1e-4)),
        (scanned, chain(1e-5, 1e-5, 1e-5)),
        (chain(1e-6), chain(1e-6, 1e-9)),  # a guard more
        (chain(1e-12, 1e-12), chain(1e-6, 1e-6)),  # a square by chance
        (jax.grad(shares(1e-9)), jax.grad(shares(1e-5))),
        (lambda x: jax.nn.tanh(x) * jax.lax.rsqrt(x + 1e-6), lambda x: jax.nn.tanh(x) * jax.lax.rsqrt(x)),
        (lambda x: jnp.log(jnp.where(x < 1e-6, 1e-6, x)), lambda x: jnp.log(jnp.where(x < 1e-5, 1e-5, x))),
    ],
)
def test_a_constant_in_any_form_counts(reference, candidate):
    assert changed(reference, candidate)


def test_a_function_that_is_called_again_and_again_is_read_once():
    def nested(epsilon, depth=30):
        if not depth:
            return functools.partial(norm, epsilon=epsilon)
        inner = jax.jit(nested(epsilon, depth - 1))
        return lambda x: inner(inner(x))

    reference, candidate = changed(nested(1e-6), nested(1e-5))
    assert f"{2**30} times" in reference and f"{2**30} times" in candidate
