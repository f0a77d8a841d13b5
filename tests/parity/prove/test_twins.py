"""Programs written twice: proved if they are equal, refused with the line if they are not."""

import functools
import inspect

import jax
import jax.numpy as jnp
import pytest
from campaigns.prover.programs import twin_samples
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from parity.ir.functions import short_path
from parity.prove import prove


@pytest.mark.parametrize("name", ["forward", "grad", "train_step"])
def test_transformer_twins_are_proved(name):
    twins = next(each for each in twin_samples() if each.name == name)
    proof = prove(twins.reference, twins.candidate, arguments=twins.arguments, results=twins.results)
    assert proof.proved, proof.outcome()
    assert proof.operations[0] > 300
    assert proof.frontier == proof.unequal_results == proof.findings() == ()
    assert "same program" in proof.outcome()


def _shapes(*shapes):
    return tuple(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes)


def _activated(activation, scale=1.5, remat=True, cube=False):
    def layer(x, w):
        return activation(x @ w) * scale

    def run(x, w):
        def body(carry, w):
            x, total = carry
            x = (jax.checkpoint(layer) if remat else layer)(x, w)
            return (x, total + jnp.sum(x)), None

        (x, total), _ = jax.lax.scan(body, (x, jnp.float32(0.0)), w)
        return total + jnp.sum(x**3 if cube else x**2)

    return jax.grad(run, argnums=1)


LAYER_LINE = inspect.getsourcelines(_activated)[1] + 2


@pytest.mark.parametrize(
    ("options", "line", "words"),
    [
        ({"activation": jnp.sin}, LAYER_LINE, "candidate sine at "),
        ({"activation": jnp.tanh, "scale": 2.0}, LAYER_LINE, "1.5 against 2"),
        ({"activation": jnp.tanh, "cube": True}, LAYER_LINE + 9, "multiply (operand 0: "),
        ({"activation": jnp.tanh, "remat": False}, LAYER_LINE + 8, "only the candidate loop carries"),
    ],
    ids=["activation", "scale", "loss", "remat"],
)
def test_a_difference_is_refused_and_placed(check, options, line, words):
    proof = check(_activated(jnp.tanh), _activated(**options), _shapes((2, 4), (3, 4, 4)))
    assert not proof.proved
    assert proof.unequal_results == (0,)
    first = proof.frontier[0]
    assert first.reference.place.frame.file == first.candidate.place.frame.file == __file__
    assert line in (first.reference.place.frame.line, first.candidate.place.frame.line), proof.outcome()
    assert words in first.sentence()
    assert f"{short_path(__file__)}:{line}" in proof.findings()[0].sentence()


def _custom(scale, factor):
    @jax.custom_vjp
    def act(x):
        return jnp.tanh(x) * scale

    def backward(x, g):
        return (g * (1.0 - jnp.tanh(x) ** 2) * factor,)

    act.defvjp(lambda x: (act(x), x), backward)
    return jax.value_and_grad(lambda x: jnp.sum(act(x) ** 2))


def test_custom_vjp(check):
    inputs = _shapes((3, 4))
    assert check(_custom(2.0, 2.0), _custom(2.0, 2.0), inputs).proved
    changed = check(_custom(2.0, 2.0), _custom(2.0, 3.0), inputs)
    assert changed.unequal_results == (1,)
    # JAX gives the operations of a custom backward pass the line of the forward call.
    assert "transpose(jvp())/mul" in changed.frontier[0].reference.place.stack
    assert "2 against 3" in changed.frontier[0].sentence()


def _dropped(rate, first_key):
    def run(x, key):
        keys = jax.random.split(key)
        keep = jax.random.bernoulli(keys[0 if first_key else 1], rate, x.shape)
        return jnp.where(keep, x / rate, 0.0)

    return run


@pytest.mark.long
def test_dropout(check):
    inputs = (*_shapes((4, 6)), jax.ShapeDtypeStruct((2,), jnp.uint32))
    assert check(_dropped(0.9, True), jax.jit(_dropped(0.9, True)), inputs).proved
    assert not check(_dropped(0.9, True), _dropped(0.8, True), inputs).proved
    assert not check(_dropped(0.9, True), _dropped(0.9, False), inputs).proved


