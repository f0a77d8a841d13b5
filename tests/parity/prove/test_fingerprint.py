import jax
import jax.numpy as jnp
import pytest
from campaigns.prover.programs import twin_samples

from parity.ir.jax_internals import kept_arguments, main_position
from parity.prove import argument_fingerprints


@pytest.mark.slow
@pytest.mark.parametrize("name", ["forward", "grad", "train_step"])
def test_twins_use_their_arguments_equally(name):
    twins = next(each for each in twin_samples() if each.name == name)
    left, right = argument_fingerprints(twins.reference), argument_fingerprints(twins.candidate)
    assert len(set(left)) == len(left), "every argument has a use of its own"
    assert [left[a] for a, _ in twins.arguments] == [right[b] for _, b in twins.arguments]


def _swiglu(x, gate, up):
    return jax.nn.silu(x @ gate) * (x @ up)


def _lower(run, *shapes):
    return jax.jit(run).lower(*[jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes])


def test_gate_and_up_are_distinguished():
    shapes = (2, 3), (3, 4), (3, 4)
    x, gate, up = argument_fingerprints(_lower(_swiglu, *shapes))
    assert gate != up
    other = argument_fingerprints(_lower(lambda up, gate, x: _swiglu(x, gate, up), *reversed(shapes)))
    assert other == (up, gate, x)


def test_arguments_used_equally_share_a_fingerprint():
    lowered = _lower(lambda a, b: jnp.sum(a * b), (3,), (3,))
    assert len(set(argument_fingerprints(lowered))) == 1


def test_dropped_arguments_keep_their_place():
    lowered = _lower(lambda a, b, c: a - c, (3,), (4,), (3,))
    assert kept_arguments(lowered) == (0, 2)
    assert main_position(lowered) == {0: 0, 2: 1}
