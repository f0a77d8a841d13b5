"""Properties of an expression that follow from its text: it has no effect, it is an array, it is a number."""

import ast

from campaigns.edits.rewrites.source import Source

__all__ = ["is_array", "is_number", "is_pure", "is_still", "names_read"]

PURE = ("jax.numpy.", "jax.nn.", "jax.lax.", "jax.tree.leaves", "numpy.", "flax.nnx.gelu", "flax.linen.gelu")
IMPURE = (
    "numpy.random",
    "jax.lax.map",
    "jax.lax.scan",
    "jax.lax.while_loop",
    "jax.lax.cond",
    "jax.lax.fori_loop",
)
BUILTINS = {
    "len",
    "tuple",
    "list",
    "range",
    "zip",
    "enumerate",
    "min",
    "max",
    "isinstance",
    "abs",
    "bool",
    "str",
}
ARRAYS = {
    *(
        "sum",
        "mean",
        "max",
        "min",
        "prod",
        "square",
        "exp",
        "exp2",
        "log",
        "sin",
        "cos",
        "tanh",
        "sqrt",
        "abs",
    ),
    *("where", "einsum", "matmul", "dot", "reshape", "transpose", "moveaxis", "swapaxes", "squeeze", "roll"),
    *(
        "expand_dims",
        "concatenate",
        "stack",
        "maximum",
        "minimum",
        "zeros",
        "ones",
        "zeros_like",
        "ones_like",
    ),
    *("arange", "asarray", "array", "take_along_axis", "cumsum", "argsort", "sort", "clip", "full", "tril"),
    *("gelu", "relu", "silu", "softmax", "log_softmax", "sigmoid", "one_hot", "logsumexp", "rsqrt", "power"),
    *("isfinite", "var", "add", "multiply", "stop_gradient", "broadcast_to", "full_like"),
}
OF_ARRAYS = ("jax.numpy.", "jax.nn.", "jax.lax.", "flax.nnx.", "flax.linen.")
METHODS = {
    "astype",
    "sum",
    "mean",
    "max",
    "min",
    "reshape",
    "transpose",
    "swapaxes",
    "squeeze",
    "ravel",
    "cumsum",
}
NUMERIC = (ast.Sub, ast.Div, ast.Pow, ast.MatMult, ast.FloorDiv)
SIMPLE = (
    *(ast.Name, ast.Constant, ast.Attribute, ast.Subscript, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare),
    *(ast.IfExp, ast.Tuple, ast.List, ast.Dict, ast.Set, ast.Starred, ast.Slice, ast.keyword, ast.Lambda),
    *(ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.comprehension, ast.arguments, ast.arg),
)
LEAVES = (ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.expr_context)


def is_pure(source: Source, node: ast.AST) -> bool:
    """True if computing an expression changes nothing and draws nothing.

    Attributes and items count as pure: properties with effects are not expected.
    """
    if isinstance(node, ast.Call):
        name = source.dotted(node.func)
        known = name in BUILTINS or (name.startswith((*PURE, *source.pure)) and not name.startswith(IMPURE))
        known = known or (isinstance(node.func, ast.Attribute) and is_array(source, node))
        inner = [*node.args, *node.keywords]
        if isinstance(node.func, ast.Attribute):
            inner.append(node.func.value)  # type: ignore[arg-type]
        return known and all(is_pure(source, one) for one in inner)
    if not isinstance(node, SIMPLE):
        return False
    return all(is_pure(source, one) for one in ast.iter_child_nodes(node) if not isinstance(one, LEAVES))


def is_still(node: ast.AST) -> bool:
    """True if an expression has the same value before and after any effect other than an assignment."""
    kinds = (ast.Name, ast.Constant, ast.Tuple, ast.UnaryOp, *LEAVES)
    return all(isinstance(one, kinds) for one in ast.walk(node))


def is_array(source: Source, node: ast.AST) -> bool:
    """True if an expression is certainly a JAX array."""
    if isinstance(node, ast.Name):
        return _set_to_array(source, node)
    if isinstance(node, ast.Call):
        name = source.dotted(node.func)
        if name.startswith(OF_ARRAYS) and name.rpartition(".")[2] in ARRAYS:
            return not any(keyword.arg in ("return_inverse", "mutable") for keyword in node.keywords)
        func = node.func
        return isinstance(func, ast.Attribute) and func.attr in METHODS and is_array(source, func.value)
    if isinstance(node, ast.BinOp):
        return is_array(source, node.left) or is_array(source, node.right)
    if isinstance(node, ast.UnaryOp):
        return not isinstance(node.op, ast.Not) and is_array(source, node.operand)
    return isinstance(node, ast.Subscript) and is_array(source, node.value)


def _set_to_array(source: Source, node: ast.Name) -> bool:
    """True if a name is set once in its function, to an array."""
    function = source.function(node)
    if function is None or isinstance(node.ctx, ast.Store):
        return False
    uses = [one for one in source.names[node.id] if function in source.around(one)]
    stores = [one for one in uses if not isinstance(one.ctx, ast.Load)]
    if len(stores) != 1 or stores[0].lineno >= node.lineno or source.function(stores[0]) is not function:
        return False
    held = source.parent(stores[0])
    plain = isinstance(held, ast.Assign) and held.targets == stores and source.parent(held) is function
    given = any(isinstance(one, ast.arg) and one.arg == node.id for one in ast.walk(function))
    return plain and not given and is_array(source, held.value)  # type: ignore[union-attr]


def is_number(source: Source, node: ast.AST) -> bool:
    """True if an expression is certainly a number or an array: no text, list or tuple."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int | float) and not isinstance(node.value, bool)
    if isinstance(node, ast.BinOp) and isinstance(node.op, NUMERIC):
        return not any(
            isinstance(one, ast.Constant | ast.JoinedStr) and not is_number(source, one)
            for one in (node.left, node.right)
        )
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        floats = [
            one
            for one in (node.left, node.right)
            if isinstance(one, ast.Constant) and isinstance(one.value, float)
        ]
        return bool(floats) or is_array(source, node)
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.USub)
    return is_array(source, node)


def names_read(node: ast.AST) -> set[str]:
    """Returns the names that an expression or a statement reads, also inside functions in it."""
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)}
