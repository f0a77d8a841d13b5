"""Lines of the user's files that give a constant to the code that uses it."""

import ast
import math
import sys
from collections.abc import Container, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from parity.ir.functions import (
    Frame,
    around,
    assigned,
    giving_call,
    is_users,
    last_name,
    named,
    names_in,
    nodes_in,
    parameters_of,
    statement,
    targets,
    words_of,
)
from parity.ir.makers import names_of, value_of

LARGEST = 1e300
"""Larger whole numbers of a file may be beyond the range of floats."""
COMMON = 10
"""Whole numbers and halves below this are in too many places: one is found only by the names that lead to it."""
CONSTRUCTORS = frozenset({"", ".__init__", ".__post_init__", ".setup"})
"""Ends of the names of functions in which a class holds the constants of its objects."""


def given_at(
    number: float | None, frames: Sequence[Frame], library: Sequence[Frame], known: Container[Frame]
) -> str:
    """Returns the call that gives the innermost line its constant, and the line that holds it, as text.

    A call that makes the object comes before one on the call stack. Empty if they are not found, or if the innermost
    function holds the constant. Lines that are ``known`` are left out.
    """
    place, through = written(number, frames, library)
    shown = [] if place is None or place in known else [f", set at {place}"]
    passed = place is None or place.function not in {frame.function for frame in frames}
    if passed and not library and number is not None and len(frames) > 1 and not holds(number, frames[0]):
        call = through or giving_call(frames) or frames[1]
        shown[:0] = [] if call in known else [f", {'called' if call in frames else 'made'} at {call}"]
    made = [] if shown or number is None or not frames else _makers_of_objects(frames[0], library)
    return f", made at {made[0]}" if len(made) == 1 and made[0] not in known else "".join(shown)


def _makers_of_objects(frame: Frame, library: Iterable[Frame]) -> list[Frame]:
    """Returns the lines that make the objects of a library's class on the call stack which a line of a method uses."""
    classes = {one.function.partition(".")[0] for one in library if "." in one.function}
    made = assigned(frame, words_of(frame))
    calls = [getattr(statement(line), "value", None) for line in made]
    return [
        line
        for line, call in zip(made, calls, strict=True)
        if isinstance(call, ast.Call) and last_name(call.func) in classes
    ]


def written(
    number: float | None, frames: Sequence[Frame], library: Sequence[Frame] = ()
) -> tuple[Frame | None, Frame | None]:
    """Returns the line that holds a constant, such as a default of its class, and the one that reads it from there.

    Searches the innermost function, the fields and constructors of its class, then those of each caller, then the
    fields, names and calls of the user's files near them that hold it under a name through which the innermost line may
    get it. None if the function itself holds the constant, or if several lines do. If none does, and the function
    subtracts from one, it may be one minus another, such as the rate of a dropout.

    Args:
        frames: the user's lines on the call stack, innermost first.
        library: the lines of libraries inside them.
    """
    if number is None or not frames:
        return None, None
    for value in (number, 1 - number) if any(map(_subtracts_from_one, (*library, frames[0]))) else (number,):
        common = abs(value) < COMMON and (2 * value).is_integer()
        if common and (abs(value) in (0, 1) or holds(value, frames[0])):
            return None, None
        for frame in () if common else frames:
            for scope in dict.fromkeys(filter(None, (frame.function, frame.function.partition(".")[0]))):
                if lines := list(_holding(value, frame, scope)):
                    called = [line for line in lines if line.line == frame.line] or lines
                    single = len(called) == 1 and scope != frames[0].function
                    return called[0] if single else None, None
        readers = _feeding(frames)
        names = readers.keys() | (set() if common else set().union(*map(words_of, frames)))
        given = dict(_giving(abs(value), _near(frames), names))
        if given:
            (place, name), *others = given.items()
            return (None, None) if others else (place, readers.get(name))
    return None, None


def _feeding(frames: Sequence[Frame]) -> dict[str, Frame]:
    """Returns the names and attributes through which the innermost line may get a value, with the line that reads each.

    Follows the arguments of its callers, and those of the calls that make the objects of its class.
    """
    found: dict[str, Frame] = {}
    waiting: list[tuple[Frame, Sequence[Frame], list[ast.AST]]] = [
        (frames[0], frames[1:], [statement(frames[0])])
    ]
    for frame, outer, read in waiting:  # grows
        names = _behind(frame, read)
        found |= names
        calls = [
            node for line in outer[:1] for node in ast.walk(statement(line)) if isinstance(node, ast.Call)
        ]
        function = around(frame, ast.FunctionDef)
        own = [call for call in calls if last_name(call.func) == getattr(function, "name", "")]
        if given := _arguments(own or calls, parameters_of(function), names):
            waiting.append((outer[0], outer[1:], given))
        if frame in frames:
            for line, call, order in _constructions(frame):
                if given := _arguments([call], order, names):
                    waiting.append((line, (), given))
    return found


