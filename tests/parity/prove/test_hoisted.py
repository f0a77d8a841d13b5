"""Arrays that a function closes over, if JAX passes them to the program as arguments."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

ROOT = pathlib.Path(__file__).parents[3]


@pytest.fixture(scope="module")
def cases():
    return printed("cases")


@pytest.fixture(scope="module")
def found():
    return printed("programs")


def printed(part):
    """Returns results of ``hoisted.py`` under ``JAX_USE_SIMPLIFIED_JAXPR_CONSTANTS``."""
    environment = {**os.environ, "JAX_USE_SIMPLIFIED_JAXPR_CONSTANTS": "1", "PYTHONPATH": str(ROOT)}
    script = pathlib.Path(__file__).with_name("hoisted.py")
    done = subprocess.run(
        [sys.executable, script, part], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.long
@pytest.mark.parametrize("program", ["forward", "step"])
def test_twins_that_close_over_one_table_are_proved_and_run(cases, program):
    groups = ("values",) if program == "forward" else ("values", "gradients", "state")
    assert {cases[f"{program} same"][name] for name in ("program", *groups)} == {"proved"}
    paranoid = cases[f"{program} paranoid"]
    assert paranoid["program"] == "proved"
    assert {paranoid[name] for name in groups} == {"bitwise"}


@pytest.mark.long
@pytest.mark.parametrize("program", ["forward", "step"])
def test_twins_that_close_over_other_tables_are_not(cases, program):
    other = cases[f"{program} other"]
    assert (other["program"], other["values"]) == ("unproved", "failed")


@pytest.mark.long
def test_constants_are_identified_by_their_bytes(found):
    assert found["payloads"] == [False, True]
    assert found["prints"] == [False, True]
    assert found["crossed"] == [True, False], "the order in which JAX hoists them means nothing"


def test_constants_have_no_place_among_the_flat_arguments(found):
    assert found["marks"] == [1, [0, 2], {"0": 1, "2": 2}]
    paired, left, token = found["refused"]
    assert "reference positions [0], which are constants that JAX hoisted" in paired
    assert "reference left over: 2 (y)" in left
    assert "argument 0 marked jax.token" in token


def test_missing_values_equal_nothing(found):
    assert found["values not at hand"] is False
