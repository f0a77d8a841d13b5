"""All options of the decoders as data: their values, and the conditions under which they have an effect.

The name of a value is its word in a case's id. A value sets fields of the configs; a dot in a field name selects a
part. To add an option, add a factor here, then run `python tests/campaigns matrix.covering`.
"""

from models_nnx.shared.config import (
    Boundaries,
    EmbeddingScale,
    Gather,
    Head,
    LayerLayout,
    LayerSchedule,
    LinearScaling,
    Loop,
    MomentSharding,
    OptimizerConfig,
    RematConfig,
    RematPolicy,
    YarnScaling,
)
from models_nnx.shared.mesh import DEFAULT_RULES, Rules
from parity.cases.coverage import Factor
from parity.matrix.covering.recipe import EXPERTS, NO_EXPERTS, RECIPE

__all__ = ["DECODING", "TRAINING"]

FULL = RematConfig(policy=RematPolicy.FULL)
MINIMAL = RematConfig(policy=RematPolicy.MINIMAL)
YARN = {"factor": 4.0, "original_length": 20, "beta_fast": 2.0, "beta_slow": 0.25}
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
    "diloco.period": 4,
    "diloco.fragments": 2,
    "diloco.delay": 1,
    "diloco.inner_share": 0.25,
    "diloco.learning_rate": 0.5,
    "diloco.momentum": 0.8,
}


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

ONLY_TRAINED = (
    Factor(
        name="remat",
        values={
            "keep_all": {},
            "remat_full": {"remat": FULL},
            "remat_minimal": {"remat": MINIMAL},
            "save_query": {"remat": _named("query", "attention_out")},
            "save_key": {"remat": _named("key", "value")},
            "save_hidden": {"remat": _named("mlp_hidden")},
        },
    ),
    Factor(name="dropout", values={"no_dropout": {}, "dropout": {"dropout": 0.1}}),
)

REST = (
    Factor(
        name="rotary",
        values={
            "plain_rotary": {},
            "linear": {"attention.rope_scaling": LinearScaling(factor=4.0), "attention.rope_theta": 700.0},
            "yarn": {"attention.rope_scaling": YarnScaling(**YARN, score_factor=1.3)},
            "yarn_exact": {
                "attention.rope_scaling": YarnScaling(**YARN, boundaries=Boundaries.EXACT, angle_factor=1.2)
            },
        },
    ),
    Factor(name="local_base", values={"one_base": {}, "local_base": {"attention.local_rope_theta": 700.0}}),
    Factor(name="query_scalar", values={"by_width": {}, "query_scalar": {"attention.query_scalar": 20.0}}),
    Factor(name="head", values={"untied": {}, "tied": {"head": Head.TIED}}),
    Factor(name="logits_cap", values={"uncapped_logits": {}, "capped_logits": {"logits_soft_cap": 1.5}}),
    Factor(
        name="embedding",
        values={
            "as_stored": {},
            "root": {"embedding_scale": EmbeddingScale.ROOT, "norm_epsilon": 1e-3},
        },
    ),
    Factor(
        name="precision",
        values={
            "f32": {},
            "bf16_compute": {"compute_dtype": "bfloat16"},
            "bf16": {"param_dtype": "bfloat16", "compute_dtype": "bfloat16"},
            "bf16_params": {"param_dtype": "bfloat16"},
        },
    ),
    Factor(
        name="mesh",
        values={
            "fsdp_tensor": {"mesh": "fsdp2.tensor2"},
            "single": {"mesh": ""},
            "data_fsdp": {"mesh": "data2.fsdp2"},
            "expert_fsdp": {"mesh": "expert2.fsdp2.tensor1"},
            "context_tensor": {"mesh": "context2.tensor2"},
            "transpose": {"mesh": "fsdp2.fsdp_transpose2.data1"},
        },
    ),
    Factor(
        name="mode",
        values={"auto": {"mode": "auto"}, "explicit": {"mode": "explicit"}},
        needs={"mesh": ("fsdp_tensor", "data_fsdp", "expert_fsdp", "context_tensor", "transpose")},
        idle="one device has no mesh",
    ),
    Factor(
        name="rules",
        values={
            "default_rules": {},
            "replicated": {"rules": REPLICATED},
            "crossed": {"rules": CROSSED},
            "whole_activations": {"rules": WHOLE_ACTIVATIONS},
        },
    ),
)

