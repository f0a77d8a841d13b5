"""The loss that takes the vocabulary in tiles: between the twins, and against the loss that makes all logits."""

import dataclasses
import functools
from collections.abc import Mapping

from models_nnx.config import Head, ModelConfig, TrainConfig, override
from models_nnx.presets import preset, tiny
from parity.build import Flavour
from parity.matrix import Case, Pair
from parity.meshes import MeshSpec
from parity.pairs.decoders import decoder_build, float64
from parity.verdicts import Verdict

__all__ = ["PAIR"]

PLAIN, TILED = TrainConfig(), TrainConfig(vocab_tiles=4)
CAPPED = {"head": Head.TIED, "logits_soft_cap": 20.0}
OTHER_PROGRAM = {
    "collectives": "other programs by intent",
    "dots": "other programs by intent",
    "loops": "one side loops over tiles, the other does not",
    "memory": "needing less is the point",
    "program": "other programs by intent",
    "sharding": "one side constrains tiles, the other all logits",
}


def _case(name: str, config: ModelConfig, program: str, mesh: str) -> Case:
    build = functools.partial(decoder_build, name=f"tiled-{name}", config=config, train=TILED)
    return Case(
        id=f"tiled-{name}/{program}@{mesh}",
        reference=functools.partial(build, Flavour.LINEN),
        candidate=functools.partial(build, Flavour.NNX),
        program=program,
        mesh=MeshSpec.parse(mesh),
        lowest=Verdict.BITWISE,
    )


def _against_plain(flavour: Flavour, config: ModelConfig) -> Case:
    build = functools.partial(decoder_build, flavour)
    plain, tiled = (
        functools.partial(build, f"tiled-{name}", config, train)
        for name, train in (("plain", PLAIN), ("untied", TILED))
    )
    return Case(
        id=f"tiled-against-plain-{flavour}/grad@single",
        reference=plain,
        candidate=tiled,
        program="grad",
        not_applicable=OTHER_PROGRAM,
        exact=functools.partial(build, "tiled-plain float64", float64(config), PLAIN),
    )


def cases(settings: Mapping[str, str]) -> list[Case]:
    """Returns the matrix of the tiled loss.

    Args:
        settings: config fields to override in every variant.

    Raises:
        ConfigError: a setting breaks a rule.
    """
    base = override(dataclasses.replace(tiny(preset("llama2-70b")), layers=2), settings)
    capped = dataclasses.replace(base, **CAPPED)
    return [
        _case("untied", base, "train_step", "fsdp4.tensor2-auto"),
        _case("untied", base, "train_step", "fsdp4.tensor2-explicit"),
        _case("capped", capped, "grad", "fsdp4.tensor2-auto"),
        _case("capped", capped, "grad", "fsdp2.tensor2.context2-explicit"),
        _against_plain(Flavour.NNX, base),
    ]


PAIR = Pair(name="tiled", about="the loss that takes the vocabulary in tiles", cases=cases)
