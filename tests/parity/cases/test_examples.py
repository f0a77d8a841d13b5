"""Checks of documented adapters that need no import of the adapted library."""

import ast
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"
LIMITS = {"maxtext_twins.py": 190, "foreign_mlp.py": 40, "plain_comparison.py": 90}
ADAPTED = {
    "maxtext_twins.py": {"maxtext"},
    "foreign_mlp.py": set(),
    "plain_comparison.py": {"models_linen", "models_nnx"},
}
ALLOWED = {"dataclasses", "functools", "itertools", "os", "types", "jax", "numpy", "flax", "parity"}


def imported(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{name.name}" for name in node.names)


def private(name):
    return name.startswith("_") and not name.startswith("__")


def test_every_example_is_held_to_something():
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(LIMITS) == set(ADAPTED)


@pytest.mark.parametrize("name", LIMITS)
def test_an_example_is_short_compiles_and_stays_on_public_ground(name):
    text = (EXAMPLES / name).read_text()
    assert len(text.splitlines()) <= LIMITS[name]
    tree = ast.parse(text)
    compile(tree, name, "exec")
    modules = set(imported(tree))
    assert {module.split(".")[0] for module in modules} <= ALLOWED | ADAPTED[name]
    assert not [module for module in modules if any(map(private, module.split(".")))]
    assert not [
        node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and private(node.attr)
    ]
