"""Optional functions of a build that save and load its state."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

__all__ = ["Saving"]

Flat = Mapping[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Saving:
    """Functions that save and load the state of a build, flat and under the paths of the build.

    Functions that load raise a `ValueError` for everything except an intact checkpoint of that state.

    Args:
        save: state and a new folder; writes a checkpoint.
        load: folder and ``{path: jax.ShapeDtypeStruct}``, shardings included -> state.
        export: state and a new folder; writes the parameters alone; None if the model is not served.
        load_export: folder -> the parameters; None if ``export`` is.
        spoil: fault, such as ``missing leaf`` -> function of a checkpoint and a new folder. The function writes a
            copy of the checkpoint with the fault to the folder and returns text that the error must contain.
    """

    save: Callable[[Flat, Path], Any]
    load: Callable[[Path, Flat], dict[str, Any]]
    export: Callable[[Flat, Path], Any] | None = None
    load_export: Callable[[Path], dict[str, Any]] | None = None
    spoil: Mapping[str, Callable[[Path, Path], str]] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        if (self.export is None) != (self.load_export is None):
            raise ValueError("Saving: got one of export and load_export, expected both or neither")
