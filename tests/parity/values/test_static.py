"""Contents of results that a program's text shows: zeros stay zeros only under operations that keep them."""

import jax
import jax.numpy as jnp
import pytest

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
def test_what_is_scattered_into_zeros_is_zero_only_if_the_update_keeps_zeros(name):
    function, content = SCATTERED[name]
    program = read_program(jax.jit(lambda: function(jnp.zeros(5))).lower())
    (fact,) = result_facts(program, [])
    assert fact.content is content
