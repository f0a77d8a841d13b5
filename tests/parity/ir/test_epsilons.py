"""Small constants of two programs, counted."""

import jax
import jax.numpy as jnp
import pytest

from parity.ir.epsilons import changed_epsilons

X = jax.ShapeDtypeStruct((3, 5), jnp.float32)


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
    assert reference == "add 1.0e-06, 3 times against 2"
    assert candidate.startswith("add 1.0e-05, once against 0, at ") and candidate.endswith("in norm")


@pytest.mark.parametrize(
    ("reference", "candidate"),
    [
        (chain(1e-6, 1e-6), chain(1e-6, 1e-6)),
        (chain(1e-6, 1e-6, 1e-6), scanned),  # once in the body
        (chain(1e-6), chain(1e-6, 1e-9)),  # a guard more
        (lambda x: x + 1e-6, lambda x: x + 1.0000001e-6),
        (lambda x: x + 0.5, lambda x: x + 0.25),  # numbers show it
        (lambda x: x * 1e-6, lambda x: x * 1e-5),
    ],
)
def test_other_forms_are_no_change(reference, candidate):
    assert changed(reference, candidate) is None


def test_a_constant_of_either_form_counts():
    assert changed(lambda x: jnp.maximum(x, 1e-12), lambda x: jnp.maximum(1e-8, x))
    assert changed(lambda x: jax.jit(lambda x: x + 1e-6)(x), lambda x: jax.checkpoint(lambda x: x + 1e-5)(x))
