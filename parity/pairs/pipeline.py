"""Pipelines: the twins in every option, against the same layers in sequence, auto against explicit, by gather."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

from models_nnx.config import (
    Dispatch,
    Gather,
    LayerLayout,
    Loop,
    ModelConfig,
    MomentSharding,
    PipelineConfig,
    RematConfig,
    RematPolicy,
    TrainConfig,
    override,
)
from models_nnx.presets import preset, tiny
from parity.build import Flavour
from parity.matrix import Case, Pair
from parity.meshes import MeshSpec, Mode
from parity.pairs.decoders import decoder_build, float64
from parity.pairs.layers import pipeline_rules
from parity.verdicts import Verdict

__all__ = ["PAIR", "pipelined", "sequential_case"]

HOME = "stage2.fsdp2.tensor2"
SHAPE = (16, 40)
PLAIN = TrainConfig()
ZERO1 = TrainConfig(moments=MomentSharding.ZERO1)
FULL = RematConfig(policy=RematPolicy.FULL)
NONE = RematConfig()
NAMED = RematConfig(policy=RematPolicy.SAVE_NAMED, names=("query", "mlp_hidden"))
MINIMAL = RematConfig(policy=RematPolicy.MINIMAL)
PREFETCH = {"stages": 2, "microbatches": 4, "repeats": 3, "gather": Gather.PER_REPEAT}

VARIANTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": (
        {"stages": 2, "microbatches": 4, "layers_per_stage": 2, "iteration_remat": NONE},
        {"dropout": 0.1},
    ),
    "rotate": ({"stages": 2, "microbatches": 2, "repeats": 2}, {"compute_dtype": "bfloat16"}),
    "storage": ({"stages": 2, "microbatches": 4, "repeats": 2}, {"dropout": 0.1, "remat": FULL}),
    "delay": (
        {"stages": 2, "microbatches": 4, "repeats": 2, "delay": 2, "layers_outside": 1},
        {"layout": LayerLayout.UNROLLED, "scan_axis": 0},
    ),
    "delay-storage": (
        {"stages": 2, "microbatches": 8, "repeats": 2, "delay": 2, "layers_outside": 2},
        {"dropout": 0.1},
    ),
    "once": (
        {"stages": 2, "microbatches": 4, "repeats": 2, "gather": Gather.ONCE, "iteration_remat": MINIMAL},
        {"remat": MINIMAL},
    ),
    "prefetch": ({**PREFETCH, "layers_per_stage": 2}, {"dropout": 0.1, "remat": FULL}),
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
        {"dropout": 0.1},
    ),
}
FOUR = {"stages": 4, "microbatches": 4, "repeats": 2, "gather": Gather.PER_REPEAT}

ELSEWHERE = {
    "collectives": "one side has no pipeline",
    "loops": "one side has no pipeline",
    "memory": "one side has no pipeline",
    "sharding": "stacked leaves have axes that single ones lack",
}
OTHERWISE = {name: "another mode or gather compiles to other code by intent" for name in ELSEWHERE}


def pipelined(base: ModelConfig, options: Mapping[str, Any], **changes: Any) -> ModelConfig:
    """Returns ``base`` with a pipeline, and as many layers as that has.

    Args:
        base: a preset, or its tiny version.
        options: fields of `PipelineConfig`.
        **changes: further fields of the model.
    """
    pipeline = PipelineConfig(**options)
    cycles = pipeline.layers_inside + pipeline.layers_outside
    layers = base.dense_layers + cycles * len(base.attention.cycle)
    return dataclasses.replace(base, pipeline=pipeline, layers=layers, **changes)


def _build(name: str, config: ModelConfig, train: TrainConfig = PLAIN, shape: tuple[int, int] = SHAPE):
    return functools.partial(decoder_build, name=f"pipeline-{name}", config=config, train=train, shape=shape)


def _twins(name: str, program: str, mesh: str, config: ModelConfig, train: TrainConfig = PLAIN) -> Case:
    build = _build(name, config, train)
    return Case(
        id=f"pipeline-{name}/{program}@{mesh}",
        reference=functools.partial(build, Flavour.LINEN),
        candidate=functools.partial(build, Flavour.NNX),
        program=program,
        mesh=MeshSpec.parse(mesh),
        lowest=Verdict.BITWISE,
        smoke=name == "prefetch" and mesh == f"{HOME}-explicit",
    )


def sequential_case(
    prefix: str, flavour: Flavour, config: ModelConfig, mode: Mode, program: str = "grad"
) -> Case:
    """Returns the case of a pipeline against the same layers one after the other, on one device.

    Args:
        prefix: first words of the id.
        flavour: of both sides.
        config: has a pipeline.
        mode: of the pipeline's mesh, ``stage`` and ``fsdp2``.
        program: with ``train_step`` the sequence takes one microbatch after the other, as layers with experts
            need to sow the same.
    """
    pipeline = config.staging
    S, M, R = pipeline.stages, pipeline.microbatches, pipeline.repeats
    name = f"{prefix}-s{S}-m{M}-r{R}-d{pipeline.delay}-{pipeline.gather}"
    sequence = dataclasses.replace(config, pipeline=None, layout=LayerLayout.UNROLLED)
    in_turn = TrainConfig(accumulation=M if program == "train_step" else 1)
    shape = (2 * M, SHAPE[1])
    reference = _build(f"{prefix}-sequence-{config.layers}-{M}", sequence, in_turn, shape)
    exact = _build(f"{prefix}-sequence-{config.layers}-{M} float64", float64(sequence), in_turn, shape)
    return Case(
        id=f"pipeline-{name}-{flavour}/{program}@stage{S}.fsdp2-{mode}",
        reference=functools.partial(reference, flavour),
        candidate=functools.partial(_build(f"{name}", config, PLAIN, shape), flavour),
        program=program,
        mesh=MeshSpec(),
        candidate_mesh=MeshSpec.parse(f"stage{S}.fsdp2-{mode}"),
        rules=pipeline_rules(config),
        not_applicable=ELSEWHERE,
        exact=functools.partial(exact, flavour),
    )


SEQUENTIAL: tuple[tuple[dict[str, Any], Mode], ...] = (
    ({"stages": 2, "microbatches": 4, "repeats": 2, "delay": 2}, Mode.AUTO),
    ({"stages": 2, "microbatches": 2, "gather": Gather.ONCE, "layers_outside": 1}, Mode.EXPLICIT),
    ({"stages": 3, "microbatches": 3, "repeats": 3, "gather": Gather.PER_REPEAT}, Mode.AUTO),
    ({"stages": 3, "microbatches": 6, "repeats": 2, "gather": Gather.PER_REPEAT}, Mode.EXPLICIT),
    ({"stages": 3, "microbatches": 6, "delay": 2, "layers_per_stage": 2}, Mode.EXPLICIT),
    ({"stages": 4, "microbatches": 8, "repeats": 2, "gather": Gather.ONCE, "delay": 2}, Mode.AUTO),
    ({"stages": 4, "microbatches": 8, "repeats": 2}, Mode.AUTO),
)
"""A covering subset; `parity.pairs.pipeline_grid` has all."""


def _modes(flavour: Flavour, name: str, config: ModelConfig) -> Case:
    build = functools.partial(_build(name, config), flavour)
    return Case(
        id=f"pipeline-auto-against-explicit-{name}-{flavour}/grad@{HOME}",
        reference=build,
        candidate=build,
        program="grad",
        mesh=MeshSpec.parse(f"{HOME}-auto"),
        candidate_mesh=MeshSpec.parse(f"{HOME}-explicit"),
        not_applicable=OTHERWISE,
        exact=functools.partial(_build(f"{name} float64", float64(config)), flavour),
    )


def _gathers(flavour: Flavour, base: ModelConfig, gather: Gather, mode: Mode) -> Case:
    options = {"stages": 2, "microbatches": 4, "repeats": 2}
    per_iteration = pipelined(base, options)
    other = pipelined(base, {**options, "gather": gather})
    return Case(
        id=f"pipeline-per_iteration-against-{gather}-{flavour}/grad@stage2.fsdp2-{mode}",
        reference=functools.partial(_build("gather-per_iteration", per_iteration), flavour),
        candidate=functools.partial(_build(f"gather-{gather}", other), flavour),
        program="grad",
        mesh=MeshSpec.parse(f"stage2.fsdp2-{mode}"),
        not_applicable=OTHERWISE,
        exact=functools.partial(_build("gather float64", float64(per_iteration)), flavour),
    )


def _experts(settings: Mapping[str, str]) -> list[Case]:
    """Layers with experts, latent attention, cycles of layers: what the main stack may hold."""
    deepseek3, mixtral, gemma2 = (
        override(tiny(preset(name)), settings) for name in ("deepseek3-671b", "mixtral-8x7b", "gemma2-9b")
    )
    two = {**PREFETCH, "repeats": 2, "layers_per_stage": 2, "stage_layout": LayerLayout.UNROLLED}
    dropping = dataclasses.replace(deepseek3.mixture, dispatch=Dispatch.DROPPING)
    storage = {"stages": 2, "microbatches": 4, "repeats": 2}
    rotating = {"stages": 2, "microbatches": 2, "repeats": 2}
    biased = dataclasses.replace(mixtral, moe=dataclasses.replace(mixtral.mixture, bias_rate=0.01))
    return [
        _twins("deepseek3", "train_step", "stage2.expert2.fsdp2-auto", pipelined(deepseek3, storage)),
        _twins("deepseek3", "grad", "stage2.fsdp2-explicit", pipelined(deepseek3, two, moe=dropping)),
        _twins("mixtral", "grad", "stage2.fsdp2-auto", pipelined(mixtral, two)),
        _twins("gemma2", "grad", f"{HOME}-explicit", pipelined(gemma2, {**PREFETCH, "repeats": 2})),
        sequential_case("mixtral", Flavour.NNX, pipelined(biased, rotating), Mode.AUTO, "train_step"),
    ]


def cases(settings: Mapping[str, str]) -> list[Case]:
    """Returns the matrix of pipelines.

    Args:
        settings: config fields to override in every variant.

    Raises:
        ConfigError: a setting breaks a rule.
    """
    base = override(tiny(preset("llama2-70b")), settings)
    configs = {name: pipelined(base, options, **changes) for name, (options, changes) in VARIANTS.items()}
    matrix = [
        _twins(name, "train_step", f"{HOME}-{mode}", config)
        for name, config in configs.items()
        for mode in Mode
    ]
    matrix += [
        _twins("storage", program, f"{HOME}-auto", configs["storage"]) for program in ("forward", "grad")
    ]
    for mode in Mode:
        matrix += [
            _twins("four", "grad", f"stage4.fsdp2-{mode}", pipelined(base, FOUR)),
            _twins("prefetch-zero1", "train_step", f"data2.stage2.fsdp2-{mode}", configs["prefetch"], ZERO1),
            _twins("plain", "train_step", f"data2.stage2.tensor2-{mode}", configs["plain"]),
        ]
    matrix.append(_twins("once", "grad", "stage2.fsdp2.context2-explicit", configs["once"]))
    for index, (options, mode) in enumerate(SEQUENTIAL):
        flavour = list(Flavour)[index % 2]
        matrix.append(sequential_case("sequential", flavour, pipelined(base, options), mode))
    matrix += [
        _modes(Flavour.LINEN, "prefetch", configs["prefetch"]),
        _modes(Flavour.NNX, "storage", configs["storage"]),
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
    """Returns Llama 2 7B in 2 stages and 16 repeats: the twins by gather, and auto against explicit meshes.

    Args:
        settings: config fields to override.
        devices: how many; they form ``stage2 x fsdp``, or ``data x stage2`` for ZeRO-1.

    Raises:
        ConfigError: a setting breaks a rule.
    """
    base = dataclasses.replace(preset("llama2-7b"), compute_dtype="bfloat16", remat=FULL)
    options = {"stages": 2, "microbatches": 4, "repeats": 16}
    wide, shape = devices // 2, (2 * devices, 2_048)
    configs = {
        name: override(pipelined(base, {**options, **more}), settings) for name, more in PUBLISHED.items()
    }
    matrix = []
    for name, config in configs.items():
        build = _build(f"llama2-7b-{name}", config, PLAIN, shape)
        twins = _twins(f"llama2-7b-{name}", "train_step", f"stage2.fsdp{wide}-auto", config)
        sides = {"reference": Flavour.LINEN, "candidate": Flavour.NNX}
        made = {side: functools.partial(build, flavour) for side, flavour in sides.items()}
        matrix.append(dataclasses.replace(twins, **made))
    for name, train, mesh in (("once", PLAIN, f"stage2.fsdp{wide}"), ("zero1", ZERO1, f"data{wide}.stage2")):
        config = configs["once" if name == "once" else "per_iteration"]
        build = functools.partial(_build(f"llama2-7b-{name}-modes", config, train, shape), Flavour.NNX)
        matrix.append(
            Case(
                id=f"pipeline-llama2-7b-{name}-auto-against-explicit/train_step@{mesh}",
                reference=build,
                candidate=build,
                program="train_step",
                mesh=MeshSpec.parse(f"{mesh}-auto"),
                candidate_mesh=MeshSpec.parse(f"{mesh}-explicit"),
            )
        )
    return matrix


PAIR = Pair(
    name="pipeline",
    about="stages, microbatches and repeats: every schedule, gather and loop; against the layers in sequence",
    cases=cases,
    full_size=full_size,
)
