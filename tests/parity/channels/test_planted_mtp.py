"""Bugs of multi-token prediction and of the batch split, planted in a copy of models_nnx, are caught and named."""

import dataclasses
import tomllib
from pathlib import Path

import jax
import pytest

from parity.comparison.comparison import Workbench
from parity.programs.meshes import MeshSpec
from parity.report.table import findings_text
from parity.running.run import run_case
from parity.verdicts import BLOCKING

BUGS = tomllib.loads((Path(__file__).parents[1] / "planted" / "mtp.toml").read_text())["bug"]


@pytest.fixture(scope="module")
def bench():
    """Shared, so that the untouched reference is traced, compiled and run once; compiles without optimising."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield Workbench()
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug["id"])
def test_a_planted_bug_is_caught_and_named(bug, tmp_path, planting, bench):
    names = dict.fromkeys(edit["file"] for edit in bug["edits"])
    files = {
        name: [(edit["old"], edit["new"]) for edit in bug["edits"] if edit["file"] == name] for name in names
    }
    planted = planting.case(planting.copy(tmp_path, files), bug["case"], bug.get("pair", ""))

    def candidate():
        build = planted.candidate()
        return dataclasses.replace(build, name=f"{build.name} {bug['id']}")

    case = dataclasses.replace(
        planted,
        candidate=candidate,
        mesh=MeshSpec.parse(bug.get("mesh", "single")),
        program=bug.get("program", planted.program),
        exact=None,
    )
    result = run_case(case, bench, dict.fromkeys(("program", *bug["channels"])))
    caught = {name for name, channel in result.channels.items() if channel.verdict in BLOCKING}
    text = findings_text(result)
    assert result.verdict == bug.get("verdict", "failed"), text
    assert set(bug["channels"]) <= caught, text
    assert [word for word in bug["words"] if word not in text] == [], text
