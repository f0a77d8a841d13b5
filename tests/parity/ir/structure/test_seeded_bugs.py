"""Each planted bug is caught by its channel, with a finding that names the place."""

import functools
import itertools

import jax
import jax.numpy as jnp
import pytest
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import PartitionSpec as P

from parity.channels.collectives import compare_collectives
from parity.channels.dots import compare_dots
from parity.channels.loops import Loops, compare_loops
from parity.channels.memory import compare_donation, compare_memory, read_donation
from parity.ir.hlo.collectives import read_collectives
from parity.ir.hlo.hlo import Shape
from parity.ir.hlo.memory import read_memory
from parity.ir.hlo.optimised import optimised_loops
from parity.ir.stablehlo.dtypes import read_dtypes
from parity.ir.stablehlo.lowered import lowered_loops
from parity.verdicts import Verdict


class Build:
    """One program lowered and compiled, read by every channel."""

    def __init__(self, program, *shapes, **options):
        self.lowered = jax.jit(program, **options).lower(*shapes)
        self.compiled = self.lowered.compile()
        self.loops = Loops(lowered=lowered_loops(self.lowered), optimised=optimised_loops(self.compiled))


def compare(reference: Build, candidate: Build):
    moved = [read_collectives(side.compiled) for side in (reference, candidate)]
    return {
        "loops": compare_loops(reference.loops, candidate.loops),
        "memory": compare_memory(read_memory(reference.compiled), read_memory(candidate.compiled)),
        "collectives": compare_collectives(*moved),
        "dots": compare_dots(read_dtypes(reference.lowered), read_dtypes(candidate.lowered)),
        "donation": compare_donation(read_donation(reference.compiled), read_donation(candidate.compiled)),
    }


def failed(channels):
    return {name for name, channel in channels.items() if channel.verdict is Verdict.FAILED}


def words(channel):
    return "\n".join(finding.sentence() for finding in channel.findings)


@pytest.fixture(scope="module")
def reference(programs, cpu):
    step = functools.partial(programs.train_step, model=programs.remat_inside)
    return Build(step, cpu.weights(), cpu.inputs(), donate_argnums=0)


@pytest.mark.slow
def test_a_program_equals_itself_in_every_channel(reference):
    channels = compare(reference, reference)
    assert {channel.verdict for channel in channels.values()} == {Verdict.EQUAL}
    assert channels["loops"].detail == "lowered 2, optimised 2"
    assert all(channel.findings == () and channel.detail for channel in channels.values())


@pytest.mark.slow
def test_order_names_and_jit_boundaries_of_carries_do_not_matter(programs, cpu, reference):
    def layer(x, w):
        return programs.layer(x, {"wi": w["z"], "wo": w["a"]})

    def model(w, x):
        body = jax.jit(jax.checkpoint(layer))
        return jax.lax.scan(lambda c, one: (body(c, one), None), x, {"z": w["wi"], "a": w["wo"]})[0]

    step = functools.partial(programs.train_step, model=model)
    candidate = Build(step, cpu.weights(), cpu.inputs(), donate_argnums=0)
    assert failed(compare(reference, candidate)) == set()


@pytest.mark.slow
def test_checkpoint_outside_the_scan(programs, cpu, reference):
    step = functools.partial(programs.train_step, model=programs.remat_outside)
    channels = compare(reference, Build(step, cpu.weights(), cpu.inputs(), donate_argnums=0))
    assert {"loops", "memory"} <= failed(channels)
    text = words(channels["loops"])
    assert "the checkpoint of the candidate is around the scan, not inside its body" in text
    assert "5 trips" in text
    assert channels["loops"].detail.startswith("lowered 2 -> 3")
    assert "temp" in words(channels["memory"])


@pytest.mark.long
def test_a_lost_remat_keeps_residuals(programs, cpu, reference):
    step = functools.partial(programs.train_step, model=programs.rolled)
    channels = compare(reference, Build(step, cpu.weights(), cpu.inputs(), donate_argnums=0))
    text = words(channels["loops"])
    assert f"f32[5,8,48] ({5 * 8 * 48 * 4:,} bytes)" in text
    assert "residuals kept for the backward pass" in text
    assert "conftest.py" in text


