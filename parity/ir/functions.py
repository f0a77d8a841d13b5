"""Lines on call stacks, the functions around them, and the methods that make the objects they call."""

import ast
import dataclasses
import functools
import itertools
import linecache
import math
import os
import re
import sys
import sysconfig
import textwrap
from collections.abc import Container, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

LARGEST = 1e300
"""Larger whole numbers of a file may be beyond the range of floats."""
COMMON = 10
"""Whole numbers below this are written in too many places to show where one comes from."""
CONSTRUCTORS = frozenset({"", ".__init__", ".__post_init__", ".setup"})
"""Ends of the names of functions in which a class holds the constants of its objects."""
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
        if first and second and _differ(first, second):
            return Origin("made", (first, second))
        if _differ(left, right) or not _alike(left, right):
            return Origin("called", (left, right))
    return None


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
        names = (_names(nodes) & passed).union(*(_names(ast.walk(value)) for value in given))
        if passed and not names:
            return frame
        inside = list(ast.walk(_around(frame, ast.FunctionDef)))
        for node in inside:
            if isinstance(node, ast.If | ast.IfExp) and (at == 0 or _holds(node, frame)):
                names |= _names(ast.walk(node.test))
        passed = names & {node.arg for node in inside if isinstance(node, ast.arg)} - {"self"}
    return None


def giving_call(frames: Sequence[Frame]) -> Frame | None:
    """Returns the innermost call that gives anything but parameters of its function, under the names that they have.

    Args:
        frames: lines on a call stack, innermost first.
    """
    calls = itertools.pairwise(frames)
    return next((frame for inner, frame in calls if not _passes_on(frame, inner)), None)


def given_at(
    number: float | None, frames: Sequence[Frame], library: Sequence[Frame], known: Container[Frame]
) -> str:
    """Returns the call that gives the innermost line its constant and the line that holds it, as text.

    Empty if they are not found, or if the innermost function holds it. Lines that are ``known`` are left out.
    """
    place = written(number, frames, library)
    shown = [] if place is None or place in known else [f", set at {place}"]
    outside = place is None or place.function not in {frame.function for frame in frames}
    if outside and not library and number is not None and len(frames) > 1 and not holds(number, frames[0]):
        made = _feeding(frames)[1]
        call = made or giving_call(frames) or frames[1]
        shown[:0] = [] if call in known else [f", {'made' if made else 'called'} at {call}"]
    return "".join(shown)


def _passes_on(frame: Frame, inner: Frame) -> bool:
    """True if a statement is a call that only passes parameters to parameters of the same names of an inner function.

    It may pass a dictionary of parameters, too.
    """
    call, function = getattr(statement(frame), "value", None), _around(frame, ast.FunctionDef)
    if not isinstance(call, ast.Call):
        return False
    given = [*call.args, *(each.value for each in call.keywords)]
    names = [node.id for node in given if isinstance(node, ast.Name)]
    held = [each.values if isinstance(each, ast.Dict) else [each] for each in given]
    plain = all(values and all(isinstance(one, ast.Name) for one in values) for values in held)
    stored = (node for node in ast.walk(function) if isinstance(getattr(node, "ctx", None), ast.Store))
    kept = set(_parameters(function)) - {getattr(node, "id", "") for node in stored}
    order = [each for each in _parameters(_around(inner, ast.FunctionDef)) if each in names]
    return bool(names) and plain and kept.issuperset(names) and names == order


def _parameters(function: ast.AST) -> list[str]:
    arguments = getattr(function, "args", None)
    return [] if arguments is None else [each.arg for each in (*arguments.args, *arguments.kwonlyargs)]


def _names(nodes: Iterable[ast.AST]) -> set[str]:
    return {node.id for node in nodes if isinstance(node, ast.Name)}


def words_of(frame: Frame) -> set[str]:
    """Returns the names in a line of source."""
    return set(re.findall(r"\w+", linecache.getline(frame.file, frame.line)))


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


def written(number: float | None, frames: Sequence[Frame], library: Sequence[Frame] = ()) -> Frame | None:
    """Returns the line that holds a constant, such as a call that passes it or a default of its class.

    Searches the innermost function, the fields and constructors of its class, then those of each caller, then the
    fields, names and calls of the user's files near them that hold it under a name through which the innermost line may
    get it. The result is None if the function itself holds the constant, or if several lines do. If none does, and the
    function subtracts from one, it may be one minus another, such as the rate of a dropout.

    Args:
        frames: the user's lines on the call stack, innermost first.
        library: the lines of libraries inside them.
    """
    if number is None or not frames:
        return None
    for value in (number, 1 - number) if any(map(_subtracts_from_one, (*library, frames[0]))) else (number,):
        if abs(value) < COMMON and (2 * value).is_integer():
            return None
        for frame in frames:
            for scope in dict.fromkeys(filter(None, (frame.function, frame.function.partition(".")[0]))):
                if lines := list(_holding(value, frame, scope)):
                    called = [line for line in lines if line.line == frame.line] or lines
                    return called[0] if len(called) == 1 and scope != frames[0].function else None
        names = _feeding(frames)[0].union(*map(words_of, frames))
        if passed := set(_giving(abs(value), _near(frames), names)):
            return passed.pop() if len(passed) == 1 else None
    return None


