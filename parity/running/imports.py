"""Which modules of a project a source names."""

import ast
import importlib.util
import sys
import sysconfig
import types
from pathlib import Path
from typing import Any

__all__ = ["ENGINE", "INSTALLED", "PAIRS", "is_project", "modules_in", "named_modules"]

ENGINE = Path(__file__).parents[1]
PAIRS = ENGINE / "pairs"
INSTALLED = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
BY_TEXT = frozenset(
    {
        *("importlib.import_module", "importlib.reload", "importlib.util", "importlib.machinery"),
        *("pkgutil", "pydoc", "runpy", "sys.modules", "__import__", "exec", "eval"),
    }
)
"""What can name a module by a text that nobody sees."""


def is_project(module: Any) -> bool:
    """Says whether a loaded module is somebody's own code: not installed, and no room of the engine."""
    file = getattr(module, "__file__", None)
    if not isinstance(module, types.ModuleType) or not file or file.startswith(INSTALLED):
        return False
    return not Path(file).is_relative_to(ENGINE) or Path(file).is_relative_to(PAIRS)


def named_modules(tree: ast.Module, module: types.ModuleType) -> set[str]:
    """Returns the modules that a source names anywhere, also inside functions: imported, or as a part of a package.

    A package that is handed on as a whole, and modules that are asked for by text, may stand for any.
    """
    found, bound = _imported(tree, module)
    by_text = False
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Name):
            root, parts = _parts(node)
            named = {".".join((name, *parts)) for name in bound.get(root, {root} & BY_TEXT)}
            found |= named
            for held in (_held_by(name, parts) for name in bound.get(root, ())):
                found |= set(held)
                named |= set(held[-1:]) if len(held) == len(parts) else set()
            if id(node) not in inner:
                found |= {name for package in named for name in modules_in(package)}
                by_text |= "importlib" in named
    if by_text or any(name == one or name.startswith(f"{one}.") for name in found for one in BY_TEXT):
        found |= modules_in("")
    return found


def _imported(tree: ast.Module, module: types.ModuleType) -> tuple[set[str], dict[str, set[str]]]:
    """Returns what a source imports, and what each name stands for that it binds so."""
    found: set[str] = set()
    bound: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
            for alias in node.names:
                bound.setdefault(alias.asname or alias.name.partition(".")[0], set()).add(
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom):
            package = module.__package__ or ""
            base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            found |= {base} | {f"{base}.{alias.name}" for alias in node.names}
            for alias in node.names:
                bound.setdefault(alias.asname or alias.name, set()).add(f"{base}.{alias.name}")
    return found, bound


def _held_by(name: str, parts: tuple[str, ...]) -> list[str]:
    """Returns the modules that a chain of attributes comes to, also those that another module has imported."""
    held, found = sys.modules.get(name), []
    for part in parts:
        held = vars(held).get(part) if isinstance(held, types.ModuleType) else None
        found += [held.__name__] if isinstance(held, types.ModuleType) else []
    return found


def _parts(node: ast.expr) -> tuple[str, tuple[str, ...]]:
    """Returns the name that a chain of attributes begins with, and the attributes."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return (node.id if isinstance(node, ast.Name) else ""), tuple(reversed(parts))


def modules_in(package: str) -> set[str]:
    """Returns the loaded modules of the project in a package; all of them for an empty name."""
    start = f"{package}." if package else ""
    return {
        name
        for name, module in list(sys.modules.items())
        if name.startswith(start) and name != "__main__" and is_project(module)
    }
