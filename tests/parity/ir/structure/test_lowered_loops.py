"""Loop trees of lowered programs against counts made by hand."""

import jax
import jax.numpy as jnp
import pytest

from parity.ir.jax_internals import ir
from parity.ir.stablehlo.lowered import lowered_loops

F32 = 4


def test_scan_has_its_trips_and_carries(programs, cpu):
    lowered = jax.jit(programs.rolled).lower(cpu.weights(), cpu.inputs())
    tree = lowered_loops(lowered)
    (loop,) = tree.loops
    assert (loop.trips, loop.carries) == (5, 4)
    weights = 2 * 5 * 16 * 48 * F32
    assert loop.carry_bytes == 4 + 8 * 16 * F32 + weights
    assert loop.stacked == ()
    assert loop.provenance.frame.function.startswith("rolled")
    assert loop.provenance.frame.file.endswith("conftest.py")
    assert loop.provenance.frame.line > 0
    assert not loop.provenance.backward
    assert tree.computes


def test_gradient_through_remat_stacks_inputs_forward_and_gradients_backward(programs, cpu):
    step = jax.jit(lambda w, x: jax.grad(programs.loss)(w, x, programs.remat_inside))
    forward, backward = lowered_loops(step.lower(cpu.weights(), cpu.inputs())).loops
    assert (forward.trips, backward.trips) == (5, 5)
    assert (forward.provenance.backward, backward.provenance.backward) == (False, True)
    assert [(str(leaf), leaf.bytes) for leaf in forward.stacked] == [("f32[5,8,16]", 5 * 8 * 16 * F32)]
    assert sorted(map(str, backward.stacked)) == ["f32[5,16,48]", "f32[5,48,16]"]


def test_gradient_without_remat_stacks_every_residual(programs, cpu):
    step = jax.jit(lambda w, x: jax.grad(programs.loss)(w, x))
    forward, _ = lowered_loops(step.lower(cpu.weights(), cpu.inputs())).loops
    assert len(forward.stacked) > 1
    assert set(map(str, forward.stacked)) >= {"f32[5,8,16]", "f32[5,8,48]"}


def test_nested_scans_multiply(programs, cpu):
    def repeated(weights, x):
        return jax.lax.scan(lambda c, _: (programs.rolled(weights, c), None), x, None, length=programs.T)[0]

    outer, inner = lowered_loops(jax.jit(repeated).lower(cpu.weights(), cpu.inputs())).walk()
    assert (*outer[:2], outer[2].trips) == ("0", 1, 3)
    assert (*inner[:2], inner[2].trips) == ("0.0", 3, 5)


def test_a_function_called_twice_counts_twice(programs, cpu):
    shared = jax.jit(programs.rolled)
    tree = lowered_loops(jax.jit(lambda w, x: shared(w, shared(w, x))).lower(cpu.weights(), cpu.inputs()))
    assert tree.count == 2


@pytest.mark.parametrize(("bounds", "trips"), [((2, 9), 7), ((-3, 4), 7)], ids=str)
def test_fori_loop_trips(bounds, trips):
    lowered = jax.jit(lambda x: jax.lax.fori_loop(*bounds, lambda i, c: c * jnp.sin(c), x)).lower(jnp.ones(3))
    assert [loop.trips for *_, loop in lowered_loops(lowered).walk()] == [trips]


def _while(start, step, test):
    def body(state):
        return state[0] + step, state[1] * jnp.float32(2)

    return jax.jit(lambda x: jax.lax.while_loop(lambda s: test(s), body, (start, x))[1])


@pytest.mark.parametrize(
    ("start", "step", "test", "trips"),
    [
        (20, -2, lambda s: s[0] >= 3, 9),
        (20, -3, lambda s: s[0] > 2, 6),
        (0, 3, lambda s: s[0] <= 9, 4),
        (0, 3, lambda s: s[0] != 9, 3),
        (0, 3, lambda s: s[0] < 10, 4),
        (0, 1, lambda s: (s[0] < 7) & (s[1].sum() < 5), None),
        (0, 1, lambda s: s[1].sum() < 5, None),
        (0, -1, lambda s: s[0] < 7, None),
    ],
)
def test_while_loop_trips(start, step, test, trips):
    (loop,) = lowered_loops(_while(start, step, test).lower(jnp.ones(3))).loops
    assert loop.trips == trips


