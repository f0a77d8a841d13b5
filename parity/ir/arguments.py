"""Arguments that the calls on a stack choose: literals, and defaults of parameters that they leave out."""

import ast
import functools
import inspect
from collections.abc import Iterator
from typing import NamedTuple

from parity.ir.functions import Frame, parsed


class Choice(NamedTuple):
    """The argument of a parameter; all fields are empty if it is computed.

    Args:
        text: the literal.
        call: the line of the call that chooses it.
        left_out: True if the call leaves it out.
    """

    text: str = ""
    call: Frame | None = None
    left_out: bool = False


@functools.lru_cache(maxsize=1_024)
def choices(frames: tuple[Frame, ...]) -> dict[str, Choice]:
    """Returns the parameters that decide what runs at a line, with their arguments.

    Conditions in its function test them, or conditions around the calls that lead there.

    Args:
        frames: the user's lines on a call stack, innermost first.
    """
    lines = [(frame, function) for frame in frames if (function := _function(frame)) is not None]
    lines = [each for at, each in enumerate(lines) if at == 0 or each[1] is not lines[at - 1][1]]
    found: dict[str, Choice] = {}
    followed: dict[str, str] = {}
    for at, (frame, function) in enumerate(lines):
        names, followed = (
            {**{name: name for name in _tested(function, frame.line if at else 0)}, **followed},
            {},
        )
        for name in names.keys() & _signature(function).parameters:
            choice = _chosen(*lines[at + 1], function, name) if at + 1 < len(lines) else Choice()
            if isinstance(choice, str):
                followed[choice] = names[name]
            else:
                found.setdefault(names[name], choice)
    return found


@functools.lru_cache(maxsize=4_096)
def _function(frame: Frame) -> ast.FunctionDef | None:
    """Returns the innermost function around a line."""
    around = [
        node
        for node in ast.walk(parsed(frame.file))
        if isinstance(node, ast.FunctionDef) and node.lineno <= frame.line <= (node.end_lineno or 0)
    ]
    return max(around, key=lambda node: node.lineno, default=None)


def _tested(function: ast.FunctionDef, line: int) -> Iterator[str]:
    """Yields the names that conditions in a function test; of those around a line if it is not 0."""
    for node in ast.walk(function):
        if isinstance(node, ast.If | ast.IfExp):
            test = node.test
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            test = node.operand
        else:
            continue
        if not line or node.lineno <= line <= (node.end_lineno or 0):
            yield from (each.id for each in ast.walk(test) if isinstance(each, ast.Name))


def _chosen(caller: Frame, outer: ast.FunctionDef, inner: ast.FunctionDef, name: str) -> Choice | str:
    """Returns the argument of a parameter; the name of the caller's own parameter if the call passes that on."""
    calls = [
        node
        for node in ast.walk(outer)
        if isinstance(node, ast.Call) and node.lineno <= caller.line <= (node.end_lineno or 0)
    ]
    given = [each.value for node in calls for each in node.keywords if each.arg == name]
    signature = _signature(inner)
    bound = [each for node in calls for each in _bound(node, inner.name, signature)]
    given = given or [each.get(name, signature.parameters[name].default) for each in bound]
    if len({ast.dump(each) for each in given if each}) != 1:
        return Choice()
    if isinstance(given[0], ast.Name) and given[0].id in _signature(outer).parameters:
        return given[0].id
    left_out = given[0] is signature.parameters[name].default
    return Choice(ast.unparse(given[0]), caller, left_out) if isinstance(given[0], ast.Constant) else Choice()


def _signature(function: ast.FunctionDef) -> inspect.Signature:
    """Returns the signature of a function without ``self``, with the expressions of its defaults."""
    given, kinds = function.args, inspect.Parameter
    names = [each.arg for each in (*given.posonlyargs, *given.args)]
    defaults = [*[kinds.empty] * (len(names) - len(given.defaults)), *given.defaults]
    listed = list(zip(names, defaults, [kinds.POSITIONAL_OR_KEYWORD] * len(names), strict=True))
    listed = listed[names[:1] == ["self"] :]
    alone = zip(given.kwonlyargs, given.kw_defaults, strict=True)
    listed += [(each.arg, default or kinds.empty, kinds.KEYWORD_ONLY) for each, default in alone]
    return inspect.Signature([kinds(name, kind, default=default) for name, default, kind in listed])


def _bound(call: ast.Call, name: str, signature: inspect.Signature) -> list[dict[str, ast.expr]]:
    """Returns the arguments of a call by parameter; nothing if it does not fit the function, or in several ways."""
    called = getattr(call.func, "attr", "") or getattr(call.func, "id", "")
    keywords = {each.arg: each.value for each in call.keywords if each.arg}
    if name not in ("__call__", called) or len(keywords) < len(call.keywords):
        return []
    found = []
    starred = any(isinstance(each, ast.Starred) for each in call.args)
    for copies in range(len(signature.parameters)) if starred else (1,):
        given = [one for one in call.args for _ in range(copies if isinstance(one, ast.Starred) else 1)]
        try:
            found.append(signature.bind(*given, **keywords).arguments)
        except TypeError:
            continue
    return found if len(found) == 1 else []
