"""Rules that rename something."""

import ast
import itertools
from collections.abc import Iterator

from campaigns.edits.rewrites.rule import Rule, Sites
from campaigns.edits.rewrites.source import COMPREHENSIONS, FUNCTIONS, SCOPES, Patch, Source

__all__ = ["RULES"]


def _names(under: ast.AST, name: str) -> list[ast.Name]:
    return [node for node in ast.walk(under) if isinstance(node, ast.Name) and node.id == name]


def _renamed(source: Source, nodes: list[ast.Name], new: str) -> list[Patch]:
    return [source.replace(node, new) for node in nodes]


def _in_f_string(under: ast.AST, name: str) -> bool:
    return any(_names(node, name) for node in ast.walk(under) if isinstance(node, ast.JoinedStr))


def _parameters(scope: ast.AST) -> set[str]:
    arguments = getattr(scope, "args", None)
    return (
        {one.arg for one in ast.walk(arguments) if isinstance(one, ast.arg)}
        if isinstance(arguments, ast.arguments)
        else set()
    )


def _bound_otherwise(under: ast.AST, name: str) -> bool:
    """True if a name is bound by anything other than an assignment: such a binding has no `ast.Name` node."""
    for node in ast.walk(under):
        if isinstance(node, ast.Global | ast.Nonlocal) and name in node.names:
            return True
        if isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name == name:
            return True
        if isinstance(node, ast.Import | ast.ImportFrom) and any(
            (one.asname or one.name) == name for one in node.names
        ):
            return True
        if node is not under and isinstance(node, (*FUNCTIONS, ast.ClassDef)) and node.name == name:
            return True
    return False


def _class_binds(scope: ast.ClassDef) -> Iterator[ast.AST]:
    """Yields the nodes that bind a name in the body of a class."""
    for node in scope.body:
        for one in ast.walk(node) if not isinstance(node, (*FUNCTIONS, ast.ClassDef)) else (node,):
            if isinstance(one, (*FUNCTIONS, ast.ClassDef)) or (
                isinstance(one, ast.Name) and not isinstance(one.ctx, ast.Load)
            ):
                yield one


def _bound_inside(function: ast.AST, name: str) -> bool:
    """True if a scope inside a function has a separate variable with that name."""
    for scope in ast.walk(function):
        if scope is function or not isinstance(scope, SCOPES):
            continue
        if isinstance(scope, ast.ClassDef):
            if any(getattr(one, "name", getattr(one, "id", "")) == name for one in _class_binds(scope)):
                return True
            continue
        if name in _parameters(scope) or any(
            not isinstance(one.ctx, ast.Load) for one in _names(scope, name)
        ):
            return True
    return False


def _locals(source: Source) -> Sites:
    for function in source.nodes(*FUNCTIONS):
        own = (node for node in source.own(function) if isinstance(node, ast.Name))
        stored = dict.fromkeys(node.id for node in own if isinstance(node.ctx, ast.Store))
        for name in stored:
            outer = [one for one in source.around(function) if isinstance(one, FUNCTIONS)]
            free = not (name in _parameters(function) or _bound_otherwise(function, name))
            free = free and not _bound_inside(function, name) and not _in_f_string(function, name)
            if (
                free
                and name != "_"
                and not any(_bound_otherwise(one, name) for one in outer)
                and "locals" not in source.words
            ):
                yield _renamed(source, _names(function, name), source.fresh(f"{name}_new"))


def _of_comprehensions(source: Source) -> Sites:
    for node in source.nodes(*COMPREHENSIONS):
        first = node.generators[0]
        targets = dict.fromkeys(
            one.id for part in node.generators for one in ast.walk(part.target) if isinstance(one, ast.Name)
        )
        for name in targets:
            free = (
                not _names(first.iter, name)
                and not _bound_inside(node, name)
                and not _in_f_string(node, name)
            )
            if free and name != "_":
                yield _renamed(source, _names(node, name), source.fresh(f"{name}_of"))


def _of_lambdas(source: Source) -> Sites:
    for node in source.nodes(ast.Lambda):
        call = source.parent(node)
        if (
            not isinstance(call, ast.Call)
            or node not in call.args
            or not source.dotted(call.func).startswith("jax.tree.")
        ):
            continue
        for one in node.args.args:
            if (
                not node.args.defaults
                and not _bound_inside(node, one.arg)
                and not _in_f_string(node, one.arg)
            ):
                new = source.fresh(f"{one.arg}_of")
                start = source.span(one)[0]
                yield [
                    Patch(start, start + len(one.arg), new),
                    *_renamed(source, _names(node.body, one.arg), new),
                ]