def test_a_traced_bound_has_no_trips():
    lowered = jax.jit(lambda n, x: jax.lax.fori_loop(0, n, lambda i, c: c * 2, x)).lower(
        3, jnp.ones(3, jnp.int32)
    )
    tree = lowered_loops(lowered)
    assert [loop.trips for loop in tree.loops] == [None]
    assert [loop.trips for *_, loop in tree.walk()].count(None) == 1


def test_a_bound_carried_unchanged_is_a_constant():
    def body(state):
        return state[0] + 1, state[1], state[2] * 2

    program = jax.jit(lambda x: jax.lax.while_loop(lambda s: s[0] < s[1], body, (0, 6, x))[2])
    assert [loop.trips for loop in lowered_loops(program.lower(jnp.ones(3, jnp.int32))).loops] == [6]


def test_dropout_loops_are_labelled(programs, cpu):
    def dropped(weights, x, key):
        def body(c, w):
            mask = jax.random.bernoulli(key, 0.9, c.shape)
            return programs.layer(c, w) * mask.astype(c.dtype), None

        return jax.lax.scan(body, x, weights)[0]

    places = list(lowered_loops(jax.jit(dropped).lower(cpu.weights(), cpu.inputs(), cpu.key())).walk())
    assert [(path, loop.trips, loop.provenance.label) for path, _, loop in places] == [
        ("0", 5, ""),
        ("0.0", 5, "rng"),
    ]
    assert places[1][2].provenance.frame.file.endswith("test_lowered_loops.py")


def test_a_shard_map_loop_counts_local_bytes(cpu):
    from jax.sharding import PartitionSpec as P

    def local(x):
        return jax.lax.scan(
            lambda c, _: (jax.lax.ppermute(c, "fsdp", [(i, (i + 1) % 4) for i in range(4)]), None),
            x,
            None,
            length=7,
        )[0]

    mapped = jax.shard_map(local, mesh=cpu.mesh, in_specs=P("fsdp"), out_specs=P("fsdp"))
    (loop,) = lowered_loops(jax.jit(mapped).lower(cpu.inputs())).loops
    assert (loop.trips, loop.carry_bytes) == (7, 4 + 2 * 16 * F32)


def _scan_returning(body):
    return lambda weights, x: jax.lax.scan(body, x, weights)


PLAIN = lambda c, w: (jnp.tanh(c @ w), w)  # noqa: E731


@pytest.mark.parametrize(
    ("body", "stack"),
    [
        (jax.checkpoint(PLAIN), "f32[6,8,8]"),
        (jax.jit(PLAIN), "f32[6,8,8]"),
        (lambda c, w: (jnp.tanh(c @ w), w.T.reshape(2, 32)), "f32[6,2,32]"),
        (lambda c, w: (jnp.tanh(c @ w), w.astype(jnp.bfloat16)), "bf16[6,8,8]"),
    ],
    ids=["remat", "jit", "transposed", "cast"],
)
@pytest.mark.parametrize(
    "options", [{}, {"reverse": True}, {"unroll": 2}], ids=["plain", "reverse", "unroll"]
)
def test_a_returned_scanned_input_is_stacked(body, stack, options):
    shapes = jax.ShapeDtypeStruct((6, 8, 8), jnp.float32), jax.ShapeDtypeStruct((4, 8), jnp.float32)
    program = jax.jit(lambda w, x: jax.lax.scan(body, x, w, **options))
    (loop,) = lowered_loops(program.lower(*shapes)).loops
    (leaf,) = loop.stacked
    sizes = stack.split("[")[1]
    assert str(leaf) == (
        stack if "unroll" not in options else f"{stack.split('[')[0]}[3,2,{sizes.split(',', 1)[1]}"
    )
    assert leaf.bytes == 6 * 64 * (2 if "bf16" in stack else 4)


def test_a_scanned_input_that_jax_forwards_is_not_stacked():
    shapes = jax.ShapeDtypeStruct((6, 8, 8), jnp.float32), jax.ShapeDtypeStruct((4, 8), jnp.float32)
    (loop,) = lowered_loops(jax.jit(_scan_returning(PLAIN)).lower(*shapes)).loops
    assert loop.stacked == ()


def test_an_unused_output_is_dropped_before_lowering():
    shapes = jax.ShapeDtypeStruct((6, 8, 8), jnp.float32), jax.ShapeDtypeStruct((4, 8), jnp.float32)
    program = jax.jit(lambda w, x: jax.lax.scan(jax.checkpoint(PLAIN), x, w)[0])
    (loop,) = lowered_loops(program.lower(*shapes)).loops
    assert loop.stacked == ()


