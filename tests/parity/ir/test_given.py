"""The call that gives a constant to a line, and the line that holds it."""

import importlib
import sys

import pytest

from parity.ir.functions import Frame
from parity.ir.given import given_at, written

CONFIG = """
class Config:
    cap: float = 30.5
    soft: float = 11.5
    eps: float = 3e-4
    limit: float = 2.5
    size: int = 7
    power: float = 7.0
    depth: int = 4
    groups: tuple = (12, 5)
"""
MODEL = """
import config

def squash(x, bound):
    return x / bound

def grow(x, power):
    return x ** power

class Wash:
    def __init__(self, eps, limit):
        self.eps, self.limit = eps, limit

    def __call__(self, x):
        return x + self.eps

class Gate:
    def __init__(self, cfg):
        self.skip, self.slope = cfg.soft, cfg.cap
        self.table = list(range(cfg.depth))

    def __call__(self, x):
        return self.skip * x + self.table[0]

class Model:
    def __init__(self, cfg):
        self.cfg = cfg
        self.wash = Wash(cfg.limit, cfg.eps)
        self.gate = Gate(cfg)

    def __call__(self, x):
        x = self.gate(self.wash(x))
        return grow(squash(x, self.cfg.soft), self.cfg.power)

class Normed:
    def __init__(self, nn):
        self.dense, self.late = nn.Linear(3, 3), 5
        self.norm = nn.GroupNorm(3)
        self.other = nn.GroupNorm(3)

    def __call__(self, x):
        return self.norm(self.late + x)

class Split:
    def __init__(self, cfg):
        self.groups = cfg.groups

    def __call__(self, x):
        return x.reshape(self.groups[0], -1)
"""


@pytest.fixture
def line(tmp_path, monkeypatch):
    """Returns the frame of a function at the line that has some text."""
    (tmp_path / "config.py").write_text(CONFIG)
    (tmp_path / "model.py").write_text(MODEL)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    importlib.import_module("model")
    yield lambda text, function: Frame(
        str(tmp_path / "model.py"), 1 + MODEL[: MODEL.index(text)].count("\n"), function
    )
    del sys.modules["model"], sys.modules["config"]


@pytest.mark.parametrize(
    ("number", "text", "function", "through"),
    [
        (
            11.5,
            "x / bound",
            "squash",
            "called at model.py:33 in Model.__call__, set at config.py:4 in Config",
        ),
        (-7.0, "x ** power", "grow", "called at model.py:33 in Model.__call__, set at config.py:8 in Config"),
        (
            2.5,
            "x + self.eps",
            "Wash.__call__",
            "made at model.py:28 in Model.__init__, set at config.py:6 in Config",
        ),
        (30.5, "self.skip *", "Gate.__call__", "called at model.py:32 in Model.__call__"),  # not by this line
        (
            11.5,
            "self.skip *",
            "Gate.__call__",
            "made at model.py:19 in Gate.__init__, set at config.py:4 in Config",
        ),
        (4.0, "self.skip *", "Gate.__call__", "called at model.py:32 in Model.__call__"),  # inside a table
        (
            99.5,
            "x / bound",
            "squash",
            "called at model.py:33 in Model.__call__",
        ),  # computed, no line holds it
    ],
)
def test_the_line_that_chooses_a_constant_is_named_with_the_one_that_holds_it(
    line, number, text, function, through
):
    call = "return grow" if "." not in function else "self.gate(self.wash"
    frames = [line(text, function), line(call, "Model.__call__")]
    assert given_at(number, frames, (), ()) == f", {through}"
    assert given_at(number, frames, (), frames).find("called at") == -1


def test_a_default_of_a_library_s_class_is_of_the_line_that_makes_its_object(line):
    frames = [line("self.norm(", "Normed.__call__")]
    inside, called = (Frame("norms.py", 7, name) for name in ("_normalize", "GroupNorm.__call__"))
    assert given_at(1e-6, frames, (inside, called), ()) == ", made at model.py:38 in Normed.__init__"
    assert given_at(1e-6, frames, (inside,), ()) == ""
    assert given_at(1e-6, frames, (inside, called), [line("self.norm =", "Normed.__init__")]) == ""


def test_a_number_among_several_is_found_where_they_are_set(line):
    place, _ = written(12.0, [line("x.reshape", "Split.__call__")])
    assert str(place) == "config.py:10 in Config"