@pytest.mark.slow
def test_a_residual_kept_instead_of_another_of_equal_bytes(cpu):
    def saving(name):
        def layer(x, w):
            made = checkpoint_name(jnp.tanh(x @ w["wi"]), "made")
            moved = checkpoint_name(jnp.sin(made).reshape(made.shape[1], -1), "moved")
            return jnp.cos(moved).reshape(made.shape) @ w["wo"], None

        policy = jax.checkpoint_policies.save_only_these_names(name)

        def run(w, x):
            return jnp.sum(jax.lax.scan(jax.checkpoint(layer, policy=policy), x, w)[0] ** 2)

        return Build(jax.grad(run), cpu.weights(), cpu.inputs())

    loops = compare(saving("made"), saving("moved"))["loops"]
    text = words(loops)
    assert loops.verdict is Verdict.FAILED and "f32[5,48,8]" in text, text


@pytest.mark.slow
def test_parameters_stacked_by_the_scan(programs, cpu):
    def plain(weights, x):
        return jax.lax.scan(jax.checkpoint(lambda c, w: (programs.layer(c, w), c.sum())), x, weights)

    def stacking(weights, x):
        return jax.lax.scan(jax.checkpoint(lambda c, w: (programs.layer(c, w), (c.sum(), w))), x, weights)

    shapes = cpu.weights(), cpu.inputs()
    channels = compare(Build(plain, *shapes), Build(stacking, *shapes))
    assert {"loops", "memory"} <= failed(channels)
    stacked = f"f32[5,16,48] ({5 * 16 * 48 * 4:,} bytes), f32[5,48,16] ({5 * 16 * 48 * 4:,} bytes)"
    assert f"stacks {stacked}" in words(channels["loops"])


@pytest.mark.long
@pytest.mark.parametrize(
    ("unroll", "cause"), [(5, "unrolled by the candidate"), (True, "unrolled by the candidate")]
)
def test_unrolled_against_rolled(programs, cpu, reference, unroll, cause):
    model = functools.partial(programs.rolled, body=jax.checkpoint(programs.layer), unroll=unroll)
    step = functools.partial(programs.train_step, model=model)
    channels = compare(reference, Build(step, cpu.weights(), cpu.inputs(), donate_argnums=0))
    assert "loops" in failed(channels)
    assert cause in words(channels["loops"])


def test_a_loop_of_one_side_names_the_callers_that_may_repeat_it(programs, cpu):
    def made(w, x):
        return programs.rolled(w, x)

    def twice(w, x):
        return made(w, made(w, x))

    builds = [Build(each, cpu.weights(), cpu.inputs()) for each in (made, twice)]
    (first, *_) = compare_loops(*(build.loops for build in builds)).findings
    made_by, *callers = first.where.removesuffix(")").split(", called at ")
    assert made_by.endswith(" in rolled") and callers[0].endswith(".<locals>.twice"), first


def test_another_trip_count_names_the_factor(programs, cpu):
    def repeated(length):
        return lambda w, x: jax.lax.scan(lambda c, _: (programs.rolled(w, c), None), x, None, length=length)[
            0
        ]

    builds = [Build(repeated(length), cpu.weights(), cpu.inputs()) for length in (3, 6)]
    channel = compare_loops(builds[0].loops, builds[1].loops)
    assert channel.verdict is Verdict.FAILED
    assert "reference 3 trips, candidate 6 trips" in words(channel)
    assert "factor of 2" in words(channel)
    assert channel.detail == "lowered 2, optimised 2"


def test_a_loop_that_the_backend_makes_of_a_scatter_is_no_difference():
    """The compiler of jaxlib 0.10 makes one on a CPU."""
    table, rows, ids = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((13, 4), (6, 4), (6,)))
    ids = ids.update(dtype=jnp.int32)
    scattered = Build(lambda table, rows, ids: table.at[ids].add(rows), table, rows, ids)
    multiplied = Build(lambda table, rows, ids: table + jax.nn.one_hot(ids, 13).T @ rows, table, rows, ids)
    for one, other in itertools.permutations((scattered, multiplied)):
        assert compare_loops(one.loops, other.loops).verdict is Verdict.EQUAL


def test_an_inner_trip_count_names_its_place(programs, cpu):
    def repeated(inner):
        def body(c, _):
            return jax.lax.fori_loop(0, inner, lambda _, y: jnp.sin(y), c), None

        return lambda x: jax.lax.scan(body, x, None, length=3)[0]

    loops = [Loops(lowered=lowered_loops(jax.jit(repeated(n)).lower(cpu.inputs()))) for n in (4, 7)]
    (finding,) = compare_loops(*loops).findings
    assert finding.where.startswith("lowered loop 0.0 ")
    assert (finding.reference, finding.candidate) == ("4 trips", "7 trips")