def _definition(source: Source, node: ast.FunctionDef | ast.AsyncFunctionDef, new: str) -> Patch:
    start = source.find(node.name, source.span(node)[0])
    return Patch(start, start + len(node.name), new)


def _of_inner_functions(source: Source) -> Sites:
    for node in source.nodes(ast.FunctionDef):
        outer = source.function(node)
        if outer is None or source.parent(node) is not outer:
            continue
        same = [one for one in _names(outer, node.name) if not isinstance(one.ctx, ast.Load)]
        twice = [one for one in ast.walk(outer) if isinstance(one, FUNCTIONS) and one.name == node.name]
        free = (
            not same
            and len(twice) == 1
            and node.name not in _parameters(outer)
            and not _bound_inside(outer, node.name)
        )
        if free and not _in_f_string(outer, node.name):
            new = source.fresh(f"{node.name}_inside")
            yield [_definition(source, node, new), *_renamed(source, _names(outer, node.name), new)]


def _only_here(source: Source, name: str) -> bool:
    return (
        name not in source.named_elsewhere
        and name not in source.words_in_strings
        and not name.startswith("__")
    )


def _global(source: Source, name: str) -> Iterator[list[ast.Name]]:
    """Yields all uses of a module-level name if no scope has a separate variable with that name."""
    taken = any(isinstance(node, ast.Global) and name in node.names for node in ast.walk(source.tree))
    if not taken and _only_here(source, name) and not _bound_inside(source.tree, name):
        yield source.names.get(name, [])


def _of_functions(source: Source) -> Sites:
    for node in source.tree.body:
        if isinstance(node, ast.FunctionDef):
            for uses in _global(source, node.name):
                if all(isinstance(use.ctx, ast.Load) for use in uses):
                    new = source.fresh(f"{node.name}_otherwise")
                    yield [_definition(source, node, new), *_renamed(source, uses, new)]


def _of_constants(source: Source) -> Sites:
    for node in source.tree.body:
        if (
            isinstance(node, ast.Assign)
            and len(node.targets) == 1
            and isinstance(target := node.targets[0], ast.Name)
        ):
            for uses in _global(source, target.id) if target.id.isupper() else ():
                yield _renamed(source, uses, source.fresh(f"THE_{target.id}"))


def _of_private_methods(source: Source) -> Sites:
    defined = [node for node in source.nodes(*FUNCTIONS) if isinstance(source.parent(node), ast.ClassDef)]
    for name, found in itertools.groupby(sorted(defined, key=lambda one: one.name), key=lambda one: one.name):
        uses = [
            node for node in ast.walk(source.tree) if isinstance(node, ast.Attribute) and node.attr == name
        ]
        if not name.startswith("_") or not _only_here(source, name) or name in source.names:
            continue
        if not all(isinstance(use.ctx, ast.Load) for use in uses) or any(
            isinstance(source.parent(one), ast.FormattedValue) for one in uses
        ):
            continue
        new = source.fresh(f"{name}_within")
        ends = [source.span(use)[1] for use in uses]
        yield [
            *(_definition(source, one, new) for one in found),
            *(Patch(end - len(name), end, new) for end in ends),
        ]


def _of_imports(source: Source) -> Sites:
    for node in source.tree.body:
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        for alias in node.names:
            name = alias.asname or alias.name
            uses = source.names.get(name, [])
            free = (
                uses
                and name not in source.words_in_strings
                and name not in source.taken_elsewhere
                and "." not in name
            )
            if free and name not in source.bound and all(isinstance(use.ctx, ast.Load) for use in uses):
                new = source.fresh(f"its_{name}")
                yield [source.replace(alias, f"{alias.name} as {new}"), *_renamed(source, uses, new)]


RULES = (
    Rule(
        name="local-renamed",
        harmless="no inner scope has a variable of that name, and no f-string reads it",
        sites=_locals,
    ),
    Rule(
        name="loop-name-renamed",
        harmless="the variable of a comprehension that nothing inside binds anew",
        sites=_of_comprehensions,
    ),
    Rule(
        name="parameter-renamed",
        harmless="of a lambda handed to jax.tree, which calls it by position",
        sites=_of_lambdas,
    ),
    Rule(
        name="inner-function-renamed",
        harmless="the only binding of that name in the function around it",
        sites=_of_inner_functions,
    ),
    Rule(name="function-renamed", harmless="no other file and no text names it", sites=_of_functions),
    Rule(name="constant-renamed", harmless="no other file and no text names it", sites=_of_constants),
    Rule(
        name="private-method-renamed",
        harmless="no other file and no text names it, nothing assigns it",
        sites=_of_private_methods,
    ),
    Rule(
        name="import-renamed",
        harmless="no other file takes the name from here, nothing binds it anew",
        sites=_of_imports,
    ),
)
