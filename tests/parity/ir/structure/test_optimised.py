"""Optimised HLO of the CPU: loops, collectives, donation and memory against counts made by hand."""

import functools

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

from parity.cases.accepted import Budget
from parity.channels.memory import compare_memory, read_donation
from parity.compare.inspection import collective_rows, loop_rows, memory_rows
from parity.ir.hlo.collectives import read_collectives
from parity.ir.hlo.cycles import read_cycles
from parity.ir.hlo.memory import QUANTITIES, Memory, read_memory
from parity.ir.hlo.optimised import optimised_loops, optimised_module
from parity.ir.stablehlo.dtypes import read_dtypes
from parity.verdicts import Verdict

F32 = 4


@pytest.fixture(scope="module")
def step(programs, cpu):
    program = functools.partial(programs.train_step, model=programs.remat_inside)
    return jax.jit(program, donate_argnums=0).lower(cpu.weights(), cpu.inputs()).compile()


@pytest.mark.slow
def test_a_train_step_has_one_loop_each_way(step):
    tree = optimised_loops(step)
    assert [(loop.trips, loop.provenance.backward) for loop in tree.loops] == [(5, False), (5, True)]
    assert tree.count == 2
    assert tree.fusions > 0
    forward = tree.loops[0]
    weights = 2 * 5 * 16 * 48 * F32 // 8
    assert forward.carry_bytes >= 4 + 2 * 16 * F32 + weights + 5 * 2 * 16 * F32
    assert forward.provenance.frame.file.endswith("conftest.py")


def test_nested_loops_keep_their_trips(programs, cpu):
    def repeated(weights, x):
        return jax.lax.scan(lambda c, _: (programs.rolled(weights, c), None), x, None, length=programs.T)[0]

    tree = optimised_loops(jax.jit(repeated).lower(cpu.weights(), cpu.inputs()).compile())
    assert [(path, loop.trips, times) for path, times, loop in tree.walk()] == [
        ("0", 3, 1),
        ("0.0", 5, 3),
    ]


@pytest.mark.slow
def test_rng_loops_are_labelled(programs, cpu):
    def dropped(weights, x, key):
        def body(c, w):
            mask = jax.random.bernoulli(key, 0.9, c.shape)
            return programs.layer(c, w) * mask.astype(c.dtype), None

        return jax.lax.scan(body, x, weights)[0]

    compiled = jax.jit(dropped).lower(cpu.weights(), cpu.inputs(), cpu.key()).compile()
    labels = [loop.provenance.label for *_, loop in optimised_loops(compiled).walk()]
    assert labels.count("rng") == 1
    assert labels.count("") == 1


def test_a_data_dependent_loop_has_no_trips():
    program = jax.jit(lambda x: jax.lax.while_loop(lambda s: s.sum() < 5, lambda s: s * 2, x))
    tree = optimised_loops(program.lower(jnp.ones(3)).compile())
    assert [loop.trips for loop in tree.loops] == [None]


def test_collectives_in_a_loop_count_with_its_trips(programs, cpu):
    collectives = read_collectives(jax.jit(programs.rolled).lower(cpu.weights(), cpu.inputs()).compile())
    gathers = [one for one in collectives if one.kind == "all-gather"]
    # fsdp (4) shards the embed dimension of both weights; tensor (2) stays sharded, so half of each arrives.
    assert sorted((one.bytes, one.group, one.times) for one in gathers) == [(16 * 24 * F32, 4, 5)] * 2
    # wo contracts over tensor: partial sums of the local batch.
    assert [(one.kind, one.bytes, one.group, one.times) for one in collectives if one not in gathers] == [
        ("all-reduce", 2 * 16 * F32, 2, 5)
    ]
    assert all(one.depth == 1 and one.dtype == "f32" and not one.provenance.backward for one in collectives)
    assert gathers[0].total_bytes == 5 * 16 * 24 * F32


def test_a_permute_counts_pairs_and_trips(cpu):
    def local(x):
        pairs = [(i, (i + 1) % 4) for i in range(4)]
        return jax.lax.scan(lambda c, _: (jax.lax.ppermute(c, "fsdp", pairs) * 2, None), x, None, length=7)[0]

    mapped = jax.shard_map(local, mesh=cpu.mesh, in_specs=P("fsdp"), out_specs=P("fsdp"))
    (one,) = read_collectives(jax.jit(mapped).lower(cpu.inputs()).compile())
    assert (one.kind, one.bytes, one.times, one.depth) == ("collective-permute", 2 * 16 * F32, 7, 1)
    assert one.group == 8


def test_backward_collectives_are_backward(step):
    collectives = read_collectives(step)
    assert {one.provenance.backward for one in collectives if one.depth} == {False, True}
    assert any(not one.depth for one in collectives)


def test_donated_weights_are_aliased(programs, cpu, step):
    donation = read_donation(step)
    local = 5 * 16 * 48 * F32 // 8
    assert [one.bytes for one in donation] == [local, local]
    assert sorted(map(str, donation)) == ["f32[5,24,4]", "f32[5,4,24]"]
    kept = jax.jit(programs.rolled).lower(cpu.weights(), cpu.inputs()).compile()
    assert read_donation(kept) == ()


