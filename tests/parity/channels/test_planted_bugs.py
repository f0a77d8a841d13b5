"""Bugs planted in a scratch copy of models_nnx are caught by the channels that are there for them."""

import dataclasses
import functools
import json
import tomllib
from pathlib import Path

import jax
import numpy as np
import pytest

from parity.channels import ALL
from parity.channels.attest import attest
from parity.comparison.comparison import Workbench
from parity.pairs.llama2 import PAIR
from parity.pairs.moe import PAIR as MOE
from parity.programs.meshes import MeshSpec
from parity.report.table import findings_text
from parity.running.run import run_case
from parity.verdicts import BLOCKING

PLANTED = Path(__file__).parents[1] / "planted"
TABLES = [tomllib.loads((PLANTED / f"{name}.toml").read_text()) for name in ("bugs", "moe")]
TABLE = {kind: [plant for table in TABLES for plant in table[kind]] for kind in ("bug", "benign")}
HOME = {"llama2": "fsdp4.tensor2-auto", "moe": "data2.expert4-auto"}


QUICK = 5


def table(kind):
    """Returns the plants of a kind as parameters; the inner loop runs the first few."""
    return [
        pytest.param(
            plant, id=plant["id"], marks=pytest.mark.slow if plant.get("slow") or number >= QUICK else ()
        )
        for number, plant in enumerate(TABLE[kind])
    ]


def named(id):
    return next(plant for plants in TABLE.values() for plant in plants if plant["id"] == id)


def files(plant):
    """Returns ``{file: [(old, new), ...]}``."""
    names = dict.fromkeys(edit["file"] for edit in plant["edits"])
    return {
        name: [(edit["old"], edit["new"]) for edit in plant["edits"] if edit["file"] == name]
        for name in names
    }


def looking(plant):
    """Returns the channels that look at a plant."""
    return [name for name in ALL if name in {"program", *plant.get("channels", ALL)}]


@functools.cache
def real(id):
    pair = {"llama2": PAIR, "moe": MOE}[id.split("-")[0]]
    return next(case for case in pair.cases({}) if case.id == id)


def at_home(case):
    return f"{case}@{HOME[case.split('-')[0]]}"


@pytest.fixture(scope="module")
def bench():
    """Shared, so that the untouched reference is traced, compiled and run once; compiles without optimising."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield Workbench()
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture
def outcome(tmp_path, planting, bench):
    """Runs a plant's case on one device unless it names a mesh; only the candidate has the edits.

    A bug is looked at by the channels that shall catch it and the proof, a benign edit by all.
    """

    def run(plant):
        case = real(at_home(plant["case"]))
        planted = planting.case(planting.copy(tmp_path, files(plant)), case.id)

        def candidate():
            build = planted.candidate()
            return dataclasses.replace(build, name=f"{build.name} {plant['id']}")

        mesh = MeshSpec.parse(plant.get("mesh", "single"))
        case = dataclasses.replace(case, candidate=candidate, mesh=mesh, exact=None)
        return run_case(case, bench, looking(plant))

    return run


@pytest.mark.parametrize("bug", table("bug"))
def test_a_planted_bug_is_caught_and_named(bug, outcome):
    result = outcome(bug)
    caught = {name for name, channel in result.channels.items() if channel.verdict in BLOCKING}
    text = findings_text(result)
    assert result.verdict == bug.get("verdict", "failed")
    assert set(bug["channels"]) <= caught, text
    assert [word for word in bug["words"] if word not in text] == [], text


@pytest.mark.slow
@pytest.mark.parametrize("edit", table("benign"))
def test_a_benign_edit_raises_no_alarm(edit, outcome):
    result = outcome(edit)
    assert result.verdict == "passed", findings_text(result)


@pytest.mark.slow
def test_one_segment_in_the_batch_is_vacuous_where_values_decide():
    """History P2: rows of one document hide whatever packing breaks. A proof holds for all batches."""
    case = real(at_home("llama2-scan/forward"))

    def packed_into_one(make):
        build = make()

        def inputs(seed):
            batch = build.inputs(seed)
            return {**batch, "segments": np.ones_like(batch["segments"])}

        return lambda: dataclasses.replace(build, name=f"{build.name} one segment", inputs=inputs)

    sides = {name: packed_into_one(getattr(case, name)) for name in ("reference", "candidate")}
    result = run_case(dataclasses.replace(case, mesh=MeshSpec(), **sides), Workbench(paranoid=True))
    assert (result.verdict, result.channels["values"].verdict) == ("vacuous", "vacuous")
    assert "batch segments: expected entries that differ, got all 320 entries are 1" in findings_text(result)


def test_a_program_without_operations_of_its_own_model_code_is_not_attested():
    build = real(at_home("llama2-scan/forward")).candidate()
    own = {"/somewhere/models_nnx/mlp.py": 7, "/somewhere/jax/lax.py": 90}
    foreign = ("models_linen/",)
    assert attest(build, own, foreign, {}) == []
    (finding,) = attest(build, {"/somewhere/jax/lax.py": 90}, foreign, {})
    assert (
        finding.where == f"flavour of {build.name}" and "no operation from models_nnx/" in finding.candidate
    )
    (finding,) = attest(build, {**own, "/somewhere/models_linen/mlp.py": 2}, foreign, {})
    assert finding.candidate == "2 operations from models_linen/"


# --- the same through the real command line, with the scratch copy on PYTHONPATH ---


def run(shell, planting, folder, id):
    """Runs a plant's case where it belongs and returns the exit code, the output and the case's record."""
    plant = named(id)
    scratch = planting.copy(folder / "scratch", files(plant))
    ended = shell("run", plant["case"], "--json", "report.json", cwd=folder, path=[scratch])
    (case,) = json.loads((folder / "report.json").read_text())["cases"]
    return ended, case


@pytest.mark.slow
@pytest.mark.parametrize("id", ["gate-and-up-swapped", "kernel-in-bfloat16"])
def test_the_command_line_catches_a_planted_bug(shell, planting, tmp_path, id):
    ended, case = run(shell, planting, tmp_path, id)
    assert (ended.code, ended.err, case["verdict"]) == (1, "", "failed")
    for name in named(id)["channels"]:
        assert case["channels"][name]["verdict"] == "failed"
    assert [word for word in named(id)["words"] if word not in ended.out] == []


@pytest.mark.slow
def test_the_command_line_notices_that_nnx_runs_linen(shell, planting, tmp_path):
    ended, case = run(shell, planting, tmp_path, "nnx-delegates-to-linen")
    assert (ended.code, ended.err) == (1, "")
    assert case["channels"]["program"]["verdict"] == "failed"
    assert "operations from models_linen/" in ended.out


@pytest.mark.slow
def test_the_command_line_passes_a_benign_edit(shell, planting, tmp_path):
    ended, case = run(shell, planting, tmp_path, "code-moved-to-another-file")
    assert (ended.code, ended.err, case["verdict"]) == (0, "", "passed"), ended.out
