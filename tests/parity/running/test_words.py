"""The words of a result: what was raised and where, what was expected, one finding for one difference."""

import pytest

from parity.channels.tree import _leftovers
from parity.programs.tree import Leaf, Role
from parity.running.errors import error_finding
from parity.values.vacuity import not_finite
from parity.verdicts import EXPECTED_GOT, Finding
from parity.weights.inference import infer
from parity.weights.map import MapError


def raised(function):
    try:
        function()
    except Exception as error:
        return error_finding("linen toy, trace", error)
    raise AssertionError("nothing was raised")


def test_an_exception_tells_the_side_all_of_the_message_and_the_line():
    def layer():
        raise ValueError("first line\n\n  second line")

    found = raised(layer)
    sentence = found.sentence()
    assert sentence.startswith("linen toy, trace: ValueError: first line second line; raised below ")
    assert "test_words.py:" in sentence and 'in layer: raise ValueError("first' in sentence
    assert "reference" not in sentence and "candidate" not in sentence
    assert found.traceback.startswith("Traceback") and "second line" in found.traceback


def test_a_long_message_is_cut_in_the_sentence_alone():
    def layer():
        raise ValueError("head:\nbody\n" + 2_000 * "x")

    found = raised(layer)
    assert "head: body ... (the JSON report has the rest)" in found.sentence()
    assert 2_000 * "x" in found.traceback


def test_one_side_by_itself_is_told_as_expected_and_got():
    import numpy as np

    (found,) = not_finite({"loss": np.asarray([1.0, np.inf])})
    assert found.labels == EXPECTED_GOT
    assert found.sentence().startswith("loss: expected finite numbers, got entries that are not finite; ")
    both = Finding(where="w", reference="1", candidate="2")
    assert both.sentence() == "w: reference 1, candidate 2"


def leaf(path, shape, role=Role.PARAMS):
    return {path: Leaf(path=path, shape=shape, dtype="float32", role=role, kind="x")}


@pytest.mark.parametrize(
    ("theirs", "words"),
    [
        (
            leaf("model/up/kernel", (5, 3)),
            "reference float32[3, 5], candidate float32[5, 3]; likely one name with",
        ),
        (
            leaf("model/up/kernel", (3, 5), Role.STATE),
            "reference float32[3, 5], a params leaf, candidate float32[3, 5], a state leaf",
        ),
    ],
)
def test_a_leaf_that_is_not_the_same_is_one_finding(theirs, words):
    with pytest.raises(MapError) as caught:
        infer(leaf("params/up/kernel", (3, 5)) | leaf("params/w", (7,)), theirs)
    unlike, missing = _leftovers(caught.value)
    assert unlike.where == "model/up/kernel" and words in unlike.sentence()
    assert missing.sentence().startswith("params/w: reference float32[7], candidate no such leaf")


def test_moments_are_folded_into_the_parameter_that_is_missing():
    theirs = leaf("model/w", (7,))
    ours = leaf("opt_state/0/mu/params/up/kernel", (3, 5), Role.OPTIMIZER) | leaf("params/up/kernel", (3, 5))
    ours |= leaf("opt_state/0/nu/params/up/kernel", (3, 5), Role.OPTIMIZER) | leaf("params/w", (7,))
    with pytest.raises(MapError) as caught:
        infer(ours, theirs)
    (found,) = _leftovers(caught.value)
    assert found.where == "params/up/kernel"
    assert found.cause == "a params leaf that only the reference has, with its moments (2)"


def test_a_run_without_settings_tells_how_to_begin(command):
    ended = command("run")
    assert ended.code == 2
    assert "no pyproject.toml here or above has [tool.parity]" in ended.err
    assert 'pairs = ["my_twins:PAIR"]' in ended.err and "--builtin" in ended.err
