"""Forms of operations: shared by equal operations, and separate where any part of their content differs."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from parity.ir.stablehlo.functions import Functions
from parity.ir.stablehlo.program import Kind
from parity.prove import prove


def test_manual_computations_of_two_sizes_share_a_form_and_are_two_values():
    """The type of a parameter follows from the type of its operand, which has another number."""
    mesh = jax.make_mesh((2,), ("a",), axis_types=(jax.sharding.AxisType.Auto,))
    split = PartitionSpec("a")
    first = jax.shard_map(lambda x: x[:1], mesh=mesh, in_specs=split, out_specs=split)

    def both(join):
        return jax.jit(lambda x: (first(x), first(join(x)))).lower(jnp.ones(4))

    larger, same = both(lambda x: jnp.concatenate([x, x])), both(lambda x: x)
    one, other = [op.form for op in Functions(larger)["main"].body.walk() if op.form.kind is Kind.MANUAL]
    assert one is other
    pairs = {"arguments": [(0, 0)], "results": [(0, 0), (1, 1)]}
    assert prove(same, same, **pairs).proved and not prove(larger, same, **pairs).proved


def test_complex_constants_count_though_the_bindings_cannot_cast_them():
    def words(number):
        table = np.array([1, number], np.complex64)
        functions = Functions(jax.jit(lambda x: x * table).lower(table))
        return [op.form.word for op in functions["main"].body.walk()]

    assert words(1 + 2j) == words(1 + 2j) != words(1 + 3j)
