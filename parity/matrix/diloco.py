"""DiLoCo, plain and streaming: replicas on a mesh axis of their own, each with what a train step may have."""

import dataclasses
from collections.abc import Mapping

from models_nnx.shared.config import (
    DilocoConfig,
    Dispatch,
    Gather,
    LayerLayout,
    ModelConfig,
    MomentSharding,
    RematConfig,
    RematPolicy,
    TrainConfig,
    override,
)
from models_nnx.shared.presets import preset, tiny
from parity.builds.build import Flavour
from parity.builds.weights.map import Rule
from parity.builds.weights.transforms import Unstack
from parity.cases.case import Case, Pair
from parity.matrix.cases import OTHER_PLACES, same_flavour, twins
from parity.matrix.layers import layer_rules
from parity.matrix.pipeline import STORAGE, pipelined
from parity.matrix.replicas import PLAIN, Replicated
from parity.matrix.saving import saved_twins

__all__ = ["PAIR", "STREAMING"]

STREAMING = DilocoConfig(replicas=2, period=6, fragments=2, delay=1, inner_share=0.25, momentum=0.8)
UNTAKEN = DilocoConfig(replicas=2, period=3, delay=2, inner_share=0.25, momentum=0.8)
"""After the 2 H + 1 = 7 steps that a case makes, replicas have met in step 6 and take the result in step 8."""
FULL = RematConfig(policy=RematPolicy.FULL)
ZERO1 = TrainConfig(moments=MomentSharding.ZERO1)
HOME = "replica2.fsdp2.tensor2"
SHAPE = (8, 40)
UNTRAINED = {"zero_gradients": ("*",)}
"""Meetings are no train steps: they leave parameters alone that are in other fragments."""


def _variants(settings: Mapping[str, str]) -> dict[str, Replicated]:
    """Returns each variant under its name, options combined so that every one is met in another company."""
    base, deepseek3 = (override(tiny(preset(name)), settings) for name in ("llama2-70b", "deepseek3-671b"))
    dropping = dataclasses.replace(deepseek3.mixture, dispatch=Dispatch.DROPPING)
    stages = pipelined(base, {**STORAGE, "layers_per_stage": 2}, dropout=0.1)
    narrow = {"param_dtype": "bfloat16", "compute_dtype": "bfloat16"}
    made: dict[str, tuple[ModelConfig, TrainConfig, DilocoConfig]] = {
        "plain-scan": (dataclasses.replace(base, dropout=0.1, remat=FULL), TrainConfig(), PLAIN),
        "plain-unroll": (
            dataclasses.replace(base, layout=LayerLayout.UNROLLED, **narrow),
            TrainConfig(accumulation=2),
            dataclasses.replace(PLAIN, replicas=4, period=3),
        ),
        "streaming-scan": (dataclasses.replace(base, dropout=0.1), ZERO1, STREAMING),
        "streaming-unroll": (
            dataclasses.replace(base, layout=LayerLayout.UNROLLED, dropout=0.1),
            TrainConfig(vocab_tiles=4),
            dataclasses.replace(STREAMING, fragments=3),
        ),
        "to-disk": (dataclasses.replace(base, layers=1, dropout=0.1), TrainConfig(), UNTAKEN),
        "two-stacks": (deepseek3, TrainConfig(), STREAMING),
        "two-stacks-dropping": (
            dataclasses.replace(deepseek3, moe=dropping, dropout=0.1),
            ZERO1,
            dataclasses.replace(STREAMING, fragments=3),
        ),
        "pipeline": (stages, ZERO1, STREAMING),
        "plain-pipeline": (dataclasses.replace(stages, remat=FULL), TrainConfig(), PLAIN),
        "prefetch": (
            pipelined(base, {**STORAGE, "gather": Gather.PER_REPEAT}, dropout=0.1),
            TrainConfig(accumulation=2),
            STREAMING,
        ),
    }
    shapes = {"pipeline": (16, 40), "plain-pipeline": (16, 40), "prefetch": (32, 24)}
    return {
        name: Replicated(f"diloco-{name}", config, train, shapes.get(name, SHAPE), diloco)
        for name, (config, train, diloco) in made.items()
    }


