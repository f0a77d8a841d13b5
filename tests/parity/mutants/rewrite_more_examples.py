"""Examples for rewriting rules, the second half."""

from rewrite_examples import HEAD, Example, f

__all__ = ["MORE_EXAMPLES"]

MORE_EXAMPLES = {
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
