"""Output for people and tools: JSON written atomically, a table in 80 columns, findings in sentences."""

import dataclasses
import functools
import io
import json
import os

import pytest
from rich.console import Console

from parity.builds.meshes import MeshSpec
from parity.cases.case import Case
from parity.channels import ALL
from parity.channels.loops import CARRIED
from parity.cli.terminal import Terminal
from parity.report.formats import FORMS
from parity.report.records import check_writable, write_json
from parity.report.table import (
    COLUMNS,
    MARKS,
    findings_text,
    print_findings,
    print_proofs,
    print_table,
)
from parity.run import explain
from parity.run.record import VERDICTS, CaseResult, Report
from parity.verdicts import ChannelResult, Doubt, Finding, Verdict, plain

LONGEST = "llama2-scan-against-unroll-linen/train_step"


def never():
    raise AssertionError("reporting must not build")


def finding(number=1, **rest):
    return Finding(where=f"leaf{number}", reference="1", candidate="2", **rest)


def case(id, mesh="single"):
    return Case(id=id, reference=never, candidate=never, program="forward", mesh=MeshSpec.parse(mesh))


def result(verdict="passed", id="toy-a/forward", mesh="single", channels=None, seconds=1.0):
    found = channels or {name: Verdict.EQUAL for name in ALL}
    channels = {
        name: what if isinstance(what, ChannelResult) else ChannelResult(name=name, verdict=what)
        for name, what in found.items()
    }
    spent = {"trace": seconds, "lower": 0.0, "compile": 0.25, "execute": 0.0, "other": 0.0}
    whole = CaseResult.of(case(f"{id}@{mesh}", mesh), channels, spent, ("linen toy", "nnx toy"))
    return dataclasses.replace(whole, verdict=verdict)


def failed(findings=1, **rest):
    channel = ChannelResult(
        name="values",
        verdict=Verdict.FAILED,
        detail="leaves differ",
        findings=tuple(finding(number) for number in range(findings)),
    )
    return result("failed", channels={"values": channel}, **rest)


def run(*results, planned=None):
    return Report.of(results, planned or len(results), environment={"python": "3"}, seconds=2.5)


def screen(width=100, terminal=False):
    return Console(file=io.StringIO(), width=width, force_terminal=terminal, color_system=None)


def printed(function, shown, width=100):
    """Returns the text that a function prints of the record of a run, or of some cases."""
    console = screen(width)
    function(console, shown)
    return console.file.getvalue()


# --- JSON ---


def test_the_report_has_the_schema_s_keys():
    whole = plain(run(result(), failed()))
    assert list(whole) == ["schema", "environment", "cases", "summary", "numbers_only", "seconds"]
    assert (whole["schema"], whole["environment"], whole["seconds"]) == (1, {"python": "3"}, 2.5)
    assert whole["summary"] == {
        "passed": 1,
        "failed": 1,
        "vacuous": 0,
        "error": 0,
        "open": 0,
        "unproved": 0,
        "skipped": 0,
    }
    assert [case["verdict"] for case in whole["cases"]] == ["passed", "failed"]
    fields = {
        name: text for name, text in vars(finding(0)).items() if name not in ("follows", "doubts", "leaf")
    }
    assert whole["cases"][1]["channels"] == {
        "values": {
            "verdict": "failed",
            "detail": "leaves differ",
            "findings": [{**fields, "labels": ["reference", "candidate"]}],
        }
    }


def test_a_partial_report_counts_the_missing_cases():
    whole = plain(run(result(), planned=5))
    assert whole["partial"] == {"planned": 5, "finished": 1}
    assert "partial" not in plain(run(result()))


def test_every_verdict_of_a_case_is_counted():
    results = [result(verdict) for verdict in VERDICTS for _ in range(2)]
    assert run(*results).summary == dict.fromkeys(VERDICTS, 2)


