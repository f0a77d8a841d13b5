"""Options of a layer as data: attention, norms, feed-forward, experts, layout."""

from models_nnx.shared.config import (
    Activation,
    AttentionKernel,
    Biases,
    Dispatch,
    LatentConfig,
    LayerLayout,
    NormPlacement,
    NormScale,
    QueryKeyNorm,
    Scoring,
    Sinks,
    Span,
    Weighting,
)
from parity.cases.coverage import Factor

__all__ = ["EXPERTS", "NO_EXPERTS", "RECIPE"]

LOCAL, GLOBAL = Span.LOCAL, Span.GLOBAL
ATTENTION = (
    Factor(
        name="heads",
        values={
            "grouped": {"attention.kv_heads": 2, "attention.head_dim": 16},
            "multi_head": {"attention.kv_heads": 6, "attention.head_dim": 16},
            "latent": {
                "attention.kv_heads": 6,
                "attention.head_dim": 24,
                "attention.latent": LatentConfig(
                    query_rank=40, key_value_rank=32, rotary_dim=8, value_dim=12
                ),
            },
        },
    ),
    Factor(
        name="spans",
        values={
            "global": {"attention.cycle": (GLOBAL,)},
            "local": {"attention.cycle": (LOCAL,), "attention.window": 7},
            "local_global": {"attention.cycle": (LOCAL, GLOBAL), "attention.window": 7},
        },
    ),
    Factor(
        name="remainder",
        values={"whole": {"remainder": 0}, "rest": {"remainder": 1}},
        needs={"spans": ("local_global",)},
        idle="a cycle of one layer has no remainder",
    ),
    Factor(
        name="head_norm",
        values={
            "plain_heads": {},
            "qk_norm": {"attention.query_key_norm": QueryKeyNorm.HEAD},
        },
    ),
    Factor(name="sinks", values={"no_sinks": {}, "sinks": {"attention.sinks": Sinks.LEARNED}}),
    Factor(name="soft_cap", values={"uncapped": {}, "capped": {"attention.soft_cap": 2.5}}),
    Factor(
        name="attention_bias",
        values={"no_bias": {}, "attention_bias": {"attention.biases": Biases.TRAINED}},
    ),
    Factor(
        name="kernel",
        values={"plain_kernel": {}, "library": {"attention.kernel": AttentionKernel.LIBRARY}},
    ),
)
NORMS = (
    Factor(name="norms", values={"pre": {}, "post": {"norms": NormPlacement.PRE_AND_POST}}),
    Factor(name="norm_scale", values={"direct": {}, "offset": {"norm_scale": NormScale.OFFSET}}),
)
EXPERTS = {"feed_forward": ("moe", "dense_moe")}
NO_EXPERTS = "without experts there is none"
FEED_FORWARD = (
    Factor(
        name="feed_forward",
        values={"dense": {}, "moe": {"moe.experts": 10}, "dense_moe": {"moe.experts": 10, "dense_layers": 2}},
    ),
    Factor(
        name="activation",
        values={
            "silu": {},
            "gelu": {"mlp.activation": Activation.GELU},
            "clamped": {"mlp.activation": Activation.CLAMPED_SWIGLU},
        },
        needs={"feed_forward": ("dense", "dense_moe")},
        idle="no layer has an MLP",
    ),
    Factor(
        name="dispatch",
        values={
            "dropless": {},
            "dropping": {"moe.dispatch": Dispatch.DROPPING},
            "ample": {"moe.dispatch": Dispatch.DROPPING, "moe.capacity_factor": 3.0},
        },
        needs=EXPERTS,
        idle=NO_EXPERTS,
    ),
    Factor(
        name="scoring",
        values={"softmax": {}, "sigmoid": {"moe.scoring": Scoring.SIGMOID}},
        needs=EXPERTS,
        idle=NO_EXPERTS,
    ),
    Factor(
        name="weighting",
        values={"normalised": {}, "scores": {"moe.weighting": Weighting.SCORES, "moe.scale": 2.5}},
        needs=EXPERTS,
        idle=NO_EXPERTS,
    ),
    Factor(
        name="groups",
        values={"one_group": {}, "groups": {"moe.groups": 5, "moe.top_groups": 3}},
        needs=EXPERTS,
        idle=NO_EXPERTS,
    ),
    Factor(
        name="shared_expert",
        values={"none_shared": {}, "shared": {"moe.shared_hidden": 112}},
        needs=EXPERTS,
        idle=NO_EXPERTS,
    ),
    Factor(
        name="expert_activation",
        values={
            "silu_experts": {},
            "gelu_experts": {"moe.activation": Activation.GELU},
            "clamped_experts": {"moe.activation": Activation.CLAMPED_SWIGLU},
        },
        needs=EXPERTS,
        idle=NO_EXPERTS,
    ),
    Factor(
        name="expert_bias",
        values={"plain_experts": {}, "expert_bias": {"moe.biases": Biases.TRAINED}},
        needs=EXPERTS,
        idle=NO_EXPERTS,
    ),
    Factor(
        name="routing_bias",
        values={"unbiased": {}, "routing_bias": {"moe.bias_rate": 0.01}},
        needs=EXPERTS,
        idle=NO_EXPERTS,
    ),
)
LAYERS = (
    Factor(
        name="layout",
        values={
            "scan1": {},
            "scan0": {"scan_axis": 0},
            "unrolled": {"layout": LayerLayout.UNROLLED},
        },
    ),
)
RECIPE = (*ATTENTION, *NORMS, *FEED_FORWARD, *LAYERS)
"""Options of layers and their layout; every triple of values is covered."""