PLACES: tuple[tuple[str, str, str], ...] = (
    ("plain-scan", "diloco_step", f"{HOME}-auto"),
    ("plain-scan", "diloco_step", f"{HOME}-explicit"),
    ("plain-scan", "inner_step", "replica2.data2.context2-explicit"),
    ("plain-unroll", "diloco_step", "replica4.fsdp2.context1-explicit"),
    ("plain-unroll", "sync_step", "replica2.fsdp2-auto"),
    ("streaming-scan", "diloco_step", "replica2.data2.fsdp2-auto"),
    ("streaming-scan", "sync_step", f"{HOME}-explicit"),
    ("streaming-scan", "apply_step", f"{HOME}-auto"),
    ("streaming-unroll", "diloco_step", "single"),
    ("streaming-unroll", "apply_step", f"{HOME}-explicit"),
    ("two-stacks", "diloco_step", "replica2.expert2.fsdp2-auto"),
    ("two-stacks-dropping", "diloco_step", "replica2.data2.expert2-explicit"),
    ("pipeline", "diloco_step", "replica2.data2.stage2-auto"),
    ("plain-pipeline", "diloco_step", "replica2.stage2.fsdp2-explicit"),
    ("prefetch", "diloco_step", "replica1.stage2.fsdp2-explicit"),
)


def _in_replicas(rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
    """Returns the rules of stacked layers for replicas, whose leaves have an axis in front, and for what they share."""
    found = []
    for rule in rules:
        assert isinstance(rule.transform, Unstack)
        own = dataclasses.replace(rule.transform, axis=rule.transform.axis + 1)
        found.append(dataclasses.replace(rule, transform=own))
        (path,) = rule.reference
        for what in ("params", "momentum"):
            shared = rf"outer/{what}/"
            targets = tuple(shared + target for target in rule.candidate)
            found.append(Rule(reference=(shared + path,), candidate=targets, transform=rule.transform))
    return tuple(found)


def _layouts(flavour: Flavour, variant: Replicated) -> Case:
    """Layers are in the same fragments however they lie; nothing drops out, as keys differ by layout."""
    config = dataclasses.replace(variant.config, dropout=0.0)
    variant = dataclasses.replace(
        variant, name="diloco-layouts", config=config, train=TrainConfig(), shape=(6, 40)
    )
    unrolled = dataclasses.replace(config, layout=LayerLayout.UNROLLED)
    other = dataclasses.replace(variant, name=f"{variant.name} unrolled", config=unrolled)
    return same_flavour(
        flavour,
        f"{variant.name}-scan-against-unroll",
        "diloco_step",
        (variant, "single"),
        (other, "single"),
        rules=_in_replicas(layer_rules(variant.config)),
        arithmetic=True,
        not_applicable=OTHER_PLACES,
    )


def cases(settings: Mapping[str, str]) -> list[Case]:
    """Returns the matrix of replicas.

    Args:
        settings: config fields to override in every variant.

    Raises:
        ConfigError: a setting breaks a rule.
    """
    variants = _variants(settings)
    matrix = [
        twins(
            variants[name],
            program,
            mesh,
            smoke=mesh == f"{HOME}-explicit" and name == "plain-scan",
            **(UNTRAINED if program in ("sync_step", "apply_step") else {}),
        )
        for name, program, mesh in PLACES
    ]
    to_disk = saved_twins(variants["to-disk"], "diloco_step", "replica2-explicit")
    return [*matrix, to_disk, _layouts(Flavour.NNX, variants["streaming-scan"])]


def full_size(settings: Mapping[str, str], devices: int) -> list[Case]:
    """Returns Llama 2 7B in 4 replicas, plain and streaming: the step between meetings, a meeting, and both in one.

    Args:
        settings: config fields to override.
        devices: how many; they form ``replica4 x fsdp``.

    Raises:
        ConfigError: a setting breaks a rule.
    """
    base = dataclasses.replace(preset("llama2-7b"), compute_dtype="bfloat16", remat=FULL)
    config, wide = override(base, settings), devices // 4
    plain = DilocoConfig(replicas=4, period=100)
    streaming = dataclasses.replace(plain, fragments=4, delay=5, inner_share=0.5)
    variants = {
        name: Replicated(f"diloco-llama2-7b-{name}", config, TrainConfig(), (2 * wide, 2_048), diloco)
        for name, diloco in {"plain": plain, "streaming": streaming}.items()
    }
    programs = (
        ("plain", "inner_step"),
        ("plain", "sync_step"),
        ("plain", "diloco_step"),
        ("streaming", "sync_step"),
    )
    return [twins(variants[name], program, f"replica4.fsdp{wide}-auto") for name, program in programs]


PAIR = Pair(
    name="diloco",
    about="replicas that meet now and then, plain and streaming: on meshes, in pipelines, with experts",
    cases=cases,
    full_size=full_size,
)
