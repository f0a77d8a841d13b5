"""Cases in several processes under jax.distributed: one verdict, and a lost process is an error, not a hang."""

import dataclasses
import json

import pytest
from toys import write_project

from parity.builds.meshes import MeshSpec
from parity.matrix.llama2 import PAIR
from parity.run.parallel import merged, run_in_workers, spread
from parity.run.record import CaseResult
from parity.run.request import Request
from parity.verdicts import ChannelResult, Finding, Verdict

TWINS = """
def adding(name, more, mesh="data8-auto"):
    class Adding(Nnx):
        def __call__(self, x):
            return super().__call__(x) + more()

    return pair(name, nnx=Adding, meshes=(mesh,))

def alone():
    return 0.01 * jax.process_index()

def die():
    if jax.process_index() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return 0.0

def refuse():
    if jax.process_index() == 1:
        raise KeyError("process 1 has no such weight")
    return 0.0

SOUND = adding("sound", lambda: 0.0)
ALONE = adding("alone", alone, "tensor1.data8-auto")  # all is held whole by every process
SMALL = adding("small", lambda: 0.0, "data4-auto")
DIE, REFUSE = adding("die", die), adding("refuse", refuse)
"""


@pytest.fixture
def run(tmp_path, monkeypatch, undone_imports):
    """``run("alone/forward", ...)`` runs cases of the pairs above in two processes."""

    def go(*select):
        write_project(tmp_path, "twins_apart", TWINS, "DIE", "REFUSE", "SOUND", "ALONE", "SMALL")
        monkeypatch.chdir(tmp_path)
        request = Request(start=tmp_path, select=select, processes=2, paranoid=True)
        return list(run_in_workers(request.open_cases()[0], request))

    return go


@pytest.mark.long
def test_the_twins_agree_in_two_processes_of_four_devices(shell, tmp_path):
    chosen_cases = (
        "llama2-scan/forward@fsdp4.tensor2-auto",
        "sharded-unroll/train_step@data8.tensor1-explicit",
    )
    ended = shell(
        "run", "--processes", "2", *chosen_cases, "--set", "layers=1", "--json", "r.json", cwd=tmp_path
    )
    assert (ended.code, ended.err) == (0, ""), ended.out
    report = json.loads((tmp_path / "r.json").read_text())
    forward, step = (case["channels"] for case in report["cases"])
    assert report["environment"]["processes"] == 2
    assert (forward["program"]["verdict"], forward["values"]["verdict"]) == ("proved", "bitwise")
    assert (step["values"]["verdict"], step["state"]["verdict"]) == ("bitwise", "bitwise")


@pytest.mark.long
def test_a_difference_that_only_process_1_holds_is_found_and_named(run):
    (sound, alone) = run("sound/forward", "alone/forward")
    assert sound.verdict == "passed" and sound.channels["values"].verdict is Verdict.BITWISE
    values = alone.channels["values"]
    assert alone.verdict == Verdict.FAILED and values.verdict is Verdict.FAILED
    assert values.detail.startswith("process 1: 1 of 1 leaves differ")
    assert [finding.where.partition("[")[0] for finding in values.findings] == ["process 1: outputs"]


@pytest.mark.long
def test_a_process_that_dies_or_leaves_is_an_error_and_the_next_case_runs(run, monkeypatch):
    monkeypatch.setattr("parity.run.parallel.PATIENCE", 3.0)
    died, left, sound = run("die/forward", "refuse/forward", "sound/grad")
    assert (died.verdict, left.verdict, sound.verdict) == ("error", "error", "passed")
    assert "process 1, nnx die, trace: " in died.sentence()
    assert "WorkerError: died with signal 9 (SIGKILL)" in died.sentence()
    assert "process 0, nnx refuse" in left.sentence() or "process 1: nnx refuse, trace" in left.sentence()


@pytest.mark.long
def test_a_case_on_fewer_devices_runs_after_one_on_all(run):
    results = run("sound/forward", "small/forward")
    assert [result.mesh for result in results] == ["data8-auto", "data4-auto"]
    assert [result.verdict for result in results] == ["passed", "passed"]
    assert [result.channels["values"].verdict for result in results] == [Verdict.BITWISE] * 2


