"""Bugs of training and checkpoints, planted in a copy of models_nnx: killed by a channel, or by an oracle."""

import dataclasses
import functools
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import jax
import pytest

from parity.comparison.comparison import SEED, Comparison, Workbench
from parity.pairs.trajectories import PAIR, SHORT
from parity.programs.meshes import MeshSpec
from parity.report.table import findings_text
from parity.running.run import run_case
from parity.verdicts import BLOCKING

pytestmark = pytest.mark.slow

REPO = Path(__file__).parents[3]
BUGS = tomllib.loads((Path(__file__).parents[1] / "planted" / "training.toml").read_text())["bug"]


def named(kind):
    return [pytest.param(bug, id=bug["id"]) for bug in BUGS if kind in bug]


@functools.cache
def real(id):
    return next(case for case in PAIR.cases({}) if case.id == id)


@pytest.fixture(scope="module")
def bench():
    """Shared, so that the untouched reference is traced, compiled and run once; compiles without optimising."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield Workbench()
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.mark.parametrize("id", ["training-across-warmup", "training-past-the-end"])
def test_the_data_of_the_cases_can_tell(id, bench):
    """One batch spikes and one is not finite; the learning rate is of both sides of an end of the schedule."""
    work = Comparison(real(f"{id}/train_step@single"), bench)
    leaves = work.reference.run(work.state, SEED, steps=6)["state"]
    state = {path.removeprefix("step6/"): leaf for path, leaf in leaves.items() if path.startswith("step6/")}
    assert state["opt_state/total_notfinite"] == state["opt_state/inner_state/total_skipped"] == 1
    begins = int(work.state["step"])
    assert state["opt_state/inner_state/inner_state/1/2/count"] == begins + 4
    ends = (SHORT.warmup_steps, SHORT.total_steps)
    assert any(begins < end < begins + 4 for end in ends)


def planted(planting, folder, bug):
    edits = [(edit["file"], (edit["old"], edit["new"])) for edit in bug["edits"]]
    return planting.copy(folder, {file: [pair] for file, pair in edits})


# A store that looks at no digest hands Orbax corrupt files, whose readers then outlive their event loop.
@pytest.mark.filterwarnings("ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("bug", named("case"))
def test_a_channel_catches_and_names_it(bug, planting, tmp_path, bench):
    case = real(bug["case"])
    theirs = planting.case(planted(planting, tmp_path, bug), case.id, "trajectories:PAIR")

    def candidate():
        build = theirs.candidate()
        return dataclasses.replace(build, name=f"{build.name} {bug['id']}")

    case = dataclasses.replace(case, candidate=candidate, mesh=MeshSpec(), exact=None)
    result = run_case(case, bench, bug["channels"])
    caught = {name for name, channel in result.channels.items() if channel.verdict in BLOCKING}
    text = findings_text(result)
    assert result.verdict == bug.get("verdict", "failed"), text
    assert caught - {"program"} == set(bug["channels"]) - {"program"}, text
    assert [word for word in bug["words"] if word not in text] == [], text


@pytest.mark.parametrize("bug", named("oracle"))
def test_an_oracle_kills_it(bug, planting, tmp_path):
    scratch = planted(planting, tmp_path, bug)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(scratch), str(REPO)))}
    command = [
        sys.executable,
        "-P",
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        str(REPO / bug["oracle"]),
    ]
    ended = subprocess.run(command, env=environment, cwd=REPO, capture_output=True, text=True)
    assert ended.returncode == 1 and "1 failed" in ended.stdout, ended.stdout + ended.stderr
    assert [word for word in bug["words"] if word not in ended.stdout] == [], ended.stdout
