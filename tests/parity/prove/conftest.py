import jax
import pytest

from parity.ir.jax_internals import main_position
from parity.prove import prove


@pytest.fixture
def check():
    """Lowers two functions and proves them equal under a pairing of flat arguments and results."""

    def run(reference, candidate, inputs, *, order=None, results=None, candidate_inputs=None, **options):
        left = jax.jit(reference).lower(*inputs)
        right = jax.jit(candidate).lower(*(inputs if candidate_inputs is None else candidate_inputs))
        places = main_position(left), main_position(right)
        order = order or {flat: flat for flat in places[0]}
        arguments = [
            (places[0][a], places[1][b]) for a, b in order.items() if a in places[0] and b in places[1]
        ]
        count = len(jax.tree.leaves(left.out_info))
        return prove(
            left, right, arguments=arguments, results=results or [(k, k) for k in range(count)], **options
        )

    return run
