"""Every op against float64 NumPy, on shapes without two equal dimensions."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import oracle_ops
import pytest
from oracle_decoder import random_batch

from models_nnx.shared import ops
from models_nnx.shared.config import Activation, AttentionConfig, AttentionKernel
from models_nnx.shared.ops.losses import weigh

pytestmark = pytest.mark.usefixtures("quick")
RNG = np.random.default_rng(7)
B, T, N, K, H = 4, 17, 6, 3, 10
PACKED = random_batch(29, rows=B)
DTYPES = ("float64", "float32", "bfloat16")
TOLERANCE = {"float64": 1e-12, "float32": 2e-6, "bfloat16": 2**-7}


def draw(*shape, scale=1.0):
    """Values that bfloat16 holds exactly, so that inputs need no rounding."""
    return (scale * RNG.normal(size=shape)).astype(jnp.bfloat16).astype(np.float64)


def check(got, expected, dtype, slack=1.0):
    chex.assert_type(got, jnp.dtype(dtype))
    chex.assert_equal_shape([got, expected])
    tolerance = slack * TOLERANCE[dtype]
    np.testing.assert_allclose(
        np.asarray(got, np.float64), expected, rtol=tolerance, atol=tolerance * np.abs(expected).max()
    )


@pytest.mark.parametrize("form", [str, jnp.dtype])
def test_sensitive_parts_compute_in_float32_or_wider_for_any_form_of_the_dtype(form):
    wide = {dtype: str(ops.wide_dtype(form(dtype))) for dtype in DTYPES}
    assert wide == {"float64": "float64", "float32": "float32", "bfloat16": "float32"}


def primitives(jaxpr):
    """``(name, input dtypes, output dtypes)`` of every equation, inner programs included."""
    for equation in jaxpr.eqns:
        yield (
            equation.primitive.name,
            {str(v.aval.dtype) for v in equation.invars if hasattr(v.aval, "dtype")},
            {str(v.aval.dtype) for v in equation.outvars},
        )
        for inner in jax.tree.leaves(
            list(equation.params.values()), is_leaf=lambda x: hasattr(x, "eqns") or hasattr(x, "jaxpr")
        ):
            inner = getattr(inner, "jaxpr", inner)
            if hasattr(inner, "eqns"):
                yield from primitives(inner)


def dtypes_of(function, names, *arguments):
    """Dtypes that flow into or out of the primitives ``names``; each must occur."""
    found = [row for row in primitives(jax.make_jaxpr(function)(*arguments).jaxpr) if row[0] in names]
    assert {row[0] for row in found} == set(names)
    return set().union(*(row[1] | row[2] for row in found))


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size, epsilon", [(1.0, 1e-6), (1e-2, 1e-3), (300.0, 1e-5)])
def test_rms_norm(dtype, size, epsilon):
    x, scale = draw(5, 7, 18, scale=size), draw(18)
    check(ops.rms_norm(jnp.asarray(x, dtype), scale, epsilon), oracle_ops.rms_norm(x, scale, epsilon), dtype)


def test_rms_norm_of_one_axis_and_its_epsilon():
    x, scale = draw(18, scale=1e-2), draw(18)
    check(
        ops.rms_norm(jnp.asarray(x, "float32"), scale, 1e-3), oracle_ops.rms_norm(x, scale, 1e-3), "float32"
    )
    assert np.abs(oracle_ops.rms_norm(x, scale, 1e-3) / oracle_ops.rms_norm(x, scale, 1e-4) - 1).min() > 0.3


def test_rms_norm_computes_in_float32():
    x, scale = jnp.ones((5, 18), "bfloat16"), jnp.ones(18, "bfloat16")
    function = functools.partial(ops.rms_norm, epsilon=1e-6)
    assert dtypes_of(function, ("rsqrt", "reduce_sum", "mul"), x, scale) == {"float32"}


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("theta", [50.0, 10_000.0])
def test_rotary(dtype, theta):
    x = draw(B, T, N, H)
    positions = PACKED["positions"] * 3
    expected = oracle_ops.rotary(x, positions, theta)
    check(ops.rotary(jnp.asarray(x, dtype), positions, theta), expected, dtype)
    assert np.abs(expected - x)[:, :, :, : H // 2].max() > 1


def test_rotary_angles_stay_exact_at_long_positions():
    """Position 4000 in bfloat16 would be off by up to 8."""
    x, positions = draw(B, T, N, H), 4000 + PACKED["positions"]
    got = ops.rotary(jnp.asarray(x, "bfloat16"), positions, 10_000.0)
    check(got, oracle_ops.rotary(x, positions, 10_000.0), "bfloat16")


@pytest.mark.usefixtures("x64")
def test_scores_of_rotated_heads_depend_on_the_distance():
    query, key = draw(1, 2, N, H), draw(1, 2, N, H)

    def scores(shift):
        positions = np.array([[5, 2]]) + shift
        turned = [ops.rotary(jnp.asarray(x), positions, 50.0) for x in (query, key)]
        return np.einsum("nh,nh->n", turned[0][0, 0], turned[1][0, 1])

    np.testing.assert_allclose(scores(0), scores(11), rtol=1e-10)
    assert np.abs(scores(0) - np.einsum("nh,nh->n", query[0, 0], key[0, 1])).min() > 1e-3


def test_causal_segment_mask():
    segments = jnp.asarray(PACKED["segments"])
    got = np.asarray(ops.causal_segment_mask(segments, segments))
    np.testing.assert_array_equal(got, oracle_ops.visible(PACKED["segments"]))
    crossed = np.asarray(ops.causal_segment_mask(segments, segments[::-1]))
    for b, t, s in np.ndindex(crossed.shape):
        assert crossed[b, t, s] == (s <= t and PACKED["segments"][b, t] == PACKED["segments"][-1 - b, s])
    assert got.dtype == bool and got.any(axis=-1).all()
    assert (PACKED["segments"].max(axis=1) >= 3).all() and (PACKED["segments"][:, -1] == 0).all()


def attention_config(kernel=AttentionKernel.PLAIN, **changes):
    return AttentionConfig(heads=N, kv_heads=K, head_dim=H, kernel=kernel, **changes)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("kernel", AttentionKernel)
@pytest.mark.parametrize("kv_heads", [2, K, N, 1])
@pytest.mark.parametrize("size", [1.0, 8.0])
def test_attention(kernel, kv_heads, size):
    """Scores of up to 200 at size 8. JAX's own kernel takes its softmax in float32 even here."""
    query, key, value = (
        draw(B, T, N, H, scale=size),
        draw(B, T, kv_heads, H, scale=size),
        draw(B, T, kv_heads, H),
    )
    expected = oracle_ops.attention_one_by_one(query, key, value, PACKED["segments"])
    mask = jnp.asarray(oracle_ops.visible(PACKED["segments"]))
    got = ops.attention(*map(jnp.asarray, (query, key, value)), mask, attention_config(kernel))
    slack = 1 if kernel is AttentionKernel.PLAIN else 1e-5 / TOLERANCE["float64"] * size
    check(got, expected, "float64", slack)


