"""Builds of the decoder twins that can be saved and loaded."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import nnx

import models_linen.checkpoint
import models_linen.diloco
import models_linen.train
import models_nnx.checkpoint
import models_nnx.diloco
import models_nnx.train
from models_nnx.shared import store
from parity.builds.build import Build, Flavour
from parity.builds.saving import Saving
from parity.builds.tree import Codec, flatten
from parity.cases.case import Case
from parity.matrix.cases import Variant, twins
from parity.matrix.replicas import Replicated

__all__ = ["saved_build", "saved_twins"]

ABOUT = {"note": "spoilt on purpose"}


def _linen(variant: Variant) -> Saving:
    shape = jax.ShapeDtypeStruct(variant.shape, "int32")
    batch = {name: shape for name in ("tokens", "segments", "positions")}
    models, parts = models_linen.train, (variant.config, variant.train)
    if isinstance(variant, Replicated):
        models, parts = models_linen.diloco, (*parts, variant.diloco)
    create = lambda key: models.create(*parts, key, batch=batch)  # noqa: E731
    codec = Codec(models_linen.train.unbox(jax.eval_shape(create, jax.random.key(0))))
    checkpoint = models_linen.checkpoint

    def export(state: Mapping[str, Any], folder: Path) -> None:
        tree = codec.restore(state)
        variables = models_linen.train.with_bias(tree.params, tree.routing_bias)
        checkpoint.export(folder, variant.config, variables)

    saving = Saving(
        save=lambda state, folder: checkpoint.save(folder, codec.restore(state)),
        load=lambda folder, like: flatten(checkpoint.restore(folder, codec.restore(like))),
        export=export,
        load_export=lambda folder: flatten(checkpoint.load_params(folder, variant.config)),
        spoil=SPOIL,
    )
    return _unserved(saving) if isinstance(variant, Replicated) else saving


def _nnx(variant: Variant) -> Saving:
    models, parts = models_nnx.train, (variant.config, variant.train)
    if isinstance(variant, Replicated):
        models, parts = models_nnx.diloco, (*parts, variant.diloco)
    create = lambda: models.create(*parts, jax.random.key(0))  # noqa: E731
    graphdef, example = nnx.split(nnx.eval_shape(create))
    codec = Codec(example)
    checkpoint = models_nnx.checkpoint

    saving = Saving(
        save=lambda state, folder: checkpoint.save(folder, nnx.merge(graphdef, codec.restore(state))),
        load=lambda folder, like: flatten(checkpoint.restore(folder, codec.restore(like))),
        export=lambda state, folder: checkpoint.export(
            folder, nnx.merge(graphdef, codec.restore(state)).model
        ),
        load_export=lambda folder: flatten(
            {"model": nnx.state(checkpoint.load_params(folder, variant.config))}
        ),
        spoil=SPOIL,
    )
    return _unserved(saving) if isinstance(variant, Replicated) else saving


def _unserved(saving: Saving) -> Saving:
    """Replicas are trained, and none of them is the model that is served."""
    return dataclasses.replace(saving, export=None, load_export=None)


def saved_build(variant: Variant, flavour: Flavour) -> Build:
    """Returns the build of a variant with what saves and loads it."""
    saving = {Flavour.LINEN: _linen, Flavour.NNX: _nnx}[flavour](variant)
    return dataclasses.replace(variant.build(flavour), saving=saving)


def saved_twins(variant: Variant, program: str, mesh: str, **more: Any) -> Case:
    """Returns the case of a variant in Linen against the same in NNX, checkpoints included."""
    case = twins(variant, program, mesh, **more)
    return saved(case, (variant, Flavour.LINEN), (variant, Flavour.NNX))


def saved(case: Case, reference: tuple[Variant, Flavour], candidate: tuple[Variant, Flavour]) -> Case:
    """Returns a case whose builds can be saved and loaded."""
    makes = [lambda side=side: saved_build(*side) for side in (reference, candidate)]
    return dataclasses.replace(case, reference=makes[0], candidate=makes[1])


# --- faults ---


def _rewritten(change: Callable[[dict[str, Any], str], None]) -> Callable[[Path, Path], str]:
    """Returns a fault that changes one leaf of a checkpoint, which is whole apart from that."""

    def spoil(folder: Path, copy: Path) -> str:
        manifest, kept = _kept(folder)
        leaves: dict[str, Any] = dict(kept)
        name = max(
            (name for name in leaves if "params/" in name),
            key=lambda name: (leaves[name].ndim, name),
        )
        change(leaves, name)
        store.write(copy, leaves, kind=manifest.kind, about=ABOUT)
        return name

    return spoil


@functools.lru_cache(maxsize=1)
def _kept(folder: Path) -> tuple[store.Manifest, Mapping[str, Any]]:
    """Returns what a checkpoint says of itself, and its leaves, once for all faults."""
    manifest = store.inspect(folder)
    like = {
        name: jax.ShapeDtypeStruct(
            leaf["shape"], jax.random.key(0).dtype if "impl" in leaf else leaf["dtype"]
        )
        for name, leaf in manifest.leaves.items()
    }
    return manifest, store.read(folder, like, kind=manifest.kind)


def _set(function: Callable[[Any], Any]) -> Callable[[dict[str, Any], str], None]:
    def change(leaves: dict[str, Any], name: str) -> None:
        leaves[name] = function(np.asarray(leaves[name]))

    return change


def _add(leaves: dict[str, Any], name: str) -> None:
    leaves[f"{name}_too"] = leaves[name]


SPOIL: Mapping[str, Callable[[Path, Path], str]] = {
    "a leaf missing": _rewritten(lambda leaves, name: leaves.pop(name)),
    "a leaf too many": _rewritten(_add),
    "a leaf of another shape": _rewritten(_set(lambda leaf: leaf[..., :-1])),
    "a leaf of another dtype": _rewritten(_set(lambda leaf: leaf.astype("float16"))),
}
