"""Random programs: benign variants are proved, and every proved program gives the same bits."""

import random

import jax
import jax.numpy as jnp
import pytest
from campaigns.prover.execute import random_inputs, same_bits
from campaigns.prover.harmless import Original
from campaigns.prover.modules import run_module
from campaigns.prover.mutate import mutants
from campaigns.prover.variants import make_variant
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parity.ir.jax_internals import stablehlo_module
from parity.ir.stablehlo.reader import read_program
from parity.prove import prove

_UNARY = {"sin": jnp.sin, "tanh": jnp.tanh, "neg": jnp.negative, "square": jnp.square, "flip": jnp.flip}
_BINARY = {"add": jnp.add, "sub": jnp.subtract, "mul": jnp.multiply, "max": jnp.maximum}
_PLACE = st.integers(0, 7)
_SETTINGS = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow], "derandomize": True}


def _steps(depth):
    unary = st.tuples(st.sampled_from(sorted(_UNARY)), _PLACE)
    binary = st.tuples(st.sampled_from(sorted(_BINARY)), _PLACE, _PLACE)
    options = [unary, binary]
    if depth:
        inner = st.lists(_steps(depth - 1), min_size=1, max_size=3)
        options.append(st.tuples(st.sampled_from(["loop", "remat", "jit"]), inner, st.integers(1, 3)))
        options.append(st.tuples(st.just("branch"), inner, inner))
    return st.one_of(options)


_PROGRAMS = st.lists(_steps(2), min_size=2, max_size=6)


def _interpret(steps, values):
    for name, *rest in steps:
        if name in _UNARY:
            values = (*values, _UNARY[name](values[rest[0] % len(values)]))
        elif name in _BINARY:
            values = (*values, _BINARY[name](values[rest[0] % len(values)], values[rest[1] % len(values)]))
        else:
            values = (*values, *_compound(name, rest, values[-3:]))
    return values


def _compound(name, rest, few):
    def run(few, steps=rest[0]):
        return _interpret(steps, few)[-len(few) :]

    if name == "loop":
        return jax.lax.fori_loop(0, rest[1], lambda k, carry: run(carry), few)
    if name == "branch":
        return jax.lax.cond(few[0][0] > 0.5, run, lambda few: run(few, rest[1]), few)
    return (jax.checkpoint if name == "remat" else jax.jit)(run)(few)


def _lower(steps):
    def program(x, y, z):
        return _interpret(steps, (x, y, z))[-3:]

    return jax.jit(program, keep_unused=True).lower(*[jax.ShapeDtypeStruct((4,), jnp.float32)] * 3)


_SAME = [(0, 0), (1, 1), (2, 2)]


@pytest.mark.long
@settings(max_examples=40, **_SETTINGS)
@given(steps=_PROGRAMS, seed=st.integers(0, 1000))
def test_benign_variants_are_proved(steps, seed):
    lowered = _lower(steps)
    variant = make_variant(lowered, random.Random(seed))
    proof = prove(lowered, variant.module, arguments=variant.arguments, results=variant.results)
    assert proof.proved, (variant.edits, proof.outcome())


@pytest.mark.long
@settings(max_examples=12, **_SETTINGS)
@given(steps=_PROGRAMS, seed=st.integers(0, 1000))
def test_proved_variants_give_the_same_bits(steps, seed):
    lowered = _lower(steps)
    module = stablehlo_module(lowered)
    variant = make_variant(lowered, random.Random(seed))
    assert prove(lowered, variant.module, arguments=variant.arguments, results=variant.results).proved
    inputs = random_inputs(module, seed)
    (expected,) = run_module(module, [inputs])
    places = dict(variant.arguments)
    order = [a for a, _ in sorted(places.items(), key=lambda pair: pair[1])]
    (got,) = run_module(variant.module, [[inputs[a] for a in order]])
    assert same_bits(expected, [got[b] for _, b in sorted(variant.results)])


@pytest.mark.long
@settings(max_examples=30, **_SETTINGS)
@given(steps=_PROGRAMS, seed=st.integers(0, 1000))
def test_mutants_are_refused_or_explained(steps, seed):
    lowered = _lower(steps)
    program = read_program(lowered)
    original = Original(program)
    module = stablehlo_module(lowered)
    for mutant in mutants(lowered, random.Random(seed), 6):
        proof = prove(program, mutant.module, arguments=_SAME, results=_SAME)
        if proof.proved and not original.benign(mutant):
            # No rule explains it: then it must at least compute the same.
            inputs = random_inputs(module, seed)
            assert same_bits(*[run_module(each, [inputs])[0] for each in (module, mutant.module)]), mutant


@pytest.mark.long
@settings(max_examples=60, **_SETTINGS)
@given(left=_PROGRAMS, right=_PROGRAMS)
def test_two_random_programs_are_proved_only_if_they_agree(left, right):
    first, second = _lower(left), _lower(right)
    if prove(first, second, arguments=_SAME, results=_SAME).proved:
        inputs = random_inputs(stablehlo_module(first), 0)
        assert same_bits(*[run_module(stablehlo_module(each), [inputs])[0] for each in (first, second)])


@pytest.mark.parametrize(
    "steps", [[("loop", [("add", 0, 1), ("sub", 2, 3)], 3)], [("branch", [("sin", 0)], [("neg", 1)])]]
)
def test_a_program_is_itself(steps):
    lowered = _lower(steps)
    assert prove(lowered, lowered, arguments=_SAME, results=_SAME).proved
