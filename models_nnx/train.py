"""The training step: loss, accumulated gradients, clipped AdamW that skips non-finite steps and spikes."""

import functools
from typing import Any

import jax
import optax
from flax import nnx

from models_nnx.model import LanguageModel
from models_nnx.rngs import PathRngs
from models_nnx.shared import ops
from models_nnx.shared.config import ModelConfig, MomentSharding, OptimizerConfig, TrainConfig
from models_nnx.shared.sharding import AnyMesh, constrain, constrain_moment, state_spec
from models_nnx.state import MtpLosses, Routed, RoutingBias, Sown

__all__ = ["RootKey", "TrainState", "create", "loss_sums", "make_optimizer", "state_specs", "train_step"]


class RootKey(nnx.Variable):
    """Root key of a stream; never trained, never advanced."""


class TrainState(nnx.Module):
    """State that a step changes in place.

    Args:
        model: the language model.
        optimizer: optimizer state and the number of updates made.
        key: root key of the dropout stream; each step folds its number in.
    """

    def __init__(self, model: LanguageModel, optimizer: nnx.Optimizer, key: jax.Array):
        self.model, self.optimizer = model, optimizer
        self.key = RootKey(key)


def make_optimizer(config: OptimizerConfig) -> optax.GradientTransformation:
    """Returns AdamW after a global-norm clip, skipping non-finite updates and those of a loss that spikes."""
    schedule = optax.warmup_cosine_decay_schedule(
        0.0, config.learning_rate, config.warmup_steps, config.total_steps, config.final_learning_rate
    )
    adamw = optax.adamw(schedule, config.b1, config.b2, config.epsilon, weight_decay=config.weight_decay)
    chain = optax.chain(optax.clip_by_global_norm(config.clip_norm), adamw)
    chain = ops.skip_spikes(chain, config) if config.spike_window else chain
    return ops.apply_if_finite(chain, config.max_bad_steps)


def create(config: ModelConfig, train: TrainConfig, key: jax.Array) -> TrainState:
    """Returns a fresh state; its parameters and moments carry logical axes as metadata.

    Args:
        config, train: configuration of the state.
        key: a typed key, split into parameter and dropout streams.
    """
    params_key, dropout_key = jax.random.split(key)
    model = LanguageModel(config, rngs=PathRngs({"params": params_key}))
    optimizer = nnx.Optimizer(model, make_optimizer(train.optimizer), wrt=nnx.Param)
    return TrainState(model, optimizer, dropout_key)


def loss_sums(model: LanguageModel, train: TrainConfig, batch, key=None, mtp_rate=None):
    """Returns ``(loss_sum, (weight_sum, sown, routed))`` of ``batch``: sums over its tokens, and its routing.

    Args:
        model: the values that it sows are removed again.
        train: static.
        batch: as in `train_step`.
        key: dropout key; None for no dropout.
        mtp_rate: `ops.mtp_rate` of the whole step that ``batch`` is a part of; computed from ``batch`` by default.

    Raises:
        SownError: a layer with experts, or a predictor of a further token, sowed nothing.
        ConfigError: ``vocab_tiles`` does not divide the vocabulary.
    """
    rngs = None if key is None else PathRngs({"dropout": key})
    inputs = (ops.MtpInputs(batch, train), key is None, rngs)
    if train.vocab_tiles == 1:
        logits_BTV = model.logits_with_mtp(*inputs)
        loss_sum, weight_sum = ops.cross_entropy(logits_BTV, batch["targets"], batch["weights"], train.z_loss)
    else:
        x_BTD, kernel_DV = model.pre_logits(*inputs)
        loss_sum, weight_sum = ops.tiled_cross_entropy(x_BTD, kernel_DV, batch, train, model.config)
    ahead, sown, routed = map(nnx.to_pure_dict, nnx.pop(model, MtpLosses, Sown, Routed))
    sums = ops.sown_sums(sown, weight_sum, model.config)
    ahead_sums = ops.mtp_sums(ahead, model.config)
    rate = ops.mtp_rate(batch, model.config) if mtp_rate is None else mtp_rate
    for more in (ops.load_balance_sum(sums, model.config), ops.mtp_sum(ahead_sums, rate)):
        loss_sum = loss_sum if more is None else loss_sum + more
    return loss_sum, (weight_sum, {**sums, **ahead_sums}, ops.by_layer(routed, model.config))


