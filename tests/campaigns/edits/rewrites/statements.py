"""Rules that rewrite statements: merge or split them, reorder them, exchange branches."""

import ast
import itertools
import textwrap
from collections.abc import Iterator

from campaigns.edits.rewrites.knowing import is_pure, is_still, names_read
from campaigns.edits.rewrites.rule import Rule, Sites
from campaigns.edits.rewrites.source import COMPREHENSIONS, FUNCTIONS, SCOPES, Patch, Source

__all__ = ["RULES"]

NESTED = (*FUNCTIONS, ast.Lambda, *COMPREHENSIONS)


def _target(node: ast.stmt) -> str:
    """Returns the name that a plain assignment sets, empty for other statements."""
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    return ""


def _captured(source: Source, node: ast.stmt, name: str) -> bool:
    """True if a function nested in the enclosing one reads the name too: it may be called at any time."""
    function = source.function(node)
    assert function
    scopes = (one for one in ast.walk(function) if isinstance(one, NESTED) and one is not function)
    outer = any(
        isinstance(one, ast.Nonlocal | ast.Global) and name in one.names for one in ast.walk(function)
    )
    return outer or any(name in names_read(one) for one in scopes)


def _yields(node: ast.AST) -> bool:
    return any(
        isinstance(one, ast.Yield | ast.YieldFrom | ast.Await | ast.NamedExpr) for one in ast.walk(node)
    )


def _results(source: Source) -> Sites:
    for block in source.blocks():
        for node in block:
            if (
                isinstance(node, ast.Return)
                and node.value is not None
                and source.alone(node)
                and not isinstance(node.value, ast.Name)
            ):
                name, indent = source.fresh("result"), source.indent(node)
                yield [
                    source.replace(
                        node, f"{name} = {wrapped_lines(source, node.value)}\n{indent}return {name}"
                    )
                ]


def wrapped_lines(source: Source, node: ast.expr) -> str:
    """Returns the text of an expression for the right of ``=``, in brackets if it spans lines and needs them."""
    text = source.of(node)
    return (
        f"({text})"
        if "\n" in text and not isinstance(node, ast.Call | ast.List | ast.Dict | ast.Tuple)
        else text
    )


def _first_argument(source: Source, node: ast.expr) -> ast.expr | None:
    """Returns the argument that a call computes before anything else that could have an effect."""
    if not isinstance(node, ast.Call) or not node.args or not is_pure(source, node.func):
        return None
    return node.args[0] if isinstance(node.args[0], ast.Call | ast.BinOp | ast.Subscript) else None


def _arguments(source: Source) -> Sites:
    for block in source.blocks():
        for node in block:
            if (
                not isinstance(node, ast.Return | ast.Assign | ast.Expr)
                or node.value is None
                or not source.alone(node)
            ):
                continue
            first, name = _first_argument(source, node.value), source.fresh("inner")
            if first is None or _yields(node) or isinstance(first, ast.GeneratorExp):
                continue
            start = source.line_start(node)
            text = f"{source.indent(node)}{name} = {source.atom(first)}\n"
            yield [Patch(start, start, text), source.replace(first, name)]


def _before(source: Source, statement: ast.stmt, use: ast.Name) -> Iterator[ast.expr]:
    """Yields the calls in a statement that may be done before a name in it is read."""
    start = source.span(use)[0]
    outer = set(source.around(use))
    for node in source.nodes(ast.Call, under=statement):
        earlier = not is_pure(source, node.func) and use not in ast.walk(node.func)
        if earlier if node in outer else source.span(node)[0] < start:
            yield node


def _inlined(source: Source) -> Sites:
    for block in source.blocks():
        for first, second in itertools.pairwise(block):
            name, function = _target(first), source.function(first)
            if not name or not isinstance(second, ast.Return | ast.Assign | ast.Expr) or not function:
                continue
            assert isinstance(first, ast.Assign)
            uses = [one for one in ast.walk(function) if isinstance(one, ast.Name) and one.id == name]
            reads = [one for one in uses if isinstance(one.ctx, ast.Load)]
            if len(uses) != 2 or len(reads) != 1 or source.statement(reads[0]) is not second:
                continue
            (use,), lines = reads, source.alone(first)
            nested = any(
                isinstance(one, (*NESTED, ast.IfExp, ast.BoolOp, ast.JoinedStr))
                for one in source.around(use)
                if one in set(ast.walk(second))
            )
            early = is_pure(source, first.value) or not any(_before(source, second, use))
            if (
                lines
                and not nested
                and early
                and not _yields(first)
                and not isinstance(source.parent(use), ast.Starred)
            ):
                yield [
                    Patch(source.line_start(first), source.line_end(first), ""),
                    source.replace(use, source.atom(first.value)),
                ]


