"""The programs of `conftest.py` through the real TPU compiler, ahead of time, without a TPU."""

import functools

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

from parity.channels.collectives import compare_collectives
from parity.channels.loops import Loops, compare_loops
from parity.channels.memory import compare_donation, compare_memory, read_donation
from parity.ir.hlo.collectives import read_collectives
from parity.ir.hlo.cycles import read_cycles
from parity.ir.hlo.memory import read_memory
from parity.ir.hlo.optimised import optimised_loops, optimised_module
from parity.ir.stablehlo.dtypes import read_dtypes
from parity.ir.stablehlo.lowered import lowered_loops
from parity.verdicts import Verdict

pytestmark = pytest.mark.slow

pytest.importorskip(
    "libtpu", reason="libtpu is not installed; it comes with the extra [tpu]: no TPU compiler"
)

TOPOLOGIES = ("v5p:2x2x1", "v5e:2x4")
F32 = 4


@pytest.fixture(scope="module", params=TOPOLOGIES)
def target(request, programs):
    return programs.aot(request.param)


def donated_step(programs, model):
    return jax.jit(functools.partial(programs.train_step, model=model), donate_argnums=0)


@pytest.fixture(scope="module")
def step(programs, target):
    lowered = donated_step(programs, programs.remat_inside).lower(target.weights(), target.inputs())
    return lowered, lowered.compile()


@pytest.mark.long
def test_trip_counts_are_derived(step):
    tree = optimised_loops(step[1])
    assert [(loop.trips, loop.provenance.backward) for loop in tree.loops] == [(5, False), (5, True)]
    assert "known_trip_count" not in step[1].as_text()


def test_nested_trip_counts_are_derived(programs, target):
    def repeated(weights, x):
        return jax.lax.scan(lambda c, _: (programs.rolled(weights, c), None), x, None, length=programs.T)[0]

    places = list(
        optimised_loops(jax.jit(repeated).lower(target.weights(), target.inputs()).compile()).walk()
    )
    own = [place for place in places if not place[2].provenance.label]
    assert [(path.count("."), loop.trips, times) for path, times, loop in own] == [(0, 3, 1), (1, 5, 3)]
    # v5p makes a gather and a dot a loop over the ring of fsdp devices, labelled with the operation
    ring = target.mesh.shape["fsdp"]
    made = [loop for *_, loop in places if loop.provenance.label]
    assert {(loop.provenance.label, loop.trips) for loop in made} <= {("dot_general", ring)}


def test_collectives_count_once_with_their_trips(programs, target):
    compiled = jax.jit(programs.rolled).lower(target.weights(), target.inputs()).compile()
    gathers = [one for one in read_collectives(compiled) if one.kind == "all-gather"]
    fsdp = target.mesh.shape["fsdp"]
    assert gathers
    assert {(one.group, one.times) for one in gathers} == {(fsdp, 5)}
    # the compiler casts to bfloat16 before it gathers and may keep the leading 1 of the slice
    assert {one.bytes for one in gathers} <= {16 * 24 * F32, 16 * 24 * F32 // 2}


def test_an_asynchronous_permute_counts_once(target):
    fsdp = target.mesh.shape["fsdp"]

    def local(x):
        pairs = [(i, (i + 1) % fsdp) for i in range(fsdp)]
        return jax.lax.scan(lambda c, _: (jax.lax.ppermute(c, "fsdp", pairs) * 2, None), x, None, length=7)[0]

    mapped = jax.shard_map(local, mesh=target.mesh, in_specs=P("fsdp"), out_specs=P("fsdp"))
    compiled = jax.jit(mapped).lower(target.spec((64, 256), P("fsdp"))).compile()
    assert "collective-permute-start" in compiled.as_text()
    (one,) = read_collectives(compiled)
    assert (one.kind, one.bytes, one.times) == ("collective-permute", 64 // fsdp * 256 * F32, 7)


def test_donation_memory_and_cycles(programs, target, step):
    devices = target.mesh.size
    local = 5 * 16 * 48 * F32 // devices
    donation = read_donation(step[1])
    assert [one.bytes for one in donation] == [local, local]
    memory = read_memory(step[1])
    assert memory.values["temp"] is not None
    assert memory.values["alias"] >= 2 * local
    cycles = read_cycles(step[1])
    assert 0 < cycles.in_loops <= cycles.total
    assert cycles.in_loops % 5 == 0


def test_a_program_equals_itself(step, target):
    lowered, compiled = step
    loops = Loops(lowered=lowered_loops(lowered), optimised=optimised_loops(compiled))
    collectives, donation, memory = read_collectives(compiled), read_donation(compiled), read_memory(compiled)
    channels = (
        compare_loops(loops, loops),
        compare_memory(memory, memory),
        compare_collectives(collectives, collectives),
        compare_donation(donation, donation),
    )
    assert {channel.verdict for channel in channels} == {Verdict.EQUAL}


def test_checkpoint_outside_the_scan(programs, target, step):
    lowered = donated_step(programs, programs.remat_outside).lower(target.weights(), target.inputs())
    right = Loops(lowered=lowered_loops(lowered), optimised=optimised_loops(lowered.compile()))
    left = Loops(lowered=lowered_loops(step[0]), optimised=optimised_loops(step[1]))
    channel = compare_loops(left, right)
    assert channel.verdict is Verdict.FAILED
    assert any("around the scan" in finding.cause for finding in channel.findings)


def test_every_instruction_of_a_dropout_attention_step_parses(programs, target):
    def body(c, w, key):
        scores = jax.nn.softmax(c @ c.T, axis=-1)
        keep = jax.random.bernoulli(key, 0.9, c.shape).astype(c.dtype)
        return programs.layer(scores @ c, w) * keep

    def model(weights, x, key):
        return jax.lax.scan(lambda c, w: (jax.checkpoint(body)(c, w, key), None), x, weights)[0].sum()

    program = jax.jit(jax.grad(model))
    compiled = program.lower(target.weights(), target.inputs(), target.key()).compile()
    text = compiled.as_text()
    module = optimised_module(text)
    count = sum(line.lstrip().startswith(("%", "ROOT %")) and " = " in line for line in text.splitlines())
    assert sum(1 for _ in module.instructions()) == count > 100
    assert all(loop.trips == 5 for loop in optimised_loops(module).loops)


def test_lowered_bfloat16_dots_stay_bfloat16(programs, target):
    lowered = jax.jit(lambda x: (x @ x.T).astype(jnp.float32)).lower(target.spec((8, 16), P(), jnp.bfloat16))
    assert [one.types for one in read_dtypes(lowered)] == ["bf16 x bf16 -> bf16"]
