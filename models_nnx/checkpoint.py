"""Checkpoints of NNX training runs, and of parameters to serve; Linen reads and writes the same files.

The names on disk are those of Linen's collections. A Variable of the model is named by its exact type: ``params`` or
``routing_bias`` replaces ``model`` in its path. State of the optimizer has no leading ``optimizer``.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import nnx

from models_nnx.model import LanguageModel
from models_nnx.rngs import PathRngs
from models_nnx.shared import store
from models_nnx.shared.config import ModelConfig
from models_nnx.shared.layering import different, relaid

__all__ = ["export", "load_params", "named", "restore", "save"]

MODEL, OPTIMIZER = "model", "optimizer"


def named(state: Any) -> dict[str, Any]:
    """Returns ``{name on disk: leaf}`` of a module or of its state."""
    leaves = {_name(path, variable): variable.get_value() for path, variable in _flat(state)}
    if len(leaves) != len(_flat(state)):
        raise store.CheckpointError(
            f"got {len(_flat(state))} leaves with {len(leaves)} names, expected a name each"
        )
    return leaves


def save(folder: Path, state: nnx.Module | nnx.State, about: Mapping[str, Any] | None = None) -> Path:
    """Writes all of a train state to a new folder, which appears when it is complete.

    Args:
        folder: such as `models_nnx.shared.store.step_folder` gives.
        state: any module, such as a `TrainState`, or its state; Variables of every type are written.
        about: notes to store, as JSON values.

    Raises:
        CheckpointError: as `models_nnx.shared.store.write`.
    """
    return store.write(folder, named(state), kind=store.Kind.TRAIN_STATE, about=about or {})


def restore(folder: Path, example: nnx.Module | nnx.State, places: Any = None) -> nnx.State:
    """Returns a state like ``example`` with the arrays of a checkpoint, every leaf of it.

    Args:
        folder: a checkpoint of either flavour.
        example: a module or its state, abstract or not; leaves with a sharding are placed by it.
        places: tree with a sharding for each Variable of the state, which replaces the one in ``example``.

    Raises:
        CheckpointError: as `models_nnx.shared.store.read`.
    """
    example = _placed(example, places)
    return _filled(example, store.read(folder, named(example), kind=store.Kind.TRAIN_STATE))


def export(folder: Path, model: LanguageModel, target: ModelConfig | None = None) -> Path:
    """Writes only the state that a model reads, in the layout and parameter dtype of another config of the model.

    Args:
        folder: a new folder.
        model: the model to write.
        target: its layout and parameter dtype are those of the file; the model's config by default.

    Raises:
        CheckpointError: ``target`` is of another model; or as `models_nnx.shared.store.write`.
    """
    config, target = model.config, target or model.config
    if fields := different(config, target):
        raise store.CheckpointError(
            f"{folder}: got a target that differs in {', '.join(fields)}, expected another layout or dtype of one model"
        )
    leaves = {name: np.asarray(leaf) for name, leaf in named(_as_part(model)).items()}
    return store.write(folder, relaid(leaves, config, target), kind=store.Kind.PARAMETERS, about={})


def load_params(folder: Path, config: ModelConfig, places: Any = None) -> LanguageModel:
    """Returns a model from an export of either flavour.

    Args:
        folder: the export.
        config: config of the model, in the layout and parameter dtype of the export.
        places: tree with a sharding for each Variable of the model; by default all are on one device.

    Raises:
        CheckpointError: as `models_nnx.shared.store.read`.
    """
    keys = {"params": jax.random.key(0)}
    graphdef, example = nnx.split(nnx.eval_shape(lambda: LanguageModel(config, rngs=PathRngs(keys))))
    example = _as_part(_placed(example, places))
    found = store.read(folder, named(example), kind=store.Kind.PARAMETERS)
    return nnx.merge(graphdef, _filled(example, found)[MODEL])


def _as_part(model: LanguageModel | nnx.State) -> nnx.State:
    """Returns the state of a model in the structure of a train state."""
    return nnx.State({MODEL: nnx.state(model) if isinstance(model, nnx.Module) else model})


def _flat(state: Any) -> list[tuple[tuple[Any, ...], nnx.Variable]]:
    return list(nnx.to_flat_state(nnx.state(state) if isinstance(state, nnx.Module) else state))


def _name(path: tuple[Any, ...], variable: nnx.Variable) -> str:
    names = [str(name) for name in path]
    if MODEL in names:
        names[names.index(MODEL)] = _collection(type(variable))
    elif OPTIMIZER in names:
        names.remove(OPTIMIZER)
    return "/".join(names)


def _collection(kind: type[nnx.Variable]) -> str:
    return "params" if kind is nnx.Param else re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()


def _filled(example: Any, leaves: Mapping[str, jax.Array]) -> nnx.State:
    filled = [(path, variable.replace(leaves[_name(path, variable)])) for path, variable in _flat(example)]
    return nnx.from_flat_state(filled)


def _placed(example: Any, places: Any) -> Any:
    def place(sharding, variable):
        leaf = variable.get_value()
        return variable.replace(jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding))

    state = nnx.state(example) if isinstance(example, nnx.Module) else example
    return state if places is None else jax.tree.map(place, places, state)