def _writes(node: ast.stmt) -> set[str] | None:
    """Returns the names that an assignment sets; None for other statements and for attributes or items."""
    if not isinstance(node, ast.Assign) or len(node.targets) != 1:
        return None
    targets = node.targets[0].elts if isinstance(node.targets[0], ast.Tuple) else [node.targets[0]]
    plain = all(isinstance(one, ast.Name) for one in targets)
    return {ast.unparse(one) for one in targets} if plain else None


def _swapped(source: Source) -> Sites:
    for block in source.blocks():
        for first, second in itertools.pairwise(block):
            sets = _writes(first), _writes(second)
            if None in sets or not (source.alone(first) and source.alone(second)):
                continue
            one, other = (set(held or ()) for held in sets)
            assert isinstance(first, ast.Assign) and isinstance(second, ast.Assign)
            free = not (one & (names_read(second) | other)) and not (other & names_read(first))
            free = free and not any(_captured(source, first, name) for name in one | other)
            pure = [is_pure(source, node.value) for node in (first, second)]
            still = any(is_still(node.value) for node in (first, second))
            between = source.data[source.line_end(first) : source.line_start(second)].strip()
            if free and not between and (all(pure) or (any(pure) and still)):
                texts = [source.of(node) for node in (first, second)]
                yield [source.replace(first, texts[1]), source.replace(second, texts[0])]


def _pairs(node: ast.stmt) -> list[tuple[ast.expr, ast.expr]]:
    """Returns the targets and values of ``a, b = x, y``; none for other statements."""
    if not isinstance(node, ast.Assign) or len(node.targets) != 1:
        return []
    target, value = node.targets[0], node.value
    if (
        not isinstance(target, ast.Tuple)
        or not isinstance(value, ast.Tuple)
        or len(target.elts) != len(value.elts)
    ):
        return []
    return (
        []
        if any(isinstance(one, ast.Starred) for one in (*target.elts, *value.elts))
        else list(zip(target.elts, value.elts, strict=True))
    )


def _split(source: Source) -> Sites:
    for block in source.blocks():
        for node in block:
            pairs = _pairs(node)
            if (
                not pairs
                or not source.alone(node)
                or not all(isinstance(target, ast.Name) for target, _ in pairs)
            ):
                continue
            names = [source.of(target) for target, _ in pairs]
            later = [names_read(value) for _, value in pairs]
            differing = all(
                name not in later[place]
                for index, name in enumerate(names)
                for place in range(index + 1, len(pairs))
            )
            if differing and not any(_captured(source, node, name) for name in names):
                lines = [
                    f"{name} = {source.atom(value)}" for name, (_, value) in zip(names, pairs, strict=True)
                ]
                yield [source.replace(node, f"\n{source.indent(node)}".join(lines))]


def _merged(source: Source) -> Sites:
    for block in source.blocks():
        for first, second in itertools.pairwise(block):
            names = _target(first), _target(second)
            if not all(names) or names[0] == names[1] or not (source.alone(first) and source.alone(second)):
                continue
            assert isinstance(first, ast.Assign) and isinstance(second, ast.Assign)
            between = source.data[source.line_end(first) : source.line_start(second)].strip()
            if between or names[0] in names_read(second) or _captured(source, first, names[0]):
                continue
            text = f"{', '.join(names)} = {source.atom(first.value)}, {source.atom(second.value)}"
            yield [Patch(source.span(first)[0], source.span(second)[1], text)]


def _body(source: Source, block: list[ast.stmt]) -> str:
    return source.data[source.line_start(block[0]) : source.line_end(block[-1])].decode()


def _whole(source: Source, block: list[ast.stmt]) -> bool:
    """True if a block occupies whole lines and has no multi-line string, so that it can be moved."""
    strings = any(
        "\n" in source.of(one)
        for node in block
        for one in source.nodes(ast.Constant, ast.JoinedStr, under=node)
    )
    return bool(block) and all(map(source.alone, block)) and not strings


def _chained(source: Source, node: ast.If) -> bool:
    return source.data[slice(*source.span(node))].startswith(b"elif") or (
        len(node.orelse) == 1
        and isinstance(node.orelse[0], ast.If)
        and source.data[source.span(node.orelse[0])[0] :].startswith(b"elif")
    )


