"""Rules that rewrite a call: its arguments, its name, the code around it."""

import ast
import string

from campaigns.edits.rewrites.knowing import is_array, is_pure
from campaigns.edits.rewrites.rule import Rule, Sites
from campaigns.edits.rewrites.source import FUNCTIONS, Patch, Source

__all__ = ["RULES"]

AS_METHODS = ("sum", "mean", "max", "min", "prod", "reshape", "transpose", "squeeze", "cumsum")
ALIASES = {"gelu", "relu", "silu", "softmax", "log_softmax", "sigmoid", "one_hot", "tanh"}
SAME = ("jax.nn", "flax.nnx", "flax.linen")
"""Modules in which the functions of `ALIASES` are identical objects."""
TREES = {"map": "tree_map", "leaves": "tree_leaves", "structure": "tree_structure"}


def _array_calls(source: Source, *, free_of_effects: bool = False):
    for node in source.nodes(ast.Call):
        known = isinstance(node.func, ast.Attribute) and source.dotted(node.func) and is_array(source, node)
        if known and source.computed(node) and (is_pure(source, node) or not free_of_effects):
            yield node


def _keywords(source: Source) -> Sites:
    for node in source.nodes(ast.Call):
        words = node.keywords
        if not source.computed(node) or len(words) < 2 or any(word.arg is None for word in words):
            continue
        if source.dotted(node.func) in ("dict", "collections.OrderedDict"):
            continue
        if sum(not is_pure(source, word.value) for word in words) <= 1:
            yield [
                source.replace(words[0], source.of(words[-1])),
                source.replace(words[-1], source.of(words[0])),
            ]


def _definition(source: Source, node: ast.Call) -> ast.FunctionDef | None:
    """Returns the undecorated module-level function that a call names if the file defines it once; None otherwise."""
    if not isinstance(node.func, ast.Name):
        return None
    name = node.func.id
    found = source.definitions.get(name, [])
    stored = any(not isinstance(one.ctx, ast.Load) for one in source.names[name])
    if len(found) != 1 or stored or name in source.parameters or name in source.imports:
        return None
    (one,) = found
    plain = isinstance(one, ast.FunctionDef) and not one.decorator_list and not one.args.posonlyargs
    return one if plain and not isinstance(source.parent(one), ast.ClassDef) and not one.args.vararg else None  # type: ignore[return-value, union-attr]


def _to_keywords(source: Source) -> Sites:
    for node in source.nodes(ast.Call):
        function = _definition(source, node) if source.computed(node) and node.args else None
        if not function or any(isinstance(one, ast.Starred) for one in node.args):
            continue
        last = node.args[-1]
        if len(node.args) <= len(function.args.args):
            yield [source.replace(last, f"{function.args.args[len(node.args) - 1].arg}={source.of(last)}")]


def _to_positions(source: Source) -> Sites:
    for node in source.nodes(ast.Call):
        function = _definition(source, node) if source.computed(node) and node.keywords else None
        if not function or any(isinstance(one, ast.Starred) for one in node.args):
            continue
        names = [one.arg for one in function.args.args]
        first = node.keywords[0]
        if len(node.args) < len(names) and first.arg == names[len(node.args)]:
            yield [source.replace(first, source.of(first.value))]


def _as_methods(source: Source) -> Sites:
    for node in _array_calls(source):
        module, _, name = source.dotted(node.func).rpartition(".")
        if (
            module != "jax.numpy"
            or name not in AS_METHODS
            or not node.args
            or not is_array(source, node.args[0])
        ):
            continue
        start, (_, end) = source.span(node.args[0])[1], source.span(node)
        rest = source.data[start : end - 1].decode().lstrip().removeprefix(",").strip()
        yield [source.replace(node, f"({source.of(node.args[0])}).{name}({rest})")]


def _aliases(source: Source) -> Sites:
    for node in source.nodes(ast.Attribute):
        module, _, name = source.dotted(node).rpartition(".")
        if module not in SAME or name not in ALIASES or not source.computed(node):
            continue
        for other in SAME:
            if other != module and (written := source.name_of(other)):
                yield [source.replace(node, f"{written}.{name}")]
        if module == "jax.nn" and name == "silu":
            yield [source.replace(node, f"{source.of(node.value)}.swish")]


def _trees(source: Source) -> Sites:
    for node in source.nodes(ast.Attribute):
        module, _, name = source.dotted(node).rpartition(".")
        if (
            module == "jax.tree"
            and name in TREES
            and source.computed(node)
            and source.of(node) == f"jax.tree.{name}"
        ):
            yield [source.replace(node, f"jax.tree_util.{TREES[name]}")]


