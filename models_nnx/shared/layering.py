"""Conversion of stacked parameters to another layout, layer by layer. Free of Flax.

L repeats of a scanned stack; a pipeline adds leading axes.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np

from models_nnx.shared.config import LayerLayout, ModelConfig, PipelinedStack, Stack

__all__ = ["FREE", "Stacked", "different", "relaid", "stacked_modules"]

FREE = ("layout", "scan_axis", "param_dtype", "compute_dtype", "remat", "dropout", "pipeline", "rules")
"""Fields in which two configs of the same model may differ."""

PARAMS = "params"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stacked:
    """One module that holds the parameters of several layers.

    Args:
        layers: their unrolled names, an array with the axes along which parameters are stacked.
        axis: position of the first of these axes in parameters; other state has it first.
    """

    layers: np.ndarray
    axis: int


def stacked_modules(config: ModelConfig) -> dict[str, Stacked]:
    """Returns ``{path: layers}`` of each module that holds several layers."""
    found: dict[str, Stacked] = {}
    for stack in config.stacks:
        names = np.array(tuple(stack.layers))
        if isinstance(stack, PipelinedStack):
            lengths = [length for _, length in config.staging.axes]
            inner = config.stage.stacks[0]
            where = f"decoder/{stack.name}/stages"
            held = names.reshape(*lengths, *_held(inner))
            found |= {
                path: Stacked(layers=held[..., index], axis=0)
                for path, index in _inside(where, inner).items()
            }
        elif stack.layout is LayerLayout.SCANNED:
            held = names.reshape(_held(stack))
            found |= {
                path: Stacked(layers=held[:, index], axis=config.scan_axis)
                for path, index in _inside("decoder", stack).items()
            }
    return found


def _held(stack: Stack) -> tuple[int, ...]:
    """Returns the shape of a stack's layers: ``(repeats, period)`` if scanned, else ``(layers,)``."""
    period = len(stack.cycle)
    return (stack.repeats * period,) if stack.layout is LayerLayout.UNROLLED else (stack.repeats, period)


def _inside(where: str, stack: Stack) -> dict[str, int]:
    """Returns ``{path of a module: its index in the last axis}``."""
    if stack.layout is LayerLayout.UNROLLED:
        modules = list(stack.layers)
    else:
        period = len(stack.cycle)
        modules = [stack.name] if period == 1 else [f"{stack.name}/block_{index}" for index in range(period)]
    return {f"{where}/{module}": index for index, module in enumerate(modules)}


def different(config: ModelConfig, target: ModelConfig) -> list[str]:
    """Returns the fields in which two configs differ, except those of `FREE`; empty if both are of one model."""
    return [
        field.name
        for field in dataclasses.fields(config)
        if field.name not in FREE and getattr(config, field.name) != getattr(target, field.name)
    ]


def relaid(
    leaves: Mapping[str, np.ndarray], config: ModelConfig, target: ModelConfig
) -> dict[str, np.ndarray]:
    """Returns the leaves of a model in the layout and parameter dtype of another config of the model.

    Args:
        leaves: ``{"params/decoder/layers/mlp/up/kernel": array}``, the collection first.
        config: config with the current layout.
        target: config with the layout and parameter dtype of the result.
    """
    alone = _apart(leaves, stacked_modules(config))
    together = _together(alone, stacked_modules(target))
    return {
        name: leaf.astype(target.param_dtype) if name.startswith(f"{PARAMS}/") else leaf
        for name, leaf in together.items()
    }


def _apart(leaves: Mapping[str, np.ndarray], modules: Mapping[str, Stacked]) -> dict[str, np.ndarray]:
    found = {}
    for name, leaf in leaves.items():
        collection, _, path = name.partition("/")
        module = next((module for module in modules if path.startswith(f"{module}/")), None)
        if module is None:
            found[name] = leaf
            continue
        stacked, rest = modules[module], path.removeprefix(f"{module}/")
        in_front = np.moveaxis(leaf, stacked.axis if collection == PARAMS else 0, 0)
        for index, layer in np.ndenumerate(stacked.layers):
            found[f"{collection}/decoder/{layer}/{rest}"] = in_front[index]
    return found


def _together(leaves: Mapping[str, np.ndarray], modules: Mapping[str, Stacked]) -> dict[str, np.ndarray]:
    owner = {layer: module for module, stacked in modules.items() for layer in stacked.layers.flat}
    found, parts = {}, {}
    for name, leaf in leaves.items():
        collection, *path = name.split("/")
        layer = path[1] if path[0] == "decoder" else ""
        if layer not in owner:
            found[name] = leaf
            continue
        key = (collection, owner[layer], "/".join(path[2:]))
        parts.setdefault(key, {})[layer] = leaf
    for (collection, module, rest), held in parts.items():
        stacked = modules[module]
        axis = stacked.axis if collection == PARAMS else 0
        whole = np.stack([held[layer] for layer in stacked.layers.flat])
        whole = whole.reshape(*stacked.layers.shape, *whole.shape[1:])
        found[f"{collection}/{module}/{rest}"] = np.moveaxis(whole, 0, axis)
    return found
