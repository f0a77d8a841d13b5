"""Framework-free maths shared by both twins, one file per concern."""

from models_nnx.ops.accumulation import accumulate
from models_nnx.ops.attention import attention, causal_segment_mask, rotary
from models_nnx.ops.dropout import dropout
from models_nnx.ops.dtypes import wide_dtype
from models_nnx.ops.experts import ExpertWeights, expert_parameters, experts
from models_nnx.ops.losses import cross_entropy
from models_nnx.ops.mlp import clamped_swiglu, gated_activation
from models_nnx.ops.norms import rms_norm
from models_nnx.ops.projections import EMBEDDING_INIT, einsum, kernel_init, lookup
from models_nnx.ops.remat import remat_policy, tag
from models_nnx.ops.routing import (
    Routing,
    balance_bias,
    expert_load,
    load_balance,
    route,
    router_logits,
)
from models_nnx.ops.sown import (
    SownError,
    by_layer,
    from_layers,
    load_balance_sum,
    sown_load,
    sown_metrics,
    sown_sums,
)
from models_nnx.ops.tiled_losses import tiled_cross_entropy, tiled_logits_sums

__all__ = [
    "EMBEDDING_INIT",
    "ExpertWeights",
    "Routing",
    "SownError",
    "accumulate",
    "attention",
    "balance_bias",
    "by_layer",
    "causal_segment_mask",
    "clamped_swiglu",
    "cross_entropy",
    "dropout",
    "einsum",
    "expert_load",
    "expert_parameters",
    "experts",
    "from_layers",
    "gated_activation",
    "kernel_init",
    "load_balance",
    "load_balance_sum",
    "lookup",
    "remat_policy",
    "rms_norm",
    "rotary",
    "route",
    "router_logits",
    "sown_load",
    "sown_metrics",
    "sown_sums",
    "tag",
    "tiled_cross_entropy",
    "tiled_logits_sums",
    "wide_dtype",
]
