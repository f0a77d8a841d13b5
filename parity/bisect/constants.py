"""Where a constant that a library works with was handed to it: no call stack tells, but the code does."""

import ast
import functools
import linecache
import sys
import types
from collections.abc import Iterable, Iterator
from typing import Any

from parity.ir.location import Frame, SourceLocation

__all__ = ["handed"]

DEEP = 3
"""Functions of a library between what a user calls and what works with the constant."""


def handed(one: SourceLocation, files: Iterable[str]) -> Frame | None:
    """Returns the user's call that made the library's function with the constant in it; None where none is found.

    Args:
        one: where the library works with the constant.
        files: of the user.
    """
    makers = [
        (frame.file, frame.function.partition(".<locals>")[0])
        for frame in one.library
        if ".<locals>" in frame.function
    ]
    modules = {getattr(module, "__file__", None): module for module in list(sys.modules.values())}
    calls = [each for file in sorted(files) if file in modules for each in _calls(file, modules[file])]
    for file, maker in makers:
        package = _package(modules.get(file))
        for frame, function in calls:
            if package and _package(function) == package and maker in _named(function, DEEP):
                return frame
    return None


def _package(thing: Any) -> str:
    name = getattr(thing, "__module__", None) or getattr(thing, "__name__", "")
    return str(name).partition(".")[0]


def _calls(file: str, module: types.ModuleType) -> Iterator[tuple[Frame, Any]]:
    """Gives the calls in a file of functions that its module knows by name."""
    for name, node in _functions(file):
        for call in ast.walk(node):
            if isinstance(call, ast.Call) and (function := _value(call.func, vars(module))) is not None:
                yield Frame(file, call.lineno, name), function


@functools.lru_cache(maxsize=256)
def _functions(file: str) -> tuple[tuple[str, ast.AST], ...]:
    tree = ast.parse("".join(linecache.getlines(file)))
    return tuple((node.name, node) for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def _value(expression: ast.expr, names: dict[str, Any]) -> Any:
    if isinstance(expression, ast.Name):
        return names.get(expression.id)
    if isinstance(expression, ast.Attribute):
        return getattr(_value(expression.value, names), expression.attr, None)
    return None


def _named(function: Any, deep: int) -> frozenset[str]:
    """Returns the names of a function, and of those in its package that it uses."""
    if not isinstance(function, types.FunctionType):
        return frozenset()
    found = {function.__name__}
    if not deep:
        return frozenset(found)
    known = [
        function.__globals__,
        *(vars(x) for x in function.__globals__.values() if isinstance(x, types.ModuleType)),
    ]
    for name in _used(function.__code__):
        for names in known:
            other = names.get(name)
            if isinstance(other, types.FunctionType) and _package(other) == _package(function):
                found |= _named(other, deep - 1)
                break
    return frozenset(found)


def _used(code: types.CodeType) -> set[str]:
    inner = [const for const in code.co_consts if isinstance(const, types.CodeType)]
    return set(code.co_names).union(*map(_used, inner))
