"""Cross-entropy that never holds all logits: it processes the vocabulary tile by tile, forward and backward.

B batch, T position, D embed, V vocab, N tile, W vocab of a tile (V = W * N). Tile n holds the entries n, n + N,
n + 2 N, ..., so that each device has an equal part of every tile of a sharded vocabulary.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp

from models_nnx.shared.config import ConfigError, ModelConfig, TrainConfig
from models_nnx.shared.ops.dtypes import wide_dtype
from models_nnx.shared.ops.losses import weigh
from models_nnx.shared.ops.projections import einsum
from models_nnx.shared.sharding import Rules, constrain, out_sharding

__all__ = [
    "tiled_cross_entropy",
    "tiled_logits_sums",
]

EMBEDDED = ("activation_batch", "activation_length", "activation_embed")
LOGITS = ("activation_batch", "activation_length", "activation_vocab")
GATHERED = ("activation_embed", "activation_vocab")
TILED = ("activation_embed", "activation_vocab", None)
SCATTERED = ("embed", "vocab")


def tiled_cross_entropy(
    x_BTD: jax.Array, kernel_DV: jax.Array, batch: Any, train: TrainConfig, config: ModelConfig
) -> tuple[jax.Array, jax.Array]:
    """Returns the `cross_entropy` of the head's logits, without an array ``[B, T, V]``.

    Args:
        x_BTD: the input of the head.
        kernel_DV: the head's kernel, or the embedding table transposed, in the dtype of ``x``.
        batch: has ``targets`` and ``weights``, each ``[B, T]``.
        train: number of tiles and weight of the z-loss.
        config: soft cap of the logits, rules.

    Returns:
        ``(loss_sum, weight_sum)``, scalars.

    Raises:
        ConfigError: ``vocab_tiles`` does not divide the vocabulary.
    """
    sums: Any = tiled_logits_sums(
        x_BTD, kernel_DV, batch["targets"], train.vocab_tiles, config.logits_soft_cap, config.rules
    )
    log_partition_BT, target_logit_BT = sums
    return weigh(log_partition_BT, target_logit_BT, batch["weights"], train.z_loss)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4, 5))
def tiled_logits_sums(x_BTD, kernel_DV, targets_BT, tiles: int, cap: float | None, rules: Rules):
    """Returns the log-partition and the target's logit of every token, ``[B, T]`` each, in float32 or wider.

    Args:
        x_BTD, kernel_DV: as for `tiled_cross_entropy`.
        targets_BT: int32 in [0, V).
        tiles: number of tiles; divides V.
        cap: logits become ``cap * tanh(logit / cap)``; None for no cap.
        rules: ordered logical axis rules.
    """
    return _forward(x_BTD, kernel_DV, targets_BT, tiles, cap, rules)[0]


def _split(kernel_DV, tiles: int, rules: Rules):
    """Returns the tiles ``[N, D, W]``; the kernel is gathered here, once, outside the loop."""
    embed, vocab = kernel_DV.shape
    if vocab % tiles:
        raise ConfigError("vocab_tiles", tiles, f"a divisor of vocab={vocab}")
    shape = (embed, vocab // tiles, tiles)
    kernel_DV = constrain(kernel_DV, GATHERED, rules)
    kernel_DWN = jnp.reshape(kernel_DV, shape, out_sharding=out_sharding(TILED, shape, rules))
    return jnp.moveaxis(constrain(kernel_DWN, TILED, rules), -1, 0)


def _tile(x_BTD, kernel_DW, cap: float | None, rules: Rules):
    """Returns a tile's logits, and the derivative of the cap; None without a cap."""
    wide = wide_dtype(x_BTD.dtype)
    logits_BTW = einsum("BTD,DW->BTW", x_BTD, kernel_DW, out_axes=LOGITS, rules=rules).astype(wide)
    if cap is None:
        return logits_BTW, None
    bent_BTW = jnp.tanh(logits_BTW / cap)
    return cap * bent_BTW, 1 - jnp.square(bent_BTW)


def _is_target(targets_BT, number, tiles: int, like_BTW):
    """Returns ``[B, T, W]``: 1 where the entry is the token's target."""
    place_BT = jnp.where(targets_BT % tiles == number, targets_BT // tiles, -1)
    return jax.nn.one_hot(place_BT, like_BTW.shape[-1], dtype=like_BTW.dtype)


def _forward(x_BTD, kernel_DV, targets_BT, tiles: int, cap: float | None, rules: Rules):
    wide = wide_dtype(x_BTD.dtype)
    kernel_NDW = _split(kernel_DV, tiles, rules)

    def body(carry, tile):
        most_BT, sum_BT, target_BT = carry
        number, kernel_DW = tile
        logits_BTW, _ = _tile(x_BTD, kernel_DW, cap, rules)
        now_BT = jnp.maximum(most_BT, jnp.max(logits_BTW, axis=-1))
        powers_BTW = jnp.exp(logits_BTW - now_BT[..., None])
        sum_BT = sum_BT * jnp.exp(most_BT - now_BT) + jnp.sum(powers_BTW, axis=-1)
        hit_BTW = _is_target(targets_BT, number, tiles, logits_BTW)
        return (now_BT, sum_BT, target_BT + jnp.sum(logits_BTW * hit_BTW, axis=-1)), None

    zeros_BT = jnp.zeros_like(targets_BT, dtype=wide)
    start = (jnp.full_like(targets_BT, -jnp.inf, dtype=wide), zeros_BT, zeros_BT)
    (most_BT, sum_BT, target_BT), _ = jax.lax.scan(body, start, (jnp.arange(tiles), kernel_NDW))
    log_partition_BT = most_BT + jnp.log(sum_BT)
    return (log_partition_BT, target_BT), (x_BTD, kernel_DV, targets_BT, log_partition_BT)


def _backward(tiles: int, cap: float | None, rules: Rules, kept, cotangents):
    x_BTD, kernel_DV, targets_BT, log_partition_BT = kept
    to_partition_BT, to_target_BT = cotangents
    kernel_NDW = _split(kernel_DV, tiles, rules)

    def body(grad_x_BTD, tile):
        number, kernel_DW = tile
        logits_BTW, bend_BTW = _tile(x_BTD, kernel_DW, cap, rules)
        share_BTW = jnp.exp(logits_BTW - log_partition_BT[..., None])
        hit_BTW = _is_target(targets_BT, number, tiles, logits_BTW)
        grad_BTW = to_partition_BT[..., None] * share_BTW + to_target_BT[..., None] * hit_BTW
        grad_BTW = (grad_BTW if bend_BTW is None else grad_BTW * bend_BTW).astype(x_BTD.dtype)
        part_BTD = einsum("BTW,DW->BTD", grad_BTW, kernel_DW, out_axes=EMBEDDED, rules=rules)
        grad_DW = einsum("BTD,BTW->DW", x_BTD, grad_BTW, out_axes=SCATTERED, rules=rules)
        return grad_x_BTD + part_BTD.astype(grad_x_BTD.dtype), grad_DW

    start = jnp.zeros_like(constrain(x_BTD, EMBEDDED, rules), dtype=log_partition_BT.dtype)
    grad_x_BTD, grad_NDW = jax.lax.scan(body, start, (jnp.arange(tiles), kernel_NDW))
    spec = out_sharding(SCATTERED, kernel_DV.shape, rules)
    grad_DV = jnp.reshape(jnp.moveaxis(grad_NDW, 0, -1), kernel_DV.shape, out_sharding=spec)
    return grad_x_BTD.astype(x_BTD.dtype), grad_DV, None


tiled_logits_sums.defvjp(_forward, _backward)