def train_step(train: TrainConfig, state: TrainState, batch):
    """Makes one update of ``state``, in place.

    Args:
        train: static.
        state: model, optimizer and key.
        batch: ``tokens, targets, segments, positions, weights``, each ``[B, T]``.

    Returns:
        Metrics: scalars ``loss``, ``weight``, ``grad_norm``, and sown values.
    """
    step = state.optimizer.step[...]
    key = jax.random.fold_in(state.key[...], step) if state.model.config.dropout else None
    rate = ops.mtp_rate(batch, state.model.config)
    graphdef, params, rest = nnx.split(state.model, nnx.Param, ...)

    def gradients(batch, key):
        def loss(params):
            return loss_sums(nnx.merge(graphdef, params, rest), train, batch, key, rate)

        (loss_sum, (weight_sum, sown, _)), grads = jax.value_and_grad(loss, has_aux=True)(params)
        return grads, loss_sum, weight_sum, sown

    grads, loss_sum, weight_sum, sown = ops.accumulate(gradients, batch, train.accumulation, key)
    grads = jax.tree.map(lambda grad: grad / weight_sum.astype(grad.dtype), grads)
    grads, params = (to_moments(state.model.config, train, tree) for tree in (grads, params))
    nnx.update(state.model, params)
    metrics = {"loss": loss_sum / weight_sum, "weight": weight_sum, "grad_norm": optax.tree.norm(grads)}
    state.optimizer.update(state.model, grads, loss=metrics["loss"])
    nnx.update(state.model, from_moments(state.model.config, train, nnx.state(state.model, nnx.Param)))
    balance(state.model, sown)
    return {**metrics, **ops.sown_metrics(sown, weight_sum, state.model.config)}


def balance(model: LanguageModel, sown) -> None:
    """Updates the routing biases of ``model`` after a step that sowed ``sown``."""
    for path, bias_E in nnx.to_flat_state(nnx.state(model, RoutingBias)):
        load_E = ops.sown_load(sown, "/".join(map(str, path[:-1])))
        bias_E[...] = ops.balance_bias(bias_E[...], load_E, model.config.mixture)


def to_moments(config: ModelConfig, train: TrainConfig, tree):
    """Returns gradients or parameters, placed like the moments."""
    if train.moments is MomentSharding.LIKE_PARAMETERS:
        return tree
    put = functools.partial(constrain_moment, rules=config.rules)
    return jax.tree.map(lambda x: x.replace(put(x[...], axes_of(x))), tree, is_leaf=is_variable)


def from_moments(config: ModelConfig, train: TrainConfig, params):
    """Returns updated parameters, placed like parameters."""
    if train.moments is MomentSharding.LIKE_PARAMETERS:
        return params
    put = functools.partial(constrain, rules=config.rules)
    return jax.tree.map(lambda x: x.replace(put(x[...], axes_of(x))), params, is_leaf=is_variable)


def is_variable(node) -> bool:
    """Returns True if a node of the tree is a Variable with its metadata."""
    return isinstance(node, nnx.Variable)


def axes_of(variable: nnx.Variable) -> Any:
    """Returns the tuple of logical axes of a Variable; None if it has none."""
    return variable.get_metadata().get("out_sharding")


def state_specs(config: ModelConfig, train: TrainConfig, state: nnx.State, mesh: AnyMesh) -> nnx.State:
    """Returns the spec of every leaf of a state, for the arguments and results of a step.

    Args:
        config, train: rules, and placement of the moments.
        state: ``nnx.state`` of a `TrainState`, abstract or not.
        mesh: the mesh.

    Raises:
        ShardingError: the rules do not fit a leaf.
    """

    def spec(path, leaf: nnx.Variable):
        where = jax.tree_util.keystr(path, simple=True, separator="/")
        zero1 = train.moments is MomentSharding.ZERO1 and isinstance(leaf, nnx.OptState)
        return state_spec(axes_of(leaf), leaf.shape, config.rules, mesh, zero1=zero1, where=where)

    return jax.tree_util.tree_map_with_path(spec, state, is_leaf=is_variable)
