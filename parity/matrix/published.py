"""Cases of the decoders at published size, to be lowered only."""

import dataclasses
from collections.abc import Mapping, Sequence

from models_nnx.shared.config import RematConfig, RematPolicy, override
from models_nnx.shared.presets import preset
from parity.cases.case import Case
from parity.matrix.cases import twins
from parity.matrix.decoders import Variant
from parity.matrix.programs import PROGRAMS

__all__ = ["full_size"]

TRAINING = {"compute_dtype": "bfloat16", "remat": RematConfig(policy=RematPolicy.FULL)}


def full_size(names: Sequence[str], settings: Mapping[str, str], devices: int) -> list[Case]:
    """Returns cases of scanned models at published size in a training setup: bfloat16 compute, full remat.

    Args:
        names: of presets.
        settings: config fields to override.
        devices: number of devices; they form ``fsdp x tensor``.

    Raises:
        ConfigError: an invalid setting.
    """
    tensor = 8 if devices >= 64 else min(2, devices)
    mesh, shape = f"fsdp{devices // tensor}.tensor{tensor}-auto", (devices // tensor, 4_096)
    configs = {name: override(dataclasses.replace(preset(name), **TRAINING), settings) for name in names}
    return [
        twins(Variant(name, config, shape=shape), program, mesh)
        for name, config in configs.items()
        for program in PROGRAMS
    ]
