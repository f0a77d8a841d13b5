"""Interface of the shared suites to the Linen twin; to be removed with models_linen."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import oracle_decoder
from flax import linen as nn

from models_linen import decode as linen_decode
from models_linen import evaluate as linen_evaluate
from models_linen import train as linen_train
from models_linen.model import LanguageModel
from models_nnx.shared.ops import by_layer

INPUTS = ("tokens", "segments", "positions")


def flat(tree):
    """Returns ``{dotted path: array}`` of a nested dict."""
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in leaves}


class LinenTwin:
    """Builds, runs and reads models_linen."""

    train = linen_train

    def _boxed(self, config):
        zeros = [jnp.zeros((2, 3), jnp.int32)] * 3
        return jax.eval_shape(LanguageModel(config).init, jax.random.key(0), *zeros)["params"]

    def abstract_params(self, config):
        """Returns ``{path: ShapeDtypeStruct}`` of a fresh model."""
        return flat(nn.meta.unbox(self._boxed(config)))

    def logical_axes(self, config, train):
        """Returns ``{path: (shape, logical axes)}`` of a fresh train state."""
        batch = {name: jax.ShapeDtypeStruct((2, 3), jnp.int32) for name in INPUTS}
        state = jax.eval_shape(
            lambda key: linen_train.create(config, train, key, batch=batch), jax.random.key(0)
        )
        leaves = jax.tree_util.tree_flatten_with_path(
            state, is_leaf=lambda x: isinstance(x, nn.meta.AxisMetadata)
        )
        return {
            jax.tree_util.keystr(path, simple=True, separator="."): (
                nn.meta.unbox(leaf).shape,
                getattr(leaf, "names", None),
            )
            for path, leaf in leaves[0]
        }

    @functools.cache  # noqa: B019
    def initial(self, config, seed):
        """Returns the initial parameters for a seed, with layers along the first axis."""
        zeros = [jnp.zeros((2, 3), jnp.int32)] * 3
        params = nn.meta.unbox(jax.jit(LanguageModel(config).init)(jax.random.key(seed), *zeros)["params"])
        return oracle_decoder.to_layer_first({k: np.asarray(v) for k, v in flat(params).items()}, config)

    def model(self, config, params):
        """Returns the collection ``params`` with the oracle's parameters."""

        def fill(path, leaf):
            name = jax.tree_util.keystr(path, simple=True, separator=".")
            return jnp.asarray(oracle_decoder.leaf_for(name, params, config), leaf.dtype)

        return jax.tree_util.tree_map_with_path(fill, nn.meta.unbox(self._boxed(config)))

    def filled(self, config, fill):
        """Returns variables whose leaves are ``fill(path, shape)``."""
        zeros = [jnp.zeros((2, 3), jnp.int32)] * 3
        variables = nn.meta.unbox(jax.eval_shape(LanguageModel(config).init, jax.random.key(0), *zeros))
        kept = {name: tree for name, tree in variables.items() if name in ("params", "routing_bias")}

        def leaf(path, leaf):
            name = jax.tree_util.keystr(path[1:], simple=True, separator=".")
            return jnp.asarray(fill(name, leaf.shape), leaf.dtype)

        return jax.tree_util.tree_map_with_path(leaf, kept)

    @functools.cache  # noqa: B019
    def jitted_filled(self, config):
        """Returns ``(variables, batch) -> logits``, compiled."""

        def apply(variables, batch):
            return LanguageModel(config).apply(variables, *(batch[name] for name in INPUTS))

        return jax.jit(apply)

    @functools.cache  # noqa: B019
    def decoders(self, config, decode, steps):
        """Returns ``prefill(variables, tokens, lengths)`` and ``generate(variables, state, key)``, compiled."""
        prefill = jax.jit(lambda variables, *prompt: linen_decode.prefill(config, decode, variables, *prompt))
        generate = jax.jit(
            lambda variables, state, key=None: linen_decode.generate(
                config, decode, variables, state, steps, key
            )
        )
        return prefill, generate

    @functools.cache  # noqa: B019
    def stepper_of(self, config, decode):
        """Returns ``(model, state) -> (logits, state)``, compiled."""
        return jax.jit(lambda model, state: linen_decode.decode_step(config, decode, model, state))

    def trace_decoding(self, config, decode, tokens, lengths):
        """Returns ``(logits, state)`` of a prompt and of one more token, without values."""
        zeros = [jnp.zeros((2, 3), jnp.int32)] * 3
        fresh = nn.meta.unbox(jax.eval_shape(LanguageModel(config).init, jax.random.key(0), *zeros))

        def run(variables):
            first = linen_decode.prefill(config, decode, variables, tokens, lengths)
            return first, linen_decode.decode_step(config, decode, variables, first[1])

        return jax.eval_shape(
            run, {name: fresh[name] for name in ("params", "routing_bias") if name in fresh}
        )

    def insert(self, batch, row, slot):
        """Returns a batch of rows with one replaced."""
        return linen_decode.insert(batch, row, slot)

    def forward(self, config):
        """Returns ``(params, batch, key) -> logits``, untraced; params in the twin's form."""

        def apply(params, batch, key=None):
            rngs = None if key is None else {"dropout": key}
            inputs = [batch[name] for name in INPUTS]
            return LanguageModel(config).apply({"params": params}, *inputs, key is None, rngs=rngs)

        return apply

    @functools.cache  # noqa: B019
    def jitted(self, config):
        """Returns `forward`, compiled."""
        return jax.jit(self.forward(config))

    def loss(self, config, train):
        """Returns ``(params, batch, key) -> (loss_sum, weight_sum)``, untraced."""

        def loss(params, batch, key=None):
            variables = linen_train.with_bias(params, {})
            loss_sum, (weight_sum, *_) = linen_train.loss_sums(config, train, variables, batch, key)
            return loss_sum, weight_sum

        return loss

    def pure(self, function, config, params):
        """Returns ``function`` of the twin's parameters as a plain tree, and that tree."""
        return function, self.model(config, params)

    def start(self, config, train, params, seed=5):
        """Returns a train state with the oracle's parameters."""
        tree = self.model(config, params)
        opt_state = linen_train.make_optimizer(train.optimizer).init(tree)
        step = jnp.zeros((), jnp.uint32)
        return linen_train.TrainState(step=step, params=tree, opt_state=opt_state, key=jax.random.key(seed))

    def evaluate(self, config, train, variables, batch):
        """Returns ``(logits, metrics)`` of filled variables."""
        run = jax.jit(lambda variables, batch: linen_evaluate.evaluate(config, train, variables, batch)[:2])
        return run(variables, batch)

    def loss_and_gradients(self, config, train, variables, batch):
        """Returns the mean loss of filled variables, and ``{dotted path: gradient}``."""

        def loss(params, batch):
            read = {**variables, "params": params}
            loss_sum, (weight_sum, *_) = linen_train.loss_sums(config, train, read, batch)
            return loss_sum / weight_sum

        value, grads = jax.jit(jax.value_and_grad(loss))(variables["params"], batch)
        return float(value), {name: np.asarray(grad) for name, grad in flat(grads).items()}

    def fresh(self, config, train, key):
        """Returns a state made by ``create``."""
        batch = {name: jax.ShapeDtypeStruct((2, 3), jnp.int32) for name in INPUTS}
        create = jax.jit(lambda key: linen_train.create(config, train, key, batch=batch))
        return linen_train.unbox(create(key))

    def parts(self, state):
        """Returns the part of a train state that `evaluate` takes."""
        return linen_train.with_bias(linen_train.unbox(state.params), state.routing_bias)

    def routing_bias(self, config, state):
        """Returns ``{layer/routing_bias: array}`` of a state."""
        return by_layer(state.routing_bias, config)

    def tree(self, state):
        """Returns a whole state as a tree."""
        return state

    def stepper(self, config, train):
        """Returns ``(state, batch) -> (state, metrics)``, compiled; a new program for each call."""
        return jax.jit(lambda state, batch: linen_train.train_step(config, train, state, batch))

    cached_stepper = functools.cache(stepper)

    def trace_step(self, config, train, state, batch):
        """Returns the step's jaxpr."""
        return jax.make_jaxpr(lambda state, batch: linen_train.train_step(config, train, state, batch))(
            state, batch
        )

    def snapshot(self, config, state, spikes=False):
        """Returns the values that the oracle compares: params, mu, nu, counters, key."""
        skip = state.opt_state
        inner = skip.inner_state.inner_state if spikes else skip.inner_state
        _, (adam, _, schedule) = inner
        found = {
            name: oracle_decoder.to_layer_first({k: np.asarray(v) for k, v in flat(tree).items()}, config)
            for name, tree in {"params": state.params, "mu": adam.mu, "nu": adam.nu}.items()
        }
        counters = {
            "step": state.step,
            "count": adam.count,
            "schedule_count": schedule.count,
            "bad": skip.notfinite_count,
            "bad_total": skip.total_notfinite,
            "last_finite": skip.last_finite,
        }
        if spikes:
            counters["spikes"] = skip.inner_state.skipped
            counters["spikes_total"] = skip.inner_state.total_skipped
        return (
            found
            | {name: int(value) for name, value in counters.items()}
            | {"key": np.asarray(jax.random.key_data(state.key))}
        )


TWIN = LinenTwin()
