"""`parity inspect`: one line for each side of a case, on the CPU, for a TPU slice, and at published size."""

import io
import json

import pytest
from rich.console import Console

from parity.cli.inspect import summarise_cases
from parity.compare.backends import aot
from parity.report.structure import print_summaries
from parity.run.request import Request

NUMBERS = {
    *("loops_lowered", "loops_optimised", "collectives", "moved_bytes"),
    *("argument_bytes", "temp_bytes", "peak_bytes", "cycles", "compile_seconds"),
}
needs_compiler = pytest.mark.skipif(bool(aot.missing_compiler()), reason="libtpu is not installed")


def side(flavour, error="", **numbers):
    return {"build": f"{flavour} toy", "flavour": flavour, "numbers": numbers, "error": error}


def summary(*sides):
    return {"id": "toy/grad@single", "backend": "cpu", "mesh": "single", "sides": sides}


def test_ratios_are_of_quantities_that_both_sides_have():
    one = summary(
        side("linen", temp_bytes=100, cycles=None, moved_bytes=0), side("nnx", temp_bytes=150, cycles=3)
    )
    assert printed(one)[3].split() == ["ratio", "-", "-", "1.500", "-", "-"]


def test_the_table_has_two_lines_and_ratios_and_the_reason_if_a_side_has_none():
    numbers = {"loops_lowered": 53, "loops_optimised": 48, "temp_bytes": 3 * 2**29}
    numbers |= {"peak_bytes": 2**32, "cycles": 2_500_000}
    good = summary(side("linen", **numbers), side("nnx", **{**numbers, "temp_bytes": 3 * 2**30}))
    lines = [line.split() for line in printed(good)]
    assert lines[1][:9] == ["toy/grad@single", "linen", "53", "->", "48", "-", "-", "-", "1.500"]
    assert lines[2][:2] == ["single", "nnx"] and lines[3][0] == "ratio" and "2.000" in lines[3]
    bad = summary(side("linen", **numbers), side("nnx", error="compile failed: exceeded 16 GiB"))
    lines = printed(bad)
    assert lines[2].split() == ["single", "nnx", "none"]
    assert lines[3] == "toy/grad@single nnx, compile failed: exceeded 16 GiB"


def printed(one):
    screen = Console(width=150, file=io.StringIO())
    print_summaries(screen, [one])
    return screen.file.getvalue().splitlines()  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.long
def test_the_command_shows_both_sides_on_the_cpu(command, tmp_path):
    chosen = "llama2-scan/forward@fsdp4.tensor2-auto"
    ended = command("inspect", chosen, "--json", "s.json")
    assert ended.code == 0 and "linen" in ended.out and "1.000" in ended.out
    (case,) = json.loads((tmp_path / "s.json").read_text())["cases"]
    left, right = (one["numbers"] for one in case["sides"])
    assert (case["id"], case["mesh"], case["backend"]) == (chosen, "fsdp4.tensor2-auto", "cpu")
    assert set(left) == set(right) == NUMBERS and left["temp_bytes"] == right["temp_bytes"] > 0
    assert left["loops_lowered"] == 1 and left["cycles"] is None is left["compile_seconds"]


@needs_compiler
@pytest.mark.long
def test_published_sizes_are_summed_up_for_a_slice(command, tmp_path):
    """One layer of the published width: the code path of the whole model, in seconds."""
    options = ("--full-size", "--backend", "aot:v5p:2x2x1", "--set", "layers=1", "--set", "vocab=256")
    ended = command("inspect", "llama2-7b/forward", *options, "--json", "s.json")
    assert ended.code == 0, ended.out + ended.err
    (case,) = json.loads((tmp_path / "s.json").read_text())["cases"]
    left, right = (one["numbers"] for one in case["sides"])
    assert left["temp_bytes"] > 2**28 and left["cycles"] == right["cycles"] > 0
    assert left["compile_seconds"] > 0


@pytest.mark.slow
@needs_compiler
def test_a_side_that_does_not_compile_reports_why_and_the_other_is_shown(command, tmp_path):
    limits = '[tool.parity]\npairs = ["parity.matrix.llama2:PAIR"]\ncache = ""\ncompile-seconds = 0.1\n'
    (tmp_path / "pyproject.toml").write_text(limits)
    words = ("llama2-scan/forward@fsdp4.tensor2-auto", "--backend", "aot:v5p:2x2x1")
    ended = command("inspect", *words, cwd=tmp_path)
    assert ended.code == 1
    assert "exceeded 0.1 s" in " ".join(ended.out.split())


@pytest.mark.parametrize("words", [("run",), ("inspect",)])
def test_published_sizes_need_a_slice(command, words):
    ended = command(*words, "llama2-7b/forward", "--full-size")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(
        "parity: --full-size: got backend cpu, expected a slice such as aot:v5p:2x2x1"
    )


@pytest.mark.slow
def test_an_interrupt_keeps_finished_results(monkeypatch):
    done = [summary(side("linen", temp_bytes=1), side("nnx", temp_bytes=2))]

    def summarise(work):
        if not done:
            raise KeyboardInterrupt
        return done.pop()

    monkeypatch.setattr("parity.compare.inspection.summarise_case", summarise)
    cases, session = Request(select=("smoke",)).open_cases()
    found = summarise_cases(session, cases, Console(quiet=True))
    assert [one["id"] for one in found] == ["toy/grad@single"]