def _closed(node: ast.AST) -> bool:
    """True if an expression can move into a separate function: it binds nothing and needs no enclosing class."""
    kinds = (ast.NamedExpr, ast.Yield, ast.YieldFrom, ast.Await)
    return not any(
        isinstance(one, kinds) or (isinstance(one, ast.Name) and one.id in ("super", "__class__"))
        for one in ast.walk(node)
    )


def _inverted(source: Source) -> Sites:
    for node in source.nodes(ast.Call):
        if source.dotted(node.func) != "jax.numpy.where" or len(node.args) != 3 or not source.computed(node):
            continue
        test, yes, no = node.args
        array = isinstance(test, ast.Compare) and any(
            is_array(source, one) for one in (test.left, *test.comparators)
        )
        if array and len(test.ops) == 1 and all(is_pure(source, one) for one in node.args):  # type: ignore[union-attr]
            yield [
                source.replace(test, f"~({source.of(test)})"),
                source.replace(yes, source.of(no)),
                source.replace(no, source.of(yes)),
            ]


def _letters(source: Source) -> Sites:
    for node in source.nodes(ast.Call):
        first = node.args[0] if node.args else None
        if source.dotted(node.func) != "jax.numpy.einsum" or not isinstance(first, ast.Constant):
            continue
        text = first.value
        used = sorted({one for one in str(text) if one.isalpha()})
        if isinstance(text, str) and source.of(first) == f'"{text}"' and used and source.computed(node):
            others = dict(zip(used, string.ascii_letters[-len(used) :], strict=True))
            renamed = "".join(others.get(one, one) for one in text)
            if renamed != text:
                yield [source.replace(first, f'"{renamed}"')]


def _lambdas(source: Source) -> Sites:
    for node in source.nodes(ast.Call):
        if (
            source.computed(node)
            and _closed(node)
            and not isinstance(source.parent(node), ast.Expr | ast.Call)
        ):
            yield [source.replace(node, f"(lambda: {source.of(node)})()")]


def _jitted(source: Source) -> Sites:
    for node in _array_calls(source, free_of_effects=True):
        if (
            _closed(node)
            and source.name_of("jax") == "jax"
            and not any(isinstance(one, ast.Lambda) for one in source.around(node))
        ):
            yield [source.replace(node, f"jax.jit(lambda: {source.of(node)})()")]


def _asarray(source: Source) -> Sites:
    for node in _array_calls(source):
        if jnp := source.name_of("jax.numpy"):
            yield [source.replace(node, f"{jnp}.asarray({source.of(node)})")]


def _twice(source: Source) -> Sites:
    for node in _array_calls(source):
        yield [source.replace(node, f"{source.of(node)}.T.T")]


def _squeezed(source: Source) -> Sites:
    for node in _array_calls(source):
        if jnp := source.name_of("jax.numpy"):
            yield [source.replace(node, f"{jnp}.squeeze({jnp}.expand_dims({source.of(node)}, 0), 0)")]


def _tagged(source: Source) -> Sites:
    start = source.imports_start
    if source.name_of("jax") != "jax" or "checkpoint" in source.words or start is None:
        return
    for node in _array_calls(source):
        text = f'jax.ad_checkpoint.checkpoint_name({source.of(node)}, "a_name")'
        yield [Patch(start, start, "import jax.ad_checkpoint\n"), source.replace(node, text)]


def _scoped(source: Source) -> Sites:
    for node in source.nodes(ast.Return):
        if (
            source.name_of("jax") == "jax"
            and source.alone(node)
            and node.value is not None
            and "\n" not in source.of(node)
        ):
            indent = source.indent(node)
            yield [source.replace(node, f'with jax.named_scope("a_scope"):\n{indent}    {source.of(node)}')]


def _expanded(source: Source) -> Sites:
    for node in source.nodes(ast.Call):
        name = source.dotted(node.func)
        if (
            name in ("jax.value_and_grad", "jax.grad", "jax.tree.map", "jax.checkpoint")
            and node.args
            and source.computed(node)
        ):
            first = node.args[0]
            if isinstance(first, ast.Name) and not any(
                word.arg in ("static_argnums", "static_argnames") for word in node.keywords
            ):
                yield [source.replace(first, f"lambda *args, **kwargs: {first.id}(*args, **kwargs)")]