def test_a_report_replaces_the_old_one_whole(tmp_path):
    path = tmp_path / "report.json"
    path.write_text("old")
    write_json({"a": 1}, path)
    assert json.loads(path.read_text()) == {"a": 1}
    assert os.listdir(tmp_path) == ["report.json"]
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_report_that_cannot_be_finished_leaves_the_old_one_and_no_scrap(tmp_path, monkeypatch):
    path = tmp_path / "report.json"
    write_json({"a": 1}, path)
    with pytest.raises(TypeError):
        write_json({"a": object()}, path)
    monkeypatch.setattr("pathlib.Path.replace", lambda *_: (_ for _ in ()).throw(OSError("disk gone")))
    with pytest.raises(OSError, match="disk gone"):
        write_json({"a": 2}, path)
    assert json.loads(path.read_text()) == {"a": 1}
    assert os.listdir(tmp_path) == ["report.json"]


def test_folders_that_may_hold_a_report(tmp_path):
    check_writable(tmp_path / "new.json")
    (tmp_path / "old.json").write_text("old")
    check_writable(tmp_path / "old.json")
    assert (tmp_path / "old.json").read_text() == "old" and os.listdir(tmp_path) == ["old.json"]


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("", "is a folder"),
        ("missing/report.json", "missing does not exist"),
        ("file/report.json", "file does not exist"),
        ("/proc/report.json", "cannot make a file in /proc"),
    ],
)
def test_folders_that_may_not_hold_a_report(tmp_path, path, words):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"report path .*; expected a writable file name") as raised:
        check_writable(tmp_path / path)
    assert words in str(raised.value)


# --- the table ---


def full_run():
    """Every verdict in every channel, the longest names, several meshes."""
    rows = [
        result(
            id=LONGEST,
            mesh=mesh,
            channels=dict.fromkeys(ALL, verdict),
            verdict="failed" if verdict is Verdict.FAILED else "passed",
            seconds=1234.5,
        )
        for mesh in ("single", "data2.fsdp2.tensor2-auto")
        for verdict in Verdict
    ]
    return run(*rows)


@pytest.mark.parametrize("width", [80, 100, 120, 200])
def test_the_table_fits_and_cuts_no_word(width):
    *lines, numbers = printed(print_table, full_run(), width=width).splitlines()
    assert numbers.startswith("2 cases equal in numbers only")
    table, legend = lines[:-2], lines[-2]
    assert legend.startswith("qed proved, reord reordered, bits bitwise, same equal")
    assert "FAIL failed, VAC vacuous, ERR error" in legend
    assert max(map(len, table)) <= width
    assert not any("…" in line for line in table)
    text = "\n".join(table)
    assert text.count("@single") == text.count("@data2.fsdp2.tensor2-auto") == 1
    for verdict in set(Verdict) - {Verdict.SKIPPED}:
        assert text.split().count(MARKS[verdict][0]) == 2 * len(COLUMNS), verdict
    assert text.count("1234.8") == 2 * len(Verdict)


def test_the_closing_line_counts_verdicts_and_phases():
    text = printed(print_table, run(result(seconds=3.0), failed(seconds=4.0)))
    assert "1 passed, 1 failed in 2 s (trace 7 s, lower 0 s, compile 0 s, execute 0 s, other 0 s)" in text
    assert "PARTIAL" not in text


def test_an_interrupted_run_is_marked_partial():
    text = printed(print_table, run(result(), planned=54))
    assert text.splitlines()[-1].startswith("PARTIAL: 1 of 54 cases finished")
    lines = printed(print_table, run(planned=3)).splitlines()
    assert [line.split(" in ")[0].split(":")[0] for line in lines] == ["nothing ran", "PARTIAL"]


# --- findings ---


def test_the_first_line_has_the_difference_and_the_next_command():
    assert findings_text(failed(1)).splitlines() == [
        "toy-a/forward@single  values failed: leaves differ; leaf0: reference 1, candidate 2; "
        "next: parity bisect toy-a/forward@single",
    ]
    assert findings_text(result()) == "" == printed(print_findings, [result()])


def test_findings_of_one_kind_are_one_line_with_their_number():
    first, rest = findings_text(failed(explain.LISTED + 3)).splitlines()
    assert f"leaf0: reference 1, candidate 2; and {explain.LISTED + 2} more; next: " in first
    assert rest == "  leaf1: reference 1, candidate 2; the same for leaf2, leaf3, leaf4 and 1 more"
    verbose = printed(every_finding, [failed(explain.LISTED + 3)])
    assert [line.strip() for line in verbose.splitlines()[-2:]] == [
        f"leaf{number}: reference 1, candidate 2" for number in (explain.LISTED + 1, explain.LISTED + 2)
    ]