@pytest.mark.parametrize("kernel", AttentionKernel)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_attention_with_large_scores(kernel, dtype):
    """bfloat16 scores of a hundred would be off by a quarter, and the weights by a quarter too."""
    query, key, value = draw(B, T, N, H, scale=6), draw(B, T, K, H, scale=6), draw(B, T, K, H)
    expected = oracle_ops.attention_one_by_one(query, key, value, PACKED["segments"])
    mask = jnp.asarray(oracle_ops.visible(PACKED["segments"]))
    inputs = (jnp.asarray(x, dtype) for x in (query, key, value))
    check(
        ops.attention(*inputs, mask, attention_config(kernel)),
        expected,
        dtype,
        slack=30 if dtype == "float32" else 1,
    )


@pytest.mark.parametrize("kernel", AttentionKernel)
def test_attention_takes_scores_and_softmax_in_float32(kernel):
    query, key = jnp.ones((B, T, N, H), "bfloat16"), jnp.ones((B, T, K, H), "bfloat16")
    mask = jnp.ones((B, T, T), bool)
    traced = jax.make_jaxpr(functools.partial(ops.attention, config=attention_config(kernel)))(
        query, key, key, mask
    )
    rows = list(primitives(traced.jaxpr))
    dots = [row for row in rows if row[0] == "dot_general"]
    assert len(dots) == 2 and dots[0][1:] == ({"bfloat16"}, {"float32"})
    softmax = [row for row in rows if row[0] in ("exp", "reduce_max", "reduce_sum", "div")]
    assert {row[0] for row in softmax} >= {"exp", "reduce_max", "reduce_sum"}
    assert set().union(*(row[1] | row[2] for row in softmax)) == {"float32"}


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("activation", [Activation.SILU, Activation.GELU])
def test_gated_activation(activation):
    gate, up = draw(5, 7, 22, scale=3), draw(5, 7, 22)
    oracle = {Activation.SILU: oracle_ops.silu, Activation.GELU: oracle_ops.gelu}[activation]
    check(ops.gated_activation(jnp.asarray(gate), jnp.asarray(up), activation), oracle(gate) * up, "float64")


