"""Cases in worker processes: the same report in the same order, and a crash is a verdict of its case."""

import json
import os
import signal
import time

import pytest
from rich.console import Console
from toys import write_project

from parity.report.table import print_proofs
from parity.run.parallel import run_in_workers
from parity.run.record import Report
from parity.run.request import Request
from parity.verdicts import Verdict

TWINS = """
def working(name, at_work=lambda: None):
    class Working(Nnx):
        def __call__(self, x):
            at_work()
            return super().__call__(x)

    return pair(name, nnx=Working)

def crash():
    os.kill(os.getpid(), signal.SIGSEGV)

def sleep():
    pathlib.Path("now").write_text(str(os.getpid()))
    time.sleep(60)

A, CRASH, SLEEP, Z = pair("a"), working("crash", crash), working("sleep", sleep), pair("z")
"""
PROGRAMS = ("forward", "grad", "train_step")


@pytest.fixture
def project(tmp_path):
    """Writes a project with some of the pairs above."""

    def write(*names):
        return write_project(tmp_path, "twins_here", TWINS, *names)

    return write


def without_times(report):
    for case in report["cases"]:
        del case["seconds"]
        for channel in case["channels"].values():
            channel.get("measures", {}).pop("seconds", None)
    del report["seconds"]
    return report


@pytest.mark.long
def test_the_report_is_the_same_as_without_workers(shell, project):
    folder = project("A", "Z")
    reports = []
    for workers in ("1", "2"):
        ended = shell("run", "--workers", workers, "--json", "r.json", "--paranoid", cwd=folder)
        assert (ended.code, ended.err) == (0, "")
        reports.append(without_times(json.loads((folder / "r.json").read_text())))
    assert reports[0] == reports[1]
    assert [case["id"] for case in reports[0]["cases"]] == [f"{p}/{q}@single" for p in "az" for q in PROGRAMS]


@pytest.mark.long
def test_a_case_that_kills_its_process_is_an_error_and_the_others_run(shell, project):
    folder = project("A", "CRASH", "Z")
    ended = shell("run", "--workers", "2", "--json", "r.json", cwd=folder)
    assert (ended.code, ended.err) == (1, "")
    cases = json.loads((folder / "r.json").read_text())["cases"]
    verdicts = {case["id"].split("@")[0]: case["verdict"] for case in cases}
    assert verdicts == {
        f"{pair}/{program}": "error" if pair == "crash" else "passed"
        for pair in ("a", "crash", "z")
        for program in PROGRAMS
    }
    message = "nnx crash, trace: WorkerError: died with signal 11 (SIGSEGV)"
    assert message in ended.out and "6 passed, 3 error" in ended.out


@pytest.mark.long
def test_ctrl_c_keeps_finished_results_and_kills_the_workers(shell, project):
    folder = project("A", "SLEEP")
    process = shell.start("run", "--workers", "2", "--json", "r.json", cwd=folder)
    try:
        end = time.monotonic() + 60
        while not (folder / "now").exists():
            assert time.monotonic() < end and process.poll() is None
            time.sleep(0.05)
        while " passed" not in process.stdout.readline():  # by the other worker
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, err) == (130, "") and "PARTIAL" in out
    report = json.loads((folder / "r.json").read_text())
    assert report["partial"]["planned"] == 6 and report["cases"]
    assert {case["id"].split("/")[0] for case in report["cases"]} == {"a"}
    with pytest.raises(ProcessLookupError):
        os.kill(int((folder / "now").read_text()), 0)


@pytest.mark.long
def test_a_case_that_takes_too_long_is_an_error(project, monkeypatch, undone_imports):
    folder = project("SLEEP")
    monkeypatch.chdir(folder)
    monkeypatch.setattr("parity.run.parallel.CASE_SECONDS", 2.0)
    request = Request(start=folder, select=("sleep/forward",))
    cases, _ = request.open_cases()
    (result,) = run_in_workers(cases, request)
    assert result.verdict == Verdict.ERROR and result.id == cases[0].id
    assert "WorkerError: exceeded 2 s" in result.sentence()
    print_proofs(Console(width=100), Report(environment={}, seconds=1, cases=(result,)))
