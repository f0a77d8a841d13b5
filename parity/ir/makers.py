"""The user's functions that make a value: the closures of a library, tables, results."""

import ast
import collections
import functools
import inspect
import itertools
import linecache
import sys
import types
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax

from parity.ir.functions import (
    Frame,
    around,
    assigned,
    function_of,
    is_users,
    named,
    nodes_in,
    statement,
    words_of,
)

COMPREHENSIONS = frozenset({"<genexpr>", "<listcomp>", "<setcomp>", "<dictcomp>"})
DEEP = 3
"""Maximum number of library functions between the one that the user calls and the one that uses the constant."""


def library_call(library: Sequence[Frame], files: Iterable[str], used: Sequence[Frame] = ()) -> Frame | None:
    """Returns the user's call that made the library's function with the constant in it; None if there is none.

    The call is in the only such function of the user's files that these call, or else that they call in others, or else
    in the only one of these files, or of the packages that they belong to. If there are several, its name alone shares
    a word with the line of the use, such as ``critic_optimizer`` with ``self.critic.update(...)``, or with a function
    around it, such as ``critic_step``. The lines on the call stack of the use are innermost first: those of the
    library, and the user's.
    """
    modules = {getattr(module, "__file__", None) or "": module for module in list(sys.modules.values())}
    known = [file for file in sorted(files) if file in modules]
    called = _called_from(tuple(known))
    packages = {_package(modules[each]) for each in known}
    near = {each for each, module in modules.items() if _package(module) in packages and is_users(each)}
    near |= {file for file, _ in called if file in modules}
    for file, maker in library_makers(library):
        package = _package(modules.get(file))
        makers = [*_makes(known, package, maker)]
        further = [*_makes(sorted(near.difference(known)), package, maker)]
        # Where one function calls both sides, it reaches the makers of the other side, too.
        here, there = (
            [one for one in found if (one.file, one.function) in called] for found in (makers, further)
        )
        found = here or there or makers or further
        functions = {(frame.file, frame.function): frame for frame in reversed(found)}
        if len(functions) > 1:
            words = _parts(each.function.rpartition(".")[2] for each in used).union(
                *map(_parts, map(words_of, used[:1]))
            )
            shared = {key: _parts([key[1]]) & words for key in functions}
            others = collections.Counter(itertools.chain(*shared.values()))
            functions = {key: functions[key] for key, words in shared.items() if 1 in map(others.get, words)}
        if len(functions) == 1:
            return next(iter(functions.values()))
    return None


@functools.lru_cache(maxsize=256)
def _called_from(files: tuple[str, ...]) -> frozenset[tuple[str, str]]:
    """Returns ``(file, function)`` of the user's functions that some files call, and those that their files call."""
    reached, called = list(files), set()
    for file in reached:  # grows
        for _, function in _calls(file):
            code = getattr(function, "__code__", None)
            if code and is_users(code.co_filename):
                called.add((code.co_filename, code.co_name))
        reached += sorted({each for each, _ in called}.difference(reached))
    return frozenset(called)


def given_functions(frame: Frame) -> list[Frame]:
    """Returns the user's functions that calls around a line take as arguments, such as the mask of an optimizer."""
    names = names_of(frame.file)
    calls = [node for node in ast.walk(around(frame, ast.FunctionDef)) if isinstance(node, ast.Call)]
    taken = [value for call in calls for value in (*call.args, *(each.value for each in call.keywords))]
    found = [
        value for value in (value_of(each, names) for each in taken) if isinstance(value, types.FunctionType)
    ]
    codes = dict.fromkeys(each.__code__ for each in found if is_users(each.__code__.co_filename))
    return [Frame(code.co_filename, code.co_firstlineno, code.co_qualname) for code in codes]


def _parts(names: Iterable[str]) -> set[str]:
    return {part for name in names for part in name.lower().split("_")} - {""}


def backward_rule(frame: Frame) -> Frame | None:
    """Returns the user's backward rule of the function that a line calls; None if there is none.

    JAX places the rule's operations at the call.
    """
    words, names = words_of(frame), names_of(frame.file)
    known = [names.get(word) for word in words]
    known += [vars(one).get(word) for one in known if isinstance(one, types.ModuleType) for word in words]
    rules = {inspect.unwrap(one.bwd) for one in known if isinstance(one, jax.custom_vjp) and one.bwd}
    codes = [rule.__code__ for rule in rules if isinstance(rule, types.FunctionType)]
    found = [Frame(code.co_filename, code.co_firstlineno, code.co_qualname) for code in codes]
    return found[0] if len(found) == 1 and not found[0].in_library else None


def table_makers(
    one: Frame, other: Frame, traced: Sequence[Container[Hashable]]
) -> tuple[tuple[Frame, ...], tuple[Frame, ...]]:
    """Returns for each side the user's functions that may compute a constant ahead of the program.

    A line reads their results. Those that both sides have, and those that make operations, are left out.

    Args:
        one, other: the lines that use the constant.
        traced: for each side, the functions that make operations.
    """
    left, right = ({function_of(each): each for each in _behind(frame, DEEP)} for frame in (one, other))
    return (
        tuple(each for text, each in left.items() if text not in right and text not in traced[0]),
        tuple(each for text, each in right.items() if text not in left and text not in traced[1]),
    )


