"""Programs that the prover's rules equate give the same bits when run, at every level of optimisation.

``python tests/campaigns prover --attack 1`` runs the rules one by one and reports those that fail.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from campaigns.prover import attack
from campaigns.prover.attack import LEVELS
from campaigns.prover.execute import same_numbers
from campaigns.prover.variants import EDITS
from jax.sharding import AxisType, NamedSharding, PartitionSpec

pytestmark = pytest.mark.slow


@pytest.mark.long
@pytest.mark.parametrize("program", ["forward", "gradient"])
def test_all_rules_together_keep_the_bits_of_a_program_and_its_gradient(program):
    (found,) = attack.attack(program, [tuple(EDITS)], variants=2)
    assert (found.applies, found.proved, found.differ) == (True, True, ()), found


@pytest.mark.long
def test_the_attack_notices_operands_in_another_order():
    """Else it could not fail: products fuse into sums differently."""
    assert "tame data at level 3" in attack.different_bits("forward")


def _bits(run, inputs, level):
    compiled = jax.jit(run).lower(*inputs).compile(compiler_options={"xla_backend_optimization_level": level})
    return [np.asarray(leaf) for leaf in jax.tree.leaves(compiled(*inputs))]


def _wild(shape, seed):
    rng = np.random.default_rng(seed)
    numbers = rng.standard_normal(shape) * 10.0 ** rng.integers(-20, 8, size=shape)
    numbers = numbers.astype(np.float32)
    special = np.array([0x7FC12345, 0xFFC00001, 0x7F800000, 0x80000000, 1], np.uint32)
    some = (rng.random(shape) < 0.2) & (rng.random((shape[0], 1)) < 0.3)
    numbers.view(np.uint32)[some] = rng.choice(special, size=int(some.sum()))
    return numbers


def _mesh(name="a"):
    return jax.make_mesh((4, 2), (name, "b"), axis_types=(AxisType.Auto,) * 2)


def _constrained(times, x, y):
    z = x * y + x
    for _ in range(times):
        z = jax.lax.with_sharding_constraint(z, NamedSharding(_mesh(), PartitionSpec("a", "b")))
    return jnp.sin(z) * y + z * x


def _manual(order, x, y):
    def local(*blocks):
        x, y = (blocks[order.index(name)] for name in "xy")
        total = jax.lax.psum(x * y + jnp.tanh(y), "b")
        return jax.lax.ppermute(total, "a", [(k, (k + 1) % 4) for k in range(4)]) * x - y * total

    values = {"x": x, "y": y}
    spec = PartitionSpec("a", "b")
    manual = jax.shard_map(local, mesh=_mesh(), in_specs=(spec, spec), out_specs=spec, check_vma=False)
    return manual(*[values[name] for name in order])


def _loop(kind, x, y):
    """A loop over a call; with an additional dead loop, with a constant carry, or with the call inlined."""
    product = jax.jit(lambda x, y: x * y)
    if kind == "inlined":
        product = lambda x, y: x * y  # noqa: E731

    def step(x, y):
        return product(x, y) + jnp.sin(y) * x

    if kind == "dead loop":
        jax.lax.fori_loop(0, 5, lambda k, z: z * y + x, x)
    if kind == "carried":
        return jax.lax.fori_loop(0, 3, lambda k, c: (step(*c), c[1]), (x, y))[0]
    return jax.lax.fori_loop(0, 3, lambda k, z: step(z, y), x)


SHARDED = {
    "one constraint, stated twice": (functools.partial(_constrained, 1), functools.partial(_constrained, 2)),
    "operands of a manual computation": (functools.partial(_manual, "xy"), functools.partial(_manual, "yx")),
    **{
        kind: (functools.partial(_loop, "plain"), functools.partial(_loop, kind))
        for kind in ("dead loop", "carried", "inlined")
    },
}


@pytest.mark.parametrize("rule", SHARDED)
@pytest.mark.parametrize("derive", [False, True], ids=["forward", "gradient"])
def test_rules_about_whole_functions_keep_the_bits(check, rule, derive):
    left, right = SHARDED[rule]
    if derive:
        left, right = (
            jax.grad(lambda x, y, run=run: jnp.sum(run(x, y) * 1.7), argnums=(0, 1)) for run in SHARDED[rule]
        )
    inputs = _wild((8, 6), 1), _wild((8, 6), 2)
    proof = check(left, right, inputs)
    assert proof.proved, proof.outcome()
    for level in LEVELS:
        reference, candidate = (_bits(run, inputs, level) for run in (left, right))
        assert same_numbers(reference, candidate), level
        assert any(np.isfinite(each).any() for each in reference)
