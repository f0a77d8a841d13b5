"""The texts of a result: the error and its place, the expected value, one finding for one difference."""

import re

import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx

import parity
from parity.builds.tree import Leaf, Role
from parity.builds.weights.inference import infer
from parity.builds.weights.map import MapError
from parity.channels.consequences import causes_first
from parity.channels.tree import _leftovers
from parity.compare.backends.registry import find
from parity.compare.placement import place
from parity.run.request import Request
from parity.run.run import case_runner, error_finding
from parity.values.vacuity import not_finite
from parity.verdicts import EXPECTED_GOT, Finding


def raised(function):
    try:
        function()
    except Exception as error:
        return error_finding("linen toy, trace", error)
    raise AssertionError("nothing was raised")


def test_an_exception_is_reported_with_side_message_and_line():
    def layer():
        raise ValueError("first line\n\n  second line")

    found = raised(layer)
    sentence = found.sentence()
    assert sentence.startswith("linen toy, trace: ValueError: first line second line; raised below ")
    assert "test_words.py:" in sentence and 'in layer: raise ValueError("first' in sentence
    assert "reference" not in sentence and "candidate" not in sentence
    assert found.traceback.startswith("Traceback") and "second line" in found.traceback


def test_an_exception_names_the_line_of_another_file_that_led_there(tmp_path):
    file, names = tmp_path / "store.py", {}
    file.write_text('def check():\n    raise ValueError("a missing leaf")\n')
    exec(compile(file.read_text(), str(file), "exec"), names)

    def restore():
        names["check"]()

    place = raised(restore).next_step
    assert f"{file}:2 in check, called at " in place and "test_words.py:" in place, place
    assert place.endswith(' in restore: raise ValueError("a missing leaf")'), place


def test_a_long_message_is_cut_in_the_sentence_alone():
    def layer():
        raise ValueError("head:\nbody\n" + 2_000 * "x")

    found = raised(layer)
    assert (
        "head: body xxx" in found.sentence() and "xxx ... (the JSON report has the rest)" in found.sentence()
    )
    assert 2_000 * "x" in found.traceback


def test_one_side_alone_is_reported_as_expected_and_got():
    import numpy as np

    (found,) = not_finite({"loss": np.asarray([1.0, np.inf])})
    assert found.labels == EXPECTED_GOT
    assert found.sentence().startswith("loss: expected finite numbers, got entries that are not finite; ")
    both = Finding(where="w", reference="1", candidate="2")
    assert both.sentence() == "w: reference 1, candidate 2"


def leaf(path, shape, role=Role.PARAMS):
    return {path: Leaf(path=path, shape=shape, dtype="float32", role=role)}


@pytest.mark.parametrize(
    ("second", "words"),
    [
        (
            leaf("model/up/kernel", (5, 3)),
            "reference float32[3, 5], candidate float32[5, 3]; likely one name with",
        ),
        (
            leaf("model/up/kernel", (3, 5), Role.STATE),
            "reference float32[3, 5], role params, candidate float32[3, 5], role state; likely one name with "
            "another role on each side; hold parameters as `params`",
        ),
    ],
)
def test_a_leaf_that_is_not_the_same_is_one_finding(second, words):
    with pytest.raises(MapError) as caught:
        infer(leaf("params/up/kernel", (3, 5)) | leaf("params/w", (7,)), second)
    unlike, missing = _leftovers(caught.value)
    assert unlike.where == "model/up/kernel" and words in unlike.sentence()
    assert missing.sentence().startswith("params/w: reference float32[7], candidate no such leaf")


def test_moments_are_folded_into_the_parameter_that_is_missing():
    second = leaf("model/w", (7,))
    first = leaf("opt_state/0/mu/params/up/kernel", (3, 5), Role.OPTIMIZER) | leaf("params/up/kernel", (3, 5))
    first |= leaf("opt_state/0/nu/params/up/kernel", (3, 5), Role.OPTIMIZER) | leaf("params/w", (7,))
    with pytest.raises(MapError) as caught:
        infer(first, second)
    (found,) = _leftovers(caught.value)
    assert found.where == "params/up/kernel"
    assert found.cause == "a params leaf that only the reference has"
    assert found.distance == "its moments, too (2)"


def test_a_run_without_settings_shows_the_first_step(command):
    ended = command("run")
    assert ended.code == 2
    assert "no pyproject.toml here or above has [tool.parity]" in ended.err
    assert 'pairs = ["my_twins:PAIR"]' in ended.err and "--builtin" in ended.err


def test_moments_of_a_shape_that_differs_are_one_finding_and_parameters_come_first():
    first, second = {}, {}
    for side, top, shape in ((first, "params", (3,)), (second, "model", (4,))):
        for moment in ("mu", "nu"):
            side.update(leaf(f"opt_state/0/{moment}/up/kernel", shape, Role.OPTIMIZER))
        side.update(leaf(f"{top}/up/kernel", shape) | leaf(f"{top}/w", (7,)))
    with pytest.raises(MapError) as caught:
        infer(first, second)
    (found,) = _leftovers(caught.value)
    assert found.where == "model/up/kernel" and found.distance == "its moments, too (2)"


