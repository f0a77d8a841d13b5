"""A port as a copy of the original's files: the differing line is in the caller or the maker of equal code."""

import importlib.util

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from parity.ir.functions import (
    declaration,
    function_of,
    giving_call,
    listing,
    origin,
    passes_all_on,
    set_outside,
    together,
)
from parity.ir.given import written
from parity.ir.location import Frame, SourceLocation
from parity.prove import prove

NORMS = """
import jax.numpy as jnp

class Norm:
    def __init__(self, epsilon=1e-6):
        self.epsilon = epsilon

    def __call__(self, x):
        return x / jnp.sqrt(jnp.mean(x * x) + self.epsilon)

class Layer:
    def __init__(self):
        self.before = Norm(1e-5)
        self.after = Norm(1e-5)
        self.scale = 2.0

    def __call__(self, x):
        return self.within(jnp.sin(self.before(x)))

    def within(self, x):
        return self.after(self.scaled(x, 0.5))

    def scaled(self, x, factor):
        return x * factor * self.scale

class Wrapped(Layer):
    def __call__(self, x):
        return self.inner(x)

    def inner(self, x):
        return super().__call__(x)
"""


def sentence(folder, name="Layer", file="norms.py", **edits):
    """Returns the first difference between a file and its copy with edits, under a name."""
    calls = []
    for side, text in (("one", NORMS), ("other", NORMS)):
        for old, new in edits.values() if side == "other" else ():
            assert text.count(old) == 1
            text = text.replace(old, new)
        path = folder / side / (file if side == "other" else "norms.py")
        path.parent.mkdir()
        path.write_text(text)
        spec = importlib.util.spec_from_file_location(f"{side}_norms", path)
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        calls.append(getattr(module, "Layer" if side == "other" else name)())
    lowered = [jax.jit(call.__call__).lower(jnp.ones(3)) for call in calls]
    return prove(*lowered, arguments=[(0, 0)], results=[(0, 0)]).frontier[0].sentence()


@pytest.mark.parametrize("file", ["norms.py", "ported.py"])
@pytest.mark.parametrize("name", ["Layer", "Wrapped"])
@pytest.mark.parametrize(
    ("edit", "end"),
    [
        (("self.after = Norm(1e-5)", "self.after = Norm()"), ":14 in Layer.__init__"),
        (("self.before = Norm(1e-5)", "self.before = Norm()"), ":13 in Layer.__init__"),
        (("self.scaled(x, 0.5)", "self.scaled(x, 0.25)"), ":21 in Layer.within"),
    ],
)
def test_a_difference_in_equal_code_names_the_maker_or_the_caller(tmp_path, name, file, edit, end):
    found = sentence(tmp_path, name, file, edit=edit)
    assert found.endswith(f"{file}{end}"), found


def test_an_object_on_the_line_of_another_call_is_not_the_maker(tmp_path):
    edits = {
        "call": ("self.scaled(x, 0.5)", "self.scaled(x, 0.25)"),
        "other": ("= 2.0", "= 2.0; self.depth = 3"),
    }
    assert sentence(tmp_path, **edits).endswith("norms.py:21 in Layer.within")


@pytest.mark.parametrize(("base", "is_equal"), [("500.0", True), ("100.0", False)])
def test_equal_code_reads_equal_constants_of_its_file(tmp_path, base, is_equal):
    found = []
    for name, value in (("one.py", "500.0"), ("other.py", base)):
        (tmp_path / name).write_text(f"SIZE, BASE = 3, {value}\n\ndef code(x):\n    return x / BASE\n")
        found.append(function_of(Frame(str(tmp_path / name), 4, "code")))
    assert (found[0] == found[1]) is is_equal


