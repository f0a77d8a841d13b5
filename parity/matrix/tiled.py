"""The loss with a tiled vocabulary: twins, and against the loss that materialises all logits."""

import dataclasses
from collections.abc import Mapping

from models_nnx.shared.config import override
from models_nnx.shared.presets import preset, tiny
from parity.builds.build import Flavour
from parity.cases.case import Case, Pair
from parity.matrix.cases import EXACT_OR_RUN, OTHER_DOTS, same_flavour, twins
from parity.matrix.decoders import variants

EXACT_SHAPE = (1, 20)
"""Rows and length of a batch that is only proved: an exact proof takes longer for more rows."""
TILED = {"train.vocab_tiles": "4"}
VARIANTS: Mapping[str, Mapping[str, str]] = {
    "plain": {},
    "untied": TILED,
    "capped": {**TILED, "head": "tied", "logits_soft_cap": "20.0"},
}
ROWS = (
    ("untied", "train_step", "fsdp4.tensor2-auto"),
    ("untied", "train_step", "fsdp4.tensor2-explicit"),
    ("capped", "grad", "fsdp4.tensor2-auto"),
    ("capped", "grad", "fsdp2.tensor2.context2-explicit"),
)


def cases(settings: Mapping[str, str]) -> list[Case]:
    """Returns the matrix of the tiled loss."""
    base = override(dataclasses.replace(tiny(preset("llama2-70b")), layers=2), settings)
    named = variants("tiled", base, VARIANTS)
    small = variants("tiled", dataclasses.replace(base, layers=1), VARIANTS, EXACT_SHAPE)
    run, proved = (((held["plain"], "single"), (held["untied"], "single")) for held in (named, small))
    accept = dataclasses.replace(
        OTHER_DOTS,
        prove_exact=True,
        split_dims={"*/head/kernel": (1,)},
        integer_ranges={"targets": (0, base.vocab)},
    )
    name = "tiled-against-plain"
    return [
        *(twins(named[name], program, mesh) for name, program, mesh in ROWS),
        same_flavour(Flavour.LINEN, name, "grad", *proved, accept=accept).with_accept(require=EXACT_OR_RUN),
        same_flavour(Flavour.NNX, name, "grad", *run, accept=accept),
    ]


PAIR = Pair(name="tiled", about="the loss that takes the vocabulary in tiles", cases=cases)
