"""Routing and experts against float64 NumPy, on one device and on meshes, values and gradients."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import oracle_moe
import pytest
from meshes import make_mesh, parse_mesh
from oracle_decoder import SMALL

from models_nnx.shared import ops
from models_nnx.shared.config import Activation, Biases, Dispatch, LayerLayout, MoeConfig, Scoring, Weighting
from models_nnx.shared.sharding import DEFAULT_RULES, constrain
from parity.ir.hlo.collectives import read_collectives

pytestmark = pytest.mark.usefixtures("quick")
RNG = np.random.default_rng(11)
B, T, D, E, F = 8, 12, 6, 8, 10
MIXTRAL = MoeConfig(experts=E, top_k=2, hidden=F)
DEEPSEEK = MoeConfig(
    experts=E, top_k=3, hidden=F, scoring=Scoring.SIGMOID, groups=4, top_groups=2, scale=2.5, bias_rate=0.01
)
PLAIN = dataclasses.replace(MIXTRAL, weighting=Weighting.SCORES)
EVERY = dataclasses.replace(MIXTRAL, top_k=E)
SLOW = dataclasses.replace(MIXTRAL, bias_rate=0.1)
BIASED = dataclasses.replace(MIXTRAL, biases=Biases.TRAINED)
FAMILIES = {"mixtral": MIXTRAL, "deepseek": DEEPSEEK, "scores": PLAIN, "every": EVERY}
TIGHT = 0.7
SEGMENTS = np.ones((B, T), np.int32)
SEGMENTS[:, T // 2 :] = 2
SEGMENTS[0, -3:] = 0
SEGMENTS[3, -1:] = 0
LOGITS = RNG.normal(size=(B, T, E))
BIAS = 0.3 * RNG.normal(size=E)
X = RNG.normal(size=(B, T, D))
KERNELS = {
    "gate": RNG.normal(size=(E, D, F)),
    "up": RNG.normal(size=(E, D, F)),
    "down": RNG.normal(size=(E, F, D)),
}
BIASES = {
    "gate_bias": RNG.normal(size=(E, F)),
    "up_bias": RNG.normal(size=(E, F)),
    "down_bias": RNG.normal(size=(E, D)),
}
SLOW_MESHES = ("data8", "expert4.data2", "expert2.tensor2.fsdp2", "context2.expert2.data2")
MESHES = ("", *(pytest.param(mesh, marks=pytest.mark.slow) for mesh in SLOW_MESHES))
DISPATCHES = {
    "dropless": {},
    "ample": {"dispatch": Dispatch.DROPPING, "capacity_factor": 8.0},
    "tight": {"dispatch": Dispatch.DROPPING, "capacity_factor": TIGHT},
}


def routed(moe, logits=LOGITS, bias=BIAS, segments=SEGMENTS):
    bias = jnp.asarray(bias) if moe.bias_rate is not None else None
    return ops.route(jnp.asarray(logits), bias, jnp.asarray(segments) != 0, moe, DEFAULT_RULES)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("family", FAMILIES)
def test_routing_is_the_oracles(family):
    moe = FAMILIES[family]
    bias = BIAS if moe.bias_rate is not None else None
    chosen, weights, shares, margin = oracle_moe.route(LOGITS, bias, SEGMENTS, moe)
    got = routed(moe)
    np.testing.assert_array_equal(got.experts_BTK, chosen)
    np.testing.assert_allclose(got.weights_BTK, weights, rtol=1e-12)
    np.testing.assert_allclose(got.shares_BTE, shares, rtol=1e-12)
    np.testing.assert_allclose(got.margin_BT, margin, rtol=1e-9)
    load = ops.expert_load(got.experts_BTK, E)
    np.testing.assert_array_equal(load, oracle_moe.load(chosen, E))
    assert load.sum() == moe.top_k * (SEGMENTS != 0).sum()
    balance = ops.load_balance(got.shares_BTE, load, jnp.asarray(SEGMENTS) != 0)
    np.testing.assert_allclose(balance, oracle_moe.load_balance(shares, chosen, SEGMENTS), rtol=1e-12)


@pytest.mark.slow
def test_the_routing_bias_moves_the_choice_and_not_the_weights():
    moe = dataclasses.replace(MIXTRAL, bias_rate=0.1, scoring=Scoring.SIGMOID, weighting=Weighting.SCORES)
    favoured = np.where(np.arange(E) == 5, 2.0, 0.0).astype(np.float32)
    got = routed(moe, LOGITS.astype(np.float32), favoured)
    assert (got.experts_BTK[SEGMENTS != 0][:, 0] == 5).all()
    np.testing.assert_allclose(
        got.weights_BTK[..., 0], oracle_moe.sigmoid(LOGITS[..., 5].astype(np.float32)), rtol=1e-6
    )
    slope = jax.grad(
        lambda bias: jnp.sum(
            ops.route(jnp.asarray(LOGITS, jnp.float32), bias, SEGMENTS != 0, moe, DEFAULT_RULES).weights_BTK
        )
    )(jnp.asarray(favoured))
    assert not slope.any()


@pytest.mark.slow
def test_forced_choices_are_taken_with_the_weights_that_belong_to_them():
    moe = DEEPSEEK
    free = routed(moe, LOGITS.astype(np.float32), BIAS.astype(np.float32))
    other = jnp.asarray(RNG.integers(0, E, (B, T, moe.top_k)), jnp.int32)
    arguments = (
        jnp.asarray(LOGITS, jnp.float32),
        jnp.asarray(BIAS, jnp.float32),
        SEGMENTS != 0,
        moe,
        DEFAULT_RULES,
    )
    forced = ops.route(*arguments, forced_BTK=other)
    np.testing.assert_array_equal(forced.experts_BTK[SEGMENTS != 0], other[SEGMENTS != 0])
    np.testing.assert_array_equal(forced.margin_BT, free.margin_BT)
    again = ops.route(*arguments, forced_BTK=free.experts_BTK)
    np.testing.assert_array_equal(again.weights_BTK[SEGMENTS != 0], free.weights_BTK[SEGMENTS != 0])


@pytest.mark.slow
def test_ties_go_to_the_lower_index_with_a_margin_of_zero():
    logits = np.zeros((1, 2, E), np.float32)
    got = routed(MIXTRAL, logits, segments=np.ones((1, 2), np.int32))
    np.testing.assert_array_equal(got.experts_BTK, [[[0, 1], [0, 1]]])
    assert not got.margin_BT.any()
    assert np.isinf(routed(EVERY).margin_BT).all()


@pytest.mark.slow
def test_an_even_load_has_a_balance_of_one_and_the_bias_follows_the_load():
    shares = jnp.full((1, E, E), 1 / E)
    even = jnp.full(E, 2, jnp.int32)
    assert ops.load_balance(shares, even, jnp.ones((1, E), bool)) == 1
    bias, load = jnp.asarray([0.5, 0.0, 0.0]), jnp.asarray([9, 0, 3], jnp.int32)
    np.testing.assert_allclose(ops.balance_bias(bias, load, SLOW), [0.4, 0.1, 0.1])
    np.testing.assert_array_equal(ops.balance_bias(bias, jnp.full(3, 4, jnp.int32), SLOW), bias)
    stacked = ops.balance_bias(jnp.stack([bias, bias]), jnp.stack([load, load[::-1]]), SLOW)
    np.testing.assert_allclose(stacked, [[0.4, 0.1, 0.1], [0.6, 0.1, -0.1]], atol=1e-7)


@pytest.mark.parametrize("present", [1, 2, 7, B * T - 1, B * T])
def test_the_balance_is_that_of_the_tokens_that_are_present_alone(present):
    """Masked padding counts as absent: no gradient flows into it, and its values do not matter."""
    rng = np.random.default_rng(present)
    mask = np.zeros(B * T, bool)
    mask[rng.choice(B * T, present, replace=False)] = True
    shares = rng.dirichlet(np.ones(E), B * T).astype(np.float32)
    load = rng.integers(0, 9, E).astype(np.int32)
    other = np.where(mask[:, None], shares, rng.dirichlet(np.ones(E), B * T).astype(np.float32))

    def balance(shares, mask):
        return ops.load_balance(jnp.asarray(shares), jnp.asarray(load), jnp.asarray(mask))

    grid = (B, T, E)
    value, slope = jax.value_and_grad(balance)(shares.reshape(grid), mask.reshape(B, T))
    alone = balance(shares[mask][None], np.ones((1, present), bool))
    np.testing.assert_allclose(value, alone, rtol=1e-5)
    np.testing.assert_allclose(balance(other.reshape(grid), mask.reshape(B, T)), value, rtol=1e-6)
    moved = np.asarray(slope).reshape(-1, E)
    assert not moved[~mask].any() and (moved[mask][:, load > 0] > 0).all()


def test_router_maths_is_float32_at_full_precision_under_bfloat16():
    x, kernel = jnp.asarray(X, jnp.bfloat16), jnp.asarray(RNG.normal(size=(D, E)), jnp.bfloat16)
    program = jax.make_jaxpr(lambda x, kernel: ops.router_logits(x, kernel, None, DEFAULT_RULES))(x, kernel)
    (dot,) = [equation for equation in program.eqns if equation.primitive.name == "dot_general"]
    assert {str(v.aval.dtype) for v in (*dot.invars, *dot.outvars)} == {"float32"}
    assert jax.lax.Precision.HIGHEST in dot.params["precision"]


def layer(moe, kernels, logits, x):
    """Routing and experts, as a function of the trained arrays, which are placed like parameters."""
    x = constrain(x, ("activation_batch", "activation_length", "activation_embed"), DEFAULT_RULES)
    logits = constrain(logits, ("activation_batch", "activation_length", None), DEFAULT_RULES)
    segments = constrain(jnp.asarray(SEGMENTS), ("activation_batch", "activation_length"), DEFAULT_RULES)
    bias = jnp.asarray(BIAS, logits.dtype) if moe.bias_rate is not None else None
    routing = ops.route(logits, bias, segments != 0, moe, DEFAULT_RULES)
    axes = {name: axes for name, (_, _, axes) in ops.expert_parameters(BIASED).items()}
    kernels = {name: constrain(kernel, axes[name], DEFAULT_RULES) for name, kernel in kernels.items()}
    return ops.experts(x, routing, ops.ExpertWeights(**kernels), moe, DEFAULT_RULES)


@functools.cache
def expected(family, dispatch, biases):
    moe = dataclasses.replace(FAMILIES[family], **DISPATCHES[dispatch])
    bias = BIAS if moe.bias_rate is not None else None
    chosen, weights, *_ = oracle_moe.route(LOGITS, bias, SEGMENTS, moe)
    return oracle_moe.experts(X, chosen, weights, {**KERNELS, **(BIASES if biases else {})}, moe)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("mode", ["auto", "explicit"])
@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("dispatch", DISPATCHES)
def test_experts_are_the_oracles_on_every_mesh(dispatch, mesh, mode):
    family, biases = ("deepseek", False) if dispatch == "ample" else ("mixtral", True)
    moe = dataclasses.replace(FAMILIES[family], **DISPATCHES[dispatch])
    kernels = {**KERNELS, **(BIASES if biases else {})}
    with jax.set_mesh(make_mesh(parse_mesh(mesh) if mesh else {}, mode)):
        got = jax.jit(functools.partial(layer, moe))(jax.tree.map(jnp.asarray, kernels), LOGITS, X)
    np.testing.assert_allclose(got, expected(family, dispatch, biases), rtol=1e-10, atol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["auto", "explicit"])
@pytest.mark.parametrize(
    "dispatch, kinds", [("dropless", {"all-gather", "reduce-scatter"}), ("tight", {"all-to-all"})]
)
def test_tokens_cross_the_expert_axis_by_the_dispatch_and_scores_stay(dispatch, kinds, mode):
    moe = dataclasses.replace(MIXTRAL, **DISPATCHES[dispatch])
    arguments = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), (KERNELS, LOGITS, X))
    with jax.set_mesh(make_mesh({"expert": 8}, mode)):
        moved = read_collectives(jax.jit(functools.partial(layer, moe)).lower(*arguments).compile())
    assert {move.kind for move in moved} == kinds
    assert not [move for move in moved if "top_k" in str(move.provenance)]


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_a_tight_capacity_drops_late_tokens_and_padding_takes_no_place():
    tight, ample = (expected("mixtral", name, True) for name in ("tight", "dropless"))
    dropped = (np.abs(tight - ample).max(axis=-1) > 0) & (SEGMENTS != 0)
    assert dropped.any() and not dropped[:, :2].any()
    moe = dataclasses.replace(MIXTRAL, **DISPATCHES["tight"])
    early = SEGMENTS.copy()
    early[:, :4] = 0
    logits = np.zeros((B, T, E))
    logits[..., :2] = 5.0
    routing = ops.route(jnp.asarray(logits), None, jnp.asarray(early) != 0, moe, DEFAULT_RULES)
    out = ops.experts(
        jnp.asarray(X), routing, ops.ExpertWeights(**jax.tree.map(jnp.asarray, KERNELS)), moe, DEFAULT_RULES
    )
    capacity = moe.capacity(T)
    served = np.abs(np.asarray(out)).max(axis=-1) > 0
    assert 4 + capacity < T - 3
    np.testing.assert_array_equal(served, (early != 0) & (np.cumsum(early != 0, axis=1) <= capacity))


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("activation", [Activation.CLAMPED_SWIGLU, Activation.SILU])
def test_activations_against_the_oracle(activation):
    gate, up = (8.0 * RNG.normal(size=(5, 40)) for _ in range(2))
    got = ops.gated_activation(jnp.asarray(gate), jnp.asarray(up), activation)
    np.testing.assert_allclose(got, oracle_moe.activate(gate, up, activation), rtol=1e-12)
    assert (np.abs(gate) > 7).any() and (np.abs(up) > 7).any()


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("family, dispatch", [("mixtral", "dropless"), ("deepseek", "tight")])
@pytest.mark.parametrize("mesh", ["", "expert2.tensor2.fsdp2"])
def test_gradients_are_finite_differences_of_the_oracle(family, dispatch, mesh):
    """Routing is held by nudges far smaller than any margin."""
    moe = dataclasses.replace(FAMILIES[family], **DISPATCHES[dispatch])
    kernels = {**KERNELS, **BIASES}
    bias = BIAS if moe.bias_rate is not None else None
    direction = RNG.normal(size=(B, T, D))
    rng = np.random.default_rng(5)
    nudges = (jax.tree.map(lambda k: rng.normal(size=k.shape), kernels), rng.normal(size=LOGITS.shape))
    nudge_x = rng.normal(size=X.shape)

    def value(step):
        moved = {name: kernels[name] + step * nudges[0][name] for name in kernels}
        chosen, weights, *_ = oracle_moe.route(LOGITS + step * nudges[1], bias, SEGMENTS, moe)
        return np.sum(direction * oracle_moe.experts(X + step * nudge_x, chosen, weights, moved, moe))

    def loss(kernels, logits, x):
        return jnp.sum(layer(moe, kernels, logits, x) * direction)

    with jax.set_mesh(make_mesh(parse_mesh(mesh) if mesh else {}, "explicit")):
        slopes = jax.jit(jax.grad(loss, argnums=(0, 1, 2)))(jax.tree.map(jnp.asarray, kernels), LOGITS, X)
    slopes = jax.tree.map(np.asarray, slopes)
    got = sum(np.sum(slopes[0][name] * nudges[0][name]) for name in kernels)
    got += np.sum(slopes[1] * nudges[1]) + np.sum(slopes[2] * nudge_x)
    step = 1e-6
    np.testing.assert_allclose(got, (value(step) - value(-step)) / (2 * step), rtol=1e-6)


ROUTED = dataclasses.replace(SMALL, moe=MIXTRAL, layers=3, dense_layers=1)
SOWN = {"load_balance": jnp.asarray([1.0, 2.0]), "expert_load": jnp.ones((2, E), jnp.int32)}


def sown(**changes):
    return {"decoder": {"layers": {"moe": {**SOWN, **changes}}}}


def test_sums_of_sown_values_go_by_layer_and_back():
    sums = ops.sown_sums(sown(), jnp.float32(4), ROUTED)
    metrics = ops.sown_metrics(sums, jnp.float32(4), ROUTED)
    assert {name: np.ravel(value).tolist() for name, value in metrics.items() if "balance" in name} == {
        "sown/layers_1/load_balance": [1.0],
        "sown/layers_2/load_balance": [2.0],
    }
    stacked = ops.from_layers({"layers_1": jnp.zeros(3), "layers_2": jnp.ones(3)}, ROUTED)
    assert list(stacked) == ["decoder/layers/moe"] and stacked["decoder/layers/moe"].tolist() == [
        [0] * 3,
        [1] * 3,
    ]
    unrolled = dataclasses.replace(ROUTED, layout=LayerLayout.UNROLLED)
    assert list(ops.from_layers({"layers_1": jnp.zeros(3), "layers_2": jnp.ones(3)}, unrolled)) == [
        "decoder/layers_1/moe",
        "decoder/layers_2/moe",
    ]


@pytest.mark.parametrize(
    "tree, name, layers",
    [
        ({}, "load_balance", 0),
        (sown(load_balance=jnp.ones(1)), "load_balance", 1),
        (sown(expert_load=jnp.ones((3, E), jnp.int32)), "expert_load", 3),
    ],
)
def test_a_missing_or_further_sown_value_is_an_error_never_zero(tree, name, layers):
    with pytest.raises(ops.SownError, match=f"sown {name}: got values of {layers} layers at .*, expected 2;"):
        ops.sown_sums(tree, jnp.float32(4), ROUTED)