def test_memory_states_arguments_and_outputs(programs, cpu, step):
    memory = read_memory(step)
    weights = 2 * 5 * 16 * 48 * F32 // 8
    assert memory.values["argument"] == weights + 2 * 16 * F32
    assert memory.values["alias"] == weights
    assert memory.values["temp"] > 0
    assert memory.values["flops"] > 0
    assert memory.reasons == {}


class Silent:
    """A compiled program whose backend reports little."""

    def memory_analysis(self):
        raise NotImplementedError("not on this backend")

    def cost_analysis(self):
        return {"flops": -1.0}


def test_missing_numbers_are_none_with_a_reason():
    memory = read_memory(Silent())
    assert set(memory.values.values()) == {None}
    assert memory.reasons["temp"] == "memory_analysis is not available: not on this backend"
    assert memory.reasons["flops"] == "cost_analysis states flops as -1.0"
    assert memory.reasons["bytes_accessed"] == "cost_analysis states no bytes accessed"
    assert compare_memory(memory, memory).verdict is Verdict.VACUOUS


def stated(**values):
    return Memory(values={**dict.fromkeys(QUANTITIES), **values}, reasons={})


@pytest.mark.parametrize(
    ("left", "right", "passes"),
    [
        (10**6, 10**6, True),
        (10**6, 1_010_000, True),
        (10**6, 1_010_001, False),
        (10**6, 10, True),
        (0, 0, True),
        (0, 1_025, False),
    ],
)
def test_temp_may_grow_by_a_percent_and_shrink(left, right, passes):
    fixed = {"argument": 8, "output": 4}
    channel = compare_memory(stated(temp=left, **fixed), stated(temp=right, **fixed))
    assert channel.verdict is (Verdict.EQUAL if passes else Verdict.FAILED)


@pytest.mark.parametrize("right", [7, 9])
def test_arguments_must_be_equal(right):
    channel = compare_memory(stated(argument=8, output=4, temp=1), stated(argument=right, output=4, temp=1))
    assert channel.verdict is Verdict.FAILED
    assert (channel.findings[0].reference, channel.findings[0].candidate) == ("8 bytes", f"{right} bytes")


def test_a_number_of_one_side_only_fails():
    channel = compare_memory(stated(argument=8, output=4, temp=1), stated(argument=8, output=4))
    assert channel.verdict is Verdict.FAILED
    assert "unknown" in channel.findings[0].candidate


def test_an_unknown_budget_is_an_error():
    with pytest.raises(ValueError, match="memory budgets: got"):
        compare_memory(stated(), stated(), {"teemp": Budget(ratio=1.0)})


def test_the_cpu_states_no_cycles(step):
    cycles = read_cycles(step)
    assert cycles.total is None
    assert cycles.reason == "the backend states no cycles"


def test_dots_are_typed_at_their_call_sites(programs, cpu):
    lowered = jax.jit(jax.grad(programs.loss)).lower(cpu.weights(), cpu.inputs())
    dots = [one for one in read_dtypes(lowered) if one.kind == "dot"]
    # two dots forward, two per dot backward
    assert len(dots) == 6
    assert {one.types for one in dots} == {"f32 x f32 -> f32"}
    assert [one.provenance.backward for one in dots].count(True) == 4
    assert all(one.provenance.frame.function == "layer" for one in dots)


def test_only_sums_and_floats_are_listed():
    lowered = jax.jit(lambda x, n: (x.max(), x.sum(), n.sum(), n @ n.T)).lower(
        jnp.ones((3, 4)), jnp.ones((3, 4), jnp.int32)
    )
    assert [one.kind for one in read_dtypes(lowered)] == ["sum"]


def test_library_operations_take_the_source_of_their_caller(cpu):
    lowered = jax.jit(lambda key: jax.random.gumbel(key, (3,))).lower(cpu.key())
    kinds = read_dtypes(lowered)
    assert kinds
    assert all(one.provenance.frame.file.endswith("test_optimised.py") for one in kinds)


def test_a_backend_without_text_is_a_clear_error():
    class Textless:
        def as_text(self):
            return None

    with pytest.raises(ValueError, match="no HLO text"):
        optimised_module(Textless())


def test_rows_are_plain_data(step):
    tables = [
        loop_rows(optimised_loops(step)),
        collective_rows(read_collectives(step)),
        memory_rows(read_memory(step)),
    ]
    for rows in tables:
        assert rows
        assert len({tuple(row) for row in rows}) == 1
        assert all(isinstance(value, str | int | None) for row in rows for value in row.values())
    assert [row["trips"] for row in tables[0]] == [5, 5]
    assert sum(row["count"] for row in tables[1]) == len(read_collectives(step))
    totals = [row["total_bytes"] for row in tables[1]]
    assert totals == sorted(totals, reverse=True)


def test_a_host_callback_is_read():
    """Its backend_config is an MLIR dictionary, not JSON."""

    def step(x):
        return jax.pure_callback(lambda x: x, jax.ShapeDtypeStruct(x.shape, x.dtype), x) + 1

    module = optimised_module(jax.jit(step).lower(jnp.ones(3)).compile())
    calls = [
        one
        for computation in module.computations.values()
        for one in computation.instructions
        if one.opcode == "custom-call"
    ]
    assert calls and all(one.backend_config() == {} for one in calls)