@pytest.mark.slow
def test_a_lost_donation(programs, cpu, reference):
    step = functools.partial(programs.train_step, model=programs.remat_inside)
    channels = compare(reference, Build(step, cpu.weights(), cpu.inputs()))
    assert failed(channels) == {"donation"}
    local = 5 * 16 * 48 * 4 // 8
    assert f"{local:,} bytes" in words(channels["donation"])
    assert "the candidate does not donate" in words(channels["donation"])


def softmax_model(dtype):
    def attention(weights, x):
        logits = jnp.einsum("bd,de->be", x, weights, preferred_element_type=jnp.float32).astype(dtype)
        return jax.nn.softmax(logits, axis=-1).astype(jnp.bfloat16)

    return attention


@pytest.mark.long
def test_softmax_in_bfloat16(cpu):
    shapes = cpu.spec((16, 48), P("fsdp"), jnp.bfloat16), cpu.spec((8, 16), P(), jnp.bfloat16)
    builds = [Build(softmax_model(dtype), *shapes) for dtype in (jnp.float32, jnp.bfloat16)]
    channel = compare(*builds)["dots"]
    assert channel.verdict is Verdict.FAILED
    (finding,) = [finding for finding in channel.findings if finding.where.startswith("exponential")]
    assert (finding.reference, finding.candidate) == ("f32 -> f32", "bf16 -> bf16")
    assert "test_seeded_bugs.py" in finding.where
    assert "softmax" in finding.cause


def gathering(outside):
    def model(weights, x, mesh):
        whole, parts = (jax.sharding.NamedSharding(mesh, spec) for spec in (P(), P("fsdp")))
        held = whole if outside else parts

        def body(state, _):
            c, w = state
            gathered = jax.lax.with_sharding_constraint(w, whole)
            w = jax.lax.with_sharding_constraint(jnp.sin(w), held)
            return (jnp.tanh(c @ gathered), w), None

        start = jax.lax.with_sharding_constraint(weights, held)
        return jax.lax.scan(body, (x, start), None, length=7)[0][0]

    return model


@pytest.mark.slow
def test_a_gather_inside_a_loop(cpu):
    shapes = cpu.spec((32, 32), P("fsdp")), cpu.spec((8, 32))
    builds = [
        Build(functools.partial(gathering(outside), mesh=cpu.mesh), *shapes) for outside in (True, False)
    ]
    channel = compare(*builds)["collectives"]
    assert channel.verdict is Verdict.FAILED
    text = words(channel)
    assert "inside a loop of the candidate" in text
    assert "7 times in loops" in text
    assert f"{6 * 32 * 32 * 4:+,} bytes" in text
    assert "test_seeded_bugs.py" in text


def test_an_extra_collective(cpu):
    def rotate(by_permute):
        def local(x):
            if by_permute:
                return jax.lax.ppermute(x, "fsdp", [(i, (i + 1) % 4) for i in range(4)])
            gathered = jax.lax.all_gather(x, "fsdp", tiled=False)
            return gathered[(jax.lax.axis_index("fsdp") - 1) % 4]

        return jax.shard_map(local, mesh=cpu.mesh, in_specs=P("fsdp"), out_specs=P("fsdp"))

    builds = [Build(rotate(by_permute), cpu.spec((8, 16), P("fsdp"))) for by_permute in (True, False)]
    channel = compare(*builds)["collectives"]
    assert channel.verdict is Verdict.FAILED
    assert any(finding.where.startswith("collective-permute") for finding in channel.findings)
    assert "of the candidate" in words(channel)


def test_argument_dtype_shows_in_memory(programs, cpu):
    shapes = cpu.weights(), cpu.inputs()
    wide = Build(programs.rolled, *shapes)
    narrow = {**shapes[0], "wi": cpu.spec((5, 16, 48), P(None, "fsdp", "tensor"), jnp.bfloat16)}

    def model(weights, x):
        return programs.rolled({**weights, "wi": weights["wi"].astype(jnp.float32)}, x)

    channel = compare(wide, Build(model, narrow, shapes[1]))["memory"]
    assert channel.verdict is Verdict.FAILED
    assert any(finding.where == "argument bytes" for finding in channel.findings)


