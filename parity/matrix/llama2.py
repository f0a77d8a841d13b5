"""The dense decoder: Llama 2, multi-head and grouped-query, in every layout of the twins."""

import functools
from collections.abc import Mapping

from models_nnx.shared.config import override
from models_nnx.shared.presets import preset, tiny
from parity.builds.build import Flavour
from parity.cases.case import Case, Pair
from parity.matrix.cases import full_size, layouts, twins
from parity.matrix.decoders import ACCUMULATING, BFLOAT16, DROPOUT, FULL, UNROLLED, Variant, variants
from parity.matrix.programs import DECODING, PROGRAMS

HOME = "fsdp4.tensor2-auto"
MESHES = ("single", "data8-auto", "fsdp8-auto", "data2.fsdp2.tensor2-auto", "fsdp4.tensor2-explicit")
GROUPED, MULTI_HEAD = tiny(preset("llama2-70b")), tiny(preset("llama2-7b"))

NAMED = {"remat.policy": "save_named", "remat.names": "query,attention_out"}
VARIANTS: Mapping[str, Mapping[str, str]] = {
    "scan": {},
    "unroll": UNROLLED,
    "scan-remat-full": FULL,
    "scan-remat-minimal": {"remat.policy": "minimal", "head": "tied"},
    "scan-remat-named": {**NAMED, **DROPOUT},
    "unroll-remat-full": {**FULL, **UNROLLED, **DROPOUT},
    "scan-tied": {"head": "tied", "scan_axis": "0"},
    "unroll-tied": {"head": "tied", **UNROLLED},
    "scan-dropout": DROPOUT,
    "unroll-dropout": {**DROPOUT, **UNROLLED},
    "scan-bf16": {"compute_dtype": "bfloat16", **FULL},
    "unroll-bf16": {**BFLOAT16, **UNROLLED},
    "scan-library": {"attention.kernel": "library"},
}
ALSO = {"scan-accumulate": ACCUMULATING, "unroll-dropout-accumulate": {**DROPOUT, **UNROLLED, **ACCUMULATING}}
ROWS = (
    *((name, program, HOME) for name in (*VARIANTS, "mha") for program in PROGRAMS),
    *(("scan", "train_step", mesh) for mesh in MESHES),
    *((name, "train_step", HOME) for name in ALSO),
    *((name, program, HOME) for name in ("scan", "unroll") for program in DECODING),
)


def cases(settings: Mapping[str, str]) -> list[Case]:
    """Returns the matrix of the dense decoder."""
    base = override(GROUPED, settings)
    named = variants("llama2", base, {**VARIANTS, **ALSO})
    named["mha"] = Variant("llama2-mha", override(MULTI_HEAD, settings))
    matrix = [twins(named[name], program, mesh) for name, program, mesh in ROWS]
    return matrix + [layouts(flavour, "llama2", program, base) for flavour in Flavour for program in PROGRAMS]


PAIR = Pair(
    name="llama2",
    about="dense decoder: RMS norm, rotary, grouped-query attention, SwiGLU",
    cases=cases,
    full_size=functools.partial(full_size, ("llama2-7b", "llama2-70b")),
)
