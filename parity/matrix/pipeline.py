"""Pipelines: twins with every option; against layers in sequence; auto against explicit; one gather against another."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from models_nnx.shared.config import (
    Dispatch,
    Gather,
    LayerLayout,
    Loop,
    ModelConfig,
    MtpConfig,
    PipelineConfig,
    RematConfig,
    RematPolicy,
    override,
)
from models_nnx.shared.data import packed_batch
from models_nnx.shared.presets import preset, tiny
from parity.builds.build import Flavour
from parity.builds.meshes import Mode
from parity.cases.case import Case, Pair
from parity.matrix.cases import (
    EXACT_OR_RUN,
    OTHER_PLACES,
    OTHER_PROGRAM,
    TRAINING,
    same_flavour,
    twins,
    with_batches,
)
from parity.matrix.decoders import DROPOUT, FULL, ZERO1, Variant
from parity.matrix.layers import pipeline_rules

HOME = "stage2.fsdp2.tensor2"
SHAPE = (16, 40)
NAMED = RematConfig(policy=RematPolicy.SAVE_NAMED, names=("query", "mlp_hidden"))
MINIMAL = RematConfig(policy=RematPolicy.MINIMAL)
STORAGE = {"stages": 2, "microbatches": 4, "repeats": 2}
ROTATING = {"stages": 2, "microbatches": 2, "repeats": 2}
PREFETCH = {"stages": 2, "microbatches": 4, "repeats": 3, "gather": Gather.PER_REPEAT}

VARIANTS: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "plain": (
        {"stages": 2, "microbatches": 4, "layers_per_stage": 2, "iteration_remat": RematConfig()},
        DROPOUT,
    ),
    "rotate": (ROTATING, {"compute_dtype": "bfloat16"}),
    "storage": (STORAGE, {**DROPOUT, **FULL}),
    "delay": ({**STORAGE, "delay": 2, "layers_outside": 1}, {"layout": "unrolled", "scan_axis": "0"}),
    "delay-storage": (
        {"stages": 2, "microbatches": 8, "repeats": 2, "delay": 2, "layers_outside": 2},
        DROPOUT,
    ),
    "once": ({**STORAGE, "gather": Gather.ONCE, "iteration_remat": MINIMAL}, {"remat.policy": "minimal"}),
    "prefetch": ({**PREFETCH, "layers_per_stage": 2}, {**DROPOUT, **FULL}),
    "prefetch-unrolled": ({**PREFETCH, "repeat_loop": Loop.UNROLLED, "iteration_remat": NAMED}, {}),
    "unrolled": (
        {
            "stages": 2,
            "microbatches": 2,
            "layers_per_stage": 2,
            "iteration_loop": Loop.UNROLLED,
            "stage_layout": LayerLayout.UNROLLED,
            "iteration_remat": NAMED,
        },
        DROPOUT,
    ),
}
ROWS = (
    *((name, "train_step", f"{HOME}-{mode}") for name in VARIANTS for mode in Mode),
    *(("storage", program, f"{HOME}-auto") for program in ("forward", "grad")),
    *(
        (name, program, f"{mesh}-{mode}")
        for mode in Mode
        for name, program, mesh in (
            ("four", "grad", "stage4.fsdp2"),
            ("prefetch-zero1", "train_step", "data2.stage2.fsdp2"),
            ("plain", "train_step", "data2.stage2.tensor2"),
        )
    ),
    ("once", "grad", "stage2.fsdp2.context2-explicit"),
)
FOUR = {"stages": 4, "microbatches": 4, "repeats": 2, "gather": Gather.PER_REPEAT}


def pipelined(base: ModelConfig, options: Mapping[str, Any], **changes: Any) -> ModelConfig:
    """Returns a preset with a pipeline of these options, see `staged`."""
    return staged(base, PipelineConfig(**options), **changes)


def staged(base: ModelConfig, pipeline: PipelineConfig, **changes: Any) -> ModelConfig:
    """Returns a preset with a pipeline, the number of layers that it needs, and further changes."""
    cycles = pipeline.layers_inside + pipeline.layers_outside
    layers = base.dense_layers + cycles * len(base.attention.cycle)
    return dataclasses.replace(base, pipeline=pipeline, layers=layers, **changes)


def _variant(name: str, config: ModelConfig, shape: tuple[int, int] = SHAPE) -> Variant:
    return Variant(f"pipeline-{name}", config, shape=shape)


def sequential_case(
    prefix: str,
    flavour: Flavour,
    config: ModelConfig,
    mode: Mode,
    program: str = "grad",
    length: int = SHAPE[1],
) -> Case:
    """Returns the case of a pipeline on ``stage`` and ``fsdp2`` against the same layers in sequence, on one device.

    With ``train_step`` the sequence takes one microbatch at a time, so that layers with experts sow the same values.
    """
    pipeline = config.staging
    S, M, R = pipeline.stages, pipeline.microbatches, pipeline.repeats
    mesh, shape = f"stage{S}.fsdp2-{mode}", (2 * M, length)
    alone = dataclasses.replace(config, pipeline=None, layout=LayerLayout.UNROLLED)
    sequence = _variant(f"{prefix}-sequence-{config.layers}-{M}", alone, shape)
    if program == "train_step":
        sequence = sequence.override({"train.accumulation": str(M)})
    staged = _variant(f"{prefix}-s{S}-m{M}-r{R}-d{pipeline.delay}-{pipeline.gather}", config, shape)
    sides = (sequence, "single"), (staged, mesh)
    accept = dataclasses.replace(OTHER_PLACES, prove_exact=not config.moe)  # experts are not proved
    rules = pipeline_rules(config)
    case = same_flavour(flavour, staged.name, program, *sides, rules=rules, accept=accept)
    return with_batches(case, _weighed) if program == "train_step" else case


def _weighed(seed: int, batch: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a batch whose loss weights are those of its tokens.

    Accumulation weighs a microbatch's balance loss by loss weights, a pipeline by tokens. Sown values agree only if
    both are equal.
    """
    rows, length = batch["tokens"].shape
    return {**batch, "weights": packed_batch(rows, length, seed)["weights"]}


