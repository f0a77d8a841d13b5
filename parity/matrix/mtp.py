"""Multi-token prediction: one and two depths, after every kind of stack, with every head, loss and mesh."""

import dataclasses
from collections.abc import Mapping

from models_nnx.shared.config import ModelConfig, MtpConfig, override
from models_nnx.shared.presets import preset, tiny
from parity.builds.build import Flavour
from parity.cases.case import Case, Pair
from parity.matrix.cases import OTHER_CODE, layouts, same_flavour, twins
from parity.matrix.decoders import ACCUMULATING, DROPPING, FULL, UNROLLED, Variant
from parity.matrix.layers import layer_rules
from parity.matrix.moe import DEEPSEEK
from parity.matrix.pipeline import SHAPE, STORAGE, pipelined
from parity.matrix.programs import PROGRAMS

HOME = "fsdp4.tensor2-auto"
ONE, TWO = MtpConfig(depth=1, loss_scale=0.7), MtpConfig(depth=2, loss_scale=0.3)
DENSE = dataclasses.replace(tiny(preset("llama2-70b")), layers=2, mtp=TWO)
EXPERTS = dataclasses.replace(DEEPSEEK, mtp=ONE)
LOCAL = dataclasses.replace(tiny(preset("gemma2-9b")), mtp=ONE)

NAMED = {"remat.policy": "save_named", "remat.names": "query,mlp_hidden"}
AS_ONE = {"mtp.depth": "1", "mtp.loss_scale": "0.7"}
AS_TWO = {"mtp.depth": "2", "mtp.loss_scale": "0.3"}
TILED = {"train.vocab_tiles": "4", "train.moments": "zero1"}
VARIANTS: Mapping[str, tuple[ModelConfig, Mapping[str, str]]] = {
    "scan": (DENSE, {}),
    "unroll": (DENSE, {**AS_ONE, "head": "tied", "dropout": "0.1", **UNROLLED, **ACCUMULATING}),
    "tiled": (DENSE, {"head": "tied", **FULL, **TILED}),
    "bf16": (LOCAL, {"compute_dtype": "bfloat16", **NAMED}),
    "experts": (EXPERTS, FULL),
    "experts-unroll": (EXPERTS, {**DROPPING, **AS_TWO, **UNROLLED, **ACCUMULATING}),
}
STAGED: Mapping[str, tuple[ModelConfig, Mapping[str, str]]] = {
    "pipeline": (DENSE, {**FULL, "dropout": "0.1"}),
    "pipeline-experts": (EXPERTS, DROPPING),
}
ROWS = (
    *(("scan", program, HOME) for program in PROGRAMS),
    ("scan", "train_step", "fsdp2.tensor2.context2-explicit"),
    ("tiled", "train_step", "data2.fsdp2.tensor2-auto"),
    ("tiled", "grad", "fsdp2.tensor2.context2-explicit"),
    ("bf16", "train_step", HOME),
    ("experts", "forward", "data2.expert4-auto"),
    ("experts", "train_step", "data2.expert4-auto"),
    ("experts-unroll", "train_step", "expert2.tensor2.fsdp2-explicit"),
    ("pipeline", "train_step", "stage2.fsdp2.tensor2-auto"),
    ("pipeline-experts", "train_step", "stage2.fsdp2.context2-explicit"),
    ("unroll", "train_step", "fsdp2.tensor2.context1-explicit"),
)


def cases(settings: Mapping[str, str]) -> list[Case]:
    """Returns the matrix of multi-token prediction."""
    named = {
        name: Variant(f"mtp-{name}", override(base, settings), saved=name == "unroll").override(changes)
        for name, (base, changes) in VARIANTS.items()
    }
    for name, (base, changes) in STAGED.items():
        config = pipelined(override(base, settings), STORAGE)
        named[name] = Variant(f"mtp-{name}", config, shape=SHAPE).override(changes)
    matrix = [twins(named[name], program, mesh) for name, program, mesh in ROWS]
    experts = override(EXPERTS, settings)
    sides = (named["scan"], HOME), (named["scan"], "fsdp2.tensor2.context2-explicit")
    words = "mtp-auto-against-explicit"
    matrix.append(same_flavour(Flavour.LINEN, words, "grad", *sides, accept=OTHER_CODE))
    return [*matrix, layouts(Flavour.NNX, "mtp-experts", "grad", experts, rules=layer_rules(experts))]


PAIR = Pair(
    name="mtp", about="multi-token prediction: predictors of further tokens behind every stack", cases=cases
)