@pytest.mark.parametrize(
    ("other", "is_equal"),
    [
        (
            'def ema(new, held, decay):\n    """An average."""\n    kept = decay * new\n    return kept + held\n',
            True,
        ),
        ("def ema(new, held, decay):\n    kept = decay * held\n    return kept + new\n", False),
        ("def ema(new, held, decay):\n    kept = decay * new\n    return kept - held\n", False),
        ("def ema(new, held, decay=2):\n    kept = decay * new\n    return kept + held\n", False),
        ("def ema(new, held, decay):\n    kept = scale * new\n    return kept + held\n", False),
    ],
    ids=["names", "order of parameters", "operation", "default", "global"],
)
def test_code_is_equal_under_other_names(tmp_path, other, is_equal):
    found = []
    for name, text in (
        ("one.py", "def blend(old, new, m):\n    a = m * old\n    return a + new\n"),
        ("other.py", other),
    ):
        (tmp_path / name).write_text(text)
        found.append(function_of(Frame(str(tmp_path / name), 2)))
    assert (found[0] == found[1]) is is_equal


def test_a_difference_in_code_that_differs_names_its_own_line(tmp_path):
    found = sentence(tmp_path, edit=("x * factor", "x + factor"))
    assert found.endswith("norms.py:24 in Layer.scaled"), found
    assert " made at " not in found and " called at " not in found


@pytest.mark.parametrize(
    ("old", "new", "outside"),
    [
        ("x * x", "x * x", "Norm.__call__"),  # nothing that runs differs
        (
            "self.scaled(x, 0.5))",
            "self.scaled(x, 0.5)) ",
            "Norm.__call__",
        ),  # the caller differs, its call does not
        ("self.scaled(x, 0.5))", "self.scaled(x, 2.0))", ""),
        ("self.epsilon)", "2)", ""),
    ],
)
def test_equal_code_below_equal_calls_does_what_others_set(tmp_path, old, new, outside):
    stacks = []
    for side, text in (("one", NORMS), ("other", NORMS.replace(old, new))):
        (tmp_path / side).mkdir()
        path = tmp_path / side / "norms.py"
        path.write_text(text)
        stacks.append([Frame(str(path), 9, "Norm.__call__"), Frame(str(path), 21, "Layer.within")])
    assert set_outside(*stacks) == outside


def test_equal_code_below_calls_that_do_not_correspond_does_what_others_set(tmp_path):
    path = tmp_path / "norms.py"
    path.write_text(NORMS)
    below = Frame(str(path), 9, "Norm.__call__")
    callers = Frame(str(path), 21, "Layer.within"), Frame(str(path), 18, "Layer.__call__")
    assert set_outside(*([below, caller] for caller in callers)) == "Norm.__call__"


PASSED = """
BASE = 5e5

class Norm:
    def __init__(self, epsilon=1e-6):
        self.epsilon = epsilon

    def __call__(self, x):
        return x / (x + self.epsilon)

def rotated(x, base):
    return 0.25 * base ** x

class Layer:
    def __init__(self):
        self.norms = [Norm(3e-3), Norm(2e-5), Norm(2e-5)]
        self.first = Norm(1e-4)

    def __call__(self, x):
        x = self.first(x)
        return rotated(
            x, 1e4
        ) + rotated(x, 7)

    def loss(self, x):
        return x.mean() + 3e-6

class Config:
    base: float = 1.0

def started():
    return Config(base=3e4), Config(base=4e4), Config(rate=4e4), Other(base=6e4), Config(base=4e4)

"""


