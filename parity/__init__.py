"""The engine that proves or measures that two builds of a model are the same program.

The names here are what a project needs to register its own pair; importing the package does not
import JAX, so that a command or a test session can still choose devices.
"""

import importlib

__all__ = [
    "Build",
    "Case",
    "Flavour",
    "MeshSpec",
    "Pair",
    "Program",
    "Rule",
    "Verdict",
    "linen_build",
    "nnx_build",
    "twins",
]

_HOMES = {
    "Build": "parity.build",
    "Case": "parity.matrix",
    "Flavour": "parity.build",
    "MeshSpec": "parity.meshes",
    "Pair": "parity.matrix",
    "Program": "parity.build",
    "Rule": "parity.weights",
    "Verdict": "parity.verdicts",
    "linen_build": "parity.build",
    "nnx_build": "parity.build",
    "twins": "parity.twins",
}


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module 'parity' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(_HOMES[name]), name)