def _feeding(frames: Sequence[Frame]) -> tuple[set[str], Frame | None]:
    """Returns the names and attributes through which the innermost line may get a value, over its callers.

    Also returns the only line of its class that chooses an attribute that it reads, else the only call that makes its
    object, if it gets one of the names.
    """
    found, made = set[str](), list[Frame]()
    read = [statement(frames[0])]
    for frame, outer in itertools.pairwise((*frames, Frame("", 0))):
        names = _behind(frame, read)
        function = _around(frame, ast.FunctionDef)
        calls = [node for node in ast.walk(statement(outer)) if isinstance(node, ast.Call)]
        own = [call for call in calls if _name(call.func) == getattr(function, "name", "")]
        read = _arguments(own or calls, _parameters(function), names)
        for line, call, order in _constructions(frame):
            if values := _arguments([call], order, names):
                found |= _behind(line, values)
                made += [line] if frame is frames[0] else []
        found |= names
    own = {node.attr for node in ast.walk(statement(frames[0])) if isinstance(node, ast.Attribute)}
    chosen = [line for line in assigned(frames[0], own) if _chooses(getattr(statement(line), "value", None))]
    made = chosen or [line for line in made if line in frames[1:2]] or made
    return found, made[0] if len(made) == 1 else None


def _chooses(value: ast.AST | None) -> bool:
    """True if an assigned value is computed, or read from something, without a call."""
    nodes = [] if value is None else list(ast.walk(value))
    called = any(isinstance(node, ast.Call) for node in nodes)
    return not called and any(isinstance(node, ast.Attribute | ast.BinOp) for node in nodes)


def _arguments(calls: Iterable[ast.Call], order: Sequence[str], names: Container[str]) -> list[ast.AST]:
    """Returns the arguments of calls for those parameters, in their order, that have some names."""
    order = [each for each in order if each != "self"]
    given = [pair for call in calls for pair in zip(order, call.args, strict=False)]
    given += [(each.arg, each.value) for call in calls for each in call.keywords]
    return [value for name, value in given if name and name in names and name in order]


def _constructions(frame: Frame) -> Iterator[tuple[Frame, ast.Call, list[str]]]:
    """Yields the calls that make objects of the class of a method, with its parameters or fields in their order."""
    owner = frame.function.partition(".")[0]
    inside = [(node, scope) for node, scope in nodes_in(frame.file) if scope.startswith(owner)]
    made = (
        node for node, scope in inside if scope == f"{owner}.__init__" and isinstance(node, ast.FunctionDef)
    )
    fields = [
        getattr(node.target, "id", "")
        for node, scope in inside
        if scope == owner and isinstance(node, ast.AnnAssign)
    ]
    order = next(map(_parameters, made), fields)
    for file in _near([frame]) if order else ():
        for node, scope in nodes_in(file):
            if isinstance(node, ast.Call) and _name(node.func) == owner:
                yield Frame(file, node.lineno, scope or "<module>"), node, order


def _behind(frame: Frame, read: Iterable[ast.AST]) -> set[str]:
    """Returns the names and attributes in some expressions, and in what its function or class assigns to them."""
    names: set[str] = set()
    waiting = list(read)
    while waiting:
        nodes = list(ast.walk(waiting.pop()))
        fresh = _names(nodes) | {node.attr for node in nodes if isinstance(node, ast.Attribute)}
        fresh -= names
        names |= fresh
        lines = {*assigned(frame, fresh), *named(frame, fresh)} if fresh else ()
        waiting += [getattr(statement(line), "value", ast.Module([], [])) for line in lines]
    return names


def _near(frames: Sequence[Frame]) -> list[str]:
    """Returns the user's files in the folders of some lines that are imported."""
    folders = {Path(frame.file).parent for frame in frames}
    files = {getattr(module, "__file__", None) or "" for module in list(sys.modules.values())}
    near = {file for file in files if is_users(file) and Path(file).parent in folders}
    return sorted(near | {frame.file for frame in frames})