AHEAD = {"mtp": MtpConfig(depth=2, loss_scale=0.7)}
SEQUENTIAL: tuple[tuple[dict[str, Any], Mode, dict[str, Any]], ...] = (
    ({**STORAGE, "delay": 2}, Mode.AUTO, AHEAD),
    ({"stages": 2, "microbatches": 2, "gather": Gather.ONCE, "layers_per_stage": 2}, Mode.EXPLICIT, {}),
    ({"stages": 2, "microbatches": 2, "repeats": 3, "gather": Gather.PER_REPEAT}, Mode.AUTO, {}),
    ({"stages": 3, "microbatches": 6, "repeats": 2, "gather": Gather.PER_REPEAT}, Mode.EXPLICIT, AHEAD),
    ({"stages": 4, "microbatches": 4, "delay": 2, "layers_outside": 1}, Mode.EXPLICIT, {}),
    ({"stages": 4, "microbatches": 8, "repeats": 2, "gather": Gather.ONCE, "delay": 2}, Mode.AUTO, {}),
    ({"stages": 3, "microbatches": 3, "repeats": 2}, Mode.AUTO, {}),
)
"""A covering subset, two with predictors after the last stage; `make pipeline-grid` runs all schedules."""


def _modes(name: str, flavour: Flavour, variant: Variant, program: str, mesh: str, **more: Any) -> Case:
    """Returns the case of one build on an auto mesh against an explicit one."""
    sides = ((variant, f"{mesh}-{mode}") for mode in Mode)
    return same_flavour(flavour, name, program, *sides, id=f"{name}/{program}@{mesh}", **more)


def _gathers(flavour: Flavour, base: ModelConfig, gather: Gather, mode: Mode) -> Case:
    """Returns the case of weights gathered at each iteration against another gather."""
    configs = (pipelined(base, {**ROTATING, "gather": when}) for when in (Gather.PER_ITERATION, gather))
    shape = (4, SHAPE[1])  # an exact proof takes longer for more rows
    sides = (
        (_variant(f"gather-{each.staging.gather}", each, shape), f"stage2.fsdp2-{mode}") for each in configs
    )
    name = f"pipeline-per_iteration-against-{gather}"
    return same_flavour(flavour, name, "grad", *sides, accept=OTHER_PROGRAM).with_accept(require=EXACT_OR_RUN)


