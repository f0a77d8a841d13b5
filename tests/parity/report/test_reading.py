"""Reports are read unchanged; invalid ones are refused with a message; changes are reported."""

from pathlib import Path

import pytest

from parity.report.changes import changes
from parity.report.formats import write_forms
from parity.report.reading import parse_report, read_report
from parity.report.records import ReportNotWrittenError, write_text


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda report: report.pop("schema"), "got no key schema"),
        (lambda report: report.update(schema=9), "got schema 9, expected 1"),
        (lambda report: report.update(cases={}), "cases: got {}, expected a list"),
        (lambda report: report["cases"].append(7), "cases, number 7: got 7, expected a table"),
        (
            lambda report: report["cases"][2].pop("mesh"),
            "cases, number 3: got no mesh, expected id, reference, candidate, program, mesh",
        ),
        (
            lambda report: report["cases"][0].update(verdict="fine"),
            "cases, number 1.verdict: got fine, expected one of passed",
        ),
        (
            lambda report: report["cases"][0].update(bisect=7),
            "cases, number 1.bisect: got 7, expected a table",
        ),
        (lambda report: report.update(seconds="1"), "seconds: got '1', expected a number"),
        (lambda report: report.pop("summary"), "got no summary"),
        (lambda report: report["cases"][1].update(id="toy-a/forward@single"), "a second time"),
        (
            lambda report: report["cases"][1]["channels"].update(values={"verdict": "good"}),
            "number 2.channels.values.verdict: got good, expected one of proved, ",
        ),
        (
            lambda report: report["cases"][1]["channels"]["values"].update(findings=[{}]),
            "cases, number 2.channels.values.findings, number 1: got no where",
        ),
    ],
)
def test_a_file_that_is_no_report_is_refused(whole, spoil, words):
    parse_report(whole, "report x")
    spoil(whole)
    with pytest.raises(ValueError, match="report x") as refused:
        parse_report(whole, "report x")
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("text", "words"), [("{", "not valid JSON"), ("[]", "no key schema"), (None, "No such file")]
)
def test_a_file_that_is_no_report(tmp_path, text, words):
    path = tmp_path / "r.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ValueError, match=words):
        read_report(path)


def test_blocking_changes_come_first(make):
    def case(id, **verdicts):
        return make.case(id, channels={name: make.channel(verdict) for name, verdict in verdicts.items()})

    before = make.report(
        case("a", values="proved", loops="equal"), case("b", values="floor"), case("c", values="open")
    )
    after = make.report(
        case("a", values="floor", loops="failed"), case("b", values="bitwise"), case("d", values="open")
    )
    before, after = (parse_report(one, "report") for one in (before, after))
    found = [sentence for sentence, _ in changes(before, after)]
    assert found == [
        "a loops: equal -> failed, worse",
        "a values: proved -> floor, worse",
        "c: gone, was passed",
        "b values: floor -> bitwise, better",
        "d: new, passed",
    ]
    assert not changes(before, before)


def test_a_full_disk_is_reported_and_old_files_stay(whole, tmp_path, monkeypatch):
    whole = parse_report(whole, "whole")
    path, page = tmp_path / "r.json", tmp_path / "r.html"
    write_text("old", path)

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.replace", full)
        with pytest.raises(ReportNotWrittenError, match=r"No space left on device.*untouched"):
            write_text("new", path)
        assert len(write_forms(whole, {"json": path, "html": page})) == 2
    assert path.read_text() == "old" and sorted(tmp_path.iterdir()) == [path]
    assert write_forms(whole, {"json": path, "html": page}) == []
    assert read_report(path) == whole and page.read_text().startswith("<!doctype html>")


def test_a_device_is_written_to_and_not_replaced(whole):
    whole = parse_report(whole, "whole")
    (problem,) = write_forms(whole, {"annotations": Path("/dev/null"), "markdown": Path("/dev/full")})
    assert problem.startswith("report path /dev/full: could not be written (No space left on device)")
    assert Path("/dev/null").is_char_device() and Path("/dev/full").is_char_device()


def test_one_form_that_cannot_be_written_does_not_take_the_others(whole, tmp_path):
    files = {"html": tmp_path / "gone" / "r.html", "junit": tmp_path / "r.xml"}
    problems = write_forms(parse_report(whole, "whole"), files)
    assert len(problems) == 1 and "gone/r.html" in problems[0] and files["junit"].exists()
