"""The training step: loss, accumulated gradients, clipped AdamW that skips non-finite steps and spikes."""

import functools

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn
from flax import struct

from models_linen.model import LanguageModel
from models_nnx.shared import ops
from models_nnx.shared.config import ModelConfig, MomentSharding, OptimizerConfig, TrainConfig
from models_nnx.shared.sharding import AnyMesh, constrain, constrain_moment, state_spec

__all__ = ["TrainState", "create", "loss_sums", "make_optimizer", "state_specs", "train_step"]


SOWN = ("sown", "routed", "mtp_losses")


class TrainState(struct.PyTreeNode):
    """State that a step takes and returns.

    Args:
        step: uint32 number of updates made.
        params: the collection ``params``.
        opt_state: the optimizer's state.
        key: root key of the dropout stream; each step folds its number in.
        routing_bias: the collection ``routing_bias``, which no gradient trains; empty without one.
    """

    step: jax.Array
    params: dict
    opt_state: optax.OptState
    key: jax.Array
    routing_bias: dict = struct.field(default_factory=dict)


def make_optimizer(config: OptimizerConfig) -> optax.GradientTransformation:
    """Returns AdamW after a global-norm clip, skipping non-finite updates and those of a loss that spikes."""
    schedule = optax.warmup_cosine_decay_schedule(
        0.0, config.learning_rate, config.warmup_steps, config.total_steps, config.final_learning_rate
    )
    adamw = optax.adamw(schedule, config.b1, config.b2, config.epsilon, weight_decay=config.weight_decay)
    chain = optax.chain(optax.clip_by_global_norm(config.clip_norm), adamw)
    chain = ops.skip_spikes(chain, config) if config.spike_window else chain
    return ops.apply_if_finite(chain, config.max_bad_steps)


def create(config: ModelConfig, train: TrainConfig, key: jax.Array, *, batch: dict) -> TrainState:
    """Returns a fresh state; its parameters and moments are boxed with logical axes.

    Args:
        config, train: configuration of the state.
        key: a typed key, split into parameter and dropout streams.
        batch: arrays or abstract arrays of one batch, for shapes.
    """
    params_key, dropout_key = jax.random.split(key)
    inputs = [jnp.zeros(batch[name].shape, jnp.int32) for name in ("tokens", "segments", "positions")]
    variables = LanguageModel(config).init(params_key, *inputs)
    params, routing_bias = variables["params"], variables.get("routing_bias", {})
    opt_state = make_optimizer(train.optimizer).init(params)
    return TrainState(
        step=jnp.zeros((), jnp.uint32),
        params=params,
        opt_state=opt_state,
        key=dropout_key,
        routing_bias=routing_bias,
    )


def loss_sums(config: ModelConfig, train: TrainConfig, variables, batch, key=None, mtp_rate=None):
    """Returns ``(loss_sum, (weight_sum, sown, routed))`` of ``batch``: sums over its tokens, and its routing.

    Args:
        config, train: static.
        variables: the collections ``params`` and, if the model has one, ``routing_bias``.
        batch: as in `train_step`.
        key: dropout key; None for no dropout.
        mtp_rate: `ops.mtp_rate` of the whole step that ``batch`` is a part of; computed from ``batch`` by default.

    Raises:
        SownError: a layer with experts, or a predictor of a further token, sowed nothing.
        ConfigError: ``vocab_tiles`` does not divide the vocabulary.
    """
    rngs = None if key is None else {"dropout": key}
    inputs = (ops.MtpInputs(batch, train), key is None)
    apply = functools.partial(LanguageModel(config).apply, variables, *inputs, rngs=rngs, mutable=SOWN)
    if train.vocab_tiles == 1:
        logits_BTV, sown = apply(method="logits_with_mtp")
        loss_sum, weight_sum = ops.cross_entropy(logits_BTV, batch["targets"], batch["weights"], train.z_loss)
    else:
        (x_BTD, kernel_DV), sown = apply(method="pre_logits")
        loss_sum, weight_sum = ops.tiled_cross_entropy(x_BTD, kernel_DV, batch, train, config)
    sums = ops.sown_sums(sown.get("sown", {}), weight_sum, config)
    ahead_sums = ops.mtp_sums(sown.get("mtp_losses", {}), config)
    rate = ops.mtp_rate(batch, config) if mtp_rate is None else mtp_rate
    for more in (ops.load_balance_sum(sums, config), ops.mtp_sum(ahead_sums, rate)):
        loss_sum = loss_sum if more is None else loss_sum + more
    return loss_sum, (weight_sum, {**sums, **ahead_sums}, ops.by_layer(sown.get("routed", {}), config))


