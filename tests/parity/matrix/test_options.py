"""Every option of every config changes the program of each flavour, and both to the same program."""

import dataclasses

import pytest

from models_nnx.shared.config import (
    Activation,
    AttentionConfig,
    AttentionKernel,
    Biases,
    Boundaries,
    DecodeConfig,
    DilocoConfig,
    Dispatch,
    EmbeddingScale,
    Gather,
    Head,
    LatentConfig,
    LayerLayout,
    LayerSchedule,
    LinearScaling,
    Loop,
    MlpConfig,
    ModelConfig,
    MoeConfig,
    MomentSharding,
    MtpConfig,
    NormPlacement,
    NormScale,
    OptimizerConfig,
    PipelineConfig,
    QueryKeyNorm,
    RematConfig,
    RematPolicy,
    Scoring,
    Sinks,
    Span,
    TrainConfig,
    Weighting,
    YarnScaling,
)
from models_nnx.shared.presets import preset, tiny
from models_nnx.shared.sharding import DEFAULT_RULES
from parity.builds.weights.map import MapError
from parity.compare.evidence import Evidence
from parity.compare.session import Session
from parity.matrix.cases import twins
from parity.matrix.decoders import PLAIN, Variant
from parity.matrix.pipeline import PREFETCH, STORAGE, pipelined

pytestmark = pytest.mark.long


def changed(config, path, value):
    """A config, or a variant, with one field replaced; a dot addresses a part."""
    name, _, rest = path.partition(".")
    return dataclasses.replace(
        config, **{name: changed(getattr(config, name), rest, value) if rest else value}
    )


def variant(config, train=PLAIN):
    return Variant("options", config, train)


DENSE = dataclasses.replace(tiny(preset("llama2-70b")), layers=2)
MIXTRAL = dataclasses.replace(tiny(preset("mixtral-8x7b")), layers=1)
DEEP = dataclasses.replace(tiny(preset("deepseek3-671b")), layers=3, dense_layers=1)
GEMMA = changed(
    dataclasses.replace(tiny(preset("gemma3-12b")), layers=12), "attention.cycle", (Span.LOCAL, Span.GLOBAL)
)
KEEPS = RematConfig(policy=RematPolicy.SAVE_NAMED, names=("query",))
SPIKY = TrainConfig(optimizer=OptimizerConfig(spike_window=3))
DILOCO = DilocoConfig(replicas=2, period=4, fragments=2)
BASES = {
    "dense": (variant(DENSE), "single"),
    "placed": (variant(DENSE), "data2.fsdp2.tensor2-auto"),
    "keeps": (variant(dataclasses.replace(DENSE, remat=KEEPS)), "single"),
    "spiky": (variant(DENSE, SPIKY), "single"),
    "mixtral": (variant(MIXTRAL), "single"),
    "dropping": (variant(changed(MIXTRAL, "moe.dispatch", Dispatch.DROPPING)), "single"),
    "deep": (variant(DEEP), "single"),
    "gemma": (variant(dataclasses.replace(GEMMA, layers=2)), "single"),
    "gpt": (variant(dataclasses.replace(tiny(preset("gpt-oss-20b")), layers=2)), "single"),
    "pipe": (variant(pipelined(DENSE, {**STORAGE, "layers_per_stage": 2})), "stage2.fsdp2-auto"),
    "prefetch": (variant(pipelined(DENSE, PREFETCH)), "stage2.fsdp2-auto"),
    "outside": (variant(pipelined(DENSE, {**STORAGE, "layers_outside": 1})), "stage2.fsdp2-auto"),
    "replicas": (Variant("options", DENSE, TrainConfig(), (2, 32), DILOCO), "single"),
}
OTHER_RULES = tuple((name, axes) for name, axes in DEFAULT_RULES if name != "mlp")
MORE = {"config.layers": 10}
"""A pipeline with a different number of stages, repeats or layers also has different layers."""

