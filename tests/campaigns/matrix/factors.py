"""All options of the decoders as data: their values, and the conditions under which they have an effect.

The name of a value is its word in a case's id. A value sets fields of the configs; a dot in a field name selects a
part. To add an option, add a factor here, then run `python tests/campaigns matrix.covering`.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from models_nnx.shared.config import (
    Activation,
    AttentionKernel,
    Biases,
    Boundaries,
    Dispatch,
    EmbeddingScale,
    Gather,
    Head,
    LatentConfig,
    LayerLayout,
    LayerSchedule,
    LinearScaling,
    Loop,
    MomentSharding,
    NormPlacement,
    NormScale,
    OptimizerConfig,
    QueryKeyNorm,
    RematConfig,
    RematPolicy,
    Scoring,
    Sinks,
    Span,
    Weighting,
    YarnScaling,
)
from models_nnx.shared.mesh import DEFAULT_RULES, Rules

__all__ = ["DECODING", "TRAINING", "Factor"]

Needs = Mapping[str, tuple[str, ...]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Factor:
    """An option and its values.

    Args:
        name: name of the option, one word.
        values: ``{value: settings}``; the first is the default.
        needs: ``{other factor: values}``, all of which must hold for this factor to have an effect.
    """

    name: str
    values: Mapping[str, Any]
    needs: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        if len(self.values) < 2:
            raise ValueError(f"factor {self.name}: got {list(self.values)}, expected two values or more")

    @property
    def ordinary(self) -> str:
        """The default value."""
        return next(iter(self.values))


def _factors(needs: Needs | None = None, /, **values: Mapping[str, Mapping[str, Any]]) -> tuple[Factor, ...]:
    """Returns factors with the same needs, each ``name={value: fields}``."""
    return tuple(Factor(name=name, values=each, needs=needs or {}) for name, each in values.items())


LOCAL, GLOBAL = Span.LOCAL, Span.GLOBAL
WINDOW = {"attention.window": 7}
EXPERTS = {"feed_forward": ("moe", "dense_moe")}
DROPPING = {"moe.dispatch": Dispatch.DROPPING}
RECIPE = (
    *_factors(
        heads={
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
        spans={
            "global": {"attention.cycle": (GLOBAL,)},
            "local": {"attention.cycle": (LOCAL,), **WINDOW},
            "local_global": {"attention.cycle": (LOCAL, GLOBAL), **WINDOW},
        },
    ),
    *_factors({"spans": ("local_global",)}, remainder={"whole": {"remainder": 0}, "rest": {"remainder": 1}}),
    *_factors(
        head_norm={"plain_heads": {}, "qk_norm": {"attention.query_key_norm": QueryKeyNorm.HEAD}},
        sinks={"no_sinks": {}, "sinks": {"attention.sinks": Sinks.LEARNED}},
        soft_cap={"uncapped": {}, "capped": {"attention.soft_cap": 2.5}},
        attention_bias={"no_bias": {}, "attention_bias": {"attention.biases": Biases.TRAINED}},
        kernel={"plain_kernel": {}, "library": {"attention.kernel": AttentionKernel.LIBRARY}},
        norms={"pre": {}, "post": {"norms": NormPlacement.PRE_AND_POST}},
        norm_scale={"direct": {}, "offset": {"norm_scale": NormScale.OFFSET}},
        feed_forward={
            "dense": {},
            "moe": {"moe.experts": 10},
            "dense_moe": {"moe.experts": 10, "dense_layers": 2},
        },
    ),
    *_factors(
        {"feed_forward": ("dense", "dense_moe")},
        activation={
            "silu": {},
            "gelu": {"mlp.activation": Activation.GELU},
            "clamped": {"mlp.activation": Activation.CLAMPED_SWIGLU},
        },
    ),
    *_factors(
        EXPERTS,
        dispatch={"dropless": {}, "dropping": DROPPING, "ample": {**DROPPING, "moe.capacity_factor": 3.0}},
        scoring={"softmax": {}, "sigmoid": {"moe.scoring": Scoring.SIGMOID}},
        weighting={"normalised": {}, "scores": {"moe.weighting": Weighting.SCORES, "moe.scale": 2.5}},
        groups={"one_group": {}, "groups": {"moe.groups": 5, "moe.top_groups": 3}},
        shared_expert={"none_shared": {}, "shared": {"moe.shared_hidden": 112}},
        expert_activation={
            "silu_experts": {},
            "gelu_experts": {"moe.activation": Activation.GELU},
            "clamped_experts": {"moe.activation": Activation.CLAMPED_SWIGLU},
        },
        expert_bias={"plain_experts": {}, "expert_bias": {"moe.biases": Biases.TRAINED}},
        routing_bias={"unbiased": {}, "routing_bias": {"moe.bias_rate": 0.01}},
    ),
    *_factors(layout={"scan1": {}, "scan0": {"scan_axis": 0}, "unrolled": {"layout": LayerLayout.UNROLLED}}),
)
"""Options of layers and their layout; every triple of values is covered."""

MINIMAL = RematConfig(policy=RematPolicy.MINIMAL)


def _named(*names: str) -> RematConfig:
    return RematConfig(policy=RematPolicy.SAVE_NAMED, names=names)


def _rules(**axes: str | tuple[str, ...] | None) -> Rules:
    """Returns the default rules with other mesh axes for some names."""
    changed = dict.fromkeys(name for name, _ in DEFAULT_RULES if name in axes)
    rest = tuple(rule for rule in DEFAULT_RULES if rule[0] not in axes)
    return tuple((name, axes[name]) for name in changed) + rest


WEIGHTS = ("mlp", "heads", "kv_heads", "vocab", "embed", "q_lora", "kv_lora")
REPLICATED = _rules(**dict.fromkeys(WEIGHTS))
CROSSED = _rules(embed="tensor", mlp="fsdp", heads="fsdp", kv_heads="fsdp", vocab="fsdp")
WHOLE_ACTIVATIONS = _rules(activation_heads=None, activation_kv_heads=None, activation_mlp=None)
YARN = {"factor": 4.0, "original_length": 20, "beta_fast": 2.0, "beta_slow": 0.25}

REST = (
    *_factors(
        rotary={
            "plain_rotary": {},
            "linear": {"attention.rope_scaling": LinearScaling(factor=4.0), "attention.rope_theta": 700.0},
            "yarn": {"attention.rope_scaling": YarnScaling(**YARN, score_factor=1.3)},
            "yarn_exact": {
                "attention.rope_scaling": YarnScaling(**YARN, boundaries=Boundaries.EXACT, angle_factor=1.2)
            },
        },
        local_base={"one_base": {}, "local_base": {"attention.local_rope_theta": 700.0}},
        query_scalar={"by_width": {}, "query_scalar": {"attention.query_scalar": 20.0}},
        head={"untied": {}, "tied": {"head": Head.TIED}},
        logits_cap={"uncapped_logits": {}, "capped_logits": {"logits_soft_cap": 1.5}},
        embedding={"as_stored": {}, "root": {"embedding_scale": EmbeddingScale.ROOT, "norm_epsilon": 1e-3}},
        precision={
            "f32": {},
            "bf16_compute": {"compute_dtype": "bfloat16"},
            "bf16": {"param_dtype": "bfloat16", "compute_dtype": "bfloat16"},
            "bf16_params": {"param_dtype": "bfloat16"},
        },
        mesh={
            "fsdp_tensor": {"mesh": "fsdp2.tensor2"},
            "single": {"mesh": ""},
            "data_fsdp": {"mesh": "data2.fsdp2"},
            "expert_fsdp": {"mesh": "expert2.fsdp2.tensor1"},
            "context_tensor": {"mesh": "context2.tensor2"},
            "transpose": {"mesh": "fsdp2.fsdp_transpose2.data1"},
        },
    ),
    *_factors(
        {"mesh": ("fsdp_tensor", "data_fsdp", "expert_fsdp", "context_tensor", "transpose")},
        mode={"auto": {"mode": "auto"}, "explicit": {"mode": "explicit"}},
    ),
    *_factors(
        rules={
            "default_rules": {},
            "replicated": {"rules": REPLICATED},
            "crossed": {"rules": CROSSED},
            "whole_activations": {"rules": WHOLE_ACTIVATIONS},
        }
    ),
)

OTHER_OPTIMIZER = OptimizerConfig(
    learning_rate=0.01,
    warmup_steps=3,
    total_steps=50,
    b1=0.8,
    b2=0.9,
    epsilon=1e-6,
    weight_decay=0.0,
    clip_norm=0.5,
    max_bad_steps=2,
    final_learning_rate=0.002,
    spike_window=3,
    spike_factor=2.5,
)
STREAMING = {
    "diloco.replicas": 2,
    "diloco.period": 4,
    "diloco.fragments": 2,
    "diloco.delay": 1,
    "diloco.inner_share": 0.25,
    "diloco.learning_rate": 0.5,
    "diloco.momentum": 0.8,
}
STEP = {"program": ("train_step",)}
PIPELINE = {"pipeline": ("stages",)}

TRAINING = (
    *RECIPE,
    *_factors(
        remat={
            "keep_all": {},
            "remat_full": {"remat": RematConfig(policy=RematPolicy.FULL)},
            "remat_minimal": {"remat": MINIMAL},
            "save_query": {"remat": _named("query", "attention_out")},
            "save_key": {"remat": _named("key", "value")},
            "save_hidden": {"remat": _named("mlp_hidden")},
        },
        dropout={"no_dropout": {}, "dropout": {"dropout": 0.1}},
    ),
    *REST,
    *_factors(
        program={"train_step": {"program": "train_step"}, "grad": {"program": "grad"}},
        tiles={"all_logits": {}, "tiles": {"train.vocab_tiles": 4}},
        z_loss={"z_loss": {}, "no_z_loss": {"train.z_loss": 0.0}},
    ),
    *_factors(EXPERTS, load_balance={"unbalanced": {}, "balanced": {"moe.load_balance": 0.1}}),
    *_factors(
        STEP,
        accumulation={"at_once": {}, "accumulate": {"train.accumulation": 2}},
        optimizer={"usual": {}, "other_optimizer": {"train.optimizer": OTHER_OPTIMIZER}},
    ),
    *_factors(
        {**STEP, "mesh": ("data_fsdp", "transpose")},
        moments={"like_parameters": {}, "zero1": {"train.moments": MomentSharding.ZERO1}},
    ),
    *_factors(pipeline={"in_sequence": {}, "stages": {"pipeline.stages": 2, "pipeline.microbatches": 2}}),
    *_factors(
        PIPELINE,
        microbatches={"two": {}, "four_microbatches": {"pipeline.microbatches": 4}},
        repeats={"once_round": {}, "repeats": {"pipeline.repeats": 2}},
        per_stage={"one_a_stage": {}, "two_a_stage": {"pipeline.layers_per_stage": 2}},
        outside={"all_inside": {}, "outside": {"pipeline.layers_outside": 1}},
        delay={"prompt": {}, "delay": {"pipeline.delay": 2}},
        gather={
            "per_iteration": {},
            "gather_once": {"pipeline.gather": Gather.ONCE},
            "per_repeat": {"pipeline.gather": Gather.PER_REPEAT},
        },
        iteration_remat={
            "full_iterations": {},
            "keep_iterations": {"pipeline.iteration_remat": RematConfig()},
            "minimal_iterations": {"pipeline.iteration_remat": MINIMAL},
            "save_iterations": {"pipeline.iteration_remat": _named("query", "mlp_hidden")},
        },
        iteration_loop={"iterations": {}, "iterations_unrolled": {"pipeline.iteration_loop": Loop.UNROLLED}},
    ),
    *_factors(
        {**PIPELINE, "gather": ("per_repeat",)},
        repeat_loop={"repeat_loop": {}, "repeats_unrolled": {"pipeline.repeat_loop": Loop.UNROLLED}},
    ),
    *_factors(
        {**PIPELINE, "per_stage": ("two_a_stage",)},
        stage_layout={"stage_scanned": {}, "stage_unrolled": {"pipeline.stage_layout": LayerLayout.UNROLLED}},
    ),
    *_factors(
        ahead={
            "next_token": {},
            "two_tokens": {"mtp.depth": 1},
            "three_tokens": {"mtp.depth": 2, "mtp.loss_scale": 0.7},
        }
    ),
    *_factors(
        EXPERTS, schedule={"batch_whole": {}, "batch_split": {"layer_schedule": LayerSchedule.BATCH_SPLIT}}
    ),
    *_factors(
        {**STEP, "pipeline": ("in_sequence",)},  # replicas with stages are for the pair `diloco`
        replicas={
            "one_model": {},
            "replicas": {"diloco.replicas": 2, "diloco.period": 2},
            "streaming": STREAMING,
        },
    ),
)
DECODING = (
    *RECIPE,
    *REST,
    *_factors(program={name: {"program": name} for name in ("generate", "prefill", "forward", "sample")}),
)
