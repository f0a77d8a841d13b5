"""Examples for rewriting rules, the first half: the class, and those of names, calls and layout."""

import dataclasses

__all__ = ["EXAMPLES", "HEAD", "Example", "f"]

HEAD = "import jax\nimport jax.numpy as jnp\nfrom flax import nnx\n\nx = jnp.arange(6.0).reshape(2, 3)\n\n\n"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Example:
    """A source whose ``f()`` returns a value, a text that its rewritten form has, and sources that remain unchanged."""

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
}