def train_step(config: ModelConfig, train: TrainConfig, state: TrainState, batch):
    """Makes one update.

    Args:
        config, train: static.
        state: unboxed train state.
        batch: ``tokens, targets, segments, positions, weights``, each ``[B, T]``.

    Returns:
        ``(state, metrics)``; metrics are scalars ``loss``, ``weight``, ``grad_norm``, and sown values.
    """
    key = jax.random.fold_in(state.key, state.step) if config.dropout else None
    rate = ops.mtp_rate(batch, config)

    def gradients(batch, key):
        def loss(params):
            return loss_sums(config, train, with_bias(params, state.routing_bias), batch, key, rate)

        (loss_sum, (weight_sum, sown, _)), grads = jax.value_and_grad(loss, has_aux=True)(state.params)
        return grads, loss_sum, weight_sum, sown

    grads, loss_sum, weight_sum, sown = ops.accumulate(gradients, batch, train.accumulation, key)
    grads = jax.tree.map(lambda grad: grad / weight_sum.astype(grad.dtype), grads)
    optimizer = make_optimizer(train.optimizer)
    like_parameters = train.moments is MomentSharding.LIKE_PARAMETERS
    axes = None if like_parameters else parameter_axes(config, batch["tokens"].shape)
    grads, params = (to_moments(config, axes, tree) for tree in (grads, state.params))
    metrics = {"loss": loss_sum / weight_sum, "weight": weight_sum, "grad_norm": optax.tree.norm(grads)}
    updates, opt_state = optimizer.update(grads, state.opt_state, params, loss=metrics["loss"])
    params = from_moments(config, axes, optax.apply_updates(params, updates))
    routing_bias = balance(config, state.routing_bias, sown)
    state = state.replace(step=state.step + 1, params=params, opt_state=opt_state, routing_bias=routing_bias)
    return state, {**metrics, **ops.sown_metrics(sown, weight_sum, config)}


def with_bias(params, routing_bias) -> dict:
    """Returns the collections that the model reads."""
    return {"params": params, **({"routing_bias": routing_bias} if routing_bias else {})}


def balance(config: ModelConfig, routing_bias, sown):
    """Returns the routing biases after a step that sowed ``sown``."""

    def moved(path, bias_E):
        module = jax.tree_util.keystr(path[:-1], simple=True, separator="/")
        return ops.balance_bias(bias_E, ops.sown_load(sown, module), config.mixture)

    return jax.tree_util.tree_map_with_path(moved, routing_bias)


@functools.cache
def parameter_axes(config: ModelConfig, shape: tuple[int, int]) -> dict:
    """Returns the logical axes of every parameter, in the tree of the parameters.

    Args:
        config: the model.
        shape: shape of a batch that fits the ambient mesh, on which the model is traced.
    """
    tokens = jax.ShapeDtypeStruct(shape, jnp.int32)
    params = jax.eval_shape(LanguageModel(config).init, jax.random.key(0), tokens, tokens, tokens)["params"]
    return jax.tree.map(lambda box: box.names, params, is_leaf=is_box)


def to_moments(config: ModelConfig, axes: dict | None, tree):
    """Returns gradients or parameters, placed like the moments; ``axes`` is None if these are like the parameters."""
    if axes is None:
        return tree
    put = functools.partial(constrain_moment, rules=config.rules)
    return jax.tree.map(lambda names, x: put(x, names), axes, tree, is_leaf=is_axes)


def from_moments(config: ModelConfig, axes: dict | None, params):
    """Returns updated parameters, placed like parameters; ``axes`` as for `to_moments`."""
    if axes is None:
        return params
    put = functools.partial(constrain, rules=config.rules)
    return jax.tree.map(lambda names, x: put(x, names), axes, params, is_leaf=is_axes)


def is_box(node) -> bool:
    """Returns True if a node of the tree is a parameter with its logical axes."""
    return isinstance(node, nn.Partitioned)


def is_axes(node) -> bool:
    """Returns True if a node of the tree is a tuple of logical axes."""
    return isinstance(node, tuple)


def state_specs(config: ModelConfig, train: TrainConfig, state: TrainState, mesh: AnyMesh) -> TrainState:
    """Returns the spec of every leaf of a state, for the arguments and results of a step.

    Args:
        config, train: rules, and placement of the moments.
        state: abstract or not, still boxed.
        mesh: the mesh.

    Raises:
        ShardingError: the rules do not fit a leaf.
    """

    def specs(tree, *, zero1: bool):
        def spec(path, leaf):
            value = leaf.unbox(apply_constraint=False) if is_box(leaf) else leaf
            axes = leaf.names if is_box(leaf) else None
            where = jax.tree_util.keystr(path, simple=True, separator="/")
            return state_spec(axes, value.shape, config.rules, mesh, zero1=zero1, where=where)

        return jax.tree_util.tree_map_with_path(spec, tree, is_leaf=is_box)

    zero1 = train.moments is MomentSharding.ZERO1
    return TrainState(
        step=specs(state.step, zero1=False),
        params=specs(state.params, zero1=False),
        opt_state=specs(state.opt_state, zero1=zero1),
        key=specs(state.key, zero1=False),
        routing_bias=specs(state.routing_bias, zero1=False),
    )


def unbox(state: TrainState) -> TrainState:
    """Returns ``state`` without the boxes that carry logical axes."""
    return nn.meta.unbox(state)
