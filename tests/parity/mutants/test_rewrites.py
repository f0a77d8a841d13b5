"""Every rule of rewriting: what it makes of a small source, that this computes the same, and where it keeps away."""

import dataclasses

import jax
import numpy as np
import pytest

from parity.mutants.rewrites import RULES, Source, patched

HEAD = "import jax\nimport jax.numpy as jnp\nfrom flax import nnx\n\nx = jnp.arange(6.0).reshape(2, 3)\n\n\n"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Example:
    """A source whose ``f()`` gives something, a text that it has once rewritten, and sources that stay as they are."""

    text: str
    has: str
    near: tuple[str, ...]


def f(*lines: str) -> str:
    return "\n".join(["def f():", *(f"    {line}" for line in lines)]) + "\n"


EXAMPLES = {
    "docstring-changed": Example(
        text='def f():\n    """Says."""\n    return 1\n',
        has='"""In other words. Says."""',
        near=("def f(): return 1\n",),
    ),
    "lines-moved": Example(text=f("return 1"), has="# Three lines", near=("def f(): return 1\n", "x = 1\n")),
    "import-added": Example(
        text="import math\n\n\ndef f():\n    return math.pi\n",
        has="import colorsys  # noqa: F401\nimport math",
        near=("def f():\n    return 1\n", "from __future__ import annotations\n", "import colorsys\n"),
    ),
    "local-added": Example(text=f("return 1"), has="unused = ()", near=("def f(): return 1\n",)),
    "methods-swapped": Example(
        text="class A:\n    def a(self):\n        return 1\n\n    def b(self):\n        return 2\n\n\n"
        "def f():\n    return A().a() - A().b()\n",
        has="def b(self):\n        return 2\n\n    def a(self):",
        near=(
            "class A:\n    def a(self):\n        return 1\n\n    @a.setter\n    def b(self):\n        return 2\n",
            "class A:\n    def a(self):\n        return 1\n\n    def a(self):\n        return 2\n",
            "class A:\n    def a(self):\n        return 1\n\n    # of b\n    def b(self):\n        return 2\n",
        ),
    ),
    "functions-swapped": Example(
        text="def f():\n    return g()\n\n\ndef g():\n    return 2\n",
        has="def g():\n    return 2\n\n\ndef f():",
        near=(
            "def f():\n    return 1\n\n\ndef g(x=f()):\n    return x\n",
            "def f():\n    return 1\n\n\nx = f()\n",
        ),
    ),
    "submodules-swapped": Example(
        text="class A:\n    def setup(self):\n        self.a = list('ab')\n        self.b = list('cd')\n\n\n"
        "def f():\n    it = A()\n    it.setup()\n    return it.a, it.b\n",
        has="self.b = list('cd')\n        self.a = list('ab')",
        near=(
            "class A:\n    def __init__(self, rngs):\n        self.a = B(rngs=rngs)\n        self.b = B(rngs=rngs)\n",
            "class A:\n    def __init__(self, rngs):\n        self.a = B()\n        self.b = B()\n",
            "class A:\n    def setup(self):\n        self.a = list('ab')\n        self.b = list(self.a)\n",
            "class A:\n    def setup(self):\n        self.a = list('ab')\n        # b\n        self.b = list('b')\n",
            "class A:\n    def __call__(self):\n        self.a = list('ab')\n        self.b = list('b')\n",
        ),
    ),
    "annotation-dropped": Example(
        text="def f(x: int = 2) -> int:\n    return x\n",
        has="def f(x: int = 2):",
        near=("@checked\ndef f(x: int) -> int:\n    return x\n", "def f(x):\n    y: int = x\n    return y\n"),
    ),
    "local-renamed": Example(
        text=f("y = 2", "return [y + z for z in (1, 2)]"),
        has="y_new = 2\n    return [y_new + z",
        near=(
            f("y = 2", "return y + sum([y for y in (1, 2)])"),
            f("y = 2", "return f'{y}'"),
            "def f(y):\n    y = 2 * y\n    return y\n",
            "def f():\n    global y\n    y = 2\n    return y\n",
            f("y = 2", "def g(y):", "    return y", "return g(y)"),
            f("y = 2", "return locals()"),
            f("import y", "y = y.z", "return y"),
        ),
    ),
    "loop-name-renamed": Example(
        text=f("return [y + 1 for y in (1, 2)]"),
        has="[y_of + 1 for y_of in (1, 2)]",
        near=(f("return [f'{y}' for y in (1, 2)]"), f("return [[y for y in y] for y in ((1,), (2,))]")),
    ),
    "parameter-renamed": Example(
        text=HEAD + f("return jax.tree.map(lambda y: y + 1, [1, 2])"),
        has="lambda y_of: y_of + 1",
        near=(
            HEAD + f("return g(lambda y: y + 1)"),
            HEAD + f("return jax.tree.map(lambda y: [y for y in (1,)], 1)"),
        ),
    ),
    "inner-function-renamed": Example(
        text=f("def g():", "    return 2", "return g()"),
        has="def g_inside():\n        return 2\n    return g_inside()",
        near=(
            f("def g():", "    return 2", "g = 3", "return g"),
            f("def g():", "    return 2", "def g():", "    return 3", "return g()"),
            f("def g():", "    return 2", "return (lambda g: g)(g)"),
        ),
    ),
    "function-renamed": Example(
        text="def g():\n    return 2\n\n\nclass A:\n    x = 1\n\n    def h(self):\n        return g()\n\n\n"
        "def f():\n    return A().h()\n\n\nNAMES = ['f']\n",
        has="def g_otherwise():",
        near=(
            "def f():\n    return 2\n\n\n__all__ = ['f']\n",
            "def f():\n    return 2\n\n\ndef g(f):\n    return f\n\n\n__all__ = ['g']\n",
        ),
    ),
    "constant-renamed": Example(
        text="TWO = 2\n\n\ndef f():\n    return TWO\n",
        has="THE_TWO = 2\n\n\ndef f():\n    return THE_TWO",
        near=(
            "TWO = 2\n__all__ = ['TWO']\n",
            "two = 2\n",
            "TWO = 2\n\n\ndef f():\n    TWO = 3\n    return TWO\n",
        ),
    ),
    "private-method-renamed": Example(
        text="class A:\n    def _a(self):\n        return 1\n\n    def b(self):\n        return self._a()\n\n\n"
        "def f():\n    return A().b()\n",
        has="def _a_within(self):\n        return 1\n\n    def b(self):\n        return self._a_within()",
        near=(
            "class A:\n    def a(self):\n        return 1\n",
            "class A:\n    def _a(self):\n        return 1\n\n\ngetattr(A(), '_a')()\n",
            "class A:\n    def __init__(self):\n        self._a = 1\n\n    def _a(self):\n        return 1\n",
        ),
    ),
    "import-renamed": Example(
        text="import math\n\n\ndef f():\n    return math.pi\n",
        has="import math as its_math\n\n\ndef f():\n    return its_math.pi",
        near=(
            "import math\n\n\ndef f(math):\n    return math.pi\n",
            "import math\n\n__all__ = ['math']\nx = math.pi\n",
            "import os.path\n\nx = os.path.sep\n",
        ),
    ),
    "result-named": Example(
        text=f("return 1 + 1"),
        has="result = 1 + 1\n    return result",
        near=(f("x = 1", "return x"), f("return")),
    ),
    "argument-named": Example(
        text=f("return len(list('abc'))"),
        has="inner = list('abc')\n    return len(inner)",
        near=(f("return g()(list('abc'))"), f("return len('abc')"), f("return len(*list('abc'))")),
    ),
    "local-inlined": Example(
        text=f("y = list('abc')", "return len(y)"),
        has="def f():\n    return len(list('abc'))",
        near=(
            f("y = g()", "return h() + y"),
            f("y = list('abc')", "return [y for _ in (1, 2)]"),
            f("y = list('abc')", "return y + y"),
            f("y = list('abc')", "g()", "return y"),
            f("y = list('abc')", "return g() if x else y"),
            f("y = g()", "return h()(y)"),
        ),
    ),
    "statements-swapped": Example(
        text=f("y = [1]", "z = len('abc')", "return y, z"),
        has="z = len('abc')\n    y = [1]",
        near=(
            f("y = 1", "z = y", "return y, z"),
            f("y = z", "z = 2", "return y, z"),
            f("y = 1", "y = 2", "return y"),
            f("y = g()", "z = h()", "return y, z"),
            f("y = g()", "z = x.y", "return y, z"),
            f("y = 1", "# of z", "z = 2", "return y, z"),
            f("y = 1", "z = 2", "def g():", "    return y", "return g, z"),
        ),
    ),
    "assignment-split": Example(
        text=f("y, z = 1, 2", "return y, z"),
        has="y = 1\n    z = 2",
        near=(
            f("y, z = z, y", "return y, z"),
            f("x.y, z = 1, 2", "return z"),
            f("y, *z = 1, 2", "return z"),
            f("y, z = 1, g()", "def g():", "    return y", "return z"),
        ),
    ),
    "assignments-merged": Example(
        text=f("y = 1", "z = 2", "return y, z"),
        has="y, z = 1, 2",
        near=(
            f("y = 1", "z = y", "return z"),
            f("y = 1", "y = 2", "return y"),
            f("y = 1", "", "# why", "z = 2", "return z"),
        ),
    ),
    "branches-inverted": Example(
        text=f("if len('abc') == 3:", "    y = 1", "else:", "    y = 2", "return y"),
        has="if not (len('abc') == 3):\n        y = 2\n    else:\n        y = 1\n",
        near=(
            f("if x:", "    y = 1", "return y"),
            f("if x:", "    y = 1", "elif z:", "    y = 2", "else:", "    y = 3", "return y"),
            f("if x:", "    y = 1", "elif z:", "    y = 2", "return y"),
        ),
    ),
    "rest-in-else": Example(
        text=f("if len('abc') == 3:", "    return 1", "y = 2", "return y"),
        has="    else:\n        y = 2\n        return y\n",
        near=(f("if x:", "    y = 1", "return 2"), f("if x:", "    return 1", "y = 2")),
    ),
    "conditional-unfolded": Example(
        text=f("return 1 if len('abc') == 3 else 2"),
        has="if len('abc') == 3:\n        return 1\n    else:\n        return 2",
        near=(f("return [1 if x else 2]"), f("x.y = 1 if x else 2", "return x")),
    ),
    "comprehension-unrolled": Example(
        text=f("y = {z: 2 * z for z in (1, 2)}", "return y"),
        has="y = {}\n    for z in ((1, 2)):\n        y[z] = 2 * z",
        near=(
            f("z = 3", "y = [z for z in (1, 2)]", "return y, z"),
            f("y = [1]", "y = [y for z in (1, 2)]", "return y"),
            f("y = [z for z in (1, 2) if z]", "return y"),
            f("y = [lambda: z for z in (1, 2)]", "return y"),
        ),
    ),
    "operands-swapped": Example(
        text=HEAD + f("return 0.1 + jnp.exp(x)"),
        has="jnp.exp(x) + 0.1",
        near=(
            f("return y + z"),
            f("return y + (1,)"),
            f("return 'a' * 2"),
            f("return g() * h()"),
            f("return y.z * g()"),
            f("return y - 1"),
            "def f(y=2 * 3):\n    return y\n",
        ),
    ),
    "conditional-inverted": Example(
        text=f("return 1 if len('abc') == 3 else 2"),
        has="(2 if not (len('abc') == 3) else 1)",
        near=("x = 1 if y else 2\n", f("return f'{1 if x else 2}'")),
    ),
    "comparison-turned": Example(
        text=f("return len('abc') < 4"),
        has="(4 > len('abc'))",
        near=(f("return g() < h()"), f("return 1 < x < 4"), f("return x in y")),
    ),
    "negation-spelled": Example(
        text=f("return len is not list"),
        has="(not len is list)",
        near=(f("return x == y"), f("return x < y")),
    ),
    "truth-by-de-morgan": Example(
        text=f("return len is None or 1 in (1, 2)"),
        has="(not ((not (len is None)) and (not (1 in (1, 2)))))",
        near=(f("return x or y is None"), f("return x == 1 and y is None")),
    ),
    "constant-computed": Example(
        text=f("return 7 * 0.25"),
        has="(6 + 1) * 0.25",
        near=(f("return 0, 1, True"), f("return f'{3}'"), "x = 3\n", "def f(x=3):\n    pass\n"),
    ),
    "square-spelled": Example(
        text=HEAD + f("return jnp.exp(x) ** 2"),
        has="(jnp.exp(x) * jnp.exp(x))",
        near=(
            HEAD + f("return x ** 2"),
            HEAD + f("return jnp.exp(x) ** 3"),
            HEAD + f("return jnp.exp(g(x)) ** 2"),
        ),
    ),
    "half-spelled": Example(
        text=HEAD + f("return x / 8"),
        has="(x * 0.125)",
        near=(f("return x / 3"), f("return x // 2"), f("return 2 / x")),
    ),
    "difference-spelled": Example(
        text=HEAD + f("return 0.1 - jnp.exp(x)"),
        has="(0.1 + (-jnp.exp(x)))",
        near=(f("return y - z"), f("return {1} - {2}")),
    ),
    "tuple-for-list": Example(
        text=f("return [y for y in (1, 2)]"),
        has="[y for y in [1, 2]]",
        near=(f("y = (1, 2)", "return y"), f("return tuple((1, 2))"), f("for x, y in z:", "    return x")),
    ),
    "generator-as-list": Example(
        text=f("return tuple(y for y in (1, 2))"),
        has="tuple([y for y in (1, 2)])",
        near=(f("return any(y for y in z)"),),
    ),
    "keywords-reordered": Example(
        text=HEAD + f("return jnp.sum(x, axis=0, keepdims=True)"),
        has="jnp.sum(x, keepdims=True, axis=0)",
        near=(
            f("return g(a=h(), b=k())"),
            f("return dict(a=1, b=2)"),
            f("return g(a=1, **x)"),
            f("return g(a=1)"),
        ),
    ),
    "argument-by-keyword": Example(
        text="def g(a, b):\n    return a - b\n\n\ndef f():\n    return g(1, 2)\n",
        has="g(1, b=2)",
        near=(
            f("return len('abc')"),
            "@jax.jit\ndef g(a):\n    return a\n\n\ndef f():\n    return g(1)\n",
            "def g(*a):\n    return a\n\n\ndef f():\n    return g(1)\n",
            "def g(a):\n    return a\n\n\ndef f(g):\n    return g(1)\n",
            "def g(a):\n    return a\n\n\ndef f(x):\n    return g(*x)\n",
            "def g(a):\n    return a\n\n\ng = jax.jit(g)\n\n\ndef f(x):\n    return g(x)\n",
        ),
    ),
    "argument-by-position": Example(
        text="def g(a, b):\n    return a - b\n\n\ndef f():\n    return g(1, b=2)\n",
        has="g(1, 2)",
        near=(
            "def g(a, *, b):\n    return a\n\n\ndef f():\n    return g(1, b=2)\n",
            "def g(a, b):\n    return a\n\n\ndef f():\n    return g(b=1, a=2)\n",
        ),
    ),
    "method-for-function": Example(
        text=HEAD + f("return jnp.sum(jnp.exp(x), axis=0)"),
        has="(jnp.exp(x)).sum(axis=0)",
        near=(HEAD + f("return jnp.sum(x)"), HEAD + f("return jnp.logaddexp(jnp.exp(x), 1)")),
    ),
    "alias-spelled": Example(
        text=HEAD + f("return jax.nn.gelu(x)"),
        has="nnx.gelu(x)",
        near=(HEAD + f("return jax.nn.glu(x)"), HEAD + f("return jnp.tanh(x)")),
    ),
    "tree-spelled": Example(
        text=HEAD + f("return jax.tree.map(abs, [1, -2])"),
        has="jax.tree_util.tree_map(abs, [1, -2])",
        near=(
            HEAD + f("return jax.tree_util.tree_map(abs, 1)"),
            "import jax as j\n" + f("return j.tree.map(abs, 1)"),
        ),
    ),
    "where-inverted": Example(
        text=HEAD + f("return jnp.where(jnp.exp(x) > 2, x, 1.0)"),
        has="jnp.where(~(jnp.exp(x) > 2), 1.0, x)",
        near=(
            HEAD + f("return jnp.where(x, 1, 2)"),
            HEAD + f("return jnp.where(x > 2, 1, 2)"),
            HEAD + f("return jnp.where(jnp.exp(x) > g(), 1, 2)"),
        ),
    ),
    "letters-renamed": Example(
        text=HEAD + f('return jnp.einsum("bq,kq->bk", x, x)'),
        has='jnp.einsum("XZ,YZ->XY", x, x)',
        near=(HEAD + f('return g("bq,kq->bk", x, x)'), HEAD + f('return jnp.einsum("XZ,YZ->XY", x, x)')),
    ),
    "wrapped-in-lambda": Example(
        text=f("return len('abc') + 1"),
        has="(lambda: len('abc'))() + 1",
        near=(
            "class A(B):\n    def f(self):\n        return 1 + super().f()\n",
            f("print(1)"),
            f("return g(y := 2)"),
        ),
    ),
    "jit-around": Example(
        text=HEAD + "def g(x):\n    return jnp.exp(x)\n\n\n" + f("return jax.jit(g)(x)"),
        has="jax.jit(lambda: jnp.exp(x))()",
        near=(HEAD + f("return jnp.exp(g(x))"), HEAD + f("return jnp.shape(x)"), HEAD + f("return g(x)")),
    ),
    "asarray-around": Example(
        text=HEAD + f("return jnp.exp(x)"),
        has="jnp.asarray(jnp.exp(x))",
        near=(HEAD + f("return jnp.shape(x)"),),
    ),
    "transposed-twice": Example(
        text=HEAD + f("return jnp.exp(x)"),
        has="jnp.exp(x).T.T",
        near=(HEAD + f("return jnp.shape(x)"), f("return np.exp(x)")),
    ),
    "expanded-and-squeezed": Example(
        text=HEAD + f("return jnp.exp(x)"),
        has="jnp.squeeze(jnp.expand_dims(jnp.exp(x), 0), 0)",
        near=(HEAD + f("return jnp.shape(x)"),),
    ),
    "checkpoint-name-added": Example(
        text=HEAD + f("return jnp.exp(x)"),
        has='jax.ad_checkpoint.checkpoint_name(jnp.exp(x), "a_name")',
        near=(HEAD + f("return jax.checkpoint(g)(jnp.exp(x))"),),
    ),
    "scope-named": Example(
        text=HEAD + f("return jnp.exp(x)"),
        has='with jax.named_scope("a_scope"):\n        return jnp.exp(x)',
        near=(f("return 1"), HEAD + f("return")),
    ),
    "function-expanded": Example(
        text=HEAD + f("def g(y):", "    return y ** 2", "return jax.grad(g)(2.0)"),
        has="jax.grad(lambda *args, **kwargs: g(*args, **kwargs))(2.0)",
        near=(
            HEAD + f("return jax.jit(g)(2.0)"),
            HEAD + f("return jax.checkpoint(g, static_argnums=(0,))(2.0)"),
        ),
    ),
    "lambda-for-function": Example(
        text=f("def g(y: int, z=2):", "    return y * z", "return g(3)"),
        has="g = lambda y, z=2: y * z",
        near=(
            "def f(y):\n    return y\n",
            f("def g(y):", "    return g(y)", "return g"),
            f("@jax.jit", "def g(y):", "    return y", "return g"),
            f("def g(y):", "    y = 2", "    return y", "return g"),
        ),
    ),
    "body-delegated": Example(
        text="class A:\n    def b(self, y, *, z=1):\n        return y - z\n\n\ndef f():\n    return A().b(3, z=2)\n",
        has="def b(self, y, *, z=1):\n        return self._b_itself(y, z=z)\n\n    def _b_itself(self, y, *, z=1):",
        near=(
            "@jax.jit\ndef f():\n    return 1\n",
            "def f(*y):\n    return y\n",
            "class A(B):\n    def b(self):\n        return super().b()\n",
            "class A:\n    def __init__(self):\n        self.x = 1\n",
            "class A:\n    def setup(self):\n        self.x = 1\n",
        ),
    ),
}
BY_NAME = {rule.name: rule for rule in RULES}


