"""Every rewriting rule: its result on a small source, equal values, and the places that it leaves unchanged."""

import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from campaigns.edits.rewrites import RULES, Source, patched

sys.path.append(str(Path(__file__).parent))

import rewrite_examples
from rewrite_examples import HEAD, f
from rewrite_more_examples import MORE_EXAMPLES

EXAMPLES = {**rewrite_examples.EXAMPLES, **MORE_EXAMPLES}
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
def test_rewrites_compute_the_same(name):
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
def test_changeable_values_stay(name, text):
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
def test_names_that_others_use_are_kept(name, text, other):
    assert rewritten(name, text) and rewritten(name, text, ["import math\n"])
    assert rewritten(name, text, [other]) == []


def test_functions_declared_pure_may_move():
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