# {config: {field: (base, field of the variant, other value, program)}}
ROWS = {
    ModelConfig: {
        "vocab": ("dense", "config.vocab", 280, "forward"),
        "embed": ("dense", "config.embed", 60, "forward"),
        "layers": ("dense", "config.layers", 3, "forward"),
        "norm_epsilon": ("dense", "config.norm_epsilon", 1e-3, "forward"),
        "norm_scale": ("dense", "config.norm_scale", NormScale.OFFSET, "forward"),
        "norms": ("dense", "config.norms", NormPlacement.PRE_AND_POST, "forward"),
        "embedding_scale": ("dense", "config.embedding_scale", EmbeddingScale.ROOT, "forward"),
        "head": ("dense", "config.head", Head.TIED, "forward"),
        "logits_soft_cap": ("dense", "config.logits_soft_cap", 9.0, "forward"),
        "layout": ("dense", "config.layout", LayerLayout.UNROLLED, "forward"),
        "scan_axis": ("dense", "config.scan_axis", 0, "forward"),
        "dropout": ("dense", "config.dropout", 0.2, "grad"),
        "param_dtype": ("dense", "config.param_dtype", "bfloat16", "forward"),
        "compute_dtype": ("dense", "config.compute_dtype", "bfloat16", "forward"),
        "rules": ("placed", "config.rules", OTHER_RULES, "forward"),
        "dense_layers": ("deep", "config.dense_layers", 2, "forward"),
        "moe": ("mixtral", "config.moe", None, "forward"),
        "mtp": ("deep", "config.mtp", None, "grad"),
        "layer_schedule": ("deep", "config.layer_schedule", LayerSchedule.BATCH_SPLIT, "forward"),
    },
    AttentionConfig: {
        "heads": ("dense", "config.attention.heads", 4, "forward"),
        "kv_heads": ("dense", "config.attention.kv_heads", 3, "forward"),
        "head_dim": ("dense", "config.attention.head_dim", 12, "forward"),
        "rope_theta": ("dense", "config.attention.rope_theta", 700.0, "forward"),
        "rope_scaling": ("dense", "config.attention.rope_scaling", LinearScaling(factor=3.0), "forward"),
        "local_rope_theta": ("gemma", "config.attention.local_rope_theta", 700.0, "forward"),
        "cycle": ("gemma", "config.attention.cycle", (Span.GLOBAL, Span.LOCAL), "forward"),
        "window": ("gemma", "config.attention.window", 5, "forward"),
        "query_scalar": ("dense", "config.attention.query_scalar", 0.5, "forward"),
        "soft_cap": ("dense", "config.attention.soft_cap", 9.0, "forward"),
        "query_key_norm": ("dense", "config.attention.query_key_norm", QueryKeyNorm.HEAD, "forward"),
        "sinks": ("dense", "config.attention.sinks", Sinks.LEARNED, "forward"),
        "biases": ("dense", "config.attention.biases", Biases.TRAINED, "forward"),
        "kernel": ("dense", "config.attention.kernel", AttentionKernel.LIBRARY, "forward"),
    },
    LatentConfig: {
        "query_rank": ("deep", "config.attention.latent.query_rank", 36, "forward"),
        "key_value_rank": ("deep", "config.attention.latent.key_value_rank", 28, "forward"),
        "rotary_dim": ("deep", "config.attention.latent.rotary_dim", 10, "forward"),
        "value_dim": ("deep", "config.attention.latent.value_dim", 14, "forward"),
    },
    LinearScaling: {"factor": ("gemma", "config.attention.rope_scaling.factor", 3.0, "forward")},
    YarnScaling: {
        "factor": ("gpt", "config.attention.rope_scaling.factor", 3.0, "forward"),
        "original_length": ("gpt", "config.attention.rope_scaling.original_length", 90, "forward"),
        "beta_fast": ("gpt", "config.attention.rope_scaling.beta_fast", 4.0, "forward"),
        "beta_slow": ("gpt", "config.attention.rope_scaling.beta_slow", 0.5, "forward"),
        "boundaries": ("gpt", "config.attention.rope_scaling.boundaries", Boundaries.WHOLE, "forward"),
        "angle_factor": ("gpt", "config.attention.rope_scaling.angle_factor", 1.1, "forward"),
        "score_factor": ("gpt", "config.attention.rope_scaling.score_factor", 1.5, "forward"),
    },
    MlpConfig: {
        "hidden": ("dense", "config.mlp.hidden", 72, "forward"),
        "activation": ("dense", "config.mlp.activation", Activation.GELU, "forward"),
    },
    MoeConfig: {
        "experts": ("mixtral", "config.moe.experts", 9, "forward"),
        "top_k": ("mixtral", "config.moe.top_k", 2, "forward"),
        "hidden": ("mixtral", "config.moe.hidden", 40, "forward"),
        "scoring": ("mixtral", "config.moe.scoring", Scoring.SIGMOID, "forward"),
        "weighting": ("mixtral", "config.moe.weighting", Weighting.SCORES, "forward"),
        "groups": (
            "deep",
            "config.moe",
            dataclasses.replace(DEEP.mixture, groups=2, top_groups=2),
            "forward",
        ),
        "top_groups": ("deep", "config.moe.top_groups", 4, "forward"),
        "scale": ("mixtral", "config.moe.scale", 1.5, "forward"),
        "shared_hidden": ("deep", "config.moe.shared_hidden", 60, "forward"),
        "dispatch": ("mixtral", "config.moe.dispatch", Dispatch.DROPPING, "forward"),
        "capacity_factor": ("dropping", "config.moe.capacity_factor", 0.7, "forward"),
        "load_balance": ("mixtral", "config.moe.load_balance", 0.25, "grad"),
        "bias_rate": ("deep", "config.moe.bias_rate", 0.5, "train_step"),
        "biases": ("mixtral", "config.moe.biases", Biases.TRAINED, "forward"),
        "activation": ("mixtral", "config.moe.activation", Activation.GELU, "forward"),
    },
    MtpConfig: {
        "depth": ("deep", "config.mtp.depth", 2, "grad"),
        "loss_scale": ("deep", "config.mtp.loss_scale", 0.9, "grad"),
    },
    RematConfig: {
        "policy": ("dense", "config.remat.policy", RematPolicy.FULL, "grad"),
        "names": ("keeps", "config.remat.names", ("mlp_hidden",), "grad"),
    },
    PipelineConfig: {
        "microbatches": ("pipe", "config.pipeline.microbatches", 2, "grad"),
        "delay": ("pipe", "config.pipeline.delay", 2, "grad"),
        "gather": ("pipe", "config.pipeline.gather", Gather.ONCE, "grad"),
        "iteration_remat": ("pipe", "config.pipeline.iteration_remat", RematConfig(), "grad"),
        "iteration_loop": ("pipe", "config.pipeline.iteration_loop", Loop.UNROLLED, "grad"),
        "repeat_loop": ("prefetch", "config.pipeline.repeat_loop", Loop.UNROLLED, "grad"),
        "stage_layout": ("pipe", "config.pipeline.stage_layout", LayerLayout.UNROLLED, "grad"),
        "repeats": (
            "pipe",
            "config",
            pipelined(DENSE, {**STORAGE, "repeats": 1, "layers_per_stage": 2}),
            "forward",
        ),
        "layers_per_stage": ("pipe", "config", pipelined(DENSE, STORAGE), "forward"),
        "layers_outside": (
            "outside",
            "config",
            pipelined(DENSE, {**STORAGE, "layers_outside": 2}),
            "forward",
        ),
    },
    TrainConfig: {
        "z_loss": ("dense", "train.z_loss", 0.5, "grad"),
        "accumulation": ("dense", "train.accumulation", 2, "train_step"),
        "moments": ("placed", "train.moments", MomentSharding.ZERO1, "train_step"),
        "vocab_tiles": ("dense", "train.vocab_tiles", 4, "grad"),
    },
    OptimizerConfig: {
        "spike_factor": ("spiky", "train.optimizer.spike_factor", 2.5, "train_step"),
        **{
            name: ("dense", f"train.optimizer.{name}", value, "train_step")
            for name, value in {
                "learning_rate": 0.01,
                "final_learning_rate": 0.002,
                "warmup_steps": 3,
                "total_steps": 50,
                "b1": 0.8,
                "b2": 0.9,
                "epsilon": 1e-6,
                "weight_decay": 0.0,
                "clip_norm": 0.5,
                "max_bad_steps": 2,
                "spike_window": 3,
            }.items()
        },
    },
    DilocoConfig: {
        name: ("replicas", f"diloco.{name}", value, "diloco_step")
        for name, value in {
            "replicas": 3,
            "period": 6,
            "fragments": 1,
            "delay": 1,
            "inner_share": 0.5,
            "learning_rate": 0.3,
            "momentum": 0.5,
        }.items()
    },
    DecodeConfig: {"length": None, "temperature": None},
}
PARTS = {
    ModelConfig: {"attention", "mlp", "remat", "pipeline"},
    AttentionConfig: {"latent"},
    TrainConfig: {"optimizer"},
    PipelineConfig: {"stages"},
}
"""Fields that are configs, which have separate rows; the mesh determines the stages."""


