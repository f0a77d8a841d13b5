"""Bugs planted in a scratch copy of models_nnx are caught by the channels that are there for them."""

import dataclasses
import functools
import tomllib
from pathlib import Path

import jax
import pytest

from parity.comparison import Workbench
from parity.meshes import MeshSpec
from parity.pairs.llama2 import PAIR
from parity.report.table import findings_text
from parity.run import run_case
from parity.verdicts import BLOCKING

TABLE = tomllib.loads((Path(__file__).parent / "planted" / "bugs.toml").read_text())
HOME = "fsdp4.tensor2-auto"


def ids(plant):
    return plant["id"]


def files(plant):
    """Returns ``{file: [(old, new), ...]}``."""
    names = dict.fromkeys(edit["file"] for edit in plant["edits"])
    return {
        name: [(edit["old"], edit["new"]) for edit in plant["edits"] if edit["file"] == name]
        for name in names
    }


@functools.cache
def real(id):
    return next(case for case in PAIR.cases({}) if case.id == id)


@pytest.fixture(scope="module")
def bench():
    """Shared, so that the untouched reference is traced, compiled and run once; compiles without optimising."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield Workbench()
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture
def outcome(tmp_path, planting, bench):
    """Runs a plant's case on one device unless it names a mesh; only the candidate has the edits."""

    def run(plant):
        case = real(f"{plant['case']}@{HOME}")
        planted = planting.case(planting.copy(tmp_path, files(plant)), case.id)

        def candidate():
            build = planted.candidate()
            return dataclasses.replace(build, name=f"{build.name} {plant['id']}")

        mesh = MeshSpec.parse(plant.get("mesh", "single"))
        return run_case(dataclasses.replace(case, candidate=candidate, mesh=mesh), bench)

    return run


@pytest.mark.parametrize("bug", TABLE["bug"], ids=ids)
def test_a_planted_bug_is_caught_and_named(bug, outcome):
    result = outcome(bug)
    caught = {name for name, channel in result.channels.items() if channel.verdict in BLOCKING}
    text = findings_text(result)
    print(result.verdict, {n: str(c.verdict) for n, c in result.channels.items()}, result.seconds)
    print(text)
    assert result.verdict == "failed"
    assert set(bug["channels"]) <= caught, text
    assert [word for word in bug["words"] if word not in text] == [], text


@pytest.mark.parametrize("edit", TABLE["benign"], ids=ids)
def test_a_benign_edit_raises_no_alarm(edit, outcome):
    result = outcome(edit)
    print(result.verdict, {n: str(c.verdict) for n, c in result.channels.items()}, result.seconds)
    assert result.verdict == "passed", findings_text(result)
