"""Rules that rewrite an expression in place."""

import ast

from campaigns.edits.rewrites.knowing import is_array, is_number, is_pure, is_still
from campaigns.edits.rewrites.rule import Rule, Sites
from campaigns.edits.rewrites.source import Source

__all__ = ["RULES"]

TURNED = {
    ast.Lt: ">",
    ast.Gt: "<",
    ast.LtE: ">=",
    ast.GtE: "<=",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Is: "is",
    ast.IsNot: "is not",
}
NEGATED = {ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in"}
LARGEST = 4096


def _operands(source: Source) -> Sites:
    for node in source.nodes(ast.BinOp):
        if not source.computed(node) or not isinstance(node.op, ast.Add | ast.Mult):
            continue
        left, right = node.left, node.right
        texts = any(
            isinstance(one, ast.Constant) and isinstance(one.value, str | bytes) for one in (left, right)
        )
        numbers = isinstance(node.op, ast.Mult) or is_number(source, left) or is_number(source, right)
        pure = [is_pure(source, one) for one in (left, right)]
        if numbers and not texts and (all(pure) or (any(pure) and any(map(is_still, (left, right))))):
            yield [source.replace(left, source.atom(right)), source.replace(right, source.atom(left))]


def _conditionals(source: Source) -> Sites:
    for node in source.nodes(ast.IfExp):
        if source.computed(node):
            yes, test, no = source.atom(node.body), source.of(node.test), source.atom(node.orelse)
            yield [source.replace(node, f"({no} if not ({test}) else {yes})")]


def _comparisons(source: Source) -> Sites:
    for node in source.nodes(ast.Compare):
        if not source.computed(node) or len(node.ops) > 1 or type(node.ops[0]) not in TURNED:
            continue
        left, right = node.left, node.comparators[0]
        if is_pure(source, left) and is_pure(source, right):
            turned = f"{source.atom(right)} {TURNED[type(node.ops[0])]} {source.atom(left)}"
            yield [source.replace(node, f"({turned})")]


def _negations(source: Source) -> Sites:
    for node in source.nodes(ast.Compare):
        if source.computed(node) and len(node.ops) == 1 and type(node.ops[0]) in NEGATED:
            left, right = source.atom(node.left), source.atom(node.comparators[0])
            yield [source.replace(node, f"(not {left} {NEGATED[type(node.ops[0])]} {right})")]


def _constants(source: Source) -> Sites:
    for node in source.nodes(ast.Constant):
        value = node.value
        if (
            not source.computed(node)
            or type(value) not in (int, float)
            or isinstance(source.parent(node), ast.Expr)
        ):
            continue
        if type(value) is int and 2 <= value <= LARGEST:
            yield [source.replace(node, f"({value - 1} + 1)")]
        elif type(value) is float and value / 2 + value / 2 == value:
            yield [source.replace(node, f"({value / 2!r} + {value / 2!r})")]


def _power(node: ast.BinOp, number: int) -> bool:
    return (
        isinstance(node.right, ast.Constant) and type(node.right.value) is int and node.right.value == number
    )


def _squares(source: Source) -> Sites:
    for node in source.nodes(ast.BinOp):
        square = source.computed(node) and isinstance(node.op, ast.Pow) and _power(node, 2)
        array = is_array(source, node.left) or isinstance(node.left, ast.BinOp)
        if square and array and is_pure(source, node.left):
            side = source.atom(node.left)
            yield [source.replace(node, f"({side} * {side})")]


def _halves(source: Source) -> Sites:
    for node in source.nodes(ast.BinOp):
        if source.computed(node) and isinstance(node.op, ast.Div):
            for number, inverse in ((2, 0.5), (4, 0.25), (8, 0.125)):
                if _power(node, number):
                    yield [source.replace(node, f"({source.atom(node.left)} * {inverse})")]


def _differences(source: Source) -> Sites:
    for node in source.nodes(ast.BinOp):
        array = is_array(source, node.left) or is_array(source, node.right)
        if array and source.computed(node) and isinstance(node.op, ast.Sub):
            left, right = source.atom(node.left), source.atom(node.right)
            yield [source.replace(node, f"({left} + (-{right}))")]


def _looped(source: Source, node: ast.AST) -> bool:
    outer = source.parent(node)
    return isinstance(outer, ast.For | ast.comprehension) and outer.iter is node


def _tuples(source: Source) -> Sites:
    for node in source.nodes(ast.Tuple, ast.List):
        if source.computed(node) and _looped(source, node) and isinstance(node.ctx, ast.Load):
            start, end = source.span(node)
            text = source.data[start:end].decode()
            if text[:1] in "([" and text[-1:] in ")]" and node.elts:
                inner = text[1:-1].rstrip().rstrip(",")
                yield [source.replace(node, f"[{inner}]" if text[0] == "(" else f"({inner},)")]


def _generators(source: Source) -> Sites:
    for node in source.nodes(ast.GeneratorExp):
        call = source.parent(node)
        if not isinstance(call, ast.Call) or call.args != [node] or not source.computed(node):
            continue
        if source.dotted(call.func) in ("tuple", "list", "sum", "dict", "sorted", "max", "min"):
            start, end = source.span(node)
            text = source.data[start:end].decode()
            inner = text[1:-1] if text[0] == "(" else text
            yield [source.replace(node, f"([{inner}])")]


def _negative(source: Source) -> Sites:
    for node in source.nodes(ast.BoolOp):
        boolean = all(isinstance(one, ast.Compare | ast.UnaryOp) and _truth(one) for one in node.values)
        if source.computed(node) and boolean and len(node.values) == 2:
            other = "or" if isinstance(node.op, ast.And) else "and"
            left, right = (f"(not {source.atom(one)})" for one in node.values)
            yield [source.replace(node, f"(not ({left} {other} {right}))")]


def _truth(node: ast.expr) -> bool:
    """True if an expression is a plain truth value, never an array."""
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.Not)
    return isinstance(node, ast.Compare) and all(type(op) in NEGATED for op in node.ops)


RULES = (
    Rule(
        name="operands-swapped",
        harmless="a product, or a sum of what is a number for sure; the order of effects stays",
        sites=_operands,
    ),
    Rule(name="conditional-inverted", harmless="always", sites=_conditionals),
    Rule(name="comparison-turned", harmless="one comparison, both sides without effects", sites=_comparisons),
    Rule(name="negation-spelled", harmless="`is` and `in`, which give plain truth values", sites=_negations),
    Rule(name="truth-by-de-morgan", harmless="both sides are plain truth values", sites=_negative),
    Rule(name="constant-computed", harmless="integers, and floats whose half is exact", sites=_constants),
    Rule(
        name="square-spelled",
        harmless="an array, whose second power XLA is given as a product",
        sites=_squares,
    ),
    Rule(name="half-spelled", harmless="by a power of two: both round the same number", sites=_halves),
    Rule(
        name="difference-spelled",
        harmless="of arrays: IEEE 754 says that a - b is a + (-b)",
        sites=_differences,
    ),
    Rule(name="tuple-for-list", harmless="a loop goes over it, and nothing else sees it", sites=_tuples),
    Rule(name="generator-as-list", harmless="the call takes all of it at once", sites=_generators),
)
