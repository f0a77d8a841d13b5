"""A custom schedule against its sequence: planted bugs are found, and unsupported operations are refused."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from campaigns.prover.modules import parse_module
from jax.sharding import AxisType, PartitionSpec

from parity.builds.weights.transforms import StackGrid
from parity.ir.jax_internals import stablehlo_module
from parity.prove.exact import Link, Named, Relation, equal

S, R, M, B, D = 2, 3, 2, 3, 4
LAYERS = R * S


def _link(name):
    return Link(reference=(name,), candidate=(name,))


def sequence(state, x_MBD, t_MBD):
    for layer in range(LAYERS):
        x_MBD = jnp.tanh(x_MBD @ state[f"layer{layer}"]) + x_MBD
    return jnp.sum(jnp.square(x_MBD - t_MBD)), x_MBD


def scheduled(state, x_MBD, t_MBD, bug=""):
    """Stages on devices; microbatches pass through the ring ``R`` times."""

    def local(w_RSDD, x_MBD):
        stage = jax.lax.axis_index("stage")
        ring = [(0, 1), (1, 0)] if bug != "no ring" else [(0, 1)]

        def body(carry, iteration):
            act_BD, out_MBD = carry
            done = iteration - stage
            number = done % M
            repeat = jnp.clip((done + (bug == "repeat")) // M, 0, R - 1)
            x_BD = jax.lax.dynamic_index_in_dim(
                x_MBD, (number + (bug == "microbatch")) % M, 0, keepdims=False
            )
            x_BD = jnp.where((stage == 0) & (done < M), x_BD, act_BD)
            y_BD = jnp.tanh(x_BD @ w_RSDD[repeat, 0]) + x_BD
            done_here = (stage == S - 1) & (done >= M * (R - 1))
            update = jax.lax.dynamic_update_index_in_dim(out_MBD, y_BD, number, 0)
            return (jax.lax.ppermute(y_BD, "stage", ring), jnp.where(done_here, update, out_MBD)), None

        empty = jax.lax.pcast(jnp.zeros_like(x_MBD), ("stage",), to="varying")
        loop_indices = jnp.arange(M * R + S - 1 - (bug == "early") + (bug == "bubble"))
        (_, out_MBD), _ = jax.lax.scan(body, (empty[0], empty), loop_indices)
        return jax.lax.psum(jnp.where(stage == S - 1, out_MBD, 0.0), "stage")

    spec = PartitionSpec(None, "stage")
    out_MBD = jax.shard_map(local, in_specs=(spec, PartitionSpec()), out_specs=PartitionSpec())(
        state["w"], x_MBD
    )
    if bug == "cotangent":
        out_MBD = doubled(out_MBD)
    rows = x_MBD.shape[0] - (bug == "loss")
    return jnp.sum(jnp.square(out_MBD - t_MBD)[:rows]), out_MBD


@jax.custom_vjp
def doubled(x):
    return x


doubled.defvjp(lambda x: (x, None), lambda _, g: (2 * g,))


def gradient(function):
    def run(state, x, t):
        (loss, _), grads = jax.value_and_grad(function, has_aux=True)(state, x, t)
        return grads, loss

    return run


def programs(bug=""):
    """Returns both lowered gradients, and the relations of their arguments and results."""
    one = jax.ShapeDtypeStruct((D, D), jnp.float32)
    batch = jax.ShapeDtypeStruct((M, B, D), jnp.float32)
    layers = {f"layer{i}": one for i in range(LAYERS)}
    stacked = {"w": jax.ShapeDtypeStruct((R, S, D, D), jnp.float32)}
    mesh = jax.make_mesh((S,), ("stage",), axis_types=(AxisType.Auto,))
    plain = jax.jit(gradient(sequence)).lower(layers, batch, batch)
    with jax.set_mesh(mesh):
        staged = jax.jit(gradient(functools.partial(scheduled, bug=bug))).lower(stacked, batch, batch)
    names = [f"layer{i}" for i in range(LAYERS)]
    both = [Link(reference=(each,), candidate=(each,)) for each in ("x", "t")]
    leaf = Link(reference=tuple(names), candidate=("w",), transform=StackGrid((R, S)))
    loss = Link(reference=("loss",), candidate=("loss",))
    return (
        Named(program=plain, arguments=[*names, "x", "t"], results=[*names, "loss"]),
        Named(program=staged, arguments=["w", "x", "t"], results=["w", "loss"]),
        Relation(arguments=[leaf, *both], results=[leaf, loss], split_axes={"x": (0, 1), "t": (0, 1)}),
    )


def test_a_custom_schedule_equals_its_sequence():
    found = equal(*programs())
    assert found.proved, found
    assert found.assumptions == ()
    assert found.terms > 100


@pytest.mark.parametrize("bug", ["microbatch", "repeat", "bubble", "no ring", "early", "cotangent", "loss"])
def test_a_planted_bug_is_found(bug):
    reference, candidate, relation = programs(bug)
    found = equal(reference, candidate, relation)
    assert not found.proved
    assert not found.refusal
    assert "reference:" in found.difference and "candidate:" in found.difference


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (lambda x: jnp.sin(x)[1:, 1], lambda x: jnp.sin(x)[:, 1][1:]),
        (lambda x: jnp.sin(x)[1:3][:, ::2], lambda x: jnp.sin(x)[:, ::2][1:][:2]),
        (lambda x: jnp.concatenate([jnp.sin(x)[1:3, :2], jnp.sin(x)[1:3, 2:]], 1), lambda x: jnp.sin(x)[1:3]),
    ],
)
def test_parts_are_equal_in_any_order(left, right):
    assert claim(left, right, (5, 4)).proved


def test_parts_are_named():
    found = claim(lambda x: jnp.sin(x)[1:3, ::2], lambda x: jnp.sin(x)[:, ::2][2:4], (5, 4))
    assert "sine(x0)[1:3][0:3:2]" in found.difference
    assert "sine(x0)[2:4][0:3:2]" in found.difference


def test_products_are_not_distributed_over_sums():
    found = claim(lambda x, y: (x + y) * y, lambda x, y: x * y + y * y, (3,), (3,))
    assert not found.proved  # equal, but outside the scope of the normal form


def test_another_order_of_layers_is_another_function():
    reference, candidate, relation = programs()
    leaf = relation.arguments[0]
    other = dataclasses.replace(leaf, reference=leaf.reference[::-1])
    found = equal(
        reference, candidate, dataclasses.replace(relation, arguments=[other, *relation.arguments[1:]])
    )
    assert not found.proved
    assert "only it reads layer" in found.difference


def test_a_difference_names_its_leaf_and_step():
    found = equal(*programs("repeat"))
    assert "w[0, 0, 0, 0]: 6 of 6 cells differ" in found.difference
    assert "test_claims.py:" in found.difference
    assert "turn" in found.difference and "device" in found.difference


def claim(left, right, *shapes, dtype=jnp.float32, split_axes=()):
    """Returns whether two functions of the same arguments are equal."""
    names = [f"x{i}" for i in range(len(shapes))]
    given = [jax.ShapeDtypeStruct(shape, dtype) for shape in shapes]
    sides = [
        Named(program=jax.jit(f, keep_unused=True).lower(*given), arguments=names, results=["y"])
        for f in (left, right)
    ]
    links = [Link(reference=(name,), candidate=(name,)) for name in names]
    relation = Relation(
        arguments=links,
        results=[Link(reference=("y",), candidate=("y",))],
        split_axes={name: tuple(split_axes) for name in names},
    )
    return equal(sides[0], sides[1], relation)


def running_logsumexp(parts, stale=False):
    """Returns the logsumexp over the rows of all parts, part by part, as over tiles."""
    most, total = jnp.full(parts[0].shape[1:], -jnp.inf), jnp.zeros(parts[0].shape[1:])
    for x in parts:
        now = jnp.maximum(most, x.max(0))
        scale = jnp.exp(now - now) if stale else jnp.exp(most - now)
        total = total * scale + jnp.exp(x - now[None]).sum(0)
        most = now
    return most + jnp.log(total)


EQUAL = {
    "bias chosen, or from a mask": (
        lambda x, y: jax.nn.softmax(x + jnp.where(x > y, 0.0, -1e9)),
        lambda x, y: jax.nn.softmax(x + (1.0 - (x > y).astype(jnp.float32)) * -1e9),
        (4, 4),
        (4, 4),
    ),
    "roots of square numbers": (
        lambda x, y: x / jnp.sqrt(jnp.float32(16)) + y * jax.lax.rsqrt(jnp.float32(0.25)),
        lambda x, y: x * 0.25 + y * 2,
        (4, 4),
        (4, 4),
    ),
    "sums in any order": (lambda x, y: x + y - 3 * x, lambda x, y: -x + (y - x), (4, 4), (4, 4)),
    "factors in any order": (lambda x, y: (x * 2) * (y / 4), lambda x, y: y * x / 2, (4, 4), (4, 4)),
    "a sum of sums": (
        lambda x, y: (x + y).sum(),
        lambda x, y: x.sum(0).sum() + y.sum(1).sum(),
        (4, 4),
        (4, 4),
    ),
    "a constant before or after a sum": (
        lambda x, y: (x * 3 + y).sum(1),
        lambda x, y: 3 * x.sum(1) + y.sum(1),
        (4, 4),
        (4, 4),
    ),
    "what a sum does not run over": (
        lambda x, y: (x * y[:, :1]).sum(1),
        lambda x, y: x.sum(1) * y[:, 0],
        (4, 4),
        (4, 4),
    ),
    "a product as a sum": (lambda x, y: x @ y, lambda x, y: (x[:, :, None] * y[None]).sum(1), (4, 4), (4, 4)),
    "transposed products": (lambda x, y: (x @ y).T, lambda x, y: y.T @ x.T, (4, 4), (4, 4)),
    "reshape and back": (lambda x, y: x.reshape(16).reshape(4, 4) + y, lambda x, y: y + x, (4, 4), (4, 4)),
    "cut and joined": (
        lambda x, y: jnp.concatenate([x[:, :2], x[:, 2:]], 1) * y,
        lambda x, y: x * y,
        (4, 4),
        (4, 4),
    ),
    "zero times": (lambda x, y: 0 * x + y, lambda x, y: y, (4, 4), (4, 4)),
    "maxima in any order": (
        lambda x, y: jnp.maximum(x, jnp.maximum(y, x)).max(),
        lambda x, y: jnp.maximum(y.max(0), x.max(0)).max(),
        (4, 4),
        (4, 4),
    ),
    "a loop and its turns": (
        lambda x, y: jax.lax.fori_loop(0, 3, lambda i, c: c * x + i, y),
        lambda x, y: ((y * x) * x + 1) * x + 2,
        (4, 4),
        (4, 4),
    ),
    "one index and then another, in either order": (
        lambda x, y: jnp.stack([x[1][:, 2], x[3][:, 0]]) + y,
        lambda x, y: jnp.stack([x[:, :, 2][1], x[:, :, 0][3]]) + y,
        (4, 2, 4),
        (2, 2),
    ),
    "products of exponentials": (
        lambda x, y: jnp.exp(x) * y * jnp.exp(y - x) / jnp.exp(2 * y),
        lambda x, y: y * jnp.exp(-y),
        (4, 4),
        (4, 4),
    ),
    "logarithms of exponentials": (
        lambda x, y: jnp.log(jnp.exp(x) * jnp.exp(y).sum(1, keepdims=True)) - x,
        lambda x, y: jnp.log(jnp.exp(y).sum(1, keepdims=True)) + 0 * x,
        (4, 4),
        (4, 4),
    ),
    "a maximum taken off": (
        lambda x, y: jax.nn.softmax(x + y, 1),
        lambda x, y: jnp.exp(x + y) / jnp.exp(x + y).sum(1, keepdims=True),
        (4, 4),
        (4, 4),
    ),
    "the size of a sum of squares": (
        lambda x, y: jnp.abs(x * x + jnp.exp(y)),
        lambda x, y: x * x + jnp.exp(y),
        (4, 4),
        (4, 4),
    ),
    "a running maximum": (
        lambda x, y: running_logsumexp((x, y, x - y)),
        lambda x, y: jnp.log(sum(jnp.exp(part).sum(0) for part in (x - y, y, x))),
        (4, 4),
        (4, 4),
    ),
}
OTHER = {
    "bias of another mask": (
        lambda x, y: x + jnp.where(x > y, 0.0, -1e9),
        lambda x, y: x + (x > y).astype(jnp.float32) * -1e9,
    ),
    "a root of no square number": (
        lambda x, y: x / jnp.sqrt(jnp.float32(8)) + y,
        lambda x, y: x * jnp.float32(8**-0.5) + y,
    ),
    "another root": (
        lambda x, y: x * jnp.sqrt(jnp.float32(16)) + y,
        lambda x, y: x * jax.lax.rsqrt(jnp.float32(16)) + y,
    ),
    "a sum of exponentials": (lambda x, y: jnp.exp(x) + jnp.exp(y), lambda x, y: jnp.exp(x + y)),
    "the size of what may be negative": (lambda x, y: jnp.abs(x + y), lambda x, y: x + y),
    "half an exponent": (lambda x, y: jnp.exp(x / 2) * y, lambda x, y: jnp.exp(x) * y),
    "an exponential that does not cancel": (lambda x, y: jnp.exp(x) / jnp.exp(y), lambda x, y: y / y),
    "a logarithm of a sum": (
        lambda x, y: jnp.log(jnp.exp(x) + jnp.exp(y)),
        lambda x, y: jnp.log(jnp.exp(x)) + jnp.log(jnp.exp(y)),
    ),
    "a maximum that is not put back": (
        lambda x, y: jax.nn.logsumexp(x, 1),
        lambda x, y: jnp.log(jnp.exp(x - x.max(1, keepdims=True)).sum(1)),
    ),
    "a stale maximum": (
        lambda x, y: running_logsumexp((x, y)),
        lambda x, y: running_logsumexp((x, y), stale=True),
    ),
    "another sign": (lambda x, y: x - y, lambda x, y: y - x),
    "another constant, by one bit": (
        lambda x, y: x * np.float32(0.1),
        lambda x, y: x * np.nextafter(np.float32(0.1), np.float32(1)),
    ),
    "another axis": (lambda x, y: x.sum(0), lambda x, y: x.sum(1)),
    "another factor": (lambda x, y: x @ y, lambda x, y: y @ x),
    "another transpose": (lambda x, y: x @ y, lambda x, y: x.T @ y),
    "another index": (lambda x, y: x[1, 2] + y, lambda x, y: x[2, 1] + y),
    "another slice": (lambda x, y: x[:, :2], lambda x, y: x[:, 1:3]),
    "another order of joins": (lambda x, y: jnp.concatenate([x, y]), lambda x, y: jnp.concatenate([y, x])),
    "another function": (lambda x, y: jnp.sin(x), lambda x, y: jnp.cos(x)),
    "another reshape": (lambda x, y: x.reshape(2, 8), lambda x, y: x.T.reshape(2, 8)),
    "strictly less": (lambda x, y: jnp.where(x < y, x, 0), lambda x, y: jnp.where(x <= y, x, 0)),
    "a dropped term": (lambda x, y: x + y * 1e-7, lambda x, y: x),
    "a square and a product": (lambda x, y: x * x, lambda x, y: x * y),
    "an argument in another place": (
        lambda x, y: jnp.where(x > 0, x, y),
        lambda x, y: jnp.where(x > 0, y, x),
    ),
    "a power more": (lambda x, y: x * x * y, lambda x, y: x * y * y),
    "one turn more": (
        lambda x, y: jax.lax.fori_loop(0, 3, lambda i, c: c * x, y),
        lambda x, y: jax.lax.fori_loop(0, 4, lambda i, c: c * x, y),
    ),
    "a maximum and a sum": (lambda x, y: x.max(0), lambda x, y: x.sum(0)),
    "one diagonal": (lambda x, y: jnp.einsum("ij,jk->ik", x, x), lambda x, y: jnp.einsum("ij,kj->ik", x, x)),
}


@pytest.mark.parametrize("split_axes", [(), (0,)], ids=str)
@pytest.mark.parametrize("name", EQUAL)
def test_normal_forms_are_equal(name, split_axes):
    left, right, *shapes = EQUAL[name]
    found = claim(left, right, *shapes, split_axes=split_axes)
    assert found.proved, found


def test_tiles_with_a_running_maximum_equal_the_whole_if_rows_are_separate():
    found = claim(
        lambda x, y: running_logsumexp((x, y, x - y)),
        lambda x, y: jax.nn.logsumexp(jnp.concatenate([x, y, x - y], 0), 0),
        *((4, 4), (4, 4)),
        split_axes=(0,),
    )
    assert found.proved and found.assumptions == (), found


@pytest.mark.parametrize("split_axes", [(), (0, 1)], ids=str)
@pytest.mark.parametrize("name", OTHER)
def test_other_functions_are_not_equal(name, split_axes):
    found = claim(*OTHER[name], (4, 4), (4, 4), split_axes=split_axes)
    assert not found.proved
    assert found.difference


def test_an_assumption_is_listed_and_an_input_that_breaks_it_shows_the_difference():
    def left(x, y):
        return y + 0 * jnp.log(x)

    found = claim(left, lambda x, y: y, (3,), (3,))
    assert found.proved
    assert found.assumptions == ("log(x0) is defined",)
    broken = jnp.array([1.0, -1.0, 2.0])  # log(-1) is no number, and neither is 0 times it
    assert not np.array_equal(left(broken, broken), broken)
    fine = jnp.array([1.0, 2.0, 3.0])
    np.testing.assert_array_equal(left(fine, fine), fine)


def test_total_operations_need_no_assumption():
    found = claim(
        lambda x, y: y + 0 * jax.lax.rsqrt(1 + x * x) / jnp.exp(x).sum(), lambda x, y: y, (3,), (3,)
    )
    assert found.proved and found.assumptions == ()


def test_the_bits_of_a_number_are_no_function_of_it():
    bits = lambda x: jax.lax.bitcast_convert_type(x, jnp.int32)  # noqa: E731
    assert "bitcast" in claim(bits, bits, (3,)).refusal


def test_a_loop_that_depends_on_the_inputs_is_refused():
    def halved(x):
        return jax.lax.while_loop(lambda c: c.sum() > 1, lambda c: c / 2, x)

    found = claim(halved, halved, (3,))
    assert not found.proved and "condition" in found.refusal


def test_an_unknown_operation_on_rows_is_refused_not_guessed():
    found = claim(lambda x: jnp.sort(x, 0), lambda x: jnp.sort(x, 0), (3, 4), split_axes=(0,))
    assert not found.proved and "sort" in found.refusal


@pytest.mark.parametrize("split_axes", [(), (0,)], ids=str)
@pytest.mark.parametrize(
    ("reduction", "start"),
    [(jnp.max, -(2**31)), (jnp.min, 2**31 - 1), (jnp.bitwise_and.reduce, -1), (jnp.bitwise_or.reduce, 0)],
    ids=["max", "min", "and", "or"],
)
def test_a_reduction_of_integers_is_not_its_start(reduction, start, split_axes):
    run = lambda x: reduction(x, 0)  # noqa: E731
    assert claim(run, run, (3, 4), dtype=jnp.int32, split_axes=split_axes).proved
    found = claim(run, lambda x: jnp.full((4,), start), (3, 4), dtype=jnp.int32, split_axes=split_axes)
    assert not found.proved and found.difference


def test_integers_wrap_around_as_the_machine_does():
    found = claim(lambda x: x + (2**31 - 1) + 1, lambda x: x + (-(2**31) + 0), (3,), dtype=jnp.int32)
    assert not found.proved  # sums of integers are not reordered


@pytest.mark.parametrize("channel", ["handle = 0, type = 1", "handle = 1, type = 2"])
def test_a_channel_that_is_not_between_partitions_is_refused(channel):
    reference, candidate, relation = programs()
    module = stablehlo_module(candidate.program)
    lines = str(module).splitlines()
    text = "\n".join(
        line.replace("handle = 1, type = 1", channel) if "collective_permute" in line else line
        for line in lines
    )
    other = dataclasses.replace(candidate, program=parse_module(text, module))
    found = equal(reference, other, relation)
    assert not found.proved and "channel" in found.refusal


INSIDE = {
    "a function": "%r = func.call @f(%x) : (tensor<f32>) -> tensor<f32>",
    "a branch": """%r = "stablehlo.if"(%flag) ({
        %s = func.call @f(%x) : (tensor<f32>) -> tensor<f32>
        stablehlo.return %s : tensor<f32>
      }, { stablehlo.return %x : tensor<f32> }) : (tensor<i1>) -> tensor<f32>""",
}
PRINTING = """
  func.func public @main(%x: tensor<f32>) -> tensor<f32> {
    %flag = stablehlo.constant dense<true> : tensor<i1>
    INSIDE
    return %x : tensor<f32>
  }
  func.func private @f(%x: tensor<f32>) -> tensor<f32> {
    stablehlo.custom_call @print(%x) {has_side_effect = true} : (tensor<f32>) -> ()
    return %x : tensor<f32>
  }