STEP = {"program": ("train_step",)}
NO_STEP = "a gradient alone makes no step"
PIPELINE = {"pipeline": ("stages",)}
NO_STAGES = "without a pipeline there is none"
LOSS = (
    Factor(name="program", values={"train_step": {"program": "train_step"}, "grad": {"program": "grad"}}),
    Factor(name="tiles", values={"all_logits": {}, "tiles": {"train.vocab_tiles": 4}}),
    Factor(name="z_loss", values={"z_loss": {}, "no_z_loss": {"train.z_loss": 0.0}}),
    Factor(
        name="load_balance",
        values={"unbalanced": {}, "balanced": {"moe.load_balance": 0.1}},
        needs=EXPERTS,
        idle=NO_EXPERTS,
    ),
    Factor(
        name="accumulation",
        values={"at_once": {}, "accumulate": {"train.accumulation": 2}},
        needs=STEP,
        idle=NO_STEP,
    ),
    Factor(
        name="optimizer",
        values={"usual": {}, "other_optimizer": {"train.optimizer": OTHER_OPTIMIZER}},
        needs=STEP,
        idle=NO_STEP,
    ),
    Factor(
        name="moments",
        values={"like_parameters": {}, "zero1": {"train.moments": MomentSharding.ZERO1}},
        needs={**STEP, "mesh": ("data_fsdp", "transpose")},
        idle="no step, or no mesh axis to spread moments over",
    ),
)
STAGES = (
    Factor(
        name="pipeline",
        values={"in_sequence": {}, "stages": {"pipeline.stages": 2, "pipeline.microbatches": 2}},
    ),
    Factor(
        name="microbatches",
        values={"two": {}, "four_microbatches": {"pipeline.microbatches": 4}},
        needs=PIPELINE,
        idle=NO_STAGES,
    ),
    Factor(
        name="repeats",
        values={"once_round": {}, "repeats": {"pipeline.repeats": 2}},
        needs=PIPELINE,
        idle=NO_STAGES,
    ),
    Factor(
        name="per_stage",
        values={"one_a_stage": {}, "two_a_stage": {"pipeline.layers_per_stage": 2}},
        needs=PIPELINE,
        idle=NO_STAGES,
    ),
    Factor(
        name="outside",
        values={"all_inside": {}, "outside": {"pipeline.layers_outside": 1}},
        needs=PIPELINE,
        idle=NO_STAGES,
    ),
    Factor(
        name="delay", values={"prompt": {}, "delay": {"pipeline.delay": 2}}, needs=PIPELINE, idle=NO_STAGES
    ),
    Factor(
        name="gather",
        values={
            "per_iteration": {},
            "gather_once": {"pipeline.gather": Gather.ONCE},
            "per_repeat": {"pipeline.gather": Gather.PER_REPEAT},
        },
        needs=PIPELINE,
        idle=NO_STAGES,
    ),
    Factor(
        name="iteration_remat",
        values={
            "full_iterations": {},
            "keep_iterations": {"pipeline.iteration_remat": RematConfig()},
            "minimal_iterations": {"pipeline.iteration_remat": MINIMAL},
            "save_iterations": {"pipeline.iteration_remat": _named("query", "mlp_hidden")},
        },
        needs=PIPELINE,
        idle=NO_STAGES,
    ),
    Factor(
        name="iteration_loop",
        values={"iterations": {}, "iterations_unrolled": {"pipeline.iteration_loop": Loop.UNROLLED}},
        needs=PIPELINE,
        idle=NO_STAGES,
    ),
    Factor(
        name="repeat_loop",
        values={"repeat_loop": {}, "repeats_unrolled": {"pipeline.repeat_loop": Loop.UNROLLED}},
        needs={**PIPELINE, "gather": ("per_repeat",)},
        idle="only per_repeat has a loop over repeats",
    ),
    Factor(
        name="stage_layout",
        values={"stage_scanned": {}, "stage_unrolled": {"pipeline.stage_layout": LayerLayout.UNROLLED}},
        needs={**PIPELINE, "per_stage": ("two_a_stage",)},
        idle="one layer is no loop",
    ),
)
LAST = (
    Factor(
        name="ahead",
        values={
            "next_token": {},
            "two_tokens": {"mtp.depth": 1},
            "three_tokens": {"mtp.depth": 2, "mtp.loss_scale": 0.7},
        },
    ),
    Factor(
        name="schedule",
        values={"batch_whole": {}, "batch_split": {"layer_schedule": LayerSchedule.BATCH_SPLIT}},
        needs=EXPERTS,
        idle=NO_EXPERTS,
    ),
    Factor(
        name="replicas",
        values={
            "one_model": {},
            "replicas": {"diloco.replicas": 2, "diloco.period": 2},
            "streaming": {"diloco.replicas": 2, **STREAMING},
        },
        needs={**STEP, "pipeline": ("in_sequence",)},
        idle="a gradient alone makes no step; replicas with stages are for the pair `diloco`",
    ),
)
TRAINING = (*RECIPE, *ONLY_TRAINED, *REST, *LOSS, *STAGES, *LAST)
DECODING = (
    *RECIPE,
    *REST,
    Factor(
        name="program",
        values={name: {"program": name} for name in ("generate", "prefill", "forward", "sample")},
    ),
)
