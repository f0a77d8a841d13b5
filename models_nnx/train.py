"""The training step: loss, accumulated gradients, clipped AdamW that skips non-finite steps."""

import jax
import optax
from flax import nnx

from models_nnx import ops
from models_nnx.config import ModelConfig, OptimizerConfig, TrainConfig
from models_nnx.model import LanguageModel
from models_nnx.rngs import PathRngs

__all__ = ["RootKey", "TrainState", "create", "loss_sums", "make_optimizer", "train_step"]


class RootKey(nnx.Variable):
    """Root key of a stream; never trained, never advanced."""


class TrainState(nnx.Module):
    """What a step changes in place.

    Args:
        model: the language model.
        optimizer: optimizer state and the number of updates made.
        key: root key of the dropout stream; each step folds its number in.
    """

    def __init__(self, model: LanguageModel, optimizer: nnx.Optimizer, key: jax.Array):
        self.model, self.optimizer = model, optimizer
        self.key = RootKey(key)


def make_optimizer(config: OptimizerConfig) -> optax.GradientTransformation:
    """Returns AdamW behind a global-norm clip, skipping non-finite updates."""
    schedule = optax.warmup_cosine_decay_schedule(
        0.0, config.learning_rate, config.warmup_steps, config.total_steps
    )
    adamw = optax.adamw(schedule, config.b1, config.b2, config.epsilon, weight_decay=config.weight_decay)
    chain = optax.chain(optax.clip_by_global_norm(config.clip_norm), adamw)
    return optax.apply_if_finite(chain, config.max_bad_steps)


def create(config: ModelConfig, train: TrainConfig, key: jax.Array) -> TrainState:
    """Returns a fresh state; its parameters and moments carry logical axes as metadata.

    Args:
        config, train: what to build.
        key: a typed key, split into parameter and dropout streams.
    """
    params_key, dropout_key = jax.random.split(key)
    model = LanguageModel(config, rngs=PathRngs({"params": params_key}))
    optimizer = nnx.Optimizer(model, make_optimizer(train.optimizer), wrt=nnx.Param)
    return TrainState(model, optimizer, dropout_key)


def loss_sums(model: LanguageModel, train: TrainConfig, batch, key=None):
    """Returns ``(loss_sum, weight_sum)`` of ``batch``; drops out when ``key`` is given."""
    rngs = None if key is None else PathRngs({"dropout": key})
    logits_BTV = model(
        batch["tokens"],
        batch["segments"],
        batch["positions"],
        deterministic=key is None,
        rngs=rngs,
    )
    return ops.cross_entropy(logits_BTV, batch["targets"], batch["weights"], train.z_loss)


def train_step(train: TrainConfig, state: TrainState, batch):
    """Makes one update of ``state``, in place.

    Args:
        train: static.
        state: model, optimizer and key.
        batch: ``tokens, targets, segments, positions, weights``, each ``[B, T]``.

    Returns:
        Metrics: scalars ``loss``, ``weight``, ``grad_norm``.
    """
    step = state.optimizer.step[...]
    key = jax.random.fold_in(state.key[...], step) if state.model.config.dropout else None
    graphdef, params, rest = nnx.split(state.model, nnx.Param, ...)

    def gradients(batch, key):
        grad = jax.value_and_grad(
            lambda params: loss_sums(nnx.merge(graphdef, params, rest), train, batch, key), has_aux=True
        )
        (loss_sum, weight_sum), grads = grad(params)
        return grads, loss_sum, weight_sum

    grads, loss_sum, weight_sum = ops.accumulate(gradients, batch, train.accumulation, key)
    grads = jax.tree.map(lambda grad: grad / weight_sum.astype(grad.dtype), grads)
    state.optimizer.update(state.model, grads)
    return {"loss": loss_sum / weight_sum, "weight": weight_sum, "grad_norm": optax.tree.norm(grads)}
