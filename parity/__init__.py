"""The engine that proves or measures that two builds of a model are the same program.

The names here are what a project needs to register its own pair; importing the package does not
import JAX, so that a command or a test session can still choose devices.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from parity.builds.build import Build, Flavour, Program, linen_build, nnx_build
    from parity.builds.meshes import MeshSpec
    from parity.builds.weights.map import Rule
    from parity.cases.accepted import Budget, Waiver
    from parity.cases.case import Accept, Case, Explore, Flag, Keys, Pair, Placement
    from parity.cases.own import CustomSide, twin_programs
    from parity.cases.twins import twins
    from parity.report.assertion import TwinsDifferError, assert_twins
    from parity.verdicts import Verdict

_MODULES = {
    "parity.builds.build": ("Build", "Flavour", "Program", "linen_build", "nnx_build"),
    "parity.cases.case": ("Accept", "Case", "Explore", "Flag", "Keys", "Pair", "Placement"),
    "parity.builds.meshes": ("MeshSpec",),
    "parity.cases.own": ("CustomSide", "twin_programs"),
    "parity.cases.twins": ("twins",),
    "parity.report.assertion": ("TwinsDifferError", "assert_twins"),
    "parity.cases.accepted": ("Budget", "Waiver"),
    "parity.verdicts": ("Verdict",),
    "parity.builds.weights.map": ("Rule",),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}
__all__ = sorted(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module 'parity' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(_HOMES[name]), name)