def test_a_long_first_line_leaves_out_the_least_important_parts_and_prints_them_below():
    place = "far/away/model.py:{} in Model.__call__ (through flax/linen/linear.py:9 in Dense.__call__)"
    cause = Finding(
        where="dot_general (operand 1: 3 against 4)",
        reference=place.format(3),
        candidate=place.format(5),
        cause="a cause " * 9,
        next_step=f"read this; made at {place.format(7)}",
    )
    program = dataclasses.replace(PROGRAM, findings=(cause,))
    head, below, *_ = findings_text(
        result("failed", channels={"program": program, "values": VALUES})
    ).splitlines()
    assert len(head) <= explain.LONGEST
    assert head.endswith(
        "reference far/away/model.py:3 in Model.__call__, candidate far/away/model.py:5 in Model.__call__; "
        "made at far/away/model.py:7 in Model.__call__; values: 1 of 2 leaves (leaf1); "
        "next: parity bisect toy-a/forward@single"
    )
    assert below == f"  likely {' '.join(['a cause'] * 9)}; read this"


PROGRAM = ChannelResult(name="program", verdict=Verdict.UNPROVED, findings=(finding(7),))
VALUES = ChannelResult(name="values", verdict=Verdict.FAILED, detail="1 of 2 leaves", findings=(finding(1),))
LOOPS = ChannelResult(
    name="loops",
    verdict=Verdict.FAILED,
    findings=(Finding(where="loop 0 (a.py:3 in f)", reference="4 trips", candidate="2 trips"),),
)
DOTS = ChannelResult(name="dots", verdict=Verdict.FAILED, findings=(finding(3),))


every_finding = functools.partial(print_findings, verbose=True)


def first_line(*channels):
    return findings_text(result("failed", channels={one.name: one for one in channels})).splitlines()[0]


def test_the_first_difference_of_the_programs_comes_first_if_numbers_differ_too():
    assert "program differs: leaf7: " in first_line(VALUES, PROGRAM, LOOPS)
    assert "; values: 1 of 2 leaves (leaf1); also loops; next: " in first_line(VALUES, PROGRAM, LOOPS)
    assert findings_text(result(channels={"program": PROGRAM})) == ""


def test_without_other_numbers_the_channel_with_a_source_line_comes_first():
    memory = ChannelResult(name="memory", verdict=Verdict.FAILED, findings=(finding(2),))
    assert "loops failed: loop 0 (a.py:3 in f): " in first_line(PROGRAM, memory, LOOPS)
    assert "program differs: leaf7: " in first_line(PROGRAM, memory)
    assert "memory failed: leaf2: " in first_line(memory)


def test_a_constraint_of_one_program_comes_before_the_collectives_that_follow_from_it():
    where = "a.py:3 in f"
    constraint = Finding(where="sharding_constraint", reference=where, candidate="")
    program = dataclasses.replace(PROGRAM, findings=(constraint,))
    moved = ChannelResult(
        name="collectives",
        verdict=Verdict.FAILED,
        findings=(dataclasses.replace(constraint, where="all-gather"),),
    )
    spec = ChannelResult(name="sharding", verdict=Verdict.FAILED, findings=(finding(5),))
    assert "program differs: sharding_constraint: reference a.py:3 in f; also " in first_line(
        program, moved, spec
    )
    assert first_line(program, moved, spec).endswith("next: parity inspect toy-a/forward@single")
    assert "sharding failed: leaf5: " in first_line(PROGRAM, moved, spec)
    assert "loops failed: " in first_line(
        program, moved, spec, LOOPS
    )  # a dropped remat drops constraints, too
    larger = dataclasses.replace(LOOPS.findings[0], cause=CARRIED)
    carries = dataclasses.replace(LOOPS, findings=(larger, *LOOPS.findings))
    assert "sharding failed: leaf5: " in first_line(program, moved, spec, carries)


