"""Checkpoints of Linen training runs, and of parameters to serve; NNX reads and writes the same files.

The names on disk are the paths of `TrainState`: ``params/...``, ``opt_state/...``, ``step``, ``key``,
``routing_bias/...``.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from models_linen.model import LanguageModel
from models_nnx.shared import store
from models_nnx.shared.config import ModelConfig
from models_nnx.shared.layering import different, relaid

__all__ = ["export", "load_params", "named", "restore", "save"]


def named(state: Any) -> dict[str, Any]:
    """Returns ``{name on disk: leaf}`` of any tree; boxes are dropped."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(nn.meta.unbox(state))
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}


def save(folder: Path, state: Any, about: Mapping[str, Any] | None = None) -> Path:
    """Writes all of a train state to a new folder, which appears when it is complete.

    Args:
        folder: such as `models_nnx.shared.store.step_folder` gives.
        state: any tree of arrays, such as a `TrainState`.
        about: notes to store, as JSON values.

    Raises:
        CheckpointError: as `models_nnx.shared.store.write`.
    """
    return store.write(folder, named(state), kind=store.Kind.TRAIN_STATE, about=about or {})


def restore(folder: Path, example: Any, places: Any = None) -> Any:
    """Returns a tree like ``example`` with the arrays of a checkpoint, every leaf of it.

    Args:
        folder: a checkpoint of either flavour.
        example: the state, abstract or not; boxes are dropped, leaves with a sharding are placed by it.
        places: tree of shardings like the state, which replace those in ``example``.

    Raises:
        CheckpointError: as `models_nnx.shared.store.read`.
    """
    example = _placed(nn.meta.unbox(example), places)
    return _filled(example, store.read(folder, named(example), kind=store.Kind.TRAIN_STATE))


def export(
    folder: Path, config: ModelConfig, variables: Mapping[str, Any], target: ModelConfig | None = None
) -> Path:
    """Writes only the state that a model reads, in the layout and parameter dtype of another config of the model.

    Args:
        folder: a new folder.
        config: config of the model.
        variables: collections ``params`` and, if the model has one, ``routing_bias``.
        target: its layout and parameter dtype are those of the file; ``config`` by default.

    Raises:
        CheckpointError: ``target`` is of another model; or as `models_nnx.shared.store.write`.
    """
    target = target or config
    if fields := different(config, target):
        raise store.CheckpointError(
            f"{folder}: got a target that differs in {', '.join(fields)}, expected another layout or dtype of one model"
        )
    leaves = {name: np.asarray(leaf) for name, leaf in named(variables).items()}
    return store.write(folder, relaid(leaves, config, target), kind=store.Kind.PARAMETERS, about={})


def load_params(folder: Path, config: ModelConfig, places: Any = None) -> dict[str, Any]:
    """Returns the variables of a model from an export of either flavour.

    Args:
        folder: the export.
        config: config of the model, in the layout and parameter dtype of the export.
        places: tree of shardings like the variables; by default all are on one device.

    Raises:
        CheckpointError: as `models_nnx.shared.store.read`.
    """
    tokens = jnp.zeros((1, 2), jnp.int32)
    fresh = jax.eval_shape(LanguageModel(config).init, jax.random.key(0), tokens, tokens, tokens)
    example = {name: nn.meta.unbox(fresh[name]) for name in ("params", "routing_bias") if name in fresh}
    example = _placed(example, places)
    return _filled(example, store.read(folder, named(example), kind=store.Kind.PARAMETERS))


def _filled(example: Any, leaves: Mapping[str, jax.Array]) -> Any:
    return jax.tree.unflatten(jax.tree.structure(example), [leaves[name] for name in named(example)])


def _placed(example: Any, places: Any) -> Any:
    def place(leaf, sharding):
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)

    return example if places is None else jax.tree.map(place, example, places)
