"""Lines on call stacks, the functions around them, and the methods that make the objects they call."""

import ast
import dataclasses
import functools
import itertools
import linecache
import os
import re
import sysconfig
import textwrap
from collections.abc import Container, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ENGINE = f"{Path(__file__).parents[1]}{os.sep}"
INSTALLED = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
LIBRARIES = ("site-packages", *INSTALLED)
FRAMEWORKS = frozenset({"flax", "jax", "jaxlib", "numpy", "optax"})
"""Packages whose lines never hold the cause; a case may compare other packages."""


@dataclasses.dataclass(frozen=True, slots=True)
class Frame:
    """A line of a function on a call stack.

    Args:
        file, line: file and line of the source; the line is 0 if unknown.
        function: qualified name of the function the line is in; empty if unknown.
        column: where the call begins; 0 if unknown. It does not count when lines are compared.
    """

    file: str
    line: int
    function: str = ""
    column: int = dataclasses.field(default=0, compare=False)

    def __str__(self) -> str:
        return f"{self.place} in {self.function}" if self.function else self.place

    @property
    def place(self) -> str:
        """``file:line`` with a short path."""
        return f"{short_path(self.file)}:{self.line}"

    @property
    def named(self) -> tuple[str, str]:
        """The file's name and the function: equal in twins of one name."""
        return self.file.rpartition("/")[2], self.function

    @property
    def method(self) -> str:
        """The class and the method; the line itself if it is in no method, so that it equals no other."""
        return self.function if re.fullmatch(r"\w+\.\w+", self.function) else str(self)

    @property
    def last(self) -> str:
        """The function's last name; the line itself if others have such a name, too, as ``__call__`` or a lambda."""
        name = self.function.rpartition(".")[2]
        return name if name.isidentifier() and not name.startswith("__") else str(self)

    @property
    def in_library(self) -> bool:
        """True for lines of installed packages, the standard library and generated code."""
        return self.file.startswith("<") or any(part in self.file for part in LIBRARIES)

    @property
    def may_be_compared(self) -> bool:
        """True for lines of installed packages that are no framework, such as a library of models."""
        _, installed, inside = self.file.rpartition("site-packages/")
        return bool(installed) and inside.partition("/")[0] not in FRAMEWORKS


def is_users(file: str) -> bool:
    """True if a source file is the user's: neither of this package nor of a library."""
    return not (Frame(file, 0).in_library or file.startswith(ENGINE))


def short_path(file: str) -> str:
    """Returns a path relative to the working directory or to the installed package it belongs to."""
    _, installed, inside = file.rpartition("site-packages/")
    if installed:
        return inside
    here = f"{Path.cwd()}{os.sep}"
    return file.removeprefix(here)


HOLDING = ("id", "attr", "arg", "value")
"""Fields of syntax nodes that hold names and strings."""


class Origin(NamedTuple):
    """The lines that use equal code in two ways.

    Args:
        how: ``made`` if they make the object whose code it is, or ``called``.
    """

    how: str
    lines: tuple[Frame, Frame]


def origin(one: Sequence[Frame], other: Sequence[Frame]) -> Origin | None:
    """Returns the lines behind a difference in equal code; None if the code differs, or nothing around it does.

    The functions of these lines differ, or these are other statements of one function, such as two of its branches.
    ``one`` and ``other`` are the user's lines on the call stack of each side, innermost first.
    """
    pairs = list(_paired(one, other))
    if not pairs or _differ(*pairs[0]):
        return None
    for inner, (left, right) in itertools.pairwise(pairs):
        first, second = made_at(left, inner[0]), made_at(right, inner[1])
        if first or second:
            first, second = first or _constructs(left), second or _constructs(right)
        if first and second and _differ(first, second):
            return Origin("made", (first, second))
        if _differ(left, right) or not _alike(left, right):
            return Origin("called", (left, right))
    return None


def _constructs(frame: Frame) -> Frame | None:
    """Returns a line if it calls an object that it makes, as in ``Norm(1e-5)(x)``."""
    calls = (node for node in ast.walk(statement(frame)) if isinstance(node, ast.Call))
    return frame if any(isinstance(call.func, ast.Call) for call in calls) else None


def set_outside(one: Sequence[Frame], other: Sequence[Frame]) -> str:
    """Returns the function of equal code that equal calls reach, so that their arguments decide; empty if none."""
    pairs = list(_paired(one, other))
    if not pairs or pairs[0] != (one[0], other[0]) or _differ(*pairs[0]):
        return ""
    named = (pair for pair in pairs if pair[0].named == pair[1].named)
    callers = next((pair for pair in named if _differ(*pair)), None)
    if callers is not None and not _alike(*callers):
        return ""
    return pairs[0][0].function