def test_an_extra_scalar_carry_fits_into_the_slack(cpu):
    def counted(extra):
        def body(state, _):
            x, count = state
            return (jnp.tanh(x), count + extra), count * 0 + x.sum().astype(jnp.int32)

        return lambda x: jax.lax.scan(body, (x, jnp.int32(0)), None, length=4)

    def plain(x):
        return jax.lax.scan(lambda c, _: (jnp.tanh(c), c.sum().astype(jnp.int32)), x, None, length=4)

    one, two = (Loops(lowered=lowered_loops(jax.jit(f).lower(cpu.inputs()))) for f in (plain, counted(3)))
    assert compare_loops(one, two).verdict is Verdict.FAILED
    assert compare_loops(one, two, slack_bytes=4).verdict is Verdict.EQUAL


def test_a_small_carry_of_another_shape_is_a_note_but_one_of_another_type_fails():
    """Such as a gradient that one side adds up over the rows of a batch, and the other one keeps for each."""

    def body(carry, _):
        return carry + jnp.sin(carry).mean(), None

    def scan(shape, dtype=jnp.float32):
        def program():
            return jax.lax.scan(body, jnp.ones(shape, dtype), None, 3)[0]

        return Loops(lowered=lowered_loops(jax.jit(program).lower()))

    rows = scan((4, 2, 2))
    channel = compare_loops(rows, scan((2, 2)))
    assert (channel.verdict, len(channel.notes)) == (Verdict.EQUAL, 1)
    for other in (scan((40, 20, 2)), scan((4, 2, 2), jnp.bfloat16)):
        assert compare_loops(rows, other).verdict is Verdict.FAILED


def test_the_same_bytes_in_another_number_of_carries_are_a_note():
    def scan(start):
        return lambda: jax.lax.scan(lambda c, _: (jax.tree.map(jnp.sin, c), None), start, None, length=3)[0]

    starts = jnp.ones(800), (jnp.ones(400), jnp.ones(400)), (jnp.ones(400), jnp.ones(800))
    one, two, more = (Loops(lowered=lowered_loops(jax.jit(scan(start)).lower())) for start in starts)
    (note,) = compare_loops(one, two).notes
    assert (note.reference, note.candidate) == ("2 carries of 3,204 bytes", "3 carries of 3,204 bytes")
    assert (
        compare_loops(one, two).verdict is Verdict.EQUAL
        and compare_loops(one, more).verdict is Verdict.FAILED
    )


@pytest.mark.parametrize(
    ("parts", "dtype", "verdict"),
    [
        ((400, 400, 400), "float32", Verdict.EQUAL),
        ((400, 400), "float32", Verdict.FAILED),
        ((800, 800, 800), "bfloat16", Verdict.FAILED),
    ],
)
def test_gradients_of_a_fused_weight_stack_as_those_of_its_parts(parts, dtype, verdict):
    def program(sizes, dtype="float32"):
        def loss(weights):
            def body(c, row):
                return jnp.sin(c + sum((each.astype("float32") ** 2).sum() for each in row)), None

            return jax.lax.scan(body, 1.0, weights)[0]

        weights = tuple(jax.ShapeDtypeStruct((3, size), dtype) for size in sizes)
        return Loops(lowered=lowered_loops(jax.jit(jax.grad(loss)).lower(weights)))

    assert compare_loops(program([1200]), program(parts, dtype)).verdict is verdict


@pytest.mark.parametrize(("others", "verdict"), [(3, Verdict.EQUAL), (2, Verdict.FAILED)])
def test_parts_stacked_along_an_axis_of_their_own_are_the_same_arrays(others, verdict):
    def program(shapes):
        def loss(weights):
            def body(c, row):
                return jnp.sin(c + sum((each**2).sum() for each in row)), None

            return jax.lax.scan(body, 1.0, weights)[0]

        weights = tuple(jax.ShapeDtypeStruct((3, *shape), "float32") for shape in shapes)
        return Loops(lowered=lowered_loops(jax.jit(jax.grad(loss)).lower(weights)))

    whole = program([(20, 3, 8), (3, 80), (300,)])
    parts = program([*[(20, 8)] * others, *[(80,)] * 3, (100,), (200,)])
    assert compare_loops(whole, parts).verdict is verdict