def _giving(value: float, files: Sequence[str], names: Container[str]) -> Iterator[Frame]:
    """Yields the lines of files that give a number to a field or name of some names.

    So do keywords for a field of a class that is not called.
    """
    nodes = [(node, scope, file) for file in files for node, scope in nodes_in(file)]
    fields = {
        (scope, getattr(node.target, "id", "")) for node, scope, _ in nodes if isinstance(node, ast.AnnAssign)
    }
    called = {scope for node, scope, _ in nodes if getattr(node, "name", "") == "__call__"}
    for node, scope, file in nodes:
        given = []
        if isinstance(node, ast.Call) and f"{_name(node.func)}.__call__" not in called:
            given = [
                (each.arg, each.value) for each in node.keywords if (_name(node.func), each.arg) in fields
            ]
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            given = [(name, node.value) for name in _targets(node)]
        for name, held in given:
            if (name or "") in names and _is_number(held, value):
                yield Frame(file, held.lineno, scope or "<module>")


def _is_number(node: ast.AST, value: float) -> bool:
    held = getattr(node, "value", None)
    return isinstance(held, int | float) and abs(held) < LARGEST and math.isclose(held, value, rel_tol=1e-6)


def holds(number: float, frame: Frame) -> bool:
    """True if a function has a number, of either sign, among its lines."""
    return any(True for _ in _holding(abs(number), frame, frame.function))


def _subtracts_from_one(frame: Frame) -> bool:
    return any(
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Sub)
        and getattr(node.left, "value", None) == 1
        and function == frame.function
        for node, function in nodes_in(frame.file)
    )


def _holding(value: float, frame: Frame, scope: str) -> Iterator[Frame]:
    """Yields the lines of a number in a function, or in the fields and constructors of a class, in a frame's file."""
    for node, function in nodes_in(frame.file):
        if not (isinstance(node, ast.Constant) and _is_number(node, value)):
            continue
        inside = f"{function}.".startswith(f"{scope}.")
        made = function.removeprefix(scope).partition(".<locals>")[0] in CONSTRUCTORS
        if inside and (scope == frame.function or made):
            yield Frame(frame.file, node.lineno, function)


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
    return _around(frame, ast.stmt)


def _around(frame: Frame, kind: Any) -> ast.AST:
    around = [node for node in _nodes(frame.file, kind) if _holds(node, frame)]
    return max(around, key=lambda node: node.lineno, default=ast.Module([], []))


def _holds(node: Any, frame: Frame) -> bool:
    return node.lineno <= frame.line <= (node.end_lineno or node.lineno)


@functools.lru_cache(maxsize=1_024)
def _nodes(file: str, kind: Any) -> tuple[Any, ...]:
    return tuple(node for node in ast.walk(parsed(file)) if isinstance(node, kind))


def _paired(one: Sequence[Frame], other: Sequence[Frame]) -> Iterator[tuple[Frame, Frame]]:
    """Yields the lines of two call stacks in pairs; functions that only one side goes through are left out."""
    left, right = list(one), list(other)
    while left and right:
        for name in ("named", "method"):  # files of twins may have other names
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
    by_name = [each for each in calls if inner.function.rpartition(".")[2] == _name(each)]
    if not all(map(_name, calls)):
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
            elif isinstance(node, ast.Call) and _name(node.func) in ("param", "variable"):
                declared = [getattr(argument, "value", None) for argument in node.args]
            else:
                continue
            lines |= {Frame(file, node.lineno, scope)} if name in declared else set()
    return lines.pop() if len(lines) == 1 else None


def named(frame: Frame, names: Container[str]) -> list[Frame]:
    """Returns the lines that assign some names, in the innermost function around a line or outside of all functions."""
    first, last = _span(frame)
    inside = [node for node in _nodes(frame.file, ast.Assign) if first <= node.lineno <= last]
    return [
        Frame(frame.file, node.lineno, frame.function)
        for node in (*inside, *parsed(frame.file).body)
        if isinstance(node, ast.Assign) and node.lineno != frame.line
        if any(name in names for name in _targets(node))
    ]


def _name(function: ast.expr) -> str:
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
    """Returns the values that a file gives to names in the innermost function around a line, and the function's text.

    The file's name is in place of the values if there is no text.
    """
    first, last = _span(frame)
    text = "".join(linecache.getlines(frame.file)[first - 1 : last])
    names = set(re.findall(r"\w+", text))
    assigned = [node for node in parsed(frame.file).body if isinstance(node, ast.Assign | ast.AnnAssign)]
    values = [ast.unparse(node) for node in assigned if names & _targets(node)]
    return "; ".join(values) if text.strip() else frame.file.rpartition("/")[2], textwrap.dedent(text)


def _span(frame: Frame) -> tuple[int, int]:
    """Returns the first and the last line of the innermost function around a line, or the line."""
    function = _around(frame, ast.FunctionDef | ast.AsyncFunctionDef)
    return getattr(function, "lineno", frame.line), getattr(function, "end_lineno", frame.line)


@functools.lru_cache(maxsize=4_096)
def _targets(node: ast.AST) -> frozenset[str]:
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
