"""Programs that compute in bfloat16: rounding in another order passes; bugs and other types fail."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from parity.bisect.axis import Question, signature_of
from parity.bisect.report import search_operations
from parity.builds.build import linen_build
from parity.cases.case import Case
from parity.compare.session import Session
from parity.ir.precision import changed_types, retraced, round_all, round_other_way, rounds, widen
from parity.run.run import run_case
from parity.verdicts import Verdict

# B batch, T position, D width, E experts
B, T, D, E = 2, 6, 16, 4
REPLICATED = jax.sharding.PartitionSpec()
HALF = jnp.bfloat16


def norm(x, eps):
    wide = x.astype(jnp.float32)
    return (wide * jax.lax.rsqrt(jnp.mean(wide**2, -1, keepdims=True) + eps)).astype(x.dtype)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Variant:
    """Options of `model`."""

    eps: float = 1e-6
    scale: float = 0.9
    other_order: bool = False
    router: type = jnp.float32
    sine: type = jnp.float32


def mixture(params, h, router):
    half = params["experts"].astype(HALF)
    gates = jax.nn.softmax(h.astype(router) @ params["router"].astype(router)).astype(HALF)
    return jnp.einsum("bte,btd,edf->btf", gates, h, half)


def model(params, x, given=Variant()):
    """Returns logits of blocks with two residuals and a soft mixture of experts, in bfloat16."""
    up, down, head = (params[name].astype(HALF) for name in ("up", "down", "head"))
    x = x.astype(HALF)
    for _ in range(2):
        h = norm(x, given.eps)
        one = jnp.tanh(h @ up) @ down * given.scale
        two = mixture(params, h, given.router)
        x = x + (one + two) if given.other_order else (x + one) + two
        x = x + jnp.sin(x.astype(given.sine)).astype(HALF)
    return (norm(x, given.eps) @ head).astype(jnp.float32)


def build(name, function):
    def create(key):
        shapes = {"up": (D, D), "down": (D, D), "router": (D, E), "experts": (E, D, D), "head": (D, D)}
        keys = jax.random.split(key, len(shapes))
        params = {
            path: jax.random.normal(key, shape) * D**-0.5
            for (path, shape), key in zip(shapes.items(), keys, strict=True)
        }
        return {"params": params}

    def loss(params, x):
        return -jnp.mean(jax.nn.log_softmax(function(params, x))[..., 0])

    def forward(state, inputs):
        return {"values": {"logits": function(state["params"], inputs["x"])}}

    def step(state, inputs):
        value, grads = jax.value_and_grad(loss)(state["params"], inputs["x"])
        after = jax.tree.map(lambda leaf, grad: leaf - 0.01 * grad, state["params"], grads)
        return {"values": {"loss": value}, "gradients": grads, "state": {"params": after}}

    return linen_build(
        name,
        create,
        {"forward": (forward, {}), "train_step": (step, {"steps": 2})},
        inputs=lambda seed: {"x": np.random.default_rng(seed).standard_normal((B, T, D), np.float32)},
        specs=lambda tree, mesh: jax.tree.map(lambda leaf: REPLICATED, tree),
        input_specs=lambda leaves, mesh: dict.fromkeys(leaves, REPLICATED),
    )


def toy(program, **changes):
    sides = [build("left", model), build("right", functools.partial(model, given=Variant(**changes)))]
    return Case(
        id=f"toy/{program}@single", reference=lambda: sides[0], candidate=lambda: sides[1], program=program
    )


def outcome(program, **changes):
    return run_case(toy(program, **changes), Session())


def first_operation(**changes):
    """Returns the sentence of the axis ``op``."""
    case, session = toy("forward", **changes), Session()
    result = run_case(case, session)
    question = Question(case=case, bench=session, signature=signature_of(result), notify=lambda text: None)
    return search_operations(question).sentence


@pytest.mark.long
@pytest.mark.parametrize("program", ["forward", "train_step"])
def test_a_sum_of_residuals_in_another_order_is_noise(program):
    result = outcome(program, other_order=True)
    assert result.channels["values"].verdict is Verdict.FLOOR, result.sentence()
    assert "computed in float32 no leaves are beyond the noise" in result.channels["values"].detail
    assert result.verdict != "failed", result.sentence()


@pytest.mark.long
def test_a_router_in_bfloat16_fails_by_the_types_of_its_dot():
    result = outcome("forward", router=HALF)
    assert result.channels["dots"].verdict is Verdict.FAILED
    assert result.sentence().startswith("toy/forward@single: dots failed: 2 x dot [2,6,4]"), result.sentence()
    assert "reference f32 x f32 -> f32, candidate bf16 x bf16 -> bf16" in result.sentence()


@pytest.mark.long
@pytest.mark.parametrize(
    ("change", "function", "operation"),
    [
        ({"eps": 1e-3}, "norm", "add"),
        ({"scale": 0.91}, "model", "mul"),
        ({"router": HALF}, "mixture", "dot_general"),
    ],
)
def test_the_first_operation_is_named_and_not_the_last_cast(change, function, operation):
    found = first_operation(**change)
    proved = f"the programs differ first at {operation}" in found
    assert (found.startswith(operation) or proved) and f"in {function}" in found, found


@pytest.mark.long
def test_arithmetic_in_bfloat16_that_no_channel_of_types_sees_still_fails():
    result = outcome("forward", sine=HALF)
    assert result.channels["values"].verdict is Verdict.FAILED
    assert (
        "arithmetic in other types: sin [2, 6, 16]: 2 in float32 -> 2 in bfloat16"
        in result.channels["values"].detail
    )


@pytest.mark.long
@pytest.mark.parametrize("bug", [{"eps": 1e-3}, {"scale": 0.91}])
def test_a_bug_smaller_than_a_bfloat16_unit_fails(bug):
    result = outcome("forward", **bug)
    assert result.channels["values"].verdict is Verdict.FAILED
    assert "computed in float32 1 leaves are beyond the noise" in result.channels["values"].detail


def test_a_cast_rounds_to_the_other_neighbour_except_where_it_is_exact():
    numbers = np.concatenate([np.linspace(-3, 3, 400), [0, 1, -2, np.inf, -np.inf, np.nan]]).astype(
        np.float32
    )
    near = np.asarray(numbers.astype(HALF), np.float32)
    other = np.asarray(retraced(lambda x: x.astype(HALF), round_other_way)(numbers), np.float32)
    exact = near == numbers
    assert (other[exact] == near[exact]).all() and np.isnan(other[-1])
    moved = other != near
    assert 0.3 < moved[:400].mean() < 0.7
    between = (np.minimum(near, other) <= numbers) & (numbers <= np.maximum(near, other))
    assert between[moved & ~np.isnan(numbers)].all()


@pytest.mark.parametrize("hook", [round_other_way, round_all, widen])
def test_a_computation_by_hand_on_some_axes_is_rounded(hook):
    mesh = jax.make_mesh((2, 4), ("rows", "columns"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    spec = jax.sharding.PartitionSpec("rows")
    halved = jax.shard_map(
        lambda x: (0.1 * x.astype(HALF)).astype(np.float32),
        mesh=mesh,
        in_specs=spec,
        out_specs=spec,
        axis_names={"rows"},
    )
    x = np.linspace(1, 2, 12, dtype=np.float32).reshape(4, 3)
    found = jax.jit(retraced(halved, hook))(x)
    np.testing.assert_allclose(found, 0.1 * x, rtol=2e-2)


@pytest.mark.parametrize("hook", [round_other_way, round_all, widen])
def test_a_number_of_python_that_a_call_casts_is_rounded(hook):
    x = np.full(3, -1, HALF)
    masked = jax.jit(lambda x, low: jnp.where(x > 0, x, jnp.asarray(low).astype(x.dtype)))
    found = jax.jit(retraced(lambda x: masked(x, -0.1), hook))(x)
    np.testing.assert_allclose(np.asarray(found, np.float32), -0.1, rtol=5e-3)


def controlled(x):
    def iteration(carry, row):
        return jax.lax.cond(row[0] > 0, lambda c: c + row, lambda c: c - row, carry), carry.sum()

    last, sums = jax.lax.scan(jax.checkpoint(iteration), jnp.zeros_like(x[0]), x)
    last = jax.lax.while_loop(lambda c: c.sum() < 50, lambda c: c + 1, last)
    return {"last": last, "sums": sums, "added": x.at[0].add(last), "grown": jnp.exp(x)}


def test_a_widened_program_equals_the_program_in_float32():
    x = np.random.default_rng(0).standard_normal((4, 8)).astype(HALF)
    wide = jax.jit(retraced(controlled, widen))(x)
    expected = jax.jit(controlled)(x.astype(np.float32))
    for name, array in expected.items():
        assert wide[name].dtype == np.float32
        np.testing.assert_allclose(wide[name], array, rtol=1e-6)


def test_only_types_that_differ_for_one_operation_count():
    def jaxpr(function):
        return jax.make_jaxpr(function)(np.ones((3, 4), np.float32))

    reference = jaxpr(lambda x: jnp.sin(x.astype(HALF)) * 2 + 1)
    assert rounds(reference) and not rounds(jaxpr(jnp.sin))
    assert not changed_types(reference, jaxpr(lambda x: 1 + 1 * (2 * jnp.sin(x.astype(HALF)))))
    assert len(changed_types(reference, jaxpr(lambda x: jnp.sin(x).astype(HALF) * 2 + 1))) == 1


def test_casts_count_by_entries_in_any_layout():
    """Such as those of heads that one side moves before it scores: ``[batch, head, position]``."""

    def types(*functions):
        return changed_types(
            *(jax.make_jaxpr(function)(np.ones((3, 4), np.float32)) for function in functions)
        )

    def cast(x):
        return x.astype(HALF)

    assert not types(lambda x: cast(jnp.sin(x)), lambda x: cast(jnp.sin(x).T.reshape(2, 6)))
    assert not types(cast, lambda x: jnp.concatenate([cast(x[:1]), cast(x[1:])]))
    assert not types(lambda x: cast(x) @ cast(x).T, lambda x: jnp.square(cast(x)))
    assert types(lambda x: cast(x), lambda x: jnp.concatenate([cast(x[:1]), cast(cast(x[1:]) * 2.0 + x[1:])]))
    assert types(lambda x: cast(jnp.sin(x)), lambda x: cast(jnp.sin(cast(x.T).astype(np.float32))))
    assert types(lambda x: cast(jnp.sin(x)), lambda x: cast(jnp.sin(x).sum(0)))


def test_casts_count_in_each_iteration_of_a_loop_and_in_the_forward_pass_only():
    """A gradient of a bfloat16 input is cast once for each float32 value that the forward pass makes of it."""

    def types(*functions):
        return changed_types(
            *(jax.make_jaxpr(function)(np.ones((3, 4), np.float32)) for function in functions)
        )

    def halved(x):
        return (x * 2).astype(HALF).astype(np.float32)

    def rolled(x):
        return jax.lax.scan(lambda carry, _: (halved(carry), None), x, length=3)[0]

    assert not types(rolled, lambda x: halved(halved(halved(x))))
    assert types(rolled, lambda x: halved(halved(x * 2)))

    def reads_once(x):
        wide = x.astype(HALF).astype(np.float32)
        return (wide * jnp.sin(wide)).sum()

    def reads_twice(x):
        near = x.astype(HALF)
        return (near.astype(np.float32) * jnp.sin(near.astype(np.float32))).sum()

    def rounds_twice(x):
        wide = x.astype(HALF).astype(np.float32)
        return (wide * jnp.sin(wide).astype(HALF).astype(np.float32)).sum()

    assert not types(jax.grad(reads_once), jax.grad(reads_twice))
    assert types(jax.grad(reads_once), jax.grad(rounds_twice))


def test_arithmetic_rounds_to_a_neighbour_except_where_the_result_is_whole():
    numbers = np.concatenate([np.linspace(-3, 3, 400), [0, 1, -2, 7, np.inf, np.nan]]).astype(np.float32)
    moved = np.asarray(retraced(lambda x: x * 2 + 1, round_all)(numbers))
    exact = numbers * 2 + 1
    assert np.array_equal(moved[400:], exact[400:], equal_nan=True)
    assert (moved != exact)[:400].mean() > 0.3 and np.allclose(moved[:400], exact[:400], rtol=1e-5, atol=1e-6)
    kept = np.asarray(retraced(lambda x: jnp.where(x > 0, x, -x)[::-1], round_all)(numbers))
    assert np.array_equal(kept, np.where(numbers > 0, numbers, -numbers)[::-1], equal_nan=True)
    equal = np.asarray(retraced(lambda x: x * 2, round_all)(np.full(64, 0.3, np.float32)))
    assert len(np.unique(equal)) == 2
