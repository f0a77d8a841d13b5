"""The dense decoder: Llama 2, multi-head and grouped-query, in every layout the twins have."""

import dataclasses
import functools
from collections.abc import Mapping

from models_nnx.config import (
    CHECKPOINT_NAMES,
    AttentionKernel,
    Head,
    LayerLayout,
    ModelConfig,
    RematConfig,
    RematPolicy,
    TrainConfig,
    override,
)
from models_nnx.presets import preset, tiny
from parity.build import Flavour
from parity.matrix import Case, Flag, Pair
from parity.meshes import MeshSpec
from parity.pairs.decoders import decoder_build, flag, float64, varied
from parity.verdicts import Verdict

__all__ = ["PAIR"]

PROGRAMS = ("forward", "grad", "train_step")
HOME = "fsdp4.tensor2-auto"
MESHES = ("single", "data8-auto", "fsdp8-auto", "data2.fsdp2.tensor2-auto", "fsdp4.tensor2-explicit")

GROUPED = tiny(preset("llama2-70b"))
MULTI_HEAD = tiny(preset("llama2-7b"))
NAMED = RematConfig(policy=RematPolicy.SAVE_NAMED, names=("query", "attention_out"))


def _remat(policy: RematPolicy) -> RematConfig:
    return RematConfig(policy=policy)


VARIANTS: dict[str, dict] = {
    "scan": {},
    "unroll": {"layout": LayerLayout.UNROLLED},
    "scan-remat-full": {"remat": _remat(RematPolicy.FULL)},
    "scan-remat-minimal": {"remat": _remat(RematPolicy.MINIMAL), "head": Head.TIED},
    "scan-remat-named": {"remat": NAMED, "dropout": 0.1},
    "unroll-remat-full": {"remat": _remat(RematPolicy.FULL), "layout": LayerLayout.UNROLLED, "dropout": 0.1},
    "scan-tied": {"head": Head.TIED, "scan_axis": 0},
    "unroll-tied": {"head": Head.TIED, "layout": LayerLayout.UNROLLED},
    "scan-dropout": {"dropout": 0.1},
    "unroll-dropout": {"dropout": 0.1, "layout": LayerLayout.UNROLLED},
    "scan-bf16": {"compute_dtype": "bfloat16", "remat": _remat(RematPolicy.FULL)},
    "unroll-bf16": {"param_dtype": "bfloat16", "compute_dtype": "bfloat16", "layout": LayerLayout.UNROLLED},
    "scan-library": {
        "attention": dataclasses.replace(GROUPED.attention, kernel=AttentionKernel.LIBRARY),
    },
}

NUMBERS = {
    "learning_rate": 0.01,
    "warmup_steps": 3,
    "total_steps": 50,
    "b1": 0.8,
    "b2": 0.9,
    "epsilon": 1e-6,
    "weight_decay": 0.0,
    "clip_norm": 0.5,
    "max_bad_steps": 2,
}
LAYERS = (
    flag("remat.policy", "full"),
    flag("remat.policy", "minimal"),
    flag("dropout", 0.2),
    flag("compute_dtype", "bfloat16"),
)
FLAGS: dict[tuple[str, str], tuple[Flag, ...]] = {
    ("flags-scan", "grad"): (
        *LAYERS,
        *(
            Flag(
                name=f"remat.names={name}",
                on={"remat.policy": "save_named", "remat.names": name},
                off={"remat.policy": "full"},
            )
            for name in CHECKPOINT_NAMES
        ),
        flag("layout", "unrolled"),
        flag("scan_axis", 0),
        flag("head", "tied"),
        flag("param_dtype", "bfloat16"),
        flag("norm_epsilon", 1e-4),
        flag("attention.kernel", "library"),
    ),
    ("flags-unroll", "grad"): LAYERS,
    ("flags-scan", "train_step"): (
        flag("train.accumulation", 2),
        flag("train.z_loss", 0.0),
        *(flag(f"train.optimizer.{name}", value) for name, value in NUMBERS.items()),
    ),
}

PLAIN = TrainConfig()
ACCUMULATING = TrainConfig(accumulation=2)

OTHER_LAYOUT = {
    "collectives": "one side scans, the other does not",
    "loops": "one side scans, the other does not",
    "memory": "one side scans, the other does not",
    "sharding": "stacked leaves have an axis that single ones lack",
}