def _branches(source: Source) -> Sites:
    for block in source.blocks():
        for node in block:
            if not isinstance(node, ast.If) or not node.orelse or _chained(source, node):
                continue
            if (
                _whole(source, node.body)
                and _whole(source, node.orelse)
                and node.body[0].lineno > node.lineno
            ):
                yes, no = _body(source, node.body), _body(source, node.orelse)
                head, indent = f"if not ({source.of(node.test)}):\n", source.indent(node)
                yield [Patch(source.span(node)[0], source.line_end(node), f"{head}{no}{indent}else:\n{yes}")]


def _early(source: Source) -> Sites:
    for block in source.blocks():
        for index, node in enumerate(block[:-1]):
            rest = block[index + 1 :]
            ends = isinstance(node, ast.If) and isinstance(node.body[-1], ast.Return | ast.Raise)
            if not ends or node.orelse or _chained(source, node) or not isinstance(rest[-1], ast.Return):  # type: ignore[union-attr]
                continue
            if _whole(source, rest) and not any(isinstance(one, FUNCTIONS) for one in rest):
                start, end = source.line_start(rest[0]), source.line_end(rest[-1])
                moved = textwrap.indent(source.data[start:end].decode(), "    ")
                yield [Patch(start, end, f"{source.indent(node)}else:\n{moved}")]


def _unfolded(source: Source) -> Sites:
    for block in source.blocks():
        for node in block:
            held = node.value if isinstance(node, ast.Return) or _target(node) else None  # type: ignore[attr-defined]
            if not isinstance(held, ast.IfExp) or not source.alone(node):
                continue
            head = "return" if isinstance(node, ast.Return) else f"{_target(node)} ="
            indent, (yes, test, no) = source.indent(node), map(source.of, (held.body, held.test, held.orelse))
            if "\n" not in yes + test + no:
                text = f"if {test}:\n{indent}    {head} {yes}\n{indent}else:\n{indent}    {head} {no}"
                yield [source.replace(node, text)]


def _loops(source: Source) -> Sites:
    for block in source.blocks():
        for node in block:
            name = _target(node)
            held = node.value if isinstance(node, ast.Assign) else None
            if not name or not isinstance(held, ast.ListComp | ast.DictComp) or not source.alone(node):
                continue
            (first, *more), function = held.generators, source.function(node)
            own = {one.id for one in ast.walk(first.target) if isinstance(one, ast.Name)}
            others = [
                one
                for one in ast.walk(function or node)
                if isinstance(one, ast.Name) and one not in set(ast.walk(held))
            ]
            nested = any(isinstance(one, SCOPES) for one in ast.walk(held) if one is not held)
            used = {one.id for one in others} | {
                one.arg for one in ast.walk(function or node) if isinstance(one, ast.arg)
            }
            if (
                more
                or first.ifs
                or first.is_async
                or nested
                or own & used
                or name in names_read(held)
                or _yields(held)
            ):
                continue
            indent, head = source.indent(node), f"for {source.of(first.target)} in {source.atom(first.iter)}:"
            line = (
                f"{name}.append({source.of(held.elt)})"
                if isinstance(held, ast.ListComp)
                else f"{name}[{source.of(held.key)}] = {source.of(held.value)}"
            )
            empty = "[]" if isinstance(held, ast.ListComp) else "{}"
            yield [source.replace(node, f"{name} = {empty}\n{indent}{head}\n{indent}    {line}")]


RULES = (
    Rule(name="result-named", harmless="always: it is returned at once", sites=_results),
    Rule(name="argument-named", harmless="nothing with an effect is computed before it", sites=_arguments),
    Rule(
        name="local-inlined",
        harmless="read once, in the next statement, before anything with an effect",
        sites=_inlined,
    ),
    Rule(
        name="statements-swapped",
        harmless="neighbours that set what the other does not read; the order of effects stays",
        sites=_swapped,
    ),
    Rule(name="assignment-split", harmless="no value reads a name that is set before it", sites=_split),
    Rule(name="assignments-merged", harmless="the second value does not read the first name", sites=_merged),
    Rule(name="branches-inverted", harmless="if and else, without elif", sites=_branches),
    Rule(name="rest-in-else", harmless="the branch before it never goes on", sites=_early),
    Rule(name="conditional-unfolded", harmless="its value is returned, or set to a name", sites=_unfolded),
    Rule(
        name="comprehension-unrolled",
        harmless="one loop, whose variables stand nowhere else in the function",
        sites=_loops,
    ),
)