def _mesh(kind):
    return jax.make_mesh((4, 2), ("data", "model"), axis_types=(kind,) * 2)


def _constrained(x, w, *, spec):
    sharding = NamedSharding(_mesh(AxisType.Auto), PartitionSpec(*spec))
    return jnp.sin(jax.lax.with_sharding_constraint(x @ w, sharding))


def test_sharding_constraints(check):
    def run(*spec):
        return functools.partial(_constrained, spec=spec)

    inputs = _shapes((8, 6), (6, 4))
    assert check(run("data", "model"), jax.jit(run("data", "model")), inputs).proved
    proof = check(run("data", "model"), run("data", None), inputs)
    assert not proof.proved
    assert "sharding_constraint (" in proof.frontier[0].sentence()
    assert check(run("data", "model"), run("data", None), inputs, ignore_shardings=True).proved


def test_input_shardings_are_compared(check):
    (x,) = _shapes((8, 6))
    mesh = _mesh(AxisType.Auto)
    sharded = jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=NamedSharding(mesh, PartitionSpec("data")))
    proof = check(jnp.sin, jnp.sin, (x,), candidate_inputs=(sharded,))
    assert not proof.proved
    assert proof.frontier[0].where in ("module", "argument x")
    assert check(jnp.sin, jnp.sin, (x,), candidate_inputs=(sharded,), ignore_shardings=True).proved


def test_explicit_meshes(check):
    def run(x, w, *, spec):
        return jnp.dot(x, w, out_sharding=PartitionSpec(*spec)) + 1.0

    mesh = _mesh(AxisType.Explicit)
    with jax.set_mesh(mesh):
        inputs = tuple(
            jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, PartitionSpec(*spec)))
            for shape, spec in (((8, 4), ("data", "model")), ((4, 6), ("model", None)))
        )
        same = functools.partial(run, spec=("data", None))
        assert check(same, jax.jit(same), inputs).proved
        assert not check(same, functools.partial(run, spec=(None, None)), inputs).proved


def _manual(axis, shift):
    def local(x, w):
        y = jax.lax.psum(jnp.tanh(x @ w), axis)
        return y, jax.lax.ppermute(y, "data", [(k, (k + shift) % 4) for k in range(4)])

    specs = (PartitionSpec("data", "model"), PartitionSpec("model", None))
    out = (PartitionSpec("data", None),) * 2
    return jax.shard_map(local, mesh=_mesh(AxisType.Auto), in_specs=specs, out_specs=out, check_vma=False)


def test_shard_map(check):
    inputs = _shapes((8, 4), (4, 6))
    assert check(_manual("model", 1), jax.jit(_manual("model", 1)), inputs).proved
    assert not check(_manual("model", 1), _manual("data", 1), inputs).proved
    moved = check(_manual("model", 1), _manual("model", 2), inputs)
    assert moved.unequal_results == (1,)
    assert "source_target_pairs" in moved.frontier[0].sentence()


def test_pairs_must_be_total_and_one_to_one():
    lowered = jax.jit(jnp.subtract).lower(*_shapes((2,), (2,)))
    with pytest.raises(ValueError, match="reference left over: 1") as caught:
        prove(lowered, lowered, arguments=[(0, 0)], results=[(0, 0)])
    assert "candidate left over: 1" in str(caught.value)
    with pytest.raises(ValueError, match="used twice"):
        prove(lowered, lowered, arguments=[(0, 0), (0, 1)], results=[(0, 0)])
    with pytest.raises(ValueError, match="out of range"):
        prove(lowered, lowered, arguments=[(0, 0), (1, 2)], results=[(0, 0)])
    swapped = prove(lowered, lowered, arguments=[(0, 1), (1, 0)], results=[(0, 0)])
    assert not swapped.proved


def test_donation_is_compared():
    inputs = _shapes((2, 3))
    plain, donated = (jax.jit(jnp.sin, donate_argnums=each).lower(*inputs) for each in ((), (0,)))
    proof = prove(plain, donated, arguments=[(0, 0)], results=[(0, 0)])
    assert not proof.proved
    assert "donated: false against true" in proof.frontier[0].sentence()


def test_unreadable_programs_are_named():
    with pytest.raises(ValueError, match=r"expected jax\.stages\.Lowered"):
        prove("text", "text", arguments=[], results=[])