def deciding_call(frames: Sequence[Frame]) -> Frame | None:
    """Returns the innermost call that passes on no parameter that conditions test on the way to the first line."""
    passed: set[str] = set()
    for at, frame in enumerate(frames):
        nodes = list(ast.walk(statement(frame)))
        given = [node.value for node in nodes if isinstance(node, ast.keyword) and node.arg in passed]
        names = (names_in(nodes) & passed).union(*(names_in(ast.walk(value)) for value in given))
        if passed and not names:
            return frame
        inside = list(ast.walk(around(frame, ast.FunctionDef)))
        for node in inside:
            if isinstance(node, ast.If | ast.IfExp) and (at == 0 or _holds(node, frame)):
                names |= names_in(ast.walk(node.test))
        passed = names & {node.arg for node in inside if isinstance(node, ast.arg)} - {"self"}
    return None


def giving_call(frames: Sequence[Frame]) -> Frame | None:
    """Returns the innermost call that gives anything but parameters of its function, under the names that they have.

    Args:
        frames: lines on a call stack, innermost first.
    """
    calls = itertools.pairwise(frames)
    return next((frame for inner, frame in calls if not _passes_on(frame, inner)), None)


def setting_call(frames: Sequence[Frame]) -> str:
    """Returns the line that makes the innermost method's object, or the innermost call that gives it settings, as text.

    Args:
        frames: lines on a call stack, innermost first.
    """
    made = made_at(frames[1], frames[0]) if len(frames) > 1 else None
    call = made or giving_call(frames)
    return f", {'made' if made else 'called'} at {call}" if call else ""


def _passes_on(frame: Frame, inner: Frame) -> bool:
    """True if a statement is a call that only passes parameters to parameters of the same names of an inner function.

    It may pass a dictionary of parameters, too. A function passes its parameters on to a closure that reads them.
    """
    call, function = getattr(statement(frame), "value", None), around(frame, ast.FunctionDef)
    if inner.function.startswith(f"{frame.function}.<locals>."):
        return bool(names_in(ast.walk(statement(inner))) & set(parameters_of(function)))
    if not isinstance(call, ast.Call):
        return False
    given = [*call.args, *(each.value for each in call.keywords)]
    names = [node.id for node in given if isinstance(node, ast.Name)]
    held = [each.values if isinstance(each, ast.Dict) else [each] for each in given]
    plain = all(values and all(isinstance(one, ast.Name) for one in values) for values in held)
    stored = (node for node in ast.walk(function) if isinstance(getattr(node, "ctx", None), ast.Store))
    kept = set(parameters_of(function)) - {getattr(node, "id", "") for node in stored}
    order = [each for each in parameters_of(around(inner, ast.FunctionDef)) if each in names]
    return bool(names) and plain and kept.issuperset(names) and names == order


@functools.lru_cache(maxsize=4_096)
def passes_all_on(frame: Frame) -> bool:
    """True if a line of a function with ``*args`` and ``**kwargs`` calls something with both, and with names only.

    Such a function, as in a decorator, decides nothing.
    """
    arguments = getattr(around(frame, ast.FunctionDef), "args", None)
    if arguments is None or arguments.vararg is None or arguments.kwarg is None:
        return False
    for call in (node for node in ast.walk(statement(frame)) if isinstance(node, ast.Call)):
        given = [
            each.value if isinstance(each, ast.Starred | ast.keyword) else each
            for each in (*call.args, *call.keywords)
        ]
        names = names_in(given)
        if len(names) == len(given) and {arguments.vararg.arg, arguments.kwarg.arg} <= names:
            return True
    return False


def parameters_of(function: ast.AST) -> list[str]:
    """Returns the names of the parameters of a function; empty for another node."""
    arguments = getattr(function, "args", None)
    return [] if arguments is None else [each.arg for each in (*arguments.args, *arguments.kwonlyargs)]


def names_in(nodes: Iterable[ast.AST]) -> set[str]:
    """Returns the names among nodes."""
    return {node.id for node in nodes if isinstance(node, ast.Name)}


def words_of(frame: Frame) -> set[str]:
    """Returns the names in a line of source."""
    return set(re.findall(r"\w+", linecache.getline(frame.file, frame.line)))


def mentions(frame: Frame, word: str) -> bool:
    """True if the statement around a line has a word as a name, an attribute, a keyword or a string."""
    parts = (getattr(node, field, "") for node in ast.walk(statement(frame)) for field in HOLDING)
    return any(isinstance(part, str) and part == word for part in parts)