def _as_lambdas(source: Source) -> Sites:
    for node in source.nodes(ast.FunctionDef):
        only, free = node.body[-1], source.function(node) is not None
        plain = len(node.body) == 1 and isinstance(only, ast.Return) and only.value is not None
        named = any(isinstance(one, ast.Name) and one.id == node.name for one in ast.walk(only))
        kept = isinstance(source.parent(node), (*FUNCTIONS, ast.If)) and not node.decorator_list
        if (
            free
            and plain
            and kept
            and not named
            and _closed(only)
            and source.alone(only)
            and "\n" not in source.of(only)
        ):
            assert isinstance(only, ast.Return) and only.value is not None
            head = f"lambda {_bare(node.args)}".rstrip()
            text = f"{node.name} = {head}: {source.of(only.value)}"
            yield [Patch(source.span(node)[0], source.span(node)[1], text)]


def _bare(arguments: ast.arguments) -> str:
    """Returns parameters without annotations, which a lambda cannot have."""
    copy = ast.parse(f"def f({ast.unparse(arguments)}): 0")
    for one in ast.walk(copy):
        if isinstance(one, ast.arg):
            one.annotation = None
    (function,) = copy.body
    assert isinstance(function, ast.FunctionDef)
    return ast.unparse(function.args)


def _delegated(source: Source) -> Sites:
    for node in source.nodes(ast.FunctionDef):
        held, args = source.parent(node), node.args
        method, compact = isinstance(held, ast.ClassDef), [source.dotted(one) for one in node.decorator_list]
        if (
            not (method or held is source.tree)
            or not set(compact) <= {"flax.linen.compact"}
            or not _closed(node)
        ):
            continue
        if (
            (node.name.startswith("__") and node.name != "__call__")
            or args.posonlyargs
            or args.vararg
            or args.kwarg
        ):
            continue
        if node.name == "setup" or any(isinstance(one, ast.Yield | ast.YieldFrom) for one in ast.walk(node)):
            continue
        new, indent = source.fresh(f"_{node.name.strip('_')}_itself"), source.indent(node)
        start, head_end = source.span(node)[0], source.line_start(node.body[0])
        if node.body[0].lineno == node.lineno or not source.alone(node.body[0]):
            continue
        positions = [one.arg for one in args.args][1 if method else 0 :]
        words = [f"{one.arg}={one.arg}" for one in args.kwonlyargs]
        target = f"self.{new}" if method else new
        if method and (not args.args or args.args[0].arg != "self"):
            continue
        name = source.find(node.name, start)
        signature = source.data[name + len(node.name) : head_end].decode().rstrip()
        wrapper = (
            f"def {node.name}{signature}\n{indent}    return {target}({', '.join([*positions, *words])})\n\n"
        )
        begin = source.line_start(node)
        yield [Patch(begin, begin, f"{indent}{wrapper}"), Patch(name, name + len(node.name), new)]


RULES = (
    Rule(
        name="keywords-reordered",
        harmless="at most one of the values has an effect; not of a dict",
        sites=_keywords,
    ),
    Rule(name="argument-by-keyword", harmless="of a plain function of the same file", sites=_to_keywords),
    Rule(name="argument-by-position", harmless="of a plain function of the same file", sites=_to_positions),
    Rule(name="method-for-function", harmless="the first argument is an array", sites=_as_methods),
    Rule(name="alias-spelled", harmless="both names stand for one function of jax.nn", sites=_aliases),
    Rule(name="tree-spelled", harmless="both names stand for one function of jax.tree", sites=_trees),
    Rule(
        name="where-inverted", harmless="the test compares arrays, and nothing has an effect", sites=_inverted
    ),
    Rule(name="letters-renamed", harmless="of an einsum, in the same order", sites=_letters),
    Rule(
        name="wrapped-in-lambda",
        harmless="called at once; it sets no name, and needs no class around it",
        sites=_lambdas,
    ),
    Rule(
        name="jit-around",
        harmless="an array computed without effects; of what is traced, bits stay",
        sites=_jitted,
    ),
    Rule(name="asarray-around", harmless="of an array", sites=_asarray),
    Rule(name="transposed-twice", harmless="of an array", sites=_twice),
    Rule(name="expanded-and-squeezed", harmless="of an array", sites=_squeezed),
    Rule(
        name="checkpoint-name-added",
        harmless="of an array, where no policy of the file asks for names",
        sites=_tagged,
    ),
    Rule(name="scope-named", harmless="always: a scope is metadata", sites=_scoped),
    Rule(
        name="function-expanded", harmless="handed to a transform that asks for no signature", sites=_expanded
    ),
    Rule(
        name="lambda-for-function",
        harmless="an inner function that only returns, and does not name itself",
        sites=_as_lambdas,
    ),
    Rule(
        name="body-delegated",
        harmless="a function or method without decorators but compact, whose parameters have names",
        sites=_delegated,
    ),
)
