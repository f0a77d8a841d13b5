"""Source code of values: lines of the user's files around them, and the calls that passed a constant to that code."""

import ast
import functools
import linecache
import sys
import types
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from parity.bisect.trace import Node
from parity.ir.functions import function_of, parsed
from parity.ir.location import Frame, SourceLocation, equation_source

__all__ = [
    "constructor_call",
    "functions_around",
    "innermost",
    "library_call",
    "library_makers",
    "place_text",
    "shared",
    "site",
]


DEEP = 3
"""Maximum number of library functions between the one that the user calls and the one that uses the constant."""


def site(node: Node) -> SourceLocation:
    """Returns the source location of a value; for slices and stacks of a loop, that of the loop.

    Args:
        node: a value.
    """
    around = node.around
    if node.equation is not None:
        return equation_source(node.equation, around.calls)
    if around.calls:
        return equation_source(around.calls[-1], around.calls[:-1])
    return equation_source(around.iterations[-1][0]) if around.iterations else SourceLocation()


def place_text(source: SourceLocation) -> str:
    """Returns the user's innermost line, with the library's below it."""
    return source.own_place if source.frames else "no known line"


def functions_around(node: Node) -> tuple[str, ...]:
    """Returns the user's functions on the call stack of a value, innermost first."""
    return tuple(frame.function for frame in site(node).own)


def shared(sites: Iterable[Iterable[SourceLocation]]) -> frozenset[Hashable]:
    """Returns the functions with equal text on both sides; they cannot cause a difference.

    Args:
        sites: for each side, the source locations of its operations.
    """
    left, right = ({function_of(frame) for each in side for frame in each.own} for side in sites)
    return frozenset(left & right)


def innermost(frames: Iterable[Frame], common: frozenset[Hashable]) -> Frame | None:
    """Returns the innermost line in a function that the other side does not have; None if there is none.

    Args:
        frames: frames of a call stack, innermost first.
        common: from `shared`.
    """
    return next((frame for frame in frames if function_of(frame) not in common), None)


def library_call(one: SourceLocation, files: Iterable[str]) -> Frame | None:
    """Returns the user's call that made the library's function with the constant in it; None if there is none.

    The call is in one of the user's files, or the only one in the packages that these belong to.

    Args:
        one: source location of the use in the library.
        files: the user's files.
    """
    modules = {getattr(module, "__file__", None) or "": module for module in list(sys.modules.values())}
    known = [file for file in sorted(files) if file in modules]
    for file, maker in library_makers(one):
        library = _package(modules.get(file))
        if found := list(_makes(known, modules, library, maker)):
            return found[0]
        packages = {_package(modules[each]) for each in known}
        near = [
            each for each, module in modules.items() if each not in files and _package(module) in packages
        ]
        if len(found := list(_makes(sorted(near), modules, library, maker))) == 1:
            return found[0]
    return None


def library_makers(one: SourceLocation) -> list[tuple[str, str]]:
    """Returns ``(file, function)`` of the library's functions that made the closures on a call stack."""
    return [
        (frame.file, frame.function.partition(".<locals>")[0])
        for frame in one.library
        if ".<locals>" in frame.function
    ]


def _makes(
    files: Iterable[str], modules: Mapping[str, types.ModuleType], library: str, maker: str
) -> Iterator[Frame]:
    """Yields the calls in files that reach a function of a library."""
    for file in files:
        if library and not Frame(file, 0).in_library and library in "".join(linecache.getlines(file)):
            for frame, function in _calls(file, modules[file]):
                if _package(function) == library and maker in _named(function, DEEP):
                    yield frame


def _package(thing: Any) -> str:
    name = getattr(thing, "__module__", None) or getattr(thing, "__name__", "")
    return str(name).partition(".")[0]


def _calls(file: str, module: types.ModuleType) -> Iterator[tuple[Frame, Any]]:
    """Yields the calls in a file of functions that its module knows by name."""
    for name, nodes in _functions(file):
        for call in nodes:
            if isinstance(call, ast.Call) and (function := _value(call.func, vars(module))) is not None:
                yield Frame(file, call.lineno, name), function


@functools.lru_cache(maxsize=256)
def _functions(file: str) -> tuple[tuple[str, tuple[ast.AST, ...]], ...]:
    """Returns the expressions in each function of a file, then those outside of functions."""
    tree = parsed(file)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    found = [(node.name, tuple(ast.walk(node))) for node in functions]
    inside = {id(node) for _, nodes in found for node in nodes}
    return (*found, ("<module>", tuple(node for node in ast.walk(tree) if id(node) not in inside)))


def _value(expression: ast.expr, names: dict[str, Any]) -> Any:
    if isinstance(expression, ast.Name):
        return names.get(expression.id)
    if isinstance(expression, ast.Attribute):
        return getattr(_value(expression.value, names), expression.attr, None)
    return None


def _named(function: Any, deep: int) -> frozenset[str]:
    """Returns the names of a function and of the functions in its package that it uses, up to a depth."""
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


def constructor_call(kind: str, files: Iterable[str], own: Sequence[Frame]) -> Frame | None:
    """Returns the line that makes an object of a class, in a class whose code calls the object; None if there is none.

    Args:
        kind: name of the object's class.
        files: the user's files.
        own: the user's lines around the object's code, innermost first.
    """
    if not kind or kind == "<locals>":
        return None
    callers = [frame.function.partition(".")[0] for frame in own]
    found = [
        (callers.index(made.partition(".")[0]), Frame(file, line, made))
        for file in sorted(files)
        for made, line in _made(file, kind)
        if made.partition(".")[0] in callers and made.partition(".")[0] != kind
    ]
    return min(found, key=lambda each: each[0])[1] if found else None


def _made(file: str, kind: str) -> Iterator[tuple[str, int]]:
    """Yields the methods in a file that make an object of a class, as ``Class.method``, with the line."""
    classes = [node for node in ast.walk(parsed(file)) if isinstance(node, ast.ClassDef)]
    methods = [(outer, each) for outer in classes for each in outer.body if isinstance(each, ast.FunctionDef)]
    for outer, method in methods:
        for call in ast.walk(method):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == kind:
                yield f"{outer.name}.{method.name}", call.lineno