def together(one: Sequence[Frame], other: Sequence[Frame]) -> int:
    """Returns the number of functions, counted from the outermost, that two call stacks share.

    Two calls on one line differ by their columns.
    """
    count = 0
    for left, right in zip(reversed(one), reversed(other), strict=False):
        if (left.file, left.function) != (right.file, right.function):
            break
        count += 1
        if (left.line, left.column) != (right.line, right.column):
            break
    return count


@functools.lru_cache(maxsize=256)
def nodes_in(file: str) -> tuple[tuple[ast.AST, str], ...]:
    """Returns the nodes of a file's text, each with the name of the function or class around it, or its own."""
    return tuple(_within(parsed(file), ""))


def _within(node: ast.AST, name: str) -> Iterator[tuple[ast.AST, str]]:
    for child in ast.iter_child_nodes(node):
        around = name
        if isinstance(child, ast.ClassDef | ast.FunctionDef):
            inside = f"{name}.<locals>" if isinstance(node, ast.FunctionDef) else name
            around = f"{inside}.{child.name}".lstrip(".")
        yield child, around
        yield from _within(child, around)


def _alike(one: Frame, other: Frame) -> bool:
    """True if two lines are in statements of equal text."""
    return ast.dump(statement(one)) == ast.dump(statement(other))


def statement(frame: Frame) -> ast.AST:
    """Returns the innermost statement around a line, or the function that begins there; an empty module if unknown."""
    return around(frame, ast.stmt)


def around(frame: Frame, kind: Any) -> ast.AST:
    """Returns the innermost node of a kind around a line; an empty module if there is none."""
    found = [node for node in _nodes(frame.file, kind) if _holds(node, frame)]
    return max(found, key=lambda node: node.lineno, default=ast.Module([], []))


def _holds(node: Any, frame: Frame) -> bool:
    return node.lineno <= frame.line <= (node.end_lineno or node.lineno)


@functools.lru_cache(maxsize=1_024)
def _nodes(file: str, kind: Any) -> tuple[Any, ...]:
    return tuple(node for node in ast.walk(parsed(file)) if isinstance(node, kind))


def _paired(one: Sequence[Frame], other: Sequence[Frame]) -> Iterator[tuple[Frame, Frame]]:
    """Yields the lines of two call stacks in pairs; functions that only one side goes through are left out."""
    left, right = list(one), list(other)
    while left and right:
        for name in ("named", "method", "last"):  # files and classes of twins may have other names
            names = [[getattr(frame, name) for frame in stack] for stack in (left, right)]
            if names[0][0] in names[1]:
                del right[: names[1].index(names[0][0])]
                break
            if names[1][0] in names[0]:
                del left[: names[0].index(names[1][0])]
                break
        yield left.pop(0), right.pop(0)


def _differ(one: Frame, other: Frame) -> bool:
    return function_of(one) != function_of(other)


def made_at(caller: Frame, inner: Frame) -> Frame | None:
    """Returns the line that makes the object whose code a method calls, in its class; None if that is not certain.

    ``caller`` is a line of the method, and ``inner`` the next one on the call stack, in the code that it calls.
    """
    name = caller.function.partition(".")[0]
    calls = [
        node.func
        for node, scope in nodes_in(caller.file)
        if isinstance(node, ast.Call) and node.lineno == caller.line and scope.startswith(f"{name}.")
    ]
    by_name = [each for each in calls if inner.function.rpartition(".")[2] == last_name(each)]
    if not all(map(last_name, calls)):
        return None
    called = {attribute for function in by_name or calls for attribute in _attributes(function, ast.Load)}
    made = assigned(caller, called)
    return made[0] if len(made) == 1 else None


def assigned(frame: Frame, attributes: Container[str]) -> list[Frame]:
    """Returns the lines that assign some attributes of ``self``, in the class of a method."""
    name = frame.function.partition(".")[0]
    return [
        Frame(frame.file, node.lineno, scope.partition(".<locals>")[0])
        for node, scope in nodes_in(frame.file)
        if isinstance(node, ast.Assign) and scope.startswith(f"{name}.")
        if any(each in attributes for target in node.targets for each in _attributes(target, ast.Store))
    ]


def declaration(name: str, files: Iterable[str]) -> Frame | None:
    """Returns the only line of some files that declares a leaf, as an attribute of ``self`` or with `Module.param`."""
    lines = set()
    for file in files:
        for node, scope in nodes_in(file):
            if isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                declared = [each for target in targets for each in _attributes(target, ast.Store)]
            elif isinstance(node, ast.Call) and last_name(node.func) in ("param", "variable"):
                declared = [getattr(argument, "value", None) for argument in node.args]
            else:
                continue
            lines |= {Frame(file, node.lineno, scope)} if name in declared else set()
    return lines.pop() if len(lines) == 1 else None


