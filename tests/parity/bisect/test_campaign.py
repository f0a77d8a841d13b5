"""Tests a few plants of the campaign, and that a constant inside a library is traced to the caller that passed it."""

import importlib.util
import re
import sys
from pathlib import Path

import jax
import optax
import pytest

import models_nnx.decoder
import models_nnx.train
from parity.compare.origin.blame import STRATEGIES
from parity.compare.session import Session
from parity.ir.functions import Frame
from parity.ir.makers import library_call

OPTIMIZER = models_nnx.train.__file__


def loaded(name):
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def plants():
    return loaded("plants")


@pytest.mark.long
@pytest.mark.parametrize(
    "name, words",
    [
        ("operations/logits-from-before-the-norm", "in LanguageModel._hidden"),  # a call that is left out
        (
            "fresh/nothing-goes-around-the-mlp",
            "in Net.residual",
        ),  # the last operation of a method is left out
        ("operations/no-gradient-through-the-mlp", "/ stop_gradient (forward"),
        ("llama2/parameter-baked-in-as-a-constant", "operand 1: reshape of params/final_norm/scale"),
        ("operations/predictor-without-its-norm", "in Predictor.__call__"),
        ("llama2/dropout-key-the-same-every-step", "the reference goes on with random_fold_in"),
        ("diloco/merge-by-position", "in apply_step (operand 0"),  # not the branch that hands all states on
    ],
)
def test_a_plant_is_traced_to_its_function(name, words, plants, planting, tmp_path):
    bug = plants.plants()[name]
    with jax.numpy_rank_promotion("allow"):  # twins of stock layers add a bias to a batch
        finding = plants.describe(plants.evaluated(bug, tmp_path, planting, Session()))
    assert plants.is_right(finding, bug) and words in finding.sentence, finding.sentence


@pytest.mark.long
def test_a_kind_of_layer_that_constructors_choose_is_not_blamed_on_its_code(plants, planting, tmp_path):
    bug = plants.plants()["families/local-and-global-layers-swapped"]
    finding = plants.describe(plants.evaluated(bug, tmp_path, planting, Session()))
    assert not finding.found and "causal_segment_mask is equal on both sides" in finding.sentence, finding


def test_every_plant_is_in_a_function(plants):
    found = {name: plants.functions(bug) for name, bug in plants.plants().items()}
    assert len(found) >= 60 and all(found.values()), found


def test_words_that_choose_no_plant_are_an_error(monkeypatch, capsys):
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert loaded("campaign").main(["no-such-bug"]) == 2
    assert "no planted bug has a name with no-such-bug" in capsys.readouterr().out


def test_the_page_names_each_strategy_with_plants_that_it_earns(plants):
    page = (Path(__file__).parents[3] / "docs/find-the-cause.md").read_text().replace("\n  ", " ")
    for each in STRATEGIES:
        about = rf"^- \*\*{each}\*\*: .+\. Example: .+\. Planted: (.+)\.$"
        row = re.search(about, page, re.MULTILINE)
        assert row, each
        earned = re.findall(r"`([^`]+)`", row[1])
        assert earned and set(earned) <= set(plants.plants()), earned


def library(*functions):
    return [Frame(optax.__file__, 1, function) for function in functions]


def test_a_constant_in_a_library_is_traced_to_the_call_that_passed_it():
    decay = library_call(library("add_decayed_weights.<locals>.update_fn.<locals>.<lambda>"), {OPTIMIZER})
    assert decay is not None and (decay.file, decay.function) == (OPTIMIZER, "make_optimizer")
    schedule = library_call(library("cosine_decay_schedule.<locals>.schedule"), {OPTIMIZER})
    assert schedule is not None and schedule.function == "make_optimizer" and schedule.line < decay.line
    assert library_call(library("adagrad.<locals>.update_fn"), {OPTIMIZER}) is None
    neighbour = models_nnx.decoder.__file__
    near = library_call(library("add_decayed_weights.<locals>.update_fn.<locals>.<lambda>"), {neighbour})
    assert near == decay  # the only such call of the package
    assert (
        library_call(library("add_decayed_weights"), {OPTIMIZER}) is None
    )  # called directly: it is in the traceback
    assert library_call(library("add_decayed_weights.<locals>.update_fn"), {__file__}) is None