def _behind(frame: Frame, read: Iterable[ast.AST]) -> dict[str, Frame]:
    """Returns the names and attributes in expressions of a line, and in what its function or class assigns to them.

    Results of calls are not followed.
    """
    found: dict[str, Frame] = {}
    waiting = [(frame, node) for node in read]
    for line, expression in waiting:  # grows
        nodes = list(ast.walk(expression))
        fresh = names_in(nodes) | {node.attr for node in nodes if isinstance(node, ast.Attribute)}
        fresh -= found.keys()
        found |= dict.fromkeys(fresh, line)
        lines = dict.fromkeys((*assigned(frame, fresh), *named(frame, fresh))) if fresh else ()
        values = [(each, value) for each in lines for value in _assigned_to(fresh, statement(each))]
        waiting += [(each, value) for each, value in values if not any(_calls(value))]
    return found


def _assigned_to(names: Container[str], node: Any) -> Iterator[ast.expr]:
    """Yields the values that an assignment gives to some names and attributes."""
    for target in getattr(node, "targets", ()):  # a branch on one line has none
        sides = (
            (target.elts, node.value.elts) if _are_tuples(target, node.value) else ([target], [node.value])
        )
        yield from (value for one, value in zip(*sides, strict=False) if last_name(one) in names)


def _are_tuples(*nodes: ast.AST) -> bool:
    return all(isinstance(node, ast.Tuple) for node in nodes)


def _calls(node: ast.AST) -> Iterator[ast.Call]:
    return (each for each in ast.walk(node) if isinstance(each, ast.Call))


def _arguments(calls: Iterable[ast.Call], order: Sequence[str], names: Container[str]) -> list[ast.AST]:
    """Returns the arguments of calls for those parameters, in their order, that have some names."""
    order = [each for each in order if each != "self"]
    given = [pair for call in calls for pair in zip(order, call.args, strict=False)]
    given += [(each.arg or "", each.value) for call in calls for each in call.keywords]
    return [value for name, value in given if name in names and name in order]


def _constructions(frame: Frame) -> Iterator[tuple[Frame, ast.Call, list[str]]]:
    """Yields the calls that make objects of the class of a method, with its parameters or fields in their order."""
    owner = frame.function.partition(".")[0]
    nodes = nodes_in(frame.file)
    made = (
        node for node, scope in nodes if scope == f"{owner}.__init__" and isinstance(node, ast.FunctionDef)
    )
    fields = [
        name
        for node, scope in nodes
        if scope == owner and isinstance(node, ast.AnnAssign)
        for name in targets(node)
    ]
    order = next(map(parameters_of, made), fields)
    for file in _near([frame]) if order else ():
        for node, scope in nodes_in(file):
            if isinstance(node, ast.Call) and last_name(node.func) == owner and _may_make(node, file, frame):
                yield Frame(file, node.lineno, scope or "<module>"), node, order


def _may_make(call: ast.Call, file: str, method: Frame) -> bool:
    """True if a call in a file makes an object of the class of a method, or of an unknown class."""
    made = value_of(call.func, names_of(file))
    if not isinstance(made, type):
        return True
    return getattr(sys.modules.get(made.__module__), "__file__", None) == method.file


def _near(frames: Sequence[Frame]) -> list[str]:
    """Returns the user's imported files in the folders of some lines, and those of the lines."""
    folders = {Path(frame.file).parent for frame in frames}
    files = {getattr(module, "__file__", None) or "" for module in list(sys.modules.values())}
    near = {file for file in files if is_users(file) and Path(file).parent in folders}
    return sorted(near | {frame.file for frame in frames})


def _giving(value: float, files: Sequence[str], names: Container[str]) -> Iterator[tuple[Frame, str]]:
    """Yields the lines of files that give a number, or several, to a field or name of some names, with that name.

    So do keywords for a field of a class that is not called.
    """
    nodes = [(node, scope, file) for file in files for node, scope in nodes_in(file)]
    fields = {
        (scope, name) for node, scope, _ in nodes if isinstance(node, ast.AnnAssign) for name in targets(node)
    }
    called = {scope for node, scope, _ in nodes if getattr(node, "name", "") == "__call__"}
    for node, scope, file in nodes:
        given = []
        if isinstance(node, ast.Call) and f"{last_name(node.func)}.__call__" not in called:
            given = [
                (each.arg or "", each.value)
                for each in node.keywords
                if (last_name(node.func), each.arg) in fields
            ]
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            given = [(name, node.value) for name in targets(node)]
        for name, held in given:
            if name in names and any(_is_number(each, value) for each in getattr(held, "elts", [held])):
                yield Frame(file, held.lineno, scope or "<module>"), name


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