def test_other_types_and_other_leaves_come_before_operations():
    assert "dots failed: leaf3: " in first_line(VALUES, PROGRAM, DOTS)
    tree = ChannelResult(name="tree", verdict=Verdict.FAILED, findings=(finding(4),))
    assert "tree failed: leaf4: " in first_line(VALUES, PROGRAM, DOTS, tree)
    doubted = dataclasses.replace(finding(4), doubts=(Doubt.GUESS,), leaf="w")
    guess = dataclasses.replace(tree, findings=(doubted,))
    assert "program differs: leaf7: " in first_line(VALUES, PROGRAM, guess)
    behind = findings_text(result("failed", channels={one.name: one for one in (VALUES, PROGRAM, guess)}))
    assert "a consequence of the difference above; else a wrong guess" in behind
    initial = dataclasses.replace(finding(), leaf="w")
    rng = ChannelResult(name="rng", verdict=Verdict.FAILED, findings=(initial,))
    assert "tree failed: leaf4: " in first_line(VALUES, PROGRAM, guess, rng)  # two doubts of one pairing


def test_a_difference_of_an_operand_is_not_sure_unless_values_show_its_place():
    found = functools.partial(Finding, reference="a.py:3 in f", candidate="b.py:4 in g")
    operand = found(where="multiply (another value: operand 1)", doubts=(Doubt.OPERAND,))
    constant = found(where="compare (operand 1: 4 against 3)")
    program = dataclasses.replace(PROGRAM, findings=(operand, constant))
    line = first_line(VALUES, program)
    assert "program differs: not sure, multiply (another value: operand 1): reference a.py:3 in f" in line
    assert line.endswith("next: parity bisect toy-a/forward@single")
    memory = ChannelResult(name="memory", verdict=Verdict.FAILED, findings=(finding(2),))
    assert "program differs: multiply (another" in first_line(program, memory)
    located = dataclasses.replace(program, located=found(where="differ first at add (forward)"))
    assert "program differs: differ first at add (forward): " in first_line(VALUES, located)
    doubt = dataclasses.replace(finding(4), doubts=(Doubt.GUESS,))
    guess = ChannelResult(name="tree", verdict=Verdict.FAILED, findings=(doubt,))
    assert "program differs: compare (operand 1: 4 against 3): " in first_line(VALUES, program, guess)
    alone = dataclasses.replace(program, findings=(operand,))
    line = first_line(VALUES, alone, guess)
    assert "program differs: not sure, multiply (" in line and line.endswith("next: parity map toy-a")


def test_waived_findings_are_one_line_and_all_of_them_if_verbose():
    found = tuple(dataclasses.replace(finding(number), next_step="waived: as planned") for number in range(9))
    channel = ChannelResult(name="values", verdict=Verdict.WAIVED, findings=found)
    case = result(channels={"values": channel})
    assert printed(print_findings, [case]).splitlines() == [
        "toy-a/forward@single  findings waived: 9 of values (as planned)"
    ]
    assert "leaf8: reference 1, candidate 2; waived: as planned" in printed(every_finding, [case])


def test_findings_are_printed_as_they_are():
    """Brackets are not treated as markup: leaf indices and shapes survive."""
    channel = ChannelResult(
        name="values",
        verdict=Verdict.FAILED,
        detail="[red]1 leaf[/red]",
        findings=(Finding(where="w[1, 2]", reference="f32[3]", candidate="[bold]x[/bold]"),),
    )
    text = printed(print_findings, [result("failed", channels={"values": channel})])
    assert "w[1, 2]: reference f32[3], candidate [bold]x[/bold]" in text and "[red]1 leaf[/red]" in text


# --- progress ---


def test_without_a_terminal_each_case_is_a_line_and_a_failure_shows_at_once(monkeypatch):
    console = screen()
    monkeypatch.setattr("parity.cli.terminal.console", lambda: console)
    progress = Terminal()
    record = run(result(), failed(id="toy-b/grad"))
    progress.begins(record.planned, ())
    for one in record.cases:
        progress.started(case(one.id))
        progress.finished(one)
    progress.ended(record, ())
    assert console.file.getvalue().splitlines() == [
        "[1/2] toy-a/forward@single passed",
        "[2/2] toy-b/grad@single failed: values",
    ]