@pytest.mark.parametrize(
    ("number", "stack", "line"),
    [
        (1e4, [("rotated", 12), ("Layer.__call__", 21)], 22),  # an argument of the call
        (1e-6, [("Norm.__call__", 9), ("Layer.__call__", 20)], 5),  # a default of the class
        (1e-4, [("Norm.__call__", 9), ("Layer.__call__", 20)], 17),  # an argument of the constructor
        (float(np.float32(1e-4)), [("Norm.__call__", 9), ("Layer.__call__", 20)], 17),
        (0.25, [("rotated", 12), ("Layer.__call__", 21)], None),  # the place itself has it
        (2e-5, [("Norm.__call__", 9), ("Layer.__call__", 20)], None),  # two calls have it
        (7.0, [("rotated", 12), ("Layer.__call__", 23)], None),  # many lines have such a number
        (3e4, [("rotated", 12), ("Layer.__call__", 21)], 32),  # a call passes it under a name in the lines
        (4e4, [("rotated", 12), ("Layer.__call__", 21)], 32),
        (6e4, [("rotated", 12), ("Layer.__call__", 21)], None),  # no class that declares the field
        (5e5, [("rotated", 12), ("Layer.__call__", 21)], None),  # nothing on the way has it
        (3e-6, [("rotated", 12), ("Layer.__call__", 21)], None),  # another method has it for itself
        (None, [("rotated", 12)], None),
    ],
)
def test_the_line_that_holds_a_constant_is_found(tmp_path, number, stack, line):
    path = tmp_path / "passed.py"
    path.write_text(f"{PASSED}\nHUGE = {'9' * 400}\n")
    found, _ = written(number, [Frame(str(path), at, name) for name, at in stack])
    assert (found.line if found else None) == line


HELD = """
def dropped(x, rate):
    return x / (1.0 - rate)

class Tower:
    def __init__(self):
        self.rates = 0.15, 0.35

    def __call__(self, x):
        return dropped(x, self.rates[0])

def near(x):
    return x / 0.85

class Net:
    def setup(self):
        def norm(x):
            return dropped(x, 0.65)
        self.norm = norm

    def __call__(self, x):
        return self.norm(x)
"""


@pytest.mark.parametrize(
    ("number", "frames", "line"),
    [
        (0.35, [(3, "dropped"), (10, "Tower.__call__")], 7),
        (0.85, [(3, "dropped"), (10, "Tower.__call__")], 7),  # one minus the rate
        (0.75, [(3, "dropped"), (10, "Tower.__call__")], None),
        (0.85, [(13, "near"), (10, "Tower.__call__")], None),  # the function itself holds it
        (0.85, [(26, "plain"), (10, "Tower.__call__")], None),  # it subtracts nothing from one
        (
            0.65,
            [(3, "dropped"), (22, "Net.__call__"), (10, "Tower.__call__")],
            18,
        ),  # before one minus the other rate
    ],
)
def test_the_line_of_a_constant_may_hold_one_minus_it(tmp_path, number, frames, line):
    file = tmp_path / "towers.py"
    file.write_text(HELD)
    found, _ = written(number, [Frame(str(file), at, function) for at, function in frames])
    assert (found and found.line) == line


def test_two_calls_on_one_line_are_told_by_their_columns():
    stacks = [[Frame("a.py", 2, "inner"), Frame("a.py", 9, "outer", column)] for column in (8, 8, 30)]
    assert stacks[0] == stacks[2]
    assert [together(stacks[0], each) for each in stacks[1:]] == [2, 1]


GIVEN = """
def energy(params, x, kind):
    return params * x * kind

def level(net, params, x, kind):
    return energy({"params": params}, x, kind=kind)

def swapped(net, params, x, kind):
    return energy({"params": params}, kind, x)

def chosen(net, params, x, kind):
    return energy(params, x, "gelu")

def changed(net, params, x, kind):
    x, kind = kind, x
    return energy(params, x, kind)

def added(net, params, x, kind):
    return net(x) + energy(params, x, kind)

def contrast(net, params, batch, kind):
    return level(net, params, batch["x"], kind)

def scanned(params, x, kind):
    def step(carry, row):
        return carry * kind + row, row

    return scan(step, params, x)

def outer(params, x):
    return scanned(params, x, 3)

def counted(params, x, kind):
    def step(carry, row):
        return carry + row, row

    return scan(step, params, x)
"""


