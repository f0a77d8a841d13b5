"""A few plants of the campaign in the suite; and how a constant inside a library is traced to who handed it over."""

import importlib.util
from pathlib import Path

import optax
import pytest

import models_nnx.train
from parity.bisect.constants import handed
from parity.compare.comparison import Session
from parity.ir.location import Frame, SourceLocation

OPTIMIZER = models_nnx.train.__file__


@pytest.fixture(scope="module")
def plants():
    spec = importlib.util.spec_from_file_location("plants", Path(__file__).with_name("plants.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.long
@pytest.mark.parametrize(
    "name, words",
    [
        ("operations/logits-from-before-the-norm", "in LanguageModel._hidden"),  # a call that is left out
        ("operations/no-gradient-through-the-mlp", "/ stop_gradient (forward"),
        ("llama2/parameter-baked-in-as-a-constant", "/ add (forward)"),
        ("operations/predictor-without-its-norm", "in Predictor.__call__"),
        ("llama2/dropout-key-the-same-every-step", "the reference goes on with random_fold_in"),
    ],
)
def test_a_plant_is_traced_to_its_function(name, words, plants, planting, tmp_path):
    finding, right = plants.found_in(plants.plants()[name], tmp_path, planting, Session())
    assert right and words in finding.sentence, finding.sentence


def test_every_plant_is_in_a_function(plants):
    found = {name: plants.functions(bug) for name, bug in plants.plants().items()}
    assert len(found) >= 60 and all(found.values()), found


def library(*functions):
    return SourceLocation(frames=tuple(Frame(optax.__file__, 1, function) for function in functions))


def test_a_constant_in_a_library_is_traced_to_the_call_that_handed_it_over():
    decay = handed(library("add_decayed_weights.<locals>.update_fn.<locals>.<lambda>"), {OPTIMIZER})
    assert decay is not None and (decay.file, decay.function) == (OPTIMIZER, "make_optimizer")
    schedule = handed(library("cosine_decay_schedule.<locals>.schedule"), {OPTIMIZER})
    assert schedule is not None and schedule.function == "make_optimizer" and schedule.line < decay.line
    assert handed(library("adagrad.<locals>.update_fn"), {OPTIMIZER}) is None
    assert handed(library("add_decayed_weights"), {OPTIMIZER}) is None  # called outright: the stack tells
    assert handed(library("add_decayed_weights.<locals>.update_fn"), {__file__}) is None