def _experts(settings: Mapping[str, str]) -> list[Case]:
    """Returns cases of pipelines with experts, latent attention and cycles of layers in the main stack."""
    deepseek3, mixtral, gemma2 = (
        override(tiny(preset(name)), settings) for name in ("deepseek3-671b", "mixtral-8x7b", "gemma2-9b")
    )
    two = {**PREFETCH, "repeats": 2, "layers_per_stage": 2, "stage_layout": LayerLayout.UNROLLED}
    dropping = dataclasses.replace(deepseek3.mixture, dispatch=Dispatch.DROPPING)
    biased = dataclasses.replace(mixtral, moe=dataclasses.replace(mixtral.mixture, bias_rate=0.01))
    latent = _variant("deepseek3", pipelined(deepseek3, STORAGE))
    latent_dropping = _variant("deepseek3-dropping", pipelined(deepseek3, two, moe=dropping))
    return [
        twins(latent, "train_step", "stage2.expert2.fsdp2-auto"),
        twins(latent_dropping, "grad", "stage2.fsdp2-explicit"),
        twins(_variant("mixtral", pipelined(mixtral, two)), "grad", "stage2.fsdp2-auto"),
        twins(_variant("gemma2", pipelined(gemma2, {**PREFETCH, "repeats": 2})), "grad", f"{HOME}-explicit"),
        sequential_case(
            "sequential-mixtral", Flavour.NNX, pipelined(biased, ROTATING), Mode.AUTO, "train_step"
        ),
    ]


def cases(settings: Mapping[str, str]) -> list[Case]:
    """Returns the matrix of pipelines."""
    base = override(tiny(preset("llama2-70b")), settings)
    named = {
        name: _variant(name, pipelined(base, options)).override(changes)
        for name, (options, changes) in {**VARIANTS, "four": (FOUR, {})}.items()
    }
    named["prefetch-zero1"] = _variant("prefetch-zero1", named["prefetch"].config).override(ZERO1)
    matrix = [twins(named[name], program, mesh) for name, program, mesh in ROWS]
    for index, (options, mode, ahead) in enumerate(SEQUENTIAL):
        prefix, flavour = "sequential-mtp" if ahead else "sequential", list(Flavour)[index % 2]
        case = sequential_case(prefix, flavour, pipelined(base, options, **ahead), mode)
        run = ahead and options["stages"] == 2  # one of them is run, so that rounding is compared, too
        matrix.append(case if run else case.with_accept(require=EXACT_OR_RUN))
    for flavour, name in zip(Flavour, ("prefetch", "storage"), strict=True):
        words, variant = f"pipeline-auto-against-explicit-{name}-{flavour}", named[name]
        matrix.append(_modes(words, flavour, variant, "grad", HOME, accept=OTHER_PLACES))
    matrix += [
        _gathers(Flavour.LINEN, base, Gather.ONCE, Mode.EXPLICIT),
        _gathers(Flavour.NNX, base, Gather.PER_REPEAT, Mode.AUTO),
    ]
    return matrix + _experts(settings)


PUBLISHED: dict[str, dict[str, Any]] = {
    "per_repeat": {"gather": Gather.PER_REPEAT},
    "per_repeat-unrolled": {"gather": Gather.PER_REPEAT, "repeat_loop": Loop.UNROLLED},
    "once": {"gather": Gather.ONCE},
    "per_iteration": {},
}


def full_size(settings: Mapping[str, str], devices: int) -> list[Case]:
    """Returns cases of Llama 2 7B in 2 stages and 16 repeats: twins for each gather, and auto against explicit meshes.

    The devices form ``stage2 x fsdp``, or ``data x stage2`` for ZeRO-1; see `Pair`.
    """
    base = dataclasses.replace(preset("llama2-7b"), **TRAINING)
    options = {"stages": 2, "microbatches": 4, "repeats": 16}
    wide, shape = devices // 2, (2 * devices, 2_048)
    configs = {
        name: override(pipelined(base, {**options, **more}), settings) for name, more in PUBLISHED.items()
    }
    matrix = [
        twins(_variant(f"llama2-7b-{name}", config, shape), "train_step", f"stage2.fsdp{wide}-auto")
        for name, config in configs.items()
    ]
    for name, gather, changes, mesh in (
        ("once", "once", {}, f"stage2.fsdp{wide}"),
        ("zero1", "per_iteration", ZERO1, f"data{wide}.stage2"),
    ):
        variant = _variant(f"llama2-7b-{name}-modes", configs[gather], shape).override(changes)
        words = f"pipeline-llama2-7b-{name}-auto-against-explicit"
        matrix.append(_modes(words, Flavour.NNX, variant, "train_step", mesh))
    return matrix


PAIR = Pair(
    name="pipeline",
    about="stages, microbatches and repeats: every schedule, gather and loop; against the layers in sequence",
    cases=cases,
    full_size=full_size,
)
