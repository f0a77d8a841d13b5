"""DiLoCo, plain and streaming: replicas on a separate mesh axis, combined with the options of a train step."""

import dataclasses
from collections.abc import Mapping

from models_nnx.shared.config import DilocoConfig, Gather, override
from models_nnx.shared.presets import preset, tiny
from parity.builds.build import Flavour
from parity.builds.weights.map import Rule
from parity.builds.weights.transforms import Unstack
from parity.cases.case import Case, Pair
from parity.matrix.cases import ONE_STRUCTURE, OTHER_PROGRAM, TRAINING, same_flavour, twins
from parity.matrix.decoders import ACCUMULATING, BFLOAT16, DROPOUT, DROPPING, FULL, UNROLLED, ZERO1, Variant
from parity.matrix.decoders import PLAIN as PLAIN_STEP
from parity.matrix.layers import layer_rules
from parity.matrix.pipeline import STORAGE, pipelined

PLAIN = DilocoConfig(replicas=2, period=2)
STREAMING = DilocoConfig(replicas=2, period=6, fragments=2, delay=1, inner_share=0.25, momentum=0.8)
UNTAKEN = DilocoConfig(replicas=2, period=3, delay=2, inner_share=0.25, momentum=0.8)
"""A case makes 2 H + 1 = 7 steps: replicas synchronise in step 6 and would apply the result in step 8."""
HOME = "replica2.fsdp2.tensor2"
SHAPE = (8, 40)
MEETINGS = ("sync_step", "apply_step")
UNTRAINED = dataclasses.replace(ONE_STRUCTURE, zero_gradients=("*",))
"""These steps do not train: they leave parameters in other fragments unchanged."""

VARIANTS: Mapping[str, tuple[str, DilocoConfig, Mapping[str, str]]] = {
    "plain-scan": ("dense", PLAIN, {**DROPOUT, **FULL}),
    "plain-unroll": (
        "dense",
        PLAIN,
        {**UNROLLED, **BFLOAT16, **ACCUMULATING, "diloco.replicas": "4", "diloco.period": "3"},
    ),
    "streaming-scan": ("dense", STREAMING, {**DROPOUT, **ZERO1}),
    "streaming-unroll": (
        "dense",
        STREAMING,
        {**UNROLLED, **DROPOUT, "train.vocab_tiles": "4", "diloco.fragments": "3"},
    ),
    "to-disk": ("dense", UNTAKEN, {"layers": "1", **DROPOUT}),
    "two-stacks": ("experts", STREAMING, {}),
    "two-stacks-dropping": ("experts", STREAMING, {**DROPPING, **DROPOUT, **ZERO1, "diloco.fragments": "3"}),
    "pipeline": ("stages", STREAMING, {**DROPOUT, **ZERO1}),
    "plain-pipeline": ("stages", PLAIN, {**DROPOUT, **FULL}),
    "prefetch": ("repeats", STREAMING, {**DROPOUT, **ACCUMULATING}),
}
"""Decoder, replica settings and further settings; each option occurs in several combinations."""


def _variants(settings: Mapping[str, str]) -> dict[str, Variant]:
    dense, experts = (override(tiny(preset(name)), settings) for name in ("llama2-70b", "deepseek3-671b"))
    decoders = {
        "dense": (dense, SHAPE),
        "experts": (experts, SHAPE),
        "stages": (pipelined(dense, {**STORAGE, "layers_per_stage": 2}), (16, 40)),
        "repeats": (pipelined(dense, {**STORAGE, "gather": Gather.PER_REPEAT}), (32, 24)),
    }
    return {
        name: Variant(
            f"diloco-{name}", decoders[base][0], PLAIN_STEP, decoders[base][1], diloco, name == "to-disk"
        ).override(changes)
        for name, (base, diloco, changes) in VARIANTS.items()
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
    ("to-disk", "diloco_step", "replica2-explicit"),
)


def _in_replicas(rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
    """Returns the rules of stacked layers for replicas, whose leaves have a leading axis, and for shared leaves."""
    found = []
    for rule in rules:
        assert isinstance(rule.transform, Unstack)
        own = dataclasses.replace(rule.transform, axis=rule.transform.axis + 1)
        found.append(dataclasses.replace(rule, transform=own))
        (path,) = rule.reference
        for group in ("params", "momentum"):
            shared = rf"outer/{group}/"
            targets = tuple(shared + target for target in rule.candidate)
            found.append(Rule(reference=(shared + path,), candidate=targets, transform=rule.transform))
    return tuple(found)


def _layouts(flavour: Flavour, scanned: Variant) -> Case:
    """Returns the case of scanned against unrolled layers in the same fragments; no dropout, as keys would differ."""
    plain = dataclasses.replace(scanned.override({"dropout": "0"}), train=PLAIN_STEP, shape=(6, 40))
    variant = dataclasses.replace(plain, name="diloco-layouts")
    other = dataclasses.replace(variant.override(UNROLLED), name=f"{variant.name} unrolled")
    return same_flavour(
        flavour,
        f"{variant.name}-scan-against-unroll",
        "diloco_step",
        (variant, "single"),
        (other, "single"),
        rules=_in_replicas(layer_rules(variant.config)),
        accept=dataclasses.replace(OTHER_PROGRAM, prove_exact=True),
    )


def cases(settings: Mapping[str, str]) -> list[Case]:
    """Returns the matrix of replicas."""
    named = _variants(settings)
    matrix = [
        twins(named[name], program, mesh, UNTRAINED if program in MEETINGS else ONE_STRUCTURE)
        for name, program, mesh in PLACES
    ]
    return [*matrix, _layouts(Flavour.NNX, named["streaming-scan"])]


def full_size(settings: Mapping[str, str], devices: int) -> list[Case]:
    """Returns cases of Llama 2 7B on ``replica4 x fsdp``: inner step, synchronisation, and both; see `Pair`."""
    base = dataclasses.replace(preset("llama2-7b"), **TRAINING)
    config, wide = override(base, settings), devices // 4
    plain = DilocoConfig(replicas=4, period=100)
    streaming = dataclasses.replace(plain, fragments=4, delay=5, inner_share=0.5)
    named = {
        name: Variant(f"diloco-llama2-7b-{name}", config, PLAIN_STEP, (2 * wide, 2_048), diloco)
        for name, diloco in {"plain": plain, "streaming": streaming}.items()
    }
    programs = (
        ("plain", "inner_step"),
        ("plain", "sync_step"),
        ("plain", "diloco_step"),
        ("streaming", "sync_step"),
    )
    return [twins(named[name], program, f"replica4.fsdp{wide}-auto") for name, program in programs]


PAIR = Pair(
    name="diloco",
    about="replicas that synchronise from time to time, plain and streaming: on meshes, in pipelines, with experts",
    cases=cases,
    full_size=full_size,
)
