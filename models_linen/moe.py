"""Mixture of experts: a router, the experts, and the expert shared by all tokens.

B batch, T position, D embed, E expert, K choice of a token, F hidden, S hidden of the shared expert.
"""

import dataclasses

import jax.numpy as jnp
from flax import linen as nn

from models_linen.mlp import Mlp
from models_nnx.shared import ops
from models_nnx.shared.config import Biases, MlpConfig, ModelConfig

__all__ = ["Experts", "Moe", "Router"]


class Router(nn.Module):
    """Scores every expert for every token."""

    config: ModelConfig

    def setup(self):
        cfg, E = self.config, self.config.mixture.experts
        init = nn.with_logical_partitioning(ops.kernel_init("BTD,DE->BTE"), ("embed", "router"))
        self.kernel = self.param("kernel", init, (cfg.embed, E), cfg.param_dtype)
        if cfg.mixture.biases is Biases.TRAINED:
            init = nn.with_logical_partitioning(nn.initializers.zeros, ("router",))
            self.bias = self.param("bias", init, (E,), cfg.param_dtype)

    def __call__(self, x_BTD):
        bias_E = self.bias if self.config.mixture.biases is Biases.TRAINED else None
        return ops.router_logits(x_BTD, self.kernel, bias_E, self.config.rules)


class Experts(nn.Module):
    """The gated MLPs of all experts, stacked."""

    config: ModelConfig

    def setup(self):
        cfg = self.config
        for name, (init, letters, axes) in ops.expert_parameters(cfg.mixture).items():
            sizes = {"E": cfg.mixture.experts, "D": cfg.embed, "F": cfg.mixture.hidden}
            shape = tuple(sizes[letter] for letter in letters)
            setattr(
                self, name, self.param(name, nn.with_logical_partitioning(init, axes), shape, cfg.param_dtype)
            )

    def __call__(self, x_BTD, routing: ops.Routing):
        cfg = self.config
        weights = ops.ExpertWeights(
            **{
                name: getattr(self, name).astype(cfg.compute_dtype)
                for name in ops.expert_parameters(cfg.mixture)
            }
        )
        return ops.experts(x_BTD, routing, weights, cfg.mixture, cfg.rules)


class Moe(nn.Module):
    """The weighted sum of each token's experts, plus the shared one."""

    config: ModelConfig

    def setup(self):
        cfg, moe = self.config, self.config.mixture
        self.router = Router(cfg)
        self.experts = Experts(cfg)
        if moe.bias_rate is not None:
            dtype = ops.wide_dtype(cfg.param_dtype)
            self.routing_bias = self.variable("routing_bias", "routing_bias", jnp.zeros, moe.experts, dtype)
        if moe.shared_hidden:
            mlp = MlpConfig(hidden=moe.shared_hidden, activation=moe.activation)
            self.shared = Mlp(dataclasses.replace(cfg, mlp=mlp))

    def __call__(self, x_BTD, segments_BT):
        out_BTD, routing = self.routed(x_BTD, segments_BT, self.forced_choices())
        self.record(routing, segments_BT)
        return out_BTD

    def forced_choices(self):
        """Returns choices ``[B, T, K]`` that replace the router's; None if there are none."""
        return self.get_variable("forced", "forced")

    def routed(self, x_BTD, segments_BT, forced_BTK=None):
        """Returns the output for a batch, or a part of one, and its routing; sows nothing."""
        moe, rules = self.config.mixture, self.config.rules
        bias_E = self.routing_bias.value if moe.bias_rate is not None else None
        routing = ops.route(self.router(x_BTD), bias_E, segments_BT != 0, moe, rules, forced_BTK)
        out_BTD = self.experts(x_BTD, routing)
        return (out_BTD + self.shared(x_BTD) if moe.shared_hidden else out_BTD), routing

    def record(self, routing: ops.Routing, segments_BT):
        """Sows load, balance, preferred experts and margin of a whole batch."""
        load_E = ops.expert_load(routing.experts_BTK, self.config.mixture.experts)
        self._sow("sown", "expert_load", load_E)
        self._sow("sown", "load_balance", ops.load_balance(routing.shares_BTE, load_E, segments_BT != 0))
        self._sow("routed", "preferred", routing.preferred_BTK)
        self._sow("routed", "margin", routing.margin_BT)

    def _sow(self, collection: str, name: str, value):
        self.sow(collection, name, value, init_fn=lambda: None, reduce_fn=lambda before, now: now)
