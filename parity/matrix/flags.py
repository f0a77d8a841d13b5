"""Flags of the decoder configs: toggling each must change both programs in the same way.

Fields that only set sizes are not flags: a twin that ignored one would not fit its state.
"""

from collections.abc import Mapping

from models_nnx.shared.config import CHECKPOINT_NAMES, DilocoConfig, ModelConfig, override
from models_nnx.shared.presets import preset, tiny
from parity.cases.case import Case, Flag, Pair
from parity.matrix.cases import twins
from parity.matrix.decoders import Variant
from parity.matrix.pipeline import STORAGE, pipelined


def _flag(name: str, value: object, **off: str) -> Flag:
    """Returns a flag that sets one field; ``off`` are settings that hold with and without it."""
    return Flag(name=f"{name}={value}", on={**off, name: str(value)}, off=off)


def _kept(name: str, part: str = "remat") -> Flag:
    """Returns a flag that keeps one tagged residual instead of none; it has no effect if no value has that name."""
    saved = {f"{part}.policy": "save_named", f"{part}.names": name}
    return Flag(name=f"{part}.names={name}", on=saved, off={f"{part}.policy": "full"})


LAYERS = (
    _flag("remat.policy", "full"),
    _flag("remat.policy", "minimal"),
    _flag("dropout", 0.2),
    _flag("compute_dtype", "bfloat16"),
)
OPTIMIZER = {
    "learning_rate": 0.01,
    "warmup_steps": 3,
    "total_steps": 50,
    "b1": 0.8,
    "b2": 0.9,
    "epsilon": 1e-6,
    "weight_decay": 0.0,
    "clip_norm": 0.5,
    "max_bad_steps": 2,
    "final_learning_rate": 0.002,
    "spike_window": 3,
}
SPIKES = {"train.optimizer.spike_window": "3"}

FLAGS: dict[tuple[str, str, str], tuple[Flag, ...]] = {
    ("llama2-70b", "scanned", "grad"): (
        *LAYERS,
        *map(_kept, CHECKPOINT_NAMES),
        _flag("layout", "unrolled"),
        _flag("scan_axis", 0),
        _flag("head", "tied"),
        _flag("param_dtype", "bfloat16"),
        _flag("norm_epsilon", 1e-3),
        _flag("attention.kernel", "library"),
    ),
    ("llama2-70b", "unrolled", "grad"): LAYERS,
    ("llama2-70b", "scanned", "train_step"): (
        _flag("train.accumulation", 2),
        _flag("train.z_loss", 0.0),
        _flag("train.vocab_tiles", 4),
        *(_flag(f"train.optimizer.{name}", value) for name, value in OPTIMIZER.items()),
        _flag("train.optimizer.spike_factor", 2.5, **SPIKES),
    ),
    ("gemma2-9b", "scanned", "forward"): (
        _flag("attention.window", 5),
        _flag("attention.soft_cap", 9.0),
        _flag("attention.query_scalar", 0.5),
        _flag("attention.rope_theta", 700.0),
        _flag("logits_soft_cap", 9.0),
        _flag("norm_scale", "direct"),
        _flag("norms", "pre"),
        _flag("embedding_scale", "none"),
        _flag("mlp.activation", "silu"),
    ),
    ("gemma3-12b", "scanned", "forward"): (
        _flag("attention.local_rope_theta", 700.0),
        _flag("attention.query_key_norm", "none"),
    ),
    ("deepseek3-671b", "scanned", "forward"): (
        _flag("moe.scoring", "softmax"),
        _flag("moe.scale", 1.5),
        _flag("moe.top_k", 4),
        _flag("dense_layers", 2),
    ),
    ("deepseek3-671b", "scanned", "grad"): (
        _flag("mtp.depth", 2),
        _flag("mtp.loss_scale", 0.9),
        _flag("layer_schedule", "batch_split"),
    ),
    ("mixtral-8x7b", "scanned", "train_step"): (
        _flag("moe.dispatch", "dropping"),
        _flag("moe.capacity_factor", 3.0, **{"moe.dispatch": "dropping"}),
        _flag("moe.load_balance", 0.25),
        _flag("moe.top_k", 1),
    ),
    ("gpt-oss-20b", "scanned", "forward"): (
        _flag("attention.sinks", "none"),
        _flag("attention.biases", "none"),
        _flag("moe.biases", "none"),
    ),
}


PREFETCH = {"pipeline.gather": "per_repeat"}
PIPELINE = (
    _flag("pipeline.gather", "once"),
    _flag("pipeline.gather", "per_repeat"),
    _flag("pipeline.delay", 2),
    _flag("pipeline.iteration_remat.policy", "none"),
    # Not minimal: under vmap every dot has a batch dimension, so it keeps the same values as full.
    _kept("query", "pipeline.iteration_remat"),
    _flag("pipeline.iteration_loop", "unrolled"),
    _flag("pipeline.repeat_loop", "unrolled", **PREFETCH),
    _flag("pipeline.stage_layout", "unrolled"),
    _flag("remat.policy", "full"),
    _flag("dropout", 0.2),
)


DILOCO = (
    _flag("diloco.period", 6, **{"diloco.period": "4"}),
    _flag("diloco.fragments", 2, **{"diloco.period": "4"}),
    _flag("diloco.delay", 1),
    _flag("diloco.inner_share", 0.5),
    _flag("diloco.learning_rate", 0.3),
    _flag("diloco.momentum", 0.5),
    _flag("dropout", 0.2),
)


def _twins(name: str, config: ModelConfig, program: str, flags: tuple[Flag, ...]) -> Case:
    mesh = "stage2.fsdp2-auto" if config.pipeline else "single"
    return twins(Variant(name, config), program, mesh, flags=flags)


def cases(settings: Mapping[str, str]) -> list[Case]:
    """Returns a case per family, layout and program with the flags above."""
    matrix = [
        _twins(
            f"flags-{name}-{layout}",
            override(tiny(preset(name)), {"layout": layout, **settings}),
            program,
            flags,
        )
        for (name, layout, program), flags in FLAGS.items()
    ]
    four = pipelined(tiny(preset("llama2-7b")), {**STORAGE, "layers_per_stage": 2})
    two = override(tiny(preset("llama2-7b")), {"layers": "2", **settings})
    replicas = Variant("flags-diloco", two, diloco=DilocoConfig(replicas=2, period=2))
    return [
        *matrix,
        _twins("flags-pipeline", override(four, settings), "grad", PIPELINE),
        twins(replicas, "diloco_step", "single", flags=DILOCO),
    ]


PAIR = Pair(name="flags", about="every flag of the configs, flipped on both sides", cases=cases)
