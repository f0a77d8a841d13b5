"""Interface of the shared suites to the NNX twin."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import oracle_decoder
from flax import nnx

from models_nnx import decode as nnx_decode
from models_nnx import evaluate as nnx_evaluate
from models_nnx import train as nnx_train
from models_nnx.model import LanguageModel
from models_nnx.rngs import PathRngs
from models_nnx.shared.ops import by_layer
from models_nnx.state import RoutingBias


def flat(state):
    """Returns ``{dotted path: array}`` of an NNX state."""
    leaves = jax.tree_util.tree_flatten_with_path(nnx.to_pure_dict(state))[0]
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in leaves}


class NnxTwin:
    """Builds, runs and reads models_nnx."""

    train = nnx_train

    def abstract_params(self, config):
        """Returns ``{path: ShapeDtypeStruct}`` of a fresh model."""
        keys = {"params": jax.random.key(0)}
        return flat(nnx.state(nnx.eval_shape(lambda: LanguageModel(config, rngs=PathRngs(keys))), nnx.Param))

    def logical_axes(self, config, train):
        """Returns ``{path: (shape, logical axes)}`` of a fresh train state."""
        state = nnx.eval_shape(lambda: nnx_train.create(config, train, jax.random.key(0)))
        leaves = nnx.to_flat_state(nnx.state(state))
        named = {".".join(map(str, path)): leaf for path, leaf in leaves}
        return {path: (leaf.shape, leaf.get_metadata().get("out_sharding")) for path, leaf in named.items()}

    @functools.cache  # noqa: B019
    def initial(self, config, seed):
        """Returns the initial parameters for a seed, with layers along the first axis."""
        create = jax.jit(
            lambda key: nnx.state(LanguageModel(config, rngs=PathRngs({"params": key})), nnx.Param)
        )
        return oracle_decoder.to_layer_first(
            {k: np.asarray(v) for k, v in flat(create(jax.random.key(seed))).items()}, config
        )

    def model(self, config, params):
        """Returns a model with the oracle's parameters."""
        keys = {"params": jax.random.key(0)}
        graphdef, state = nnx.split(nnx.eval_shape(lambda: LanguageModel(config, rngs=PathRngs(keys))))

        def fill(path, leaf):
            name = jax.tree_util.keystr(path[:-1], simple=True, separator=".")
            return jnp.asarray(oracle_decoder.leaf_for(name, params, config), leaf.dtype)

        return nnx.merge(graphdef, jax.tree_util.tree_map_with_path(fill, state))

    def filled(self, config, fill):
        """Returns a model whose leaves are ``fill(path, shape)``."""
        keys = {"params": jax.random.key(0)}
        graphdef, state = nnx.split(nnx.eval_shape(lambda: LanguageModel(config, rngs=PathRngs(keys))))

        def leaf(path, leaf):
            name = jax.tree_util.keystr(path[:-1], simple=True, separator=".")
            return jnp.asarray(fill(name, leaf.shape), leaf.dtype)

        return nnx.merge(graphdef, jax.tree_util.tree_map_with_path(leaf, state))

    @functools.cache  # noqa: B019
    def jitted_filled(self, config):
        """Returns ``(model, batch) -> logits``, compiled."""
        forward = self.forward(config)

        def apply(model, batch):
            logits = forward(model, batch)
            nnx.pop(model, nnx.Intermediate)
            return logits

        return nnx.jit(apply)

    @functools.cache  # noqa: B019
    def decoders(self, config, decode, steps):
        """Returns ``prefill(model, tokens, lengths)`` and ``generate(model, state, key)``, compiled."""
        prefill = nnx.jit(lambda model, *prompt: nnx_decode.prefill(decode, model, *prompt))
        generate = nnx.jit(
            lambda model, state, key=None: nnx_decode.generate(decode, model, state, steps, key)
        )
        return prefill, generate

    @functools.cache  # noqa: B019
    def stepper_of(self, config, decode):
        """Returns ``(model, state) -> (logits, state)``, compiled."""
        return nnx.jit(lambda model, state: nnx_decode.decode_step(decode, model, state))

    def trace_decoding(self, config, decode, tokens, lengths):
        """Returns ``(logits, state)`` of a prompt and of one more token, without values."""
        keys = {"params": jax.random.key(0)}
        graphdef, leaves = nnx.split(nnx.eval_shape(lambda: LanguageModel(config, rngs=PathRngs(keys))))

        def run(leaves):
            first = nnx_decode.prefill(decode, nnx.merge(graphdef, leaves), tokens, lengths)
            return first, nnx_decode.decode_step(decode, nnx.merge(graphdef, leaves), first[1])

        return jax.eval_shape(run, leaves)

    def insert(self, batch, row, slot):
        """Returns a batch of rows with one replaced."""
        return nnx_decode.insert(batch, row, slot)

    def forward(self, config):
        """Returns ``(params, batch, key) -> logits``, untraced; params in the twin's form."""

        def apply(model, batch, key=None):
            rngs = None if key is None else PathRngs({"dropout": key})
            return model(batch["tokens"], batch["segments"], batch["positions"], key is None, rngs)

        return apply

    @functools.cache  # noqa: B019
    def jitted(self, config):
        """Returns `forward`, compiled."""
        return nnx.jit(self.forward(config))

    def loss(self, config, train):
        """Returns ``(params, batch, key) -> (loss_sum, weight_sum)``, untraced."""

        def loss(model, batch, key=None):
            loss_sum, (weight_sum, *_) = nnx_train.loss_sums(model, train, batch, key)
            return loss_sum, weight_sum

        return loss

    def pure(self, function, config, params):
        """Returns ``function`` of the twin's parameters as a plain tree, and that tree."""
        graphdef, state = nnx.split(self.model(config, params))
        return lambda state, *rest: function(nnx.merge(graphdef, state), *rest), state

    def start(self, config, train, params, seed=5):
        """Returns a train state with the oracle's parameters."""
        model = self.model(config, params)
        optimizer = nnx.Optimizer(model, nnx_train.make_optimizer(train.optimizer), wrt=nnx.Param)
        return nnx_train.TrainState(model, optimizer, jax.random.key(seed))

    def evaluate(self, config, train, model, batch):
        """Returns ``(logits, metrics)`` of a filled model."""
        return nnx.jit(lambda model, batch: nnx_evaluate.evaluate(model, train, batch)[:2])(model, batch)

    def loss_and_gradients(self, config, train, model, batch):
        """Returns the mean loss of a filled model, and ``{dotted path: gradient}``."""
        graphdef, params, rest = nnx.split(model, nnx.Param, ...)

        def loss(params, batch):
            loss_sum, (weight_sum, *_) = nnx_train.loss_sums(nnx.merge(graphdef, params, rest), train, batch)
            return loss_sum / weight_sum

        value, grads = jax.jit(jax.value_and_grad(loss))(params, batch)
        return float(value), {name: np.asarray(grad) for name, grad in flat(grads).items()}

    def fresh(self, config, train, key):
        """Returns a state made by ``create``."""
        return nnx.jit(lambda key: nnx_train.create(config, train, key))(key)

    def parts(self, state):
        """Returns the part of a train state that `evaluate` takes."""
        return state.model

    def routing_bias(self, config, state):
        """Returns ``{layer/routing_bias: array}`` of a state."""
        return by_layer(nnx.to_pure_dict(nnx.state(state.model, RoutingBias)), config)

    def tree(self, state):
        """Returns a whole state as a tree."""
        return nnx.to_pure_dict(nnx.state(state))

    def stepper(self, config, train):
        """Returns ``(state, batch) -> (state, metrics)``, compiled; a new program for each call."""
        step = nnx.jit(lambda state, batch: nnx_train.train_step(train, state, batch))
        return lambda state, batch: (state, step(state, batch))

    cached_stepper = functools.cache(stepper)

    def trace_step(self, config, train, state, batch):
        """Returns the step's jaxpr."""
        graphdef, leaves = nnx.split(state)

        def step(leaves, batch):
            state = nnx.merge(graphdef, leaves)
            return nnx_train.train_step(train, state, batch), nnx.state(state)

        return jax.make_jaxpr(step)(leaves, batch)

    def snapshot(self, config, state, spikes=False):
        """Returns the values that the oracle compares: params, mu, nu, counters, key."""
        chain = "optimizer.opt_state.inner_state." + "inner_state." * spikes
        adam = f"{chain}1.0."
        leaves = flat(nnx.state(state))
        key = np.asarray(jax.random.key_data(leaves.pop("key")))
        leaves = {path: np.asarray(leaf) for path, leaf in leaves.items()}
        trees = {"params": "model.", "mu": f"{adam}mu.", "nu": f"{adam}nu."}
        found = {
            tree: oracle_decoder.to_layer_first(
                {p.removeprefix(prefix): leaf for p, leaf in leaves.items() if p.startswith(prefix)}, config
            )
            for tree, prefix in trees.items()
        }
        counters = {
            "step": "optimizer.step",
            "count": f"{adam}count",
            "schedule_count": f"{chain}1.2.count",
            "bad": "optimizer.opt_state.notfinite_count",
            "bad_total": "optimizer.opt_state.total_notfinite",
            "last_finite": "optimizer.opt_state.last_finite",
        }
        if spikes:
            counters["spikes"] = "optimizer.opt_state.inner_state.skipped"
            counters["spikes_total"] = "optimizer.opt_state.inner_state.total_skipped"
        return found | {name: int(leaves[path]) for name, path in counters.items()} | {"key": key}


TWIN = NnxTwin()
