"""The tiled cross-entropy equals the plain one: values, any cotangent, any mesh; its logits are never materialised."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from meshes import make_mesh, parse_mesh
from oracle_decoder import SMALL

from models_nnx.shared import ops
from models_nnx.shared.config import ConfigError, TrainConfig
from models_nnx.shared.sharding import DEFAULT_RULES, constrain
from parity.ir.hlo.collectives import read_collectives

pytestmark = pytest.mark.usefixtures("quick", "x64")
RNG = np.random.default_rng(3)
B, T, D, V = 8, 6, 16, 48
X, KERNEL = RNG.normal(size=(B, T, D)), RNG.normal(size=(D, V))
TARGETS = RNG.integers(0, V, (B, T)).astype(np.int32)
WEIGHTS = (RNG.uniform(size=(B, T)) < 0.7).astype(np.int32)
COTANGENTS = tuple(RNG.normal(size=(B, T)) for _ in range(2))
CAPS = (None, 3.0)
TRAIN = TrainConfig(z_loss=1e-2, vocab_tiles=4)
CAPPED = dataclasses.replace(SMALL, logits_soft_cap=5.0)


def oracle(x, kernel, cap, xp=np):
    """``(log partition, target's logit)`` from the definition."""
    logits = x @ kernel
    logits = logits if cap is None else cap * xp.tanh(logits / cap)
    target = xp.take_along_axis(logits, TARGETS[..., None], axis=-1)[..., 0]
    return xp.log(xp.sum(xp.exp(logits), axis=-1)), target


def placed(x, kernel, targets):
    return (
        constrain(x, ("activation_batch", "activation_length", "activation_embed"), DEFAULT_RULES),
        constrain(kernel, ("embed", "vocab"), DEFAULT_RULES),
        constrain(targets, ("activation_batch", "activation_length"), DEFAULT_RULES),
    )


def tiled(tiles, cap, x, kernel, targets=TARGETS):
    return ops.tiled_logits_sums(*placed(x, kernel, jnp.asarray(targets)), tiles, cap, DEFAULT_RULES)


called = jax.jit(lambda pull, cotangents: pull(cotangents))


@pytest.mark.slow
@pytest.mark.parametrize("cap", CAPS)
@pytest.mark.parametrize("tiles", [1, 4, V])
def test_values_and_random_cotangents_are_those_of_the_definition(tiles, cap):
    got, pull = jax.vjp(functools.partial(tiled, tiles, cap), jnp.asarray(X), jnp.asarray(KERNEL))
    for found, expected in zip(got, oracle(X, KERNEL, cap), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    _, plain = jax.vjp(functools.partial(oracle, cap=cap, xp=jnp), jnp.asarray(X), jnp.asarray(KERNEL))
    for pair in (COTANGENTS, (COTANGENTS[0], 0 * COTANGENTS[1]), (0 * COTANGENTS[0], COTANGENTS[1])):
        cotangents = tuple(map(jnp.asarray, pair))
        for found, expected in zip(*(called(each, cotangents) for each in (pull, plain)), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.slow
def test_gradients_are_finite_differences_of_numpy():
    nudge_x, nudge_kernel = RNG.normal(size=X.shape), RNG.normal(size=KERNEL.shape)

    def value(step):
        found = oracle(X + step * nudge_x, KERNEL + step * nudge_kernel, 3.0)
        return sum(np.sum(c * v) for c, v in zip(COTANGENTS, found, strict=True))

    _, pull = jax.vjp(functools.partial(tiled, 6, 3.0), jnp.asarray(X), jnp.asarray(KERNEL))
    slope_x, slope_kernel = pull(tuple(map(jnp.asarray, COTANGENTS)))
    got = np.sum(slope_x * nudge_x) + np.sum(slope_kernel * nudge_kernel)
    np.testing.assert_allclose(got, (value(1e-6) - value(-1e-6)) / 2e-6, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["auto", "explicit"])
@pytest.mark.parametrize("mesh", ["", "fsdp4.tensor2", "data2.fsdp2.context2"])
def test_the_weighted_loss_with_z_loss_is_the_plain_one_on_every_mesh(mesh, mode):
    scale = 2.5
    batch = {"targets": jnp.asarray(TARGETS), "weights": jnp.asarray(WEIGHTS)}

    def plain(x, kernel):
        logits = ops.soft_cap(x @ kernel, CAPPED.logits_soft_cap)
        loss, weight = ops.cross_entropy(logits, batch["targets"], batch["weights"], TRAIN.z_loss)
        return scale * loss / weight

    def loss(x, kernel):
        x, kernel, targets = placed(x, kernel, batch["targets"])
        weights = constrain(batch["weights"], ("activation_batch", "activation_length"), DEFAULT_RULES)
        parts = {"targets": targets, "weights": weights}
        loss, weight = ops.tiled_cross_entropy(x, kernel, parts, TRAIN, CAPPED)
        return scale * loss / weight

    expected = jax.value_and_grad(plain, argnums=(0, 1))(jnp.asarray(X), jnp.asarray(KERNEL))
    with jax.set_mesh(make_mesh(parse_mesh(mesh) if mesh else {}, mode)):
        got = jax.jit(jax.value_and_grad(loss, argnums=(0, 1)))(X, KERNEL)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12), got, expected)


def test_no_array_of_all_logits_is_ever_made_forward_or_backward():
    def loss(x, kernel):
        partition, target = tiled(4, None, x, kernel)
        return jnp.sum(partition - target)

    text = jax.jit(jax.grad(loss, argnums=(0, 1))).lower(X, KERNEL).as_text()
    assert f"tensor<{B}x{T}x{V // 4}xf64>" in text
    assert f"tensor<{B}x{T}x{V}x" not in text and f"tensor<{B * T}x{V}x" not in text


@pytest.mark.slow
def test_collectives_are_outside_the_loop_except_one_reduction_of_each_tiles_gradient():
    def loss(x, kernel):
        partition, target = ops.tiled_logits_sums(
            *placed(x, kernel, jnp.asarray(TARGETS)), 4, None, DEFAULT_RULES
        )
        return jnp.sum(partition - target)

    x, kernel = (jnp.asarray(array, jnp.float32) for array in (X, KERNEL))
    with jax.set_mesh(make_mesh({"fsdp": 8}, "auto")):
        moves = read_collectives(jax.jit(jax.grad(loss, argnums=(0, 1))).lower(x, kernel).compile())
    gathers = [move for move in moves if move.kind == "all-gather"]
    inside = [move for move in moves if move.depth]
    assert not [move for move in gathers if move.depth] and len(inside) <= 1
    assert all(move.times == 4 for move in inside)


def test_tiles_that_do_not_divide_the_vocabulary_are_refused():
    with pytest.raises(ConfigError, match="vocab_tiles: got 5, expected a divisor of vocab=48"):
        tiled(5, None, X, KERNEL)