def shared_at(paths: Sequence[str], files: Iterable[str]) -> Frame | None:
    """Returns the only line of some files that gives an object on one path to an attribute on another; else None."""
    parts = [set(path.split("/")) for path in paths]
    lines = {
        Frame(file, node.lineno, scope)
        for file in files
        for node, scope in nodes_in(file)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Attribute | ast.Name)
        for target in node.targets
        if any(
            last_name(target) in one and last_name(node.value) in other
            for one, other in itertools.permutations(parts, 2)
        )
    }
    return lines.pop() if len(lines) == 1 else None


def listing(names: Container[str], name: str, files: Iterable[str]) -> Frame | None:
    """Returns the line of a string in the function of some files that has most of several strings; None if unknown."""
    found: dict[tuple[str, str], list[ast.Constant]] = {}
    for file in files:
        for node, scope in nodes_in(file):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in names:
                found.setdefault((file, scope), []).append(node)
    have = {key: nodes for key, nodes in found.items() if name in {node.value for node in nodes}}
    if not have:
        return None
    file, scope = max(have, key=lambda key: len({node.value for node in have[key]}))
    return Frame(file, next(node.lineno for node in have[file, scope] if node.value == name), scope)


def named(frame: Frame, names: Container[str]) -> list[Frame]:
    """Returns the lines that assign some names, in the innermost function around a line or outside of all functions."""
    first, last = _span(frame)
    inside = [node for node in _nodes(frame.file, ast.Assign) if first <= node.lineno <= last]
    return [
        Frame(frame.file, node.lineno, frame.function)
        for node in (*inside, *parsed(frame.file).body)
        if isinstance(node, ast.Assign) and node.lineno != frame.line
        if any(name in names for name in targets(node))
    ]


def last_name(function: ast.expr) -> str:
    """Returns the last part of the name of a called function; empty if it has none."""
    return getattr(function, "attr", "") or getattr(function, "id", "")


def _attributes(expression: ast.AST, context: type[ast.expr_context]) -> Iterator[str]:
    """Yields the attributes of ``self`` in an expression that are read, or that are assigned."""
    for node in ast.walk(expression):
        if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, context):
            continue
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            yield node.attr


@functools.lru_cache(maxsize=4_096)
def function_of(frame: Frame) -> tuple[str, str]:
    """Returns the values that a file gives to names in the innermost function around a line, and the function's code.

    Its name, docstring and comments do not count, nor do the names of its parameters and variables. The file's name is
    in place of the values if there is no text.
    """
    first, last = _span(frame)
    text = "".join(linecache.getlines(frame.file)[first - 1 : last])
    names = set(re.findall(r"\w+", text))
    assigned = [node for node in parsed(frame.file).body if isinstance(node, ast.Assign | ast.AnnAssign)]
    values = [ast.unparse(node) for node in assigned if names & targets(node)]
    code = _without_names(around(frame, ast.FunctionDef)) or textwrap.dedent(text)
    return "; ".join(values) if text.strip() else frame.file.rpartition("/")[2], code


def _without_names(function: ast.AST) -> str:
    """Returns the code of a function with numbers for its parameters and variables; empty for another node."""
    if not isinstance(function, ast.FunctionDef):
        return ""
    own = targets(function) | {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)}
    numbers: dict[str, int] = {}

    def number(found: re.Match[str]) -> str:
        return f"{found[1]}{numbers.setdefault(found[2], len(numbers)) if found[2] in own else found[2]}"

    body = function.body[ast.get_docstring(function) is not None :]
    return re.sub(
        r"(Name\(id=|\barg\(arg=)'(\w+)'",
        number,
        f"{ast.dump(function.args)} {ast.dump(ast.Module(body, []))}",
    )


def _span(frame: Frame) -> tuple[int, int]:
    """Returns the first and the last line of the innermost function around a line, or the line."""
    function = around(frame, ast.FunctionDef | ast.AsyncFunctionDef)
    return getattr(function, "lineno", frame.line), getattr(function, "end_lineno", frame.line)


@functools.lru_cache(maxsize=4_096)
def targets(node: ast.AST) -> frozenset[str]:
    """Returns the names that a statement assigns."""
    names = [each for each in ast.walk(node) if isinstance(each, ast.Name)]
    return frozenset(each.id for each in names if isinstance(each.ctx, ast.Store))


@functools.lru_cache(maxsize=256)
def parsed(file: str) -> ast.Module:
    """Returns the parsed text of a file; empty if it is not Python."""
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return ast.Module(body=[], type_ignores=[])
