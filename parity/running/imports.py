"""Which modules of a project a source names."""

import ast
import importlib.util
import sys
import sysconfig
import types
from pathlib import Path
from typing import Any

__all__ = ["ENGINE", "INSTALLED", "PAIRS", "is_project", "modules_in", "named_modules", "within"]

ENGINE = Path(__file__).parents[1]
PAIRS = ENGINE / "pairs"
INSTALLED = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
BY_TEXT = frozenset(
    {
        *("importlib.import_module", "importlib.reload", "importlib.util", "importlib.machinery"),
        *("pkgutil", "pydoc", "runpy", "sys.modules", "__import__", "exec", "eval"),
        *("builtins.__import__", "builtins.exec", "builtins.eval", "builtins.globals", "inspect.getmodule"),
        *("importlib.metadata.entry_points", "pkg_resources", "unittest.mock"),
        *("pickle", "cloudpickle", "dill", "joblib", "shelve", "hydra", "gc"),
    }
)
"""What can name a module by a text that nobody sees."""
WHOLE = frozenset({"importlib", "sys"})
"""What can do so where it is handed on as a whole."""
ANY = frozenset({"__subclasses__", "__globals__", "f_globals"})
"""Attributes that lead to modules which nobody names."""
OWN = frozenset({"globals", "locals", "vars"})
"""Functions that give what a module holds."""


def is_project(module: Any) -> bool:
    """Says whether a loaded module is somebody's own code: not installed, and no room of the engine."""
    file = getattr(module, "__file__", None)
    if not isinstance(module, types.ModuleType) or not file or file.startswith(INSTALLED):
        return False
    return not Path(file).is_relative_to(ENGINE) or Path(file).is_relative_to(PAIRS)


def named_modules(tree: ast.Module, module: types.ModuleType) -> set[str]:
    """Returns the modules that a source names anywhere, also inside functions: imported, or as a part of a package.

    Of a module that is handed on as a whole anything may be used that it holds. What is asked for by text, or found by
    looking what there is, may be any.
    """
    found, bound = _imported(tree, module)
    whole: set[str] = set()
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute | ast.Name)]
    inner = {id(node.value) for node in nodes if isinstance(node, ast.Attribute)}
    for node in nodes:
        root, parts = _parts(node)
        whole |= {module.__name__} if root in OWN else ANY & {*parts}
        for name in bound.get(root, set()) | _meant(root, module):
            passed, left = _along((*name.split("."), *parts))
            found |= {".".join((name, *parts)), *passed}
            if passed and id(node) not in inner and _gives_all(passed[-1], left):
                whole.add(passed[-1])
    if whole & (WHOLE | ANY) or any(_is_in(name, one) for name in found for one in BY_TEXT):
        return found | modules_in("")
    return found.union(*map(within, whole))


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


def _meant(name: str, module: types.ModuleType) -> set[str]:
    """Returns the module that a name stands for now, whatever gave it that; or what can name any."""
    held = vars(module).get(name)
    return {held.__name__} if isinstance(held, types.ModuleType) else {name} & BY_TEXT


def _along(parts: tuple[str, ...]) -> tuple[list[str], tuple[str, ...]]:
    """Returns the modules that a dotted name comes by, also those that others have imported, and what is left of it."""
    module, passed = sys.modules.get(parts[0]), []
    while isinstance(module, types.ModuleType):
        passed.append(module.__name__)
        parts = parts[1:]
        inside = sys.modules.get(f"{module.__name__}.{parts[0]}") if parts else None
        module = vars(module).get(parts[0], inside) if parts else None
    return passed, parts


def _gives_all(name: str, left: tuple[str, ...]) -> bool:
    """Says whether more of a module may be used than the attribute that is asked of it."""
    module = sys.modules.get(name)
    return not (module and left) or left[0].startswith("__") or left[0] not in vars(module)


def _is_in(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


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


def within(name: str) -> set[str]:
    """Returns the modules of the project that attributes lead to from a module, and from these, again and again."""
    found, waiting = set(), {name}
    while waiting:
        one = waiting.pop()
        found.add(one)
        module = sys.modules.get(one)
        held = (
            {item.__name__ for item in vars(module).values() if isinstance(item, types.ModuleType)}
            if is_project(module)
            else set()
        )
        waiting |= {
            other for other in (*held, *modules_in(one)) if is_project(sys.modules.get(other))
        } - found
    return found