def test_arrays_of_other_trips_are_no_parts():
    def program(trips, shape, number):
        def body(c, _):
            return jnp.sin(c), [c * jnp.ones(shape) * (at + 1) for at in range(number)]

        scan = jax.jit(lambda: jax.lax.scan(body, 1.0, None, length=trips))
        return Loops(lowered=lowered_loops(scan.lower()))

    assert compare_loops(program(3, (30, 40), 1), program(30, (40,), 3)).verdict is Verdict.FAILED


def test_an_axis_of_size_one_makes_no_other_stacked_array():
    def scan(stacked):
        return lambda: jax.lax.scan(lambda c, _: (jnp.sin(c), stacked(c)), jnp.ones(400), None, length=3)

    stacks = lambda c: c[:, None, None] * 2, lambda c: c * 2, lambda c: c[:9] * 2
    flat, same, less = (Loops(lowered=lowered_loops(jax.jit(scan(each)).lower())) for each in stacks)
    assert compare_loops(flat, same).verdict is Verdict.EQUAL
    assert compare_loops(flat, less).verdict is Verdict.FAILED


@pytest.mark.parametrize(("size", "verdict"), [(20, Verdict.EQUAL), (400, Verdict.FAILED)])
def test_a_small_carry_that_the_candidate_does_without_is_a_note(size, verdict):
    def scan(count):
        starts = tuple(jnp.ones(size + at) for at in range(count))
        return lambda: jax.lax.scan(lambda c, _: (jax.tree.map(jnp.sin, c), None), starts, None, length=3)

    two, one = (Loops(lowered=lowered_loops(jax.jit(scan(count)).lower())) for count in (2, 1))
    assert compare_loops(two, one).verdict is verdict and compare_loops(one, two).verdict is Verdict.FAILED
    assert bool(compare_loops(two, one).notes) == (verdict is Verdict.EQUAL)


@pytest.mark.parametrize("trains", [False, True])
def test_small_stacked_arrays_that_the_candidate_does_without_count_with_a_gradient(trains):
    def program(stacked):
        def run(x):
            last, kept = jax.lax.scan(lambda c, _: (jnp.sin(c), stacked(c)), x, None, length=3)
            return last.sum() + sum(each.sum() for each in kept)

        return jax.jit(jax.grad(run) if trains else run).lower(jnp.arange(5.0))

    two, one = lambda c: (jnp.cos(c), jnp.tanh(c)), lambda c: (jnp.cos(c),)
    two, one = (Loops(lowered=lowered_loops(program(each))) for each in (two, one))
    assert compare_loops(two, one).verdict is (Verdict.FAILED if trains else Verdict.EQUAL)
    assert compare_loops(one, two).verdict is Verdict.FAILED


@pytest.mark.parametrize(("size", "verdict"), [(1, Verdict.EQUAL), (2, Verdict.FAILED)])
def test_a_scalar_of_each_turn_that_one_side_keeps_is_a_note(size, verdict):
    @jax.checkpoint
    def step(c, t):
        return jnp.sin(c * jnp.broadcast_to(jnp.sin(t), c.shape))

    def program(kept):
        def run(x):
            def body(c, turn):
                time = jnp.full(size, turn, x.dtype) / 8
                return step(c, time) if kept else step(c, 0.5), None

            return jax.lax.scan(body, x, jnp.arange(3))[0].sum()

        return jax.jit(jax.grad(run)).lower(jnp.ones(2))

    both = [Loops(lowered=lowered_loops(program(kept))) for kept in (False, True)]
    for sides in (both, both[::-1]):
        found = compare_loops(*sides)
        assert found.verdict is verdict, words(found)


@pytest.mark.parametrize(
    ("size", "changed", "verdict"),
    [(5, False, Verdict.EQUAL), (40, False, Verdict.EQUAL), (5, True, Verdict.FAILED)],
)
def test_a_mask_made_before_a_loop_or_in_it(size, changed, verdict):
    def outside(x, start):
        def body(state, _):
            c, mask = state
            return (jnp.where(mask, jnp.sin(c), c), ~mask if changed else mask), None

        return jax.lax.scan(body, (start, x > x.T), None, length=3)[0][0]

    def inside(x, start):
        def body(c, _):
            return jnp.where(jnp.tri(size, dtype=bool), jnp.sin(c), c), None

        return jax.lax.scan(body, start, None, length=3)[0]

    shapes = [jax.ShapeDtypeStruct((size, size), jnp.float32)] * 2
    loops = [Build(program, *shapes).loops for program in (inside, outside)]
    assert compare_loops(*loops).verdict is verdict