"""


@pytest.mark.parametrize("inside", INSIDE)
def test_an_effect_is_not_left_out_with_the_unused_result_of_what_holds_it(inside):
    quiet = jax.jit(lambda x: x).lower(jnp.float32(1))
    noisy = parse_module(PRINTING.replace("INSIDE", INSIDE[inside]), stablehlo_module(quiet))
    link = [Link(reference=("x",), candidate=("x",))]
    sides = [Named(program=each, arguments=["x"], results=["x"]) for each in (quiet, noisy)]
    found = equal(*sides, Relation(arguments=link, results=link))
    assert not found.proved and "custom_call" in found.refusal


def test_an_argument_without_a_link_is_refused():
    reference, candidate, relation = programs()
    found = equal(reference, candidate, dataclasses.replace(relation, arguments=relation.arguments[:2]))
    assert not found.proved and "no link" in found.refusal


def test_few_operations_on_ever_longer_sums_are_given_up():
    def summed(factor, parts):
        total = jnp.zeros(3)
        for at in range(600):
            total = total + parts[f"x{at}"] * factor
        return total

    parts = {f"x{at}": jnp.ones(3) for at in range(600)}
    sides = [
        Named(
            program=jax.jit(functools.partial(summed, factor)).lower(parts),
            arguments=sorted(parts),
            results=["total"],
        )
        for factor in (2.0, 3.0)
    ]
    links = Relation(arguments=[_link(name) for name in sorted(parts)], results=[_link("total")])
    found = equal(*sides, links, most_steps=5_000)
    assert "terms and arguments for each" in found.refusal


def test_an_argument_that_one_side_reads_under_its_own_name_is_known():
    given = jax.ShapeDtypeStruct((3,), jnp.float32)
    one = Named(program=jax.jit(jnp.exp).lower(given), arguments=["x"], results=["y"])
    more = jax.jit(lambda x, b: jnp.exp(x) + b).lower(given, given)
    other = Named(program=more, arguments=["x", "bias"], results=["y"])
    links = [Link(reference=("x",), candidate=("x",)), Link(reference=("b",), candidate=("bias",))]
    relation = Relation(arguments=links, results=[Link(reference=("y",), candidate=("y",))])
    found = equal(one, other, relation)
    assert not found.proved and found.difference
