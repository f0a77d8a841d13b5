"""The call that made a library's closure is named, also if several calls of one function could have made it."""

import importlib
import sys

import optax
import pytest

from parity.ir.functions import Frame
from parity.ir.location import SourceLocation
from parity.ir.makers import given_functions, library_call

RATES = """import optax

def make(name):
    if name == "adam":
        return optax.adam(1e-3)
    return optax.adamw(1e-3)
{more}"""
STEPS = """import optax

def train(rate):
    return optax.MultiSteps(optax.sgd(rate), every_k_schedule=3)
"""
CLOSURE = Frame(optax.__file__, 1, "scale_by_adam.<locals>.update_fn")


@pytest.fixture(params=["", "\ndef other():\n    return optax.adam(1e-2)\n"], ids=["one", "two"])
def package(request, tmp_path, monkeypatch):
    name = f"rated_{len(request.param)}"
    (tmp_path / name).mkdir()
    texts = {"__init__": "", "model": "", "rates": RATES.format(more=request.param)}
    for file, text in texts.items():
        (tmp_path / name / f"{file}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    for file in ("model", "rates"):
        importlib.import_module(f"{name}.{file}")
    yield name, not request.param
    for module in [each for each in sys.modules if each.partition(".")[0] == name]:
        del sys.modules[module]


def test_a_function_that_alone_makes_the_closure_is_named(package):
    name, alone = package
    model = sys.modules[f"{name}.model"].__file__
    found = library_call([CLOSURE], {model})
    assert (found.function if found else None) == ("make" if alone else None)
    step = Frame(model, 1, "step")
    text = SourceLocation(frames=(CLOSURE, step)).against(SourceLocation(frames=(CLOSURE, step)))
    assert (f"made at {found}" in text) if found else (" made at " not in text)


TWO = """import optax

def actor_optimizer():
    return optax.adam(1e-3)

def critic_optimizer():
    return optax.adam(1e-2)

def step(model, grads):
    model.critic.update(grads)
    model.optimizer.update(grads)
"""


@pytest.mark.parametrize(
    ("line", "caller", "function"),
    [(10, "run", "critic_optimizer"), (11, "run", None), (11, "Actor.actor_step", "actor_optimizer")],
)
def test_of_several_functions_the_one_that_shares_a_word_with_the_use_is_named(
    tmp_path, monkeypatch, line, caller, function
):
    (tmp_path / "two_rates.py").write_text(TWO)
    monkeypatch.syspath_prepend(tmp_path)
    file = importlib.import_module("two_rates").__file__
    found = library_call([CLOSURE], {file}, [Frame(file, line, "step"), Frame(file, 1, caller)])
    del sys.modules["two_rates"]
    assert (found and found.function) == function


MASKED = """import optax

def matrices(params):
    return params

def make(rate):
    fast = optax.sgd(rate)
    return optax.chain(fast, optax.adamw(rate, mask=matrices), optax.sgd(optax.linear_schedule(1, 2, 3)))
"""


def test_the_functions_that_an_optimizer_takes_are_named(tmp_path, monkeypatch):
    (tmp_path / "masked.py").write_text(MASKED)
    monkeypatch.syspath_prepend(tmp_path)
    file = importlib.import_module("masked").__file__
    found = given_functions(Frame(file, 8, "make"))
    del sys.modules["masked"]
    assert [(frame.line, frame.function) for frame in found] == [(3, "matrices")]


def test_a_closure_of_a_method_is_made_by_the_call_of_its_class(tmp_path, monkeypatch):
    (tmp_path / "accumulated.py").write_text(STEPS)
    monkeypatch.syspath_prepend(tmp_path)
    file = importlib.import_module("accumulated").__file__
    found = library_call([Frame(optax.__file__, 1, "MultiSteps.update.<locals>._do_update")], {file})
    del sys.modules["accumulated"]
    assert found and (found.line, found.function) == (4, "train")


STEP = """import optax
from elsewhere_state import create

def former():
    return optax.adam(1e-1)

def train():
    return create()
"""
STATE = """from elsewhere_rates import make

def create():
    return make()
"""
ELSEWHERE = """import optax

def make():
    return optax.adam(1e-3)
"""


def test_a_maker_that_the_files_call_goes_before_an_unused_one_beside_the_use(tmp_path, monkeypatch):
    texts = {"step": STEP, "state": STATE, "rates": ELSEWHERE}
    for name, text in texts.items():
        (tmp_path / f"elsewhere_{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    file = importlib.import_module("elsewhere_step").__file__
    found = library_call([CLOSURE], {file})
    for name in texts:
        del sys.modules[f"elsewhere_{name}"]
    assert found and (found.line, found.function) == (4, "make")


SIDES = """from both_{other} import create as other
from both_{own} import create

def build():
    return create(), other()
"""
MAKES = """import optax

def create():
    return optax.adam({rate})

def step(state):
    return state
"""


@pytest.mark.parametrize("own", ["linen", "nnx"])
def test_a_pair_that_calls_the_makers_of_both_sides_names_that_of_the_side(tmp_path, monkeypatch, own):
    texts = {name: MAKES.format(rate=rate) for name, rate in (("linen", 1e-2), ("nnx", 1e-3))}
    texts["pair"] = SIDES.format(own="linen", other="nnx")
    for name, text in texts.items():
        (tmp_path / f"both_{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    files = {name: importlib.import_module(f"both_{name}").__file__ or "" for name in texts}
    used = [Frame(files[own], 7, "step"), Frame(files["pair"], 5, "build")]
    found = library_call([CLOSURE], {files[own], files["pair"]}, used)
    for name in texts:
        del sys.modules[f"both_{name}"]
    assert found and found.file == files[own]