@pytest.mark.parametrize(("size", "verdict"), [(40, Verdict.EQUAL), (1, Verdict.FAILED)])
def test_an_unchanged_array_is_at_most_as_large_as_those_that_change(size, verdict):
    def carried(table):
        def run(x, start):
            def body(c, _):
                return jnp.cos(c + (x.sum(0, keepdims=True) if table else 1.0)), None

            return jax.lax.scan(body, start, None, length=3)[0]

        shapes = [jax.ShapeDtypeStruct(sizes, jnp.float32) for sizes in ((40, 40), (size, 40))]
        return Loops(lowered=lowered_loops(jax.jit(run).lower(*shapes)))

    assert compare_loops(carried(False), carried(True)).verdict is verdict


def test_empty_programs_are_vacuous():
    empty = jax.jit(lambda x: x).lower(1.0)
    loops = Loops(lowered=lowered_loops(empty))
    assert compare_loops(loops, loops).verdict is Verdict.VACUOUS
    assert compare_dots((), ()).verdict is Verdict.SKIPPED
    assert (
        compare_dots(
            read_dtypes(empty), read_dtypes(jax.jit(lambda x: x @ x).lower(jnp.ones((2, 2))))
        ).verdict
        is Verdict.VACUOUS
    )


def prefetching(gathers):
    """A layer's repeats whose weights are gathered one repeat early and carried, or gathered twice."""

    def model(weights, x, mesh):
        whole = jax.sharding.NamedSharding(mesh, P())

        def gather(repeat):
            w = jax.lax.dynamic_index_in_dim(weights, repeat, keepdims=False)
            return jax.lax.with_sharding_constraint(w, whole)

        def carried(state, repeat):
            x, current = state
            return (jnp.tanh(x @ current), gather(repeat)), None

        def twice(x, repeat):
            return jnp.tanh(x @ gather(repeat - 1) + 0 * gather(repeat).sum()), None

        repeats = jnp.arange(1, weights.shape[0])
        if gathers == 1:
            return jax.lax.scan(carried, (x, gather(0)), repeats)[0][0]
        return jax.lax.scan(twice, x, repeats)[0]

    return model


@pytest.mark.slow
def test_two_gathers_per_repeat(cpu):
    """History C2: the weights of the current repeat are gathered again instead of carried."""
    shapes = cpu.spec((5, 32, 32), P(None, "fsdp")), cpu.spec((8, 32))
    builds = [Build(functools.partial(prefetching(gathers), mesh=cpu.mesh), *shapes) for gathers in (1, 2)]
    channel = compare(*builds)["collectives"]
    text = words(channel)
    assert channel.verdict is Verdict.FAILED
    assert "all-gather" in text and "of the candidate" in text and "4 times in loops" in text


def tiled(inside):
    """A loss over tiles of the vocabulary; the hidden state is gathered once, or for every tile."""

    def loss(x, head, mesh):
        whole = jax.sharding.NamedSharding(mesh, P())
        parts = jax.sharding.NamedSharding(mesh, P(None, "fsdp"))
        held = jax.lax.with_sharding_constraint(x, parts if inside else whole)

        def tile(state, w):
            total, x = jax.lax.optimization_barrier(
                state
            )  # as remat leaves it: no operation moves out of the loop
            logits = jax.lax.with_sharding_constraint(x, whole) @ w
            return (total + jax.nn.logsumexp(logits, axis=-1).sum(), x), None

        return jax.lax.scan(tile, (jnp.float32(0), held), head)[0][0]

    return loss


@pytest.mark.slow
def test_a_gather_inside_a_tile_loop(cpu):
    shapes = cpu.spec((16, 32), P(None, "fsdp")), cpu.spec((6, 32, 24))
    builds = [Build(functools.partial(tiled(inside), mesh=cpu.mesh), *shapes) for inside in (False, True)]
    channel = compare(*builds)["collectives"]
    text = words(channel)
    assert channel.verdict is Verdict.FAILED
    assert "inside a loop of the candidate that the other does once outside" in text
    assert "6 times in loops" in text and "test_seeded_bugs.py" in text


def test_one_of_two_equal_arrays_is_donated():
    two, one = ((Shape("f32", (4,)),) * number for number in (2, 1))
    (finding,) = compare_donation(two, one).findings
    assert (finding.reference, finding.candidate) == ("2 reused in place", "1 reused in place")