@pytest.mark.parametrize("rate", [0.1, 0.75])
def test_dropout_keeps_its_share_and_scales_it(rate):
    x = jnp.asarray(RNG.uniform(1, 2, (50, 60, 7)), "float32")
    got = np.asarray(ops.dropout(x, jax.random.key(3), rate))
    kept = got != 0
    np.testing.assert_allclose(got[kept], np.asarray(x)[kept] / (1 - rate), rtol=1e-6)
    assert kept.mean() == pytest.approx(1 - rate, abs=4 * np.sqrt(rate * (1 - rate) / x.size))
    for axis in range(3):
        other = tuple(a for a in range(3) if a != axis)
        assert kept.any(axis=other).all() and not kept.all(axis=other).any()
    assert ops.dropout(x.astype("bfloat16"), jax.random.key(3), rate).dtype == jnp.bfloat16
    gradient = jax.grad(lambda x: ops.dropout(x, jax.random.key(3), rate).sum())(x)
    np.testing.assert_allclose(gradient, kept / (1 - rate), rtol=1e-6)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("z_loss", [0.0, 0.3])
@pytest.mark.parametrize("size", [1.0, 200.0])
def test_cross_entropy(z_loss, size):
    logits = draw(B, T, 29, scale=size)
    arguments = (PACKED["targets"], PACKED["weights"], z_loss)
    expected = oracle_ops.cross_entropy(logits, *arguments)
    got = ops.cross_entropy(jnp.asarray(logits), *arguments)
    np.testing.assert_allclose(got, expected, rtol=1e-12)
    assert got[1] == PACKED["weights"].sum() not in (0, B * T)
    wide = ops.cross_entropy(jnp.asarray(logits, "bfloat16"), *arguments)
    np.testing.assert_allclose(wide, expected, rtol=1e-5)


def test_cross_entropy_computes_in_float32():
    logits = jnp.ones((B, T, 29), "bfloat16")
    function = functools.partial(ops.cross_entropy, z_loss=0.1)
    used = dtypes_of(
        function, ("exp", "log", "reduce_sum", "reduce_max"), logits, PACKED["targets"], PACKED["weights"]
    )
    assert used == {"float32"}


@pytest.mark.parametrize(
    "equation, shape, fan_in",
    [("BTD,DNH->BTNH", (40, 6, 30), 40), ("BTNH,NHD->BTD", (6, 30, 40), 180), ("BTF,FD->BTD", (70, 50), 70)],
)
def test_kernel_init_scales_by_the_fan_in(equation, shape, fan_in):
    kernel = np.asarray(ops.kernel_init(equation)(jax.random.key(0), shape, "float32"))
    assert kernel.std() == pytest.approx(fan_in**-0.5, rel=4 / np.sqrt(2 * kernel.size))
    assert np.abs(kernel).max() < 2.3 * fan_in**-0.5


def test_embedding_init():
    table = np.asarray(ops.EMBEDDING_INIT(jax.random.key(0), (70, 50), "float32"))
    assert table.std() == pytest.approx(0.02, rel=4 / np.sqrt(2 * table.size))