# --- refused runs ---


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--processes", "3"), "--processes 3: choose a divisor of the 8 simulated devices"),
        (("--processes", "0"), "Invalid value for '--processes'"),
        (("--processes", "2", "--workers", "2"), "leave out --backend cpu and --workers"),
        (("--processes", "2", "--backend", "gpu"), "gpu"),
    ],
)
def test_options_that_exclude_each_other_are_wrong_usage(command, words, message):
    ended = command("run", "llama2-scan/forward@fsdp4.tensor2-auto", *words)
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1) and message in ended.err


SINGLE = next(case for case in PAIR.cases({}) if case.id == "llama2-scan/train_step@single")


@pytest.mark.parametrize(
    ("mesh", "candidate_mesh", "devices"),
    [("single", None, 0), ("data8", None, 8), ("single", "data4", 4), ("fsdp2.tensor1", "single", 2)],
)
def test_the_processes_have_as_many_devices_as_the_meshes_need(mesh, candidate_mesh, devices):
    other = candidate_mesh and MeshSpec.parse(candidate_mesh)
    case = dataclasses.replace(SINGLE, mesh=MeshSpec.parse(mesh), candidate_mesh=other)
    assert spread(case, 2) == devices


@pytest.mark.parametrize(
    ("mesh", "candidate_mesh", "message"),
    [("data3", None, "3 devices, expected a multiple of 2"), ("data2", "data4", "meshes of 2 and 4 devices")],
)
def test_a_mesh_within_some_of_the_processes_is_skipped_with_the_reason(mesh, candidate_mesh, message):
    other = candidate_mesh and MeshSpec.parse(candidate_mesh)
    case = dataclasses.replace(SINGLE, mesh=MeshSpec.parse(mesh), candidate_mesh=other)
    (result,) = run_in_workers([case], Request(processes=2))
    assert result.verdict == Verdict.SKIPPED
    assert {f"--processes 2: {message}" in channel.detail for channel in result.channels.values()} == {True}


# --- merging several results into one ---

CASE = PAIR.cases({})[0]
WORSE = Finding(where="outputs[0]", reference="1", candidate="2")


def outcome(**channels):
    results = {name: ChannelResult(name=name, **rest) for name, rest in channels.items()}
    return CaseResult.of(CASE, results, {"compile": 1.0}, ("r", "c"))


def test_findings_of_all_processes_are_reported_once():
    one = outcome(tree={"verdict": Verdict.EQUAL, "detail": "3 leaves"}, values={"verdict": Verdict.BITWISE})
    result = merged([one, one])
    assert (result.verdict, result.channels) == ("passed", one.channels) and result == one


def test_the_worst_verdict_counts_and_findings_name_their_process():
    good = outcome(values={"verdict": Verdict.BITWISE, "detail": "1 leaf"})
    bad = outcome(values={"verdict": Verdict.FAILED, "detail": "1 of 1", "findings": (WORSE,)})
    for outcomes, number in (([good, bad], 1), ([bad, good], 0)):
        values = merged(outcomes).channels["values"]
        assert (values.verdict, values.detail) == (Verdict.FAILED, f"process {number}: 1 of 1")
        assert [finding.where for finding in values.findings] == [f"process {number}: outputs[0]"]
    both = merged([bad, bad])
    assert both.verdict == "failed" and both.channels["values"].findings == (WORSE,)


@pytest.mark.parametrize(
    ("verdicts", "worst"),
    [
        (("proved", "bitwise"), "bitwise"),
        (("skipped", "proved"), "proved"),
        (("arbitrated", "equal"), "equal"),
        (("vacuous", "failed"), "failed"),
        (("open", "unproved"), "open"),
        (("error", "vacuous"), "error"),
    ],
)
def test_verdicts_have_an_order(verdicts, worst):
    outcomes = [outcome(values={"verdict": Verdict(verdict)}) for verdict in verdicts]
    assert merged(outcomes).channels["values"].verdict == worst
    assert merged(outcomes[::-1]).channels["values"].verdict == worst