def test_on_a_terminal_the_line_has_the_case_the_count_and_the_time_left(monkeypatch):
    console = screen(terminal=True)
    monkeypatch.setattr("parity.cli.terminal.console", lambda: console)
    progress = Terminal()
    record = run(planned=3)
    progress.begins(record.planned, ())
    progress.started(case("toy-a/forward@single"))
    for _ in range(2):
        progress.finished(result())
    progress.started(case("toy-b/grad@single"))
    progress._bar.refresh()
    progress.ended(record, ())
    text = console.file.getvalue()
    assert "toy-b/grad@single" in text and "2/3" in text and text.count("0:00:00") > 2


# --- verdicts that rest on numbers ---

PLACES = {"reference": "stablehlo.add at old.py:7 in f", "candidate": "stablehlo.add at new.py:9 in f"}


def resting(verdict=Verdict.UNPROVED, id="toy-a/forward", **channels):
    numbers = {"doubts": (Doubt.NUMBERS,), "next_step": "not settled for all inputs"}
    first = Finding(where="stablehlo.add (operand 1: 1 against 2)", **numbers, **PLACES)
    program = ChannelResult(
        name="program", verdict=verdict, detail="not shown", findings=(first,), measures={"operations": 3}
    )
    return result(id=id, channels={"program": program, "values": Verdict.BITWISE, **channels})


def test_a_proof_is_listed_under_its_case_though_another_case_has_none():
    phases = dict.fromkeys(("trace", "lower", "prove"), 1.0)
    cases = [result("error", "toy-a/grad", channels={"tree": Verdict.ERROR}), resting(id="toy-b/grad")]
    text = printed(print_proofs, run(*(dataclasses.replace(one, seconds=phases) for one in cases)))
    assert [line for line in text.splitlines() if "not shown" in line] == ["toy-b/grad@single  not shown"]


@pytest.mark.parametrize("verdict", [Verdict.UNPROVED, Verdict.REORDERED])
def test_the_first_difference_of_a_passed_case_is_printed_and_in_every_report(verdict):
    case = resting(verdict)
    report = run(case, result("passed"))
    texts = {name: render(report, ()) for name, render in FORMS.items()}
    for name, text in {"terminal": printed(print_findings, [case]), **texts}.items():
        assert "operand 1: 1 against 2" in text, name
        assert "new.py:9" in text.replace("%3A", ":") or "file=new.py,line=9" in text, name
        assert "not settled for all inputs" in text, name


def test_a_failure_names_its_difference_and_the_first_one_once():
    text = printed(print_findings, [resting(gradients=failed().channels["values"])])
    assert text.count("operand 1") == 1 and "not settled" not in text


def test_a_proof_by_rules_has_separate_letters():
    ruled = ChannelResult(name="program", verdict=Verdict.PROVED, measures={"rules": 2})
    values = ChannelResult(name="values", verdict=Verdict.PROVED, measures={"rules": 2})
    table = printed(print_table, run(result(channels={"program": ruled, "values": values})))
    row = next(line for line in table.splitlines() if line.startswith("toy-a/forward"))
    assert row.split().count("rule") == 2 and "qed" not in row
    assert "rule proved by rules" in table and "qed" not in table
    strict = printed(print_table, run(result(channels={"program": Verdict.PROVED})))
    assert "qed proved" in strict and "rule" not in strict


def test_programs_that_were_not_compared_are_not_the_same():
    """A program that was not compared is skipped: `same` is only for programs that agree."""
    skipped = ChannelResult(name="program", verdict=Verdict.SKIPPED, detail="programs not compared")
    table = printed(print_table, run(result(channels={"program": skipped, "values": Verdict.FLOOR})))
    row = next(line for line in table.splitlines() if line.startswith("toy-a/forward"))
    assert row.split()[1] == "-"


def test_the_next_command_has_the_options_of_the_run():
    found = explain.explain("toy-a/forward@single", {"values": VALUES}, options="--set 'scale=2 3'")
    assert found is not None
    assert found.line.endswith("next: parity bisect toy-a/forward@single --set 'scale=2 3'")
