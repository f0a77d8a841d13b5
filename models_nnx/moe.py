"""Mixture of experts: a router, the experts, and the expert shared by all tokens.

B batch, T position, D embed, E expert, K choice of a token, F hidden, S hidden of the shared expert.
"""

import dataclasses

import jax.numpy as jnp
from flax import nnx

from models_nnx.mlp import Mlp
from models_nnx.rngs import PathRngs
from models_nnx.shared import ops
from models_nnx.shared.config import Biases, MlpConfig, ModelConfig
from models_nnx.state import Routed, RoutingBias, Sown, param

__all__ = ["Experts", "Moe", "Router"]


class Router(nnx.Module):
    """Scores every expert for every token."""

    def __init__(self, config: ModelConfig, *, rngs: PathRngs):
        self.config = config
        D, E = config.embed, config.mixture.experts
        init = ops.kernel_init("BTD,DE->BTE")
        self.kernel = param(init(rngs.draw("params"), (D, E), config.param_dtype), ("embed", "router"))
        if config.mixture.biases is Biases.TRAINED:
            init = nnx.initializers.zeros
            self.bias = param(init(rngs.draw("params"), (E,), config.param_dtype), ("router",))

    def __call__(self, x_BTD):
        bias_E = self.bias[...] if self.config.mixture.biases is Biases.TRAINED else None
        return ops.router_logits(x_BTD, self.kernel[...], bias_E, self.config.rules)


class Experts(nnx.Module):
    """The gated MLPs of all experts, stacked."""

    def __init__(self, config: ModelConfig, *, rngs: PathRngs):
        self.config = config
        for name, (init, letters, axes) in ops.expert_parameters(config.mixture).items():
            sizes = {"E": config.mixture.experts, "D": config.embed, "F": config.mixture.hidden}
            shape = tuple(sizes[letter] for letter in letters)
            value = init(rngs.draw("params"), shape, config.param_dtype)
            setattr(self, name, param(value, axes))

    def __call__(self, x_BTD, routing: ops.Routing):
        cfg = self.config
        weights = ops.ExpertWeights(
            **{
                name: getattr(self, name).astype(cfg.compute_dtype)
                for name in ops.expert_parameters(cfg.mixture)
            }
        )
        return ops.experts(x_BTD, routing, weights, cfg.mixture, cfg.rules)


class Moe(nnx.Module):
    """The weighted sum of each token's experts, plus the shared one."""

    def __init__(self, config: ModelConfig, *, rngs: PathRngs):
        self.config = config
        cfg, moe = config, config.mixture
        self.router = Router(cfg, rngs=rngs.at("router"))
        self.experts = Experts(cfg, rngs=rngs.at("experts"))
        if moe.bias_rate is not None:
            self.routing_bias = RoutingBias(jnp.zeros(moe.experts, ops.wide_dtype(cfg.param_dtype)))
        if moe.shared_hidden:
            mlp = MlpConfig(hidden=moe.shared_hidden, activation=moe.activation)
            self.shared = Mlp(dataclasses.replace(cfg, mlp=mlp), rngs=rngs.at("shared"))

    def __call__(self, x_BTD, segments_BT):
        out_BTD, routing = self.routed(x_BTD, segments_BT, self.forced_choices())
        self.record(routing, segments_BT)
        return out_BTD

    def forced_choices(self):
        """Returns choices ``[B, T, K]`` that replace the router's; None if there are none."""
        forced = getattr(self, "forced", None)
        return None if forced is None else forced[...]

    def routed(self, x_BTD, segments_BT, forced_BTK=None):
        """Returns the output for a batch, or a part of one, and its routing; sows nothing."""
        moe, rules = self.config.mixture, self.config.rules
        bias_E = self.routing_bias[...] if moe.bias_rate is not None else None
        routing = ops.route(self.router(x_BTD), bias_E, segments_BT != 0, moe, rules, forced_BTK)
        out_BTD = self.experts(x_BTD, routing)
        return (out_BTD + self.shared(x_BTD) if moe.shared_hidden else out_BTD), routing

    def record(self, routing: ops.Routing, segments_BT):
        """Sows load, balance, preferred experts and margin of a whole batch."""
        load_E = ops.expert_load(routing.experts_BTK, self.config.mixture.experts)
        self._sow(Sown, "expert_load", load_E)
        self._sow(Sown, "load_balance", ops.load_balance(routing.shares_BTE, load_E, segments_BT != 0))
        self._sow(Routed, "preferred", routing.preferred_BTK)
        self._sow(Routed, "margin", routing.margin_BT)

    def _sow(self, kind: type[nnx.Variable], name: str, value):
        # `Module.sow` is deprecated outside of `nnx.capture`; a layer runs once between two pops.
        setattr(self, name, kind(value))