def _behind(frame: Frame, deep: int) -> Iterator[Frame]:
    """Yields the user's functions that the statement of a line calls, and the methods that set attributes it reads.

    So do the statements that give values to the names it reads.
    """
    if not deep:
        return
    names = names_of(frame.file)
    owner = names.get(frame.function.partition(".")[0])
    nodes = list(ast.walk(statement(frame)))
    called = [node.func for node in nodes if isinstance(node, ast.Call)]
    for each in called:
        made = value_of(each, names) or getattr(owner, getattr(each, "attr", ""), None)
        made = inspect.unwrap(made.__init__ if isinstance(made, type) else made) if callable(made) else None
        if isinstance(made, types.FunctionType):
            inner = Frame(made.__code__.co_filename, made.__code__.co_firstlineno, made.__qualname__)
            yield from () if inner.in_library else (inner, *_behind(inner, deep - 1))
    read = {node.attr for node in nodes if isinstance(node, ast.Attribute) and node not in called}
    for inner in assigned(frame, read):
        yield from (inner, *_behind(inner, deep - 1))
    for line in named(frame, {node.id for node in nodes if isinstance(node, ast.Name)}):
        yield from _behind(line, deep - 1)


def names_of(file: str) -> dict[str, Any]:
    """Returns the names in the module of a file; empty if it is not imported."""
    return next(
        (vars(one) for one in list(sys.modules.values()) if getattr(one, "__file__", None) == file), {}
    )


def library_makers(library: Sequence[Frame]) -> list[tuple[str, str]]:
    """Returns ``(file, function)`` of the library's functions that made the closures on a call stack."""
    return [
        (frame.file, frame.function.partition(".<locals>")[0])
        for frame in library
        if ".<locals>" in frame.function
    ]


def _makes(files: Iterable[str], library: str, maker: str) -> Iterator[Frame]:
    """Yields the calls in files that reach a function of a library."""
    for file in files:
        if library and not Frame(file, 0).in_library and library in "".join(linecache.getlines(file)):
            for frame, function in _calls(file):
                if _package(function) == library and maker in _named(function, DEEP):
                    yield frame


def _package(thing: Any) -> str:
    name = getattr(thing, "__module__", None) or getattr(thing, "__name__", "")
    return str(name).partition(".")[0]


def _calls(file: str) -> Iterator[tuple[Frame, Any]]:
    """Yields the calls in a file of functions that its module knows by name."""
    names = names_of(file)
    for node, name in nodes_in(file):
        called = [node.func] if isinstance(node, ast.Call) else getattr(node, "decorator_list", ())
        for each in called:
            if (function := value_of(each, names)) is not None:
                yield Frame(file, each.lineno, name.rpartition(".")[2] or "<module>"), function


def value_of(expression: ast.expr, names: Mapping[str, Any]) -> Any:
    """Returns the value of a name or of an attribute of one; None for another expression, or if it is unknown."""
    if isinstance(expression, ast.Name):
        return names.get(expression.id)
    if isinstance(expression, ast.Attribute):
        return getattr(value_of(expression.value, names), expression.attr, None)
    return None


def _named(function: Any, deep: int) -> frozenset[str]:
    """Returns the names of a function and of the functions in its package that it uses, up to a depth.

    For a class, they are its methods.
    """
    if isinstance(function, type):
        return frozenset(f"{function.__name__}.{name}" for name in vars(function))
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
            if isinstance(other, types.FunctionType | type) and _package(other) == _package(function):
                found |= _named(other, deep - 1)
                break
    return frozenset(found)


def _used(code: types.CodeType) -> set[str]:
    inner = [const for const in code.co_consts if isinstance(const, types.CodeType)]
    return set(code.co_names).union(*map(_used, inner))


def makers(runs: Sequence[Callable[[], Any]], is_made: Callable[[Any], bool]) -> Iterator[Frame | None]:
    """Yields for both functions the user's function, not shared with the other, that makes a value while it runs.

    It is the first that returns such a value, else the first that is called; None if there is none.
    """
    found = [_called(run, is_made) for run in runs]
    for frames, others in zip(found, found[::-1], strict=True):
        shared = set(map(function_of, others))
        yield next((frame for frame in frames if function_of(frame) not in shared), None)


def _called(run: Callable[[], Any], is_made: Callable[[Any], bool]) -> list[Frame]:
    """Returns the user's functions that return a value, innermost first, then all in the order of their calls."""
    called: dict[Frame, None] = {}
    made: dict[Frame, None] = {}

    def note(frame: Any, event: str, value: Any) -> None:
        code = frame.f_code
        own = code.co_name not in COMPREHENSIONS and is_users(code.co_filename)
        if own and event in ("call", "return"):
            place = Frame(code.co_filename, code.co_firstlineno, code.co_qualname)
            called.setdefault(place)
            if event == "return" and is_made(value):
                made.setdefault(place)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(before)
    return [*made, *called]
