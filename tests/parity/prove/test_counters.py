"""Counters of two integer types: detection of those that always have equal values."""

import jax
import jax.numpy as jnp
import pytest
from campaigns.prover.modules import parse_module

from parity.ir.jax_internals import stablehlo_module
from parity.ir.stablehlo.reader import read_program
from parity.prove.counters import increment


def once(step, x):
    return step + 1, x * 2


def by_two(step, x):
    return step + 2, x * 2


def read_elsewhere(step, x):
    return step + 1, x * step.astype(x.dtype)


def counted_elsewhere(step, x):
    after = step + 1
    return after, x * after.astype(x.dtype)


def in_a_branch(step, x):
    return step + 1, jax.lax.cond(step > 3, lambda x: x, jnp.sin, x)


def in_a_loop(step, x):
    return step + 1, jax.lax.fori_loop(0, 3, lambda i, x: x + step.astype(x.dtype), x)


def doubled(step, x):
    return step * 2, x * 2


def by_data(step, x):
    return step + x[0].astype(step.dtype), x * 2


def twice_returned(step, x):
    return step + 1, (step + 1).astype(x.dtype)


def kept(step, x):
    return step, x * 2


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        *[(once, (1, ())), (by_two, (2, ()))],
        *[(function, None) for function in (read_elsewhere, counted_elsewhere, in_a_branch, in_a_loop)],
        *[(function, None) for function in (doubled, by_data, twice_returned, kept)],
    ],
)
@pytest.mark.parametrize("dtype", ["int32", "uint32"])
def test_only_a_number_that_is_counted_up_and_returned_counts(function, expected, dtype):
    shapes = (jax.ShapeDtypeStruct((), dtype), jax.ShapeDtypeStruct((3,), "float32"))
    assert increment(read_program(jax.jit(function).lower(*shapes)), 0, 0) == expected


def counter_returned_too(step, x):
    return step + 1, step


@pytest.mark.parametrize("function", [counter_returned_too])
def test_a_counter_that_is_returned_as_it_was_is_no_counter(function):
    shapes = (jax.ShapeDtypeStruct((), "int32"), jax.ShapeDtypeStruct((3,), "float32"))
    assert increment(read_program(jax.jit(function).lower(*shapes)), 0, 0) is None


COUNTER = """
module @jit_step {{
  func.func public @main(%arg0: tensor<i32>) -> tensor<i32> {{
    %c = stablehlo.constant {constant} : tensor<i32>
    %0 = stablehlo.add %arg0, %c{attributes} : tensor<i32>
    return %0 : tensor<i32>
  }}
}}
"""


@pytest.mark.parametrize(
    ("constant", "attributes", "expected"),
    [
        ("dense<2>", "", (2, ())),
        ("dense<-1>", "", (-1, ())),
        ("{note = dense<1> : tensor<i32>} dense<2>", "", None),
        ("{note = [dense<1> : tensor<i32>]} dense<2>", "", None),
        ('{note = "dense<1> : tensor<i32>"} dense<2>', "", None),
        ("{zzz = dense<1> : tensor<i32>} dense<2>", "", None),
        ("{note = 1 : i32} dense<2>", "", None),
        ("dense<2>", " {note = dense<1> : tensor<i32>}", None),
    ],
)
def test_a_number_is_read_as_a_value_not_as_text(constant, attributes, expected):
    like = stablehlo_module(jax.jit(lambda x: x).lower(1))
    program = read_program(parse_module(COUNTER.format(constant=constant, attributes=attributes), like))
    assert increment(program, 0, 0) == expected


def placed(then):
    """Returns a function that treats a constrained counter by another function."""
    sharding = jax.sharding.NamedSharding(jax.make_mesh((2,), ("data",)), jax.sharding.PartitionSpec())
    return lambda step, x: then(jax.lax.with_sharding_constraint(step + 1, sharding), x)


@pytest.mark.parametrize(
    ("then", "number"),
    [
        (lambda count, x: (count, x), 1),
        (lambda count, x: (count + 1, x), None),
        (lambda count, x: (count, x * count.astype(x.dtype)), None),
        (lambda count, x: (count, count), None),
    ],
)
def test_a_placed_counter_counts_with_its_placements(then, number):
    shapes = (jax.ShapeDtypeStruct((), "int32"), jax.ShapeDtypeStruct((3,), "float32"))
    found = increment(read_program(jax.jit(placed(then)).lower(*shapes)), 0, 0)
    assert (found and found[0]) == number
    if found:
        (place,) = found[1]
        assert place.startswith("sdy.sharding_constraint") and "<@mesh, []>" in place


CALLED = """
module @jit_step {{
  func.func public @main(%arg0: tensor<i32>) -> tensor<i32> {{
    %c = stablehlo.constant dense<1> : tensor<i32>
    %0 = stablehlo.add %arg0, %c : tensor<i32>
    %1 = stablehlo.custom_call @{name}(%0) {{has_side_effect = true}} : (tensor<i32>) -> tensor<i32>
    return %1 : tensor<i32>
  }}
}}
"""


@pytest.mark.parametrize(("name", "number"), [("annotate_device_placement", 1), ("other", None)])
def test_a_counter_may_be_moved_to_a_memory(name, number):
    like = stablehlo_module(jax.jit(lambda x: x).lower(1))
    program = read_program(parse_module(CALLED.format(name=name), like))
    found = increment(program, 0, 0)
    assert (found and found[0]) == number
    assert any(op.effect for op in program.body.ops) == (number is None)