@pytest.mark.parametrize(
    ("line", "through", "function"),
    [
        (6, "level", "contrast"),
        (9, "swapped", "swapped"),
        (12, "chosen", "chosen"),
        (16, "changed", "changed"),
        (19, "added", "added"),
    ],
)
def test_a_call_that_passes_its_parameters_on_gives_nothing(tmp_path, line, through, function):
    path = tmp_path / "given.py"
    path.write_text(GIVEN)
    stack = [Frame(str(path), at, each) for at, each in ((3, "energy"), (line, through), (22, "contrast"))]
    found = giving_call(stack)
    assert found and found.function == function
    assert giving_call(stack[:1]) is None


def test_a_function_passes_its_parameters_on_to_a_closure(tmp_path):
    path = tmp_path / "given.py"
    path.write_text(GIVEN)
    places = (26, "scanned.<locals>.step"), (28, "scanned"), (31, "outer")
    stack = [Frame(str(path), *place) for place in places]
    assert giving_call(stack) == stack[2]
    others = [Frame(str(path), 35, "counted.<locals>.step"), Frame(str(path), 37, "counted"), stack[2]]
    assert giving_call(others) == others[1]


DECLARED = """
class Gate:
    def __init__(self):
        self.gate = Param(0.0)
        self.twice = self.once = Param(1.0)

    def reset(self):
        self.twice = Param(2.0)

        self.noted: Param = Param(3.0)

class Mixed:
    def __call__(self, x):
        return x * self.param("gamma", constant(0.3), ())
"""


@pytest.mark.parametrize(
    ("name", "line"),
    [("gate", 4), ("once", 5), ("gamma", 14), ("noted", 10), ("twice", None), ("other", None)],
)
def test_the_only_line_that_declares_a_leaf_is_found(tmp_path, name, line):
    path = tmp_path / "declared.py"
    path.write_text(DECLARED)
    found = declaration(name, {str(path)})
    assert (found and found.line) == line


DECODERS = """
class Norm:
    def __init__(self, epsilon):
        self.epsilon = epsilon

    def __call__(self, x):
        return x + self.epsilon

class Bridge:
    def __call__(self, *args, name=None, **kwargs):
        method = getattr(self, name)
        return method(*args, **kwargs)

    def scaled(self, x, *args, **kwargs):
        return self.inner(2 * x, *args, **kwargs)

class Decoder:
    def head(self, x):
        return Norm(1e-5)(x)

class PortedDecoder:
    def __init__(self):
        self.norm = Norm(1e-6)

    def head(self, x):
        return self.norm(x)
"""


def test_functions_of_one_last_name_are_twins_and_a_bridge_between_decides_nothing(tmp_path):
    (tmp_path / "decoders.py").write_text(DECODERS)
    file = str(tmp_path / "decoders.py")
    norm, bridge, scaled = (
        Frame(file, *at) for at in ((7, "Norm.__call__"), (12, "Bridge.__call__"), (15, "Bridge.scaled"))
    )
    head, ported = Frame(file, 19, "Decoder.head"), Frame(file, 26, "PortedDecoder.head")
    assert passes_all_on(bridge) and not any(map(passes_all_on, (norm, scaled, head)))
    assert SourceLocation(frames=(norm, bridge, scaled, head)).own == (norm, scaled, head)
    for one in ((norm, bridge, head), (norm, head)):
        found = origin(one, (norm, ported))
        assert found and found.how == "made" and [each.line for each in found.lines] == [19, 23]


def test_the_function_that_lists_names_is_the_one_with_most_of_them(tmp_path):
    text = 'def one(name):\n    return name == "b"\n\ndef policy():\n    return ["a",\n        "b"]\n'
    (tmp_path / "policies.py").write_text(text)
    file = str(tmp_path / "policies.py")
    assert listing({"a", "b"}, "b", [file]) == Frame(file, 6, "policy")
    assert listing({"a", "b"}, "c", [file]) is None
