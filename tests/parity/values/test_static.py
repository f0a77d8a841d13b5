"""Contents of results that a program's text shows: zeros stay zeros only under operations that keep them."""

import jax
import jax.numpy as jnp
import pytest

from parity.ir.jax_internals import ir
from parity.ir.stablehlo.reader import read_program
from parity.values.static import Content, result_facts

SCATTERED = {
    "added": (lambda x: x.at[1].add(0.0), Content.ZERO),
    "set": (lambda x: x.at[1].set(0.0), Content.ZERO),
    "a maximum": (lambda x: x.at[1].max(0.0), Content.ZERO),
    "a cosine": (lambda x: x.at[1].apply(jnp.cos), Content.ANY),
    "one more": (lambda x: x.at[1].apply(lambda v: v + 1.0), Content.ANY),
    "one more, squared": (lambda x: x.at[1].apply(lambda v: (v + 1.0) * (v + 1.0)), Content.ANY),
}


@pytest.mark.parametrize("name", SCATTERED)
def test_a_scatter_into_zeros_is_zero_only_if_the_update_keeps_zeros(name):
    function, content = SCATTERED[name]
    program = read_program(jax.jit(lambda: function(jnp.zeros(5))).lower())
    (fact,) = result_facts(program, [])
    assert fact.content is content


NOT_A_NUMBER = {
    "scaled": (lambda x: -2.0 * x, Content.NAN),
    "a power of nothing": (lambda x: x ** jnp.zeros(3), Content.ANY),
    "as integers": (lambda x: x.astype(jnp.int32), Content.ANY),
    "tested": (lambda x: x != x, Content.ANY),
    "chosen": (lambda x: jnp.where(jnp.arange(3) > 1, x, 0.0), Content.ANY),
    "an index into numbers": (lambda x: jnp.arange(3.0)[x.astype(jnp.int32)], Content.ANY),
}


@pytest.mark.parametrize("name", NOT_A_NUMBER)
def test_nan_stays_nan_only_where_it_must(name):
    function, content = NOT_A_NUMBER[name]
    program = read_program(jax.jit(lambda: function(jnp.full(3, jnp.nan))).lower())
    (fact,) = result_facts(program, [])
    assert fact.content is content


NESTED = """
module {
  func.func public @main(%x: tensor<f32>) -> tensor<f32> {
    %start = stablehlo.constant dense<0> : tensor<i32>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %end = stablehlo.constant dense<3> : tensor<i32>
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %outer:3 = stablehlo.while(%a = %start, %read = %zero, %sum = %zero) : tensor<i32>, tensor<f32>, tensor<f32>
    cond {
      %test = stablehlo.compare LT, %a, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %test : tensor<i1>
    } do {
      %inner:2 = stablehlo.while(%b = %start, %part = %zero) : tensor<i32>, tensor<f32>
      cond {
        %test = stablehlo.compare LT, %b, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %test : tensor<i1>
      } do {
        %next = stablehlo.add %b, %one : tensor<i32>
        %more = stablehlo.add %part, %read : tensor<f32>
        stablehlo.return %next, %more : tensor<i32>, tensor<f32>
      }
      %next = stablehlo.add %a, %one : tensor<i32>
      stablehlo.return %next, %x, %inner#1 : tensor<i32>, tensor<f32>, tensor<f32>
    }
    return %outer#2 : tensor<f32>
  }
}
"""


def test_a_loop_inside_another_is_followed_again_once_it_reads_something_else():
    like = jax.jit(jnp.sin).lower(1.0).compiler_ir("stablehlo")
    program = read_program(ir.Module.parse(NESTED, context=like.context))
    (fact,) = result_facts(program, [frozenset({"x"})])
    assert (fact.sources, fact.content) == ({"x"}, Content.ANY)
