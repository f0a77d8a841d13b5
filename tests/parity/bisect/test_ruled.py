"""A weight rule with a transform does not mislead the search, and a place that is not certain is no cause."""

import dataclasses
import importlib.util
import sys
import tomllib
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from parity.builds.weights.transforms import Permute, Unstack
from parity.compare.evidence import Evidence
from parity.compare.origin.alignment import Alignment, floors
from parity.compare.origin.evaluated import evaluate_case, on_one_device
from parity.compare.origin.operation import follow
from parity.compare.origin.trace import evaluate
from parity.compare.session import Session

FILE = Path(__file__).with_name("ruled.py")
BUGS = {bug["id"]: bug for bug in tomllib.loads(FILE.with_suffix(".toml").read_text())["bug"]}


def pairs_in(file, monkeypatch):
    """Returns the pairs that a file holds."""
    spec = importlib.util.spec_from_file_location(f"ruled_in_{file.parent.name}", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module.PAIRS


def traced(bug, name, program, folder, monkeypatch):
    """Returns the result of ``op`` for a plant."""
    text = FILE.read_text()
    for edit in bug["edits"]:
        assert text.count(edit["old"]) == 1, edit
        text = text.replace(edit["old"], edit["new"])
    (folder / "ruled.py").write_text(text)
    planted, real = (
        next(case for case in pairs_in(file, monkeypatch)[name].cases({}) if case.program == program)
        for file in (folder / "ruled.py", FILE)
    )
    case = dataclasses.replace(planted, reference=real.reference, float64_reference=None)
    work = Evidence.of(on_one_device(case), Session())
    return follow(work, evaluate_case(work))


def functions(result):
    """Returns the names of the functions that a result blames."""
    named = [frame[2] or "<module>" for frame in result.facts["first"]["blamed"] if frame]
    return {part for name in named for part in name.split(".")}


@pytest.mark.long
@pytest.mark.parametrize(
    ("id", "name", "program"),
    [
        ("activation-in-the-turned-mlp", "split", "forward"),
        ("key-for-query", "split16", "forward"),
        ("residual-left-out", "stack", "grad"),
        ("no-gradient-in-a-list", "stack", "train_step"),
        ("rate-of-another-size", "split", "train_step"),
    ],
)
def test_a_plant_behind_rules_is_traced_to_its_function(id, name, program, tmp_path, monkeypatch):
    result = traced(BUGS[id], name, program, tmp_path, monkeypatch)
    assert result.found and functions(result) & set(BUGS[id]["functions"]), result.sentence


@pytest.mark.long
@pytest.mark.parametrize("name", ["split", "stack"])
def test_layers_in_another_order_are_not_blamed_on_the_layer(name, tmp_path, monkeypatch):
    result = traced(BUGS["layers-in-reverse"], name, "forward", tmp_path, monkeypatch)
    assert not result.found and result.sentence.startswith("not sure of the cause, because model/blk/2/")


def run(function, arguments, layouts=None):
    import jax

    arrays = [jnp.asarray(each) for each in arguments]
    return evaluate(
        jax.make_jaxpr(function)(*arrays), arrays, [str(at) for at in range(len(arrays))], layouts or {}
    )


@pytest.mark.parametrize("wrong", [False, True])
def test_values_in_the_layout_of_a_weight_are_matched_part_by_part(wrong):
    rng = np.random.default_rng(0)
    whole = rng.normal(size=(3, 4, 5)).astype("float32")
    factors = [2, 2, 3 if wrong else 2]
    stacked = run(lambda w: w * 2, [whole], {(3, 4, 5): [(Unstack(0, 3), True)]})
    single = run(lambda *w: [each * f for each, f in zip(w, factors, strict=True)], list(whole))
    matches = Alignment(stacked, single, floors(stacked, ())).matches
    assert (matches[0][stacked.outputs[0]] >= 0) is not wrong
    assert [matches[1][at] >= 0 for at in single.outputs] == [True, True, not wrong]


@pytest.mark.parametrize("turned", [False, True])
def test_only_the_transform_of_the_map_matches_a_transposed_weight(turned):
    kernel = np.random.default_rng(0).normal(size=(4, 4)).astype("float32")
    layouts = {(4, 4): [(Permute((1, 0)), True)]} if turned else {}
    left, right = run(lambda w: w + 1, [kernel], layouts), run(lambda w: w + 1, [kernel.T])
    matches = Alignment(left, right, floors(left, ())).matches
    assert (matches[0][left.outputs[0]] >= 0) is turned
