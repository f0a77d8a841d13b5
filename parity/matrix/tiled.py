"""The loss that takes the vocabulary in tiles: between the twins, and against the loss that makes all logits."""

import dataclasses
from collections.abc import Mapping

from models_nnx.shared.config import Head, TrainConfig, override
from models_nnx.shared.presets import preset, tiny
from parity.builds.build import Flavour
from parity.cases.case import Case, Pair
from parity.matrix.cases import OTHER_DOTS, Variant, same_flavour, twins

__all__ = ["PAIR"]

TILED = TrainConfig(vocab_tiles=4)
CAPPED = {"head": Head.TIED, "logits_soft_cap": 20.0}


def cases(settings: Mapping[str, str]) -> list[Case]:
    """Returns the matrix of the tiled loss.

    Args:
        settings: config fields to override in every variant.

    Raises:
        ConfigError: a setting breaks a rule.
    """
    base = override(dataclasses.replace(tiny(preset("llama2-70b")), layers=2), settings)
    plain, untied = Variant("tiled-plain", base), Variant("tiled-untied", base, TILED)
    capped = Variant("tiled-capped", dataclasses.replace(base, **CAPPED), TILED)
    sides = (plain, "single"), (untied, "single")
    return [
        twins(untied, "train_step", "fsdp4.tensor2-auto"),
        twins(untied, "train_step", "fsdp4.tensor2-explicit"),
        twins(capped, "grad", "fsdp4.tensor2-auto"),
        twins(capped, "grad", "fsdp2.tensor2.context2-explicit"),
        same_flavour(
            Flavour.NNX,
            "tiled-against-plain",
            "grad",
            *sides,
            not_applicable=OTHER_DOTS,
            arithmetic=True,
            apart={"*/head/kernel": (1,)},
            ranges={"targets": (0, base.vocab)},
        ),
    ]


PAIR = Pair(name="tiled", about="the loss that takes the vocabulary in tiles", cases=cases)
