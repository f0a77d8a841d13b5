"""Checkpoint faults that the models must refuse to load."""

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from models_nnx.shared import store

__all__ = ["SPOIL"]


def _rewritten(change: Callable[[dict[str, Any], str], Any]) -> Callable[[Path, Path], str]:
    """Returns a fault that changes one leaf of an intact checkpoint."""

    def spoil(folder: Path, copy: Path) -> str:
        manifest, kept = _kept(folder)
        leaves: dict[str, Any] = dict(kept)
        name = max((name for name in leaves if "params/" in name), key=lambda name: (leaves[name].ndim, name))
        change(leaves, name)
        store.write(copy, leaves, kind=manifest.kind, about={"note": "spoilt on purpose"})
        return name

    return spoil


@functools.lru_cache(maxsize=1)
def _kept(folder: Path) -> tuple[store.Manifest, Mapping[str, Any]]:
    """Returns a checkpoint's manifest and leaves, read once for all faults."""
    manifest = store.inspect(folder)
    like = {
        name: jax.ShapeDtypeStruct(
            leaf["shape"], jax.random.key(0).dtype if "impl" in leaf else leaf["dtype"]
        )
        for name, leaf in manifest.leaves.items()
    }
    return manifest, store.read(folder, like, kind=manifest.kind)


def _changed(function: Callable[[np.ndarray], np.ndarray]) -> Callable[[Path, Path], str]:
    return _rewritten(lambda leaves, name: leaves.update({name: function(np.asarray(leaves[name]))}))


SPOIL: Mapping[str, Callable[[Path, Path], str]] = {
    "a leaf missing": _rewritten(lambda leaves, name: leaves.pop(name)),
    "a leaf too many": _rewritten(lambda leaves, name: leaves.update({f"{name}_too": leaves[name]})),
    "a leaf of another shape": _changed(lambda leaf: leaf[..., :-1]),
    "a leaf of another dtype": _changed(lambda leaf: leaf.astype("float16")),
}