def test_not_a_lowered_program_is_a_clear_error():
    with pytest.raises(ValueError, match=r"expected jax\.stages\.Lowered"):
        lowered_loops(3)


def test_a_repeated_input_is_stacked_whole():
    shapes = jax.ShapeDtypeStruct((6, 8), jnp.float32), jax.ShapeDtypeStruct((8,), jnp.float32)
    program = jax.jit(lambda w, x: jax.lax.scan(lambda c, w: (c + w, jnp.broadcast_to(w, (3, 8))), x, w))
    (loop,) = lowered_loops(program.lower(*shapes)).loops
    assert [str(leaf) for leaf in loop.stacked] == ["f32[6,3,8]"]


def test_a_buffer_written_into_another_carry_is_not_stacked():
    def body(i, state):
        one, two = state
        return jax.lax.dynamic_update_index_in_dim(two, jnp.sin(one[0]), i, 0), one

    program = jax.jit(lambda x: jax.lax.fori_loop(0, 6, body, (x, x * 2)))
    (loop,) = lowered_loops(program.lower(jnp.ones((6, 8)))).loops
    assert (loop.trips, loop.stacked) == (6, ())


def test_a_diagonal_is_not_stacked():
    def body(i, out):
        return jax.lax.dynamic_update_slice(out, jnp.full((1, 1), 2.0), (i, i))

    program = jax.jit(lambda x: jax.lax.fori_loop(0, 6, body, x))
    (loop,) = lowered_loops(program.lower(jnp.ones((6, 6)))).loops
    assert (loop.trips, loop.stacked) == (6, ())


def test_bounds_that_swap_are_not_constant():
    def body(state):
        i, one, two = state
        return i + 1, two, one

    program = jax.jit(lambda: jax.lax.while_loop(lambda s: s[0] < s[1], body, (0, 6, 3)))
    assert [loop.trips for loop in lowered_loops(program.lower()).loops] == [None]


def test_a_counter_may_be_lowered_by_subtraction():
    def body(state):
        return state[0] - 2, state[1] * 2

    program = jax.jit(lambda x: jax.lax.while_loop(lambda s: s[0] > 5, body, (jnp.int32(20), x)))
    assert [loop.trips for loop in lowered_loops(program.lower(jnp.ones(3))).loops] == [8]


def test_three_levels_multiply():
    def nest(x, lengths):
        if not lengths:
            return jnp.sin(x)
        return jax.lax.scan(lambda c, _: (nest(c, lengths[1:]), None), x, None, length=lengths[0])[0]

    places = list(lowered_loops(jax.jit(lambda x: nest(x, (2, 3, 5))).lower(jnp.ones(4))).walk())
    assert [place[:2] for place in places] == [("0", 1), ("0.0", 2), ("0.0.0", 6)]


CALLED = """
module {
  func.func public @main(%x: tensor<f32>) -> tensor<f32> {
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %five = stablehlo.constant dense<5> : tensor<i32>
    %end = func.call @same(%five) : (tensor<i32>) -> tensor<i32>
    %out:2 = func.call @loop(%zero, %end, %x) : (tensor<i32>, tensor<i32>, tensor<f32>) -> (tensor<i32>, tensor<f32>)
    return %out#1 : tensor<f32>
  }
  func.func private @same(%n: tensor<i32> {test.mark = "kept"}) -> tensor<i32> {
    return %n : tensor<i32>
  }
  func.func private @loop(%i: tensor<i32> {test.mark = "kept"}, %n: tensor<i32>, %x: tensor<f32>)
      -> (tensor<i32>, tensor<f32>) {
    %one = stablehlo.constant dense<1> : tensor<i32>
    %out:2 = stablehlo.while(%a = %i, %b = %x) : tensor<i32>, tensor<f32>
    cond {
      %test = stablehlo.compare LT, %a, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %test : tensor<i1>
    } do {
      %next = stablehlo.add %a, %one : tensor<i32>
      %more = stablehlo.add %b, %b : tensor<f32>
      stablehlo.return %next, %more : tensor<i32>, tensor<f32>
    }
    return %out#0, %out#1 : tensor<i32>, tensor<f32>
  }
}
"""


def test_bounds_are_followed_through_calls_that_are_not_inlined():
    like = jax.jit(jnp.sin).lower(1.0).compiler_ir("stablehlo")
    module = ir.Module.parse(CALLED, context=like.context)
    assert [loop.trips for loop in lowered_loops(module).loops] == [5]