def test_consequences_are_folded_within_a_step_and_what_has_no_cause_stays():
    leaves = leaf("params/a", (3,)) | leaf("params/b", (3,)) | leaf("batch_stats/a", (3,), Role.STATE)
    leaves |= leaf("opt_state/0/mu/a", (3,), Role.OPTIMIZER) | leaf("opt_state/0/mu/b", (3,), Role.OPTIMIZER)
    paths = ["step1/opt_state/0/mu/b", "step3/opt_state/0/mu/a", "step3/batch_stats/a", "step3/params/a"]
    findings = [Finding(where=path, reference="1", candidate="2", distance="far") for path in paths]
    found = [(one.where, one.distance) for one in causes_first(findings, paths, leaves)]
    assert found == [
        ("step1/opt_state/0/mu/b", "far"),
        ("step3/params/a", "far; its moments, too (1)"),
        ("step3/batch_stats/a", "far"),
    ]


def test_one_that_started_it_is_not_hidden_by_hundreds_that_follow():
    many = [f"params/w{number}" for number in range(300)]
    leaves = {name: one for path in many for name, one in leaf(path, (3,)).items()}
    leaves |= leaf("opt_state/count", (), Role.OPTIMIZER) | leaf("biases/b", (3,), Role.STATE)
    paths = [*(f"step3/{path}" for path in many), "step3/opt_state/count", "step1/biases/b", "step3/biases/b"]
    findings = [Finding(where=path, reference="1", candidate="2") for path in paths]
    found = [one.where for one in causes_first(findings, paths, leaves)]
    assert found[:4] == ["step1/biases/b", "step3/params/w0", "step3/opt_state/count", "step3/biases/b"]
    assert sorted(found) == sorted(paths)


LAYERS = 3


class Wide(linen.Module):
    @linen.compact
    def __call__(self, x):
        for number in range(LAYERS):
            x = jnp.tanh(linen.Dense(6, name=f"d_{number}")(x))
        return x


class Renamed(nnx.Module):
    def __init__(self, rngs, dtype="float32", function=jnp.tanh, name="layer"):
        self.name = name
        for number in range(LAYERS):
            setattr(self, f"{name}_{number}", nnx.Linear(6, 6, param_dtype=dtype, rngs=rngs))
        self.function = function

    def __call__(self, x):
        for number in range(LAYERS):
            x = self.function(getattr(self, f"{self.name}_{number}")(x))
        return x


def inputs(seed):
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=(4, 6)).astype("float32") for name in ("x", "y")}


def run(make, meshes=("single",), program="train_step"):
    pair = parity.twins(
        "own",
        linen=Wide,
        nnx=make,
        inputs=inputs,
        loss=lambda out, batch: jnp.mean((out - batch["y"]) ** 2),
        meshes=meshes,
        programs=(program,),
    )
    return list(map(case_runner(Request()), place(pair.cases({}), find("cpu"))))


@pytest.mark.long
def test_six_parameters_in_another_dtype_are_six_findings():
    (result,) = run(lambda rngs: Renamed(rngs, dtype="bfloat16", name="d"))
    tree = result.channels["tree"]
    assert [finding.where for finding in tree.findings[:2]] == ["model/d_0/bias", "model/d_0/kernel"]
    assert len(tree.findings) == 2 * LAYERS
    assert all(finding.distance == "its moments, too (2)" for finding in tree.findings)


@pytest.mark.long
def test_parameters_come_before_moments_in_the_state():
    (result,) = run(lambda rngs: Renamed(rngs, function=jnp.sin))
    found = [one for one in result.channels["state"].findings if "rung failed" in one.distance]
    # First the first parameter of each step, and the first moment that has a separate finding.
    leading, rest = found[:3], found[3:]
    parts = [(one.where[:5], "/params/" in one.where) for one in leading]
    assert parts == [("step1", True), ("step1", False), ("step3", True)]
    params = ["/params/" in finding.where for finding in rest]
    assert any(params) and params == sorted(params, reverse=True)
    found.sort(key=lambda one: "/params/" not in one.where)
    params = ["/params/" in finding.where for finding in found]
    assert sum("its moments, too (2)" in finding.distance for finding in found) == sum(params)
    causes = {finding.where.replace("/params/", "/").partition("[")[0] for finding in found[: sum(params)]}
    left = {re.sub("opt_state/0/[mn]u/", "", one.where).partition("[")[0] for one in found[sum(params) :]}
    assert left and not left & causes  # of parameters that Adam moved equally


@pytest.mark.slow
def test_a_mesh_that_is_too_large_is_an_error_of_its_case():
    fits, too_few_devices = run(Renamed, meshes=("single", "data64-auto"), program="forward")
    assert (str(fits.verdict), str(too_few_devices.verdict)) == ("passed", "error")
    assert too_few_devices.sentence().startswith(
        "own/forward@data64-auto: tree error: devices: mesh data64-auto: needs 64 devices, found 8 (cpu); choose"
    )


def test_a_side_that_cannot_be_built_is_named():
    def broken(rngs):
        raise ZeroDivisionError("no luck")

    (result,) = run(broken)
    assert result.sentence().startswith(
        "own/train_step@single: tree error: the candidate, build: ZeroDivision"
    )
    assert "in broken: raise ZeroDivisionError" in result.sentence()


@pytest.mark.long
def test_a_state_that_cannot_fit_is_said_before_it_is_made(monkeypatch):
    monkeypatch.setattr("parity.compare.start.machine_memory", lambda: 4 * 2**10)
    (result,) = run(lambda rngs: Renamed(rngs, function=jnp.sin))
    assert str(result.verdict) == "error"
    assert (
        "InsufficientMemoryError: a state of 1.42e-06 GiB, "
        "of which a run holds 4, got 3.81e-06 GiB" in result.sentence()
    )
    assert str(result.channels["program"].verdict) == "unproved"  # a channel without state has a verdict
