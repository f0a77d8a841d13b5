"""Forms of operations: shared by equal operations, and separate where any part of their content differs."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from parity.ir.stablehlo.functions import Functions
from parity.ir.stablehlo.program import Kind


def test_manual_computations_share_a_form_only_if_their_parameters_have_equal_types():
    mesh = jax.make_mesh((2,), ("a",), axis_types=(jax.sharding.AxisType.Auto,))
    split = PartitionSpec("a")
    first = jax.shard_map(lambda x: x[:1], mesh=mesh, in_specs=split, out_specs=split)
    lowered = jax.jit(lambda x, y: (first(x), first(x + 1), first(y))).lower(jnp.ones(4), jnp.ones(8))
    functions = Functions(lowered)
    manual = [op.form for op in functions["main"].body.walk() if op.form.kind is Kind.MANUAL]
    assert manual[0] is manual[1]
    assert manual[0].word == manual[2].word and manual[0].slots_in != manual[2].slots_in


def test_complex_constants_count_though_the_bindings_cannot_cast_them():
    def words(number):
        table = np.array([1, number], np.complex64)
        functions = Functions(jax.jit(lambda x: x * table).lower(table))
        return [op.form.word for op in functions["main"].body.walk()]

    assert words(1 + 2j) == words(1 + 2j) != words(1 + 3j)
