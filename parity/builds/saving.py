"""What a build may offer beside its programs: its state to disk and back."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

__all__ = ["Saving"]

Flat = Mapping[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Saving:
    """How the state of a build is saved and loaded; all of it flat, under the paths of the build.

    Functions that load raise a `ValueError` for whatever is not exactly what was saved.

    Args:
        save: state and a new folder; writes a checkpoint.
        load: folder and ``{path: jax.ShapeDtypeStruct}``, shardings included -> state.
        export: state and a new folder; writes the parameters alone; None where nothing is served.
        load_export: folder -> the parameters; None as above.
        spoil: fault, such as ``missing leaf`` -> function of a checkpoint and a new folder; writes there what the
            checkpoint would be with the fault, and returns words that its refusal must have.
    """

    save: Callable[[Flat, Path], Any]
    load: Callable[[Path, Flat], dict[str, Any]]
    export: Callable[[Flat, Path], Any] | None = None
    load_export: Callable[[Path], dict[str, Any]] | None = None
    spoil: Mapping[str, Callable[[Path, Path], str]] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        if (self.export is None) != (self.load_export is None):
            raise ValueError("Saving: got one of export and load_export, expected both or neither")