@pytest.mark.parametrize("config", ROWS, ids=lambda config: config.__name__)
def test_every_field_has_a_row(config):
    fields = {field.name for field in dataclasses.fields(config)}
    assert fields == set(ROWS[config]) | PARTS.get(config, set())


@pytest.fixture(scope="module")
def bench():
    return Session()


def same(case, bench, *, strictly):
    """True if both sides of a case are one program, or have equal values; False if their states do not fit."""
    try:
        work = Evidence.of(case, bench)
        return work.is_one_program() if strictly else work.proof is not None and work.proof.proved
    except MapError:
        return False


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, id=f"{config.__name__}.{field}")
        for config, rows in ROWS.items()
        for field, row in rows.items()
        if row
    ],
)
def test_both_flavours_honour_an_option_and_mean_the_same_by_it(row, bench):
    base, path, value, program = row
    before, mesh = BASES[base]
    after = dataclasses.replace(changed(before, path, value), name=f"options {path}")
    assert after != dataclasses.replace(before, name=after.name), "the row changes nothing"
    off, on = (twins(one, program, mesh) for one in (before, after))
    left = dataclasses.replace(off, candidate=on.reference)
    right = dataclasses.replace(off, reference=off.candidate, candidate=on.candidate)
    deaf = [side for side, case in (("linen", left), ("nnx", right)) if same(case, bench, strictly=True)]
    assert deaf == [], f"{path} changes nothing there"
    assert same(on, bench, strictly=False), f"{path} means something else in the two flavours"