def rewritten(name, text, elsewhere=()):
    source = Source(text, "it.py", elsewhere)
    return [patched(source.data, patches) for patches in BY_NAME[name].sites(source)]


def computed(text):
    names = {}
    exec(compile(text, "it.py", "exec"), names)
    return names["f"]()


def test_every_rule_has_an_example():
    assert list(EXAMPLES) == list(BY_NAME)
    assert len(BY_NAME) == len(RULES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_what_is_written_otherwise_computes_the_same(name):
    example = EXAMPLES[name]
    before, texts = computed(example.text), rewritten(name, example.text)
    assert any(example.has in text for text in texts), texts
    for text in texts:
        after = computed(text)
        assert text != example.text and type(after) is type(before)
        jax.tree.map(np.testing.assert_array_equal, after, before)


@pytest.mark.parametrize(
    ("name", "text"), [(name, near) for name, one in EXAMPLES.items() for near in one.near]
)
def test_what_might_change_stays(name, text):
    assert rewritten(name, text) == []


def test_a_submodule_that_draws_by_its_path_may_be_made_later():
    text = (
        "class A:\n    def __init__(self, rngs):\n"
        "        self.a = B(rngs=rngs.at('a'))\n        self.b = B(rngs=rngs.at('b'))\n"
    )
    (found,) = rewritten("submodules-swapped", text)
    assert found.index("self.b") < found.index("self.a")
    assert rewritten("submodules-swapped", text.replace("at('b')", "fork('b')")) == []


@pytest.mark.parametrize(
    ("body", "known"),
    [
        (("y = jnp.exp(x)", "return 1 - y"), True),
        (("y = jnp.exp(x)", "y = g(y)", "return 1 - y"), False),
        (("if x:", "    y = jnp.exp(x)", "return 1 - y"), False),
        (("y, z = jnp.exp(x), 2", "return 1 - y"), False),
        (("for y in x:", "    y = jnp.exp(x)", "return 1 - y"), False),
        (("def g(y):", "    return 1 - y", "y = jnp.exp(x)", "return g"), False),
    ],
)
def test_a_name_is_an_array_if_it_is_set_once_to_one(body, known):
    assert bool(rewritten("difference-spelled", HEAD + f(*body))) == known


@pytest.mark.parametrize(
    ("name", "text", "other"),
    [
        ("function-renamed", "def g():\n    return 2\n", "from it import g\n"),
        ("function-renamed", "def g():\n    return 2\n", "import it\n\nit.g()\n"),
        ("constant-renamed", "PAIR = 2\n", "x = 'it:PAIR'\n"),
        ("private-method-renamed", "class A:\n    def _a(self):\n        return 1\n", "x._a()\n"),
        ("import-renamed", "import math\n\nx = math.pi\n", "from mine.it import math\n"),
    ],
)
def test_what_others_name_keeps_its_name(name, text, other):
    assert rewritten(name, text) and rewritten(name, text, ["import math\n"])
    assert rewritten(name, text, [other]) == []


def test_what_a_project_calls_pure_may_move():
    text = "from mine import ops\n\n\ndef f():\n    return ops.a() * ops.b()\n"
    swap = BY_NAME["operands-swapped"]
    assert list(swap.sites(Source(text))) == []
    source = Source(text, pure=("mine.ops.",))
    assert [patched(source.data, patches) for patches in swap.sites(source)] == [
        text.replace("ops.a() * ops.b()", "ops.b() * ops.a()")
    ]


def test_patches_count_bytes_not_letters():
    text = 'def f():\n    y = "größer"; return y + "ü", 7 * 0.5\n'
    assert [computed(one) for one in rewritten("constant-computed", text)] == [computed(text)] * 2
