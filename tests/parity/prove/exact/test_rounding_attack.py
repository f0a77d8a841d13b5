"""Random layers against scans, with planted mistakes; careless edits of the arithmetic must be detected."""

import pathlib
import sys
import types

import jax
import pytest

from parity.prove.exact import rounded

sys.path.append(str(pathlib.Path(__file__).parent))

from rounding_attack import examine  # pyright: ignore[reportMissingImports]
from rounding_samples import MOVED, NEAR, layers_against_scan, moved  # pyright: ignore[reportMissingImports]


@pytest.fixture(autouse=True)
def as_people_write():
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        yield


@pytest.mark.slow
@pytest.mark.parametrize("seed", [*range(24), 1851])
def test_a_random_program_is_shown_or_has_a_mistake(seed):
    shown, mistake, steps, differ = examine(seed)
    assert not differ, (mistake, steps)
    assert shown or mistake != "none", steps


@pytest.mark.long
def test_both_kinds_occur():
    """Else the attack could not fail."""
    found = [examine(seed)[:2] for seed in range(24)]
    assert {shown for shown, _ in found} == {True, False}
    assert len({mistake for _, mistake in found}) > 3


CARELESS = (
    ("    return element\n", '    return element.replace("b", "")\n'),
    ("if name in COMMUTING:", "if len(cells) == 2:"),
    ('return self.terms.make("map", (name, detail)', 'return self.terms.make("map", (name, None)'),
    ("else float(value).hex()", "else float(value // 1).hex()"),
    ("(key, slot, shape)", "(slot, shape)"),
    ('return node.kind == "float" and node.params in ZEROS', 'return node.kind == "float"'),
    ("more = step.content", "more = ()"),
    ("detail = attributes(step) or None", "detail = None"),
    ("key = (more, ", "key = ("),
    ("tuple((name, sizes[name]) for name in order)", "()"),
    ('roles, ("by role", more))', 'roles, ("by role", 0))'),
)


@pytest.mark.long
@pytest.mark.parametrize(("line", "careless"), CARELESS, ids=lambda value: str(value)[:40])
def test_a_careless_line_is_noticed(line, careless):
    source = pathlib.Path(rounded.__file__).read_text()
    assert line in source
    broken = types.ModuleType(rounded.__name__)
    broken.__dict__["__file__"] = rounded.__file__
    exec(compile(source.replace(line, careless), rounded.__file__, "exec"), broken.__dict__)
    arithmetic = broken.ROUNDED  # pyright: ignore[reportAttributeAccessIssue]
    assert any(_wrong(arithmetic)), "no near miss notices this"


def _wrong(arithmetic):
    """Yields whether each near miss is shown; False also if its claim raises."""
    for left, right in NEAR.values():
        yield _shown(lambda left=left, right=right: layers_against_scan(left, right, arithmetic=arithmetic))
    for case in MOVED.values():
        yield _shown(lambda case=case: moved(case, case.near, arithmetic=arithmetic))


def _shown(claim):
    try:
        return claim().proved
    except (AssertionError, KeyError, ValueError, TypeError, AttributeError):
        return False