@pytest.mark.usefixtures("x64")
def test_einsum_and_lookup():
    x, kernel, table = draw(5, 7, 18), draw(18, 6, 10), draw(29, 18)
    got = ops.einsum("BTD,DNH->BTNH", jnp.asarray(x), jnp.asarray(kernel), out_axes=(None,) * 4, rules=())
    check(got, np.tensordot(x, kernel, axes=(2, 0)), "float64")
    tokens = RNG.integers(0, 29, (5, 7)).astype(np.int32)
    rows = ops.lookup(jnp.asarray(table), jnp.asarray(tokens), out_axes=(None,) * 3, rules=())
    np.testing.assert_array_equal(rows, [[table[token] for token in row] for row in tokens])


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("microbatches", [1, 2, 4])
def test_accumulate_is_the_full_batch(microbatches):
    """Every quantity is a sum over tokens, so the split cannot matter, however unequal the padding."""
    kernel, batch = jnp.asarray(draw(18, 29)), random_batch(29)
    x = jnp.asarray(draw(8, 17, 18))

    def gradients(batch, key):
        def loss(kernel):
            return ops.cross_entropy(batch["x"] @ kernel, batch["targets"], batch["weights"], 0.1)

        (total, weight), grads = jax.value_and_grad(loss, has_aux=True)(kernel)
        return {"kernel": grads}, total, weight

    got = ops.accumulate(gradients, {**batch, "x": x}, microbatches, None)
    loss, weight = oracle_ops.cross_entropy(x @ kernel, batch["targets"], batch["weights"], 0.1)
    np.testing.assert_allclose(got[1:], (loss, weight), rtol=1e-12)
    logits = np.asarray(x @ kernel)
    log_z = np.log(np.exp(logits).sum(-1))[..., None]
    slope = np.exp(logits - log_z) * (1 + 0.2 * log_z) - np.eye(29)[batch["targets"]]
    expected = np.einsum("btd,btv->dv", x, slope * batch["weights"][..., None])
    np.testing.assert_allclose(got[0]["kernel"], expected, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("microbatches", [2, 4])
def test_accumulate_takes_every_row_once_with_a_separate_key(microbatches):
    rows = jnp.arange(8)

    def gradients(batch, key):
        marks = jnp.zeros(8).at[batch["row"]].add(1.0)
        shares = jnp.zeros(8).at[batch["row"]].set(jax.random.uniform(key))
        return (marks, shares), jnp.zeros(()), jnp.ones(())

    (marks, shares), _, weight = ops.accumulate(gradients, {"row": rows}, microbatches, jax.random.key(1))
    np.testing.assert_array_equal(marks, np.ones(8))
    assert weight == microbatches and len(set(shares.tolist())) == microbatches
    assert all(len(set(shares[i::microbatches].tolist())) == 1 for i in range(microbatches))


X, VECTOR, ROWS = jnp.ones((B, T, H)), jnp.ones(H), jnp.ones((B, T))
MASK = jnp.ones((B, T, T), bool)
ATTENTION = AttentionConfig(heads=N, kv_heads=K, head_dim=H)


@pytest.mark.parametrize(
    ("op", "good", "bad"),
    [
        (lambda scale: ops.rms_norm(X, scale, 1e-6), VECTOR, VECTOR[:1]),
        (lambda bias: ops.add_bias(X, bias, (None,) * 3, ()), VECTOR, VECTOR[:1]),
        (lambda positions: ops.rotary(X[:, :, None], positions, 1e4), ROWS, ROWS[:1]),
        (lambda positions: ops.rotary(X[:, :, None], positions, 1e4), ROWS, ROWS[:, :1]),
        (lambda up: ops.gated_activation(X, up, Activation.SILU), X, X[:1]),
        (lambda weights: weigh(ROWS, ROWS, weights, 0.0), ROWS, ROWS[:, :1]),
        (lambda targets: weigh(ROWS, targets, ROWS, 0.0), ROWS, ROWS[0]),
        (lambda targets: ops.cross_entropy(X, targets, ROWS, 0.0), ROWS.astype(int), ROWS.astype(int)[:1]),
        (lambda bias: ops.router_logits(X, jnp.ones((H, N)), bias, ()), jnp.ones(N), jnp.ones(1)),
        (
            lambda mask: ops.attention(
                jnp.ones((B, T, N, H)), jnp.ones((B, T, K, H)), jnp.ones((B, T, K, H)), mask, ATTENTION
            ),
            MASK,
            MASK[:1],
        ),
    ],
)
def test_a_shape_that_would_be_broadcast_is_refused(op, good, bad):
    """Wrong numbers of the right shape would result: no einsum and no reshape would fail."""
    op(good)
    with pytest.raises(AssertionError, match="shape"):
        op(bad)
