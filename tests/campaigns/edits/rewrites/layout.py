"""Rules that move or add source text that adds no operation: comments, docstrings, imports, annotations, order."""

import ast
import itertools

from campaigns.edits.rewrites.knowing import names_read
from campaigns.edits.rewrites.rule import Rule, Sites
from campaigns.edits.rewrites.source import FUNCTIONS, Patch, Source

__all__ = ["RULES"]


def _docstring(node: ast.AST) -> ast.Constant | None:
    body = getattr(node, "body", None)
    first = body[0] if isinstance(body, list) and body else None
    held = first.value if isinstance(first, ast.Expr) else None
    return held if isinstance(held, ast.Constant) and isinstance(held.value, str) else None


def _docstrings(source: Source) -> Sites:
    for node in source.nodes(*FUNCTIONS):
        text = _docstring(node)
        if text is None and source.alone(first := node.body[0]) and first.lineno > node.lineno:
            start = source.line_start(first)
            yield [Patch(start, start, f'{source.indent(first)}"""Written otherwise."""\n')]
        elif text is not None and source.of(text).startswith('"""'):
            start = source.span(text)[0] + 3
            yield [Patch(start, start, "In other words. ")]


def _lines(source: Source) -> Sites:
    for node in source.nodes(*FUNCTIONS):
        last = node.body[-1]
        if source.alone(last) and last.lineno > node.lineno:
            start = source.line_start(last)
            yield [
                Patch(start, start, f"{source.indent(last)}# Three lines\n{source.indent(last)}# more.\n\n")
            ]


def _imports(source: Source) -> Sites:
    start = source.imports_start
    if start is not None and "colorsys" not in source.words:
        yield [Patch(start, start, "import colorsys  # noqa: F401\n")]


def _locals(source: Source) -> Sites:
    for node in source.nodes(*FUNCTIONS):
        body = node.body[1:] if _docstring(node) else node.body
        if body and source.alone(body[0]) and body[0].lineno > node.lineno:
            start = source.line_start(body[0])
            yield [Patch(start, start, f"{source.indent(body[0])}{source.fresh('unused')} = ()\n")]


def _needed_at_once(node: ast.stmt) -> set[str]:
    """Returns the names that a definition needs when it is made: decorators, defaults, annotations."""
    if not isinstance(node, FUNCTIONS):
        return names_read(node)
    parts = [*node.decorator_list, node.args, *([node.returns] if node.returns else [])]
    return {name for part in parts for name in names_read(part)}


def _swapped(source: Source, first: ast.stmt, second: ast.stmt) -> list[Patch]:
    starts, ends = (
        [source.line_start(one) for one in (first, second)],
        [source.line_end(one) for one in (first, second)],
    )
    texts = [source.data[start:end].decode() for start, end in zip(starts, ends, strict=True)]
    return [Patch(starts[0], ends[0], texts[1]), Patch(starts[1], ends[1], texts[0])]


def _neighbours(source: Source, body: list[ast.stmt]) -> Sites:
    for first, second in itertools.pairwise(body):
        if not (isinstance(first, FUNCTIONS) and isinstance(second, FUNCTIONS)) or first.name == second.name:
            continue
        free = first.name not in _needed_at_once(second) and second.name not in _needed_at_once(first)
        if free and source.data[source.line_end(first) : source.line_start(second)].strip() == b"":
            yield _swapped(source, first, second)


def _methods(source: Source) -> Sites:
    for node in source.nodes(ast.ClassDef):
        yield from _neighbours(source, node.body)


def _functions(source: Source) -> Sites:
    yield from _neighbours(source, source.tree.body)


def _keyed_by_place(source: Source, node: ast.Assign) -> bool:
    """True if a submodule draws by its path: it is given ``rngs.at("its name")``, and no other stream."""
    streams = [one for one in source.nodes(ast.Name, under=node.value) if "rng" in one.id or "key" in one.id]
    held = [source.parent(one) for one in streams]
    return bool(held) and all(isinstance(one, ast.Attribute) and one.attr == "at" for one in held)


def _submodules(source: Source) -> Sites:
    for function in source.nodes(ast.FunctionDef):
        linen, nnx = function.name == "setup", function.name == "__init__"
        for first, second in itertools.pairwise(function.body if linen or nnx else []):
            pair = [one for one in (first, second) if isinstance(one, ast.Assign) and source.alone(one)]
            targets = [one.targets[0] for one in pair if isinstance(one.targets[0], ast.Attribute)]
            if len(targets) != 2 or not all(isinstance(one.value, ast.Call) for one in pair):
                continue
            names = [source.of(one) for one in targets]
            read = [name for one in pair for name in names if name in source.of(one.value)]
            still = names[0] != names[1] and not read and source.line_end(first) == source.line_start(second)
            if still and (linen or all(_keyed_by_place(source, one) for one in pair)):
                yield _swapped(source, first, second)


def _annotations(source: Source) -> Sites:
    for node in source.nodes(*FUNCTIONS):
        if node.decorator_list:
            continue
        if node.returns is not None:
            start = source.data.rindex(b"->", 0, source.span(node.returns)[0])
            start -= len(source.data[:start]) - len(source.data[:start].rstrip())
            yield [Patch(start, source.span(node.returns)[1], "")]
        for one in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]:
            if one.annotation is not None:
                start, end = source.span(one)
                yield [Patch(start + len(one.arg), end, "")]


RULES = (
    Rule(name="docstring-changed", harmless="always: nobody runs it", sites=_docstrings),
    Rule(name="lines-moved", harmless="always: a comment moves the lines below it", sites=_lines),
    Rule(name="import-added", harmless="nobody uses the name of the module", sites=_imports),
    Rule(name="local-added", harmless="nobody uses the name", sites=_locals),
    Rule(
        name="methods-swapped",
        harmless="neighbours in a class that do not name each other in decorators, defaults or annotations",
        sites=_methods,
    ),
    Rule(
        name="functions-swapped",
        harmless="neighbours in a module that do not name each other in decorators, defaults or annotations",
        sites=_functions,
    ),
    Rule(
        name="submodules-swapped",
        harmless="neighbours in setup, whose parameters go by name; in __init__ where each draws by its path",
        sites=_submodules,
    ),
    Rule(
        name="annotation-dropped",
        harmless="the function has no decorator that could read it",
        sites=_annotations,
    ),
)