def _case(variant: str, program: str, mesh: str, config: ModelConfig, train: TrainConfig = PLAIN) -> Case:
    build = functools.partial(decoder_build, name=f"llama2-{variant}", config=config, train=train)
    narrow = "bfloat16" in (config.param_dtype, config.compute_dtype)
    return Case(
        id=f"llama2-{variant}/{program}@{mesh}",
        reference=functools.partial(build, Flavour.LINEN),
        candidate=functools.partial(build, Flavour.NNX),
        program=program,
        mesh=MeshSpec.parse(mesh),
        lowest=Verdict.ARBITRATED if narrow else Verdict.BITWISE,
        exact=_exact(variant, config, train),
        flags=FLAGS.get((variant, program), ()),
        vary=functools.partial(_varied, variant, program, mesh, config, train),
        smoke=variant == "scan" and mesh == HOME,
    )


def _varied(
    variant: str,
    program: str,
    mesh: str,
    config: ModelConfig,
    train: TrainConfig,
    settings: Mapping[str, str],
) -> Case:
    config, train = varied(config, train, settings)
    words = ".".join(f"{name}={text}" for name, text in settings.items())
    return _case(f"{variant}+{words}", program, mesh, config, train)


def _exact(variant: str, config: ModelConfig, train: TrainConfig):
    return functools.partial(
        decoder_build, Flavour.LINEN, name=f"llama2-{variant} float64", config=float64(config), train=train
    )


def _layout_case(flavour: Flavour, program: str, config: ModelConfig) -> Case:
    unrolled = dataclasses.replace(config, layout=LayerLayout.UNROLLED)
    return Case(
        id=f"llama2-scan-against-unroll-{flavour}/{program}@single",
        reference=functools.partial(decoder_build, flavour, "llama2-scan", config, PLAIN),
        candidate=functools.partial(decoder_build, flavour, "llama2-unroll", unrolled, PLAIN),
        program=program,
        not_applicable=OTHER_LAYOUT,
        exact=_exact("scan", config, PLAIN),
    )


def cases(settings: Mapping[str, str]) -> list[Case]:
    """Returns the matrix of the dense decoder.

    Args:
        settings: config fields to override in every variant.

    Raises:
        ConfigError: a setting breaks a rule.
    """
    base = override(GROUPED, settings)
    matrix = [
        _case(variant, program, HOME, dataclasses.replace(base, **changes))
        for variant, changes in VARIANTS.items()
        for program in PROGRAMS
    ]
    multi_head = override(MULTI_HEAD, settings)
    matrix += [_case("mha", program, HOME, multi_head) for program in PROGRAMS]
    matrix += [_case("scan", "train_step", mesh, base) for mesh in MESHES]
    matrix += [
        _case(
            f"{variant}-accumulate",
            "train_step",
            HOME,
            dataclasses.replace(base, **VARIANTS[variant]),
            ACCUMULATING,
        )
        for variant in ("scan", "unroll-dropout")
    ]
    matrix += [
        _case(
            variant, program, "single", dataclasses.replace(base, **VARIANTS[variant.removeprefix("flags-")])
        )
        for variant, program in FLAGS
    ]
    matrix += [_layout_case(flavour, program, base) for flavour in Flavour for program in PROGRAMS]
    return matrix


def full_size(settings: Mapping[str, str], devices: int) -> list[Case]:
    """Returns the published models, scanned, as they are trained: bfloat16 compute, full remat.

    Args:
        settings: config fields to override.
        devices: how many; they form ``fsdp x tensor``.

    Raises:
        ConfigError: a setting breaks a rule.
    """
    tensor = 8 if devices >= 64 else min(2, devices)
    mesh = MeshSpec.parse(f"fsdp{devices // tensor}.tensor{tensor}-auto")
    training = {"compute_dtype": "bfloat16", "remat": _remat(RematPolicy.FULL)}
    cases = []
    for name in ("llama2-7b", "llama2-70b"):
        config = override(dataclasses.replace(preset(name), **training), settings)
        build = functools.partial(
            decoder_build, name=name, config=config, train=PLAIN, shape=(devices // tensor, 4_096)
        )
        cases += [
            Case(
                id=f"{name}/{program}@{mesh}",
                reference=functools.partial(build, Flavour.LINEN),
                candidate=functools.partial(build, Flavour.NNX),
                program=program,
                mesh=mesh,
            )
            for program in PROGRAMS
        ]
    return cases


PAIR = Pair(
    name="llama2",
    about="dense decoder: RMS norm, rotary, grouped-query attention, SwiGLU",
    cases=cases,
    full_size=full_size,
)
