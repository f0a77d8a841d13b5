"""Forms of one record: JUnit for strict readers, annotations by their grammar, Markdown and HTML with escaped text."""

import html.parser
import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
import xmlschema
from hypothesis import given, settings
from hypothesis import strategies as st

from parity.report.formats import FORMS
from parity.report.formats.annotations import MOST, _command
from parity.report.formats.html import MOST_ROWS
from parity.report.reading import parse_report
from parity.run.explain import places
from parity.verdicts import Finding

JUNIT = xmlschema.XMLSchema(Path(__file__).with_name("junit.xsd"))


def parsed_report(report):
    return parse_report(report, "report")


def render(name, report, earlier=()):
    return FORMS[name](parsed_report(report), list(map(parsed_report, earlier)))


def checked_junit(text):
    """Parses JUnit XML and checks it against its schema, and its counts against its elements."""
    root = ElementTree.fromstring(text)
    JUNIT.validate(root)
    for suite in root:
        cases = suite.findall("testcase")
        assert int(suite.get("tests")) == len(cases)
        for count, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            assert int(suite.get(count)) == sum(case.find(tag) is not None for case in cases)
    for name in ("tests", "failures", "errors", "skipped"):
        assert int(root.get(name)) == sum(int(suite.get(name)) for suite in root)
    return root


def test_junit_is_valid_and_counts_blocking_results(whole):
    root = checked_junit(render("junit", whole))
    assert {name: root.get(name) for name in ("tests", "failures", "errors", "skipped")} == {
        "tests": "6",
        "failures": "2",
        "errors": "1",
        "skipped": "2",
    }
    failure = root.find(".//failure")
    assert failure.get("message") == (
        "toy-b/forward@data8-auto  program differs: stablehlo.add: reference at shared/ops.py:29 in norm, called at "
        "old/norms.py:21 in N, candidate at shared/ops.py:29 in norm, called at new/norms.py:25 in N; "
        "values: 1 of 2 leaves differ (logits[3]); next: parity bisect toy-b/forward@data8-auto"
    )
    assert "logits[3]: reference 1.5, candidate 2.5" in failure.text and "<b> &" in failure.text
    assert "Traceback" in root.find(".//system-err").text
    assert root.find(".//testcase[@classname='parity.toy-b']").get("name") == "forward@data8-auto"


ENDS = ("passed", "failed", "vacuous", "error", "open", "unproved", "skipped")
CHANNELS = ("proved", *ENDS[1:], "waived")
TEXTS = st.text(max_size=20)


@pytest.mark.long
@settings(deadline=None, max_examples=60)
@given(
    id=TEXTS.map("toy{}".format),
    text=TEXTS,
    verdict=st.sampled_from(ENDS),
    channels=st.lists(st.sampled_from(CHANNELS), min_size=1, max_size=3),
)
def test_junit_is_valid_for_any_text_and_ending(make, id, text, verdict, channels):
    found = [make.finding(where=text, candidate=text, next_step="waived: " + text, traceback=text)]
    one = make.case(
        id, verdict, {f"{text}{n}": make.channel(end, text, found) for n, end in enumerate(channels)}
    )
    root = checked_junit(render("junit", make.report(one, make.case("toy/f@single"))))
    assert root.get("tests") == "2"


def test_a_waived_case_is_a_test_that_passed(make):
    waived = make.channel("waived", "1 of 1 findings waived", [make.finding(next_step="waived: " + make.odd)])
    root = checked_junit(render("junit", make.report(make.case("toy/f@single", channels={"values": waived}))))
    assert list(root.find(".//testcase")) == []


def broken(text):
    """Yields JUnit XML with one mistake each."""
    for old, new in (
        ('<testcase classname="', '<testcase class="'),
        ('type="failed"', ""),
        ('errors="1"', 'errors="one"'),
        ('time="7.500"', 'time="-1"'),
        ("<skipped ", "<error/><skipped "),
        ("<testcase ", "<case/><testcase "),
        ('name="parity"', 'name=""'),
    ):
        assert old in text
        yield text.replace(old, new, 1)


def test_the_schema_refuses_files_that_no_ci_server_reads(whole):
    for text in broken(render("junit", whole)):
        with pytest.raises(xmlschema.XMLSchemaValidationError):
            JUNIT.validate(text)


def test_junit_of_an_interrupted_run_is_not_green(make):
    report = make.report(make.case("toy/forward@single"), partial={"planned": 3, "finished": 1})
    root = checked_junit(render("junit", report))
    assert root.get("failures") == "1" and "1 of 3 cases" in root.find(".//failure").get("message")


def test_every_form_shows_a_flip_that_is_held_back(make):
    flip = {"name": "pure_nnx", "about": "", "before": {}, "after": {}, "verdict": "blocked", "cases": 1}
    flip |= {"cells": [], "waived": 0, "blocks": ["dense @single failed: values: off"]}
    gate = {"flips": [flip], "relaxed": ["flips.mtp is looser"], "notes": []}
    report = make.report(make.case("toy/forward@single"), gate=gate)
    assert not parsed_report(report).passes
    assert checked_junit(render("junit", report)).get("failures") == "2"
    for name in ("annotations", "markdown", "html"):
        text = render(name, report)
        assert "dense @single failed" in text.replace("\\@", "@") and "looser" in text


COMMAND = re.compile(r"::(error|warning|notice)( [a-zA-Z]+=[^:,\r\n]*(,[a-zA-Z]+=[^:,\r\n]*)*)?::[^\r\n]*")


def test_annotations_keep_to_the_grammar_and_name_the_line_of_the_candidate(whole):
    lines = render("annotations", whole).splitlines()
    assert lines and all(COMMAND.fullmatch(line) for line in lines)
    value = next(line for line in lines if "program differs" in line)
    assert value.startswith("::error file=new/norms.py,line=25,title=parity%3A program failed::toy-b/forward")
    assert "values: 1 of 2 leaves differ (logits[3])" in value
    assert "\n" not in value and all(
        re.search("%(25|0D|0A|3A|2C)", found) for found in re.findall("%..", value)
    )


def parsed(line):
    """Reads a workflow command as GitHub's runner does; returns its name, properties and message."""
    head, separator, message = line.removeprefix("::").partition("::")
    assert line.startswith("::") and separator
    name, _, rest = head.partition(" ")
    pairs = [pair.split("=", 1) for pair in rest.strip().split(",") if pair]
    assert all(len(pair) == 2 for pair in pairs)
    return name, {key: unescaped(value, ":,") for key, value in pairs}, unescaped(message)


def unescaped(text, also=""):
    for character in "\r\n" + also:
        text = text.replace(f"%{ord(character):02X}", character)
    return text.replace("%25", "%")


TRICKY = st.text(alphabet=st.sampled_from("%:,=\r\n 0123ADCx") | st.characters(codec="utf-8"), max_size=12)


@settings(deadline=None, max_examples=40)
@given(id=TRICKY, where=TRICKY, name=TRICKY, folder=TRICKY, block=TRICKY)
def test_annotations_are_read_back_as_they_were_meant(make, id, where, name, folder, block):
    place = make.finding(where=where, reference="1", candidate="2 at new.py:7 in f")
    one = make.case(id, "failed", {name: make.channel("failed", "", [place])})
    flip = {"name": "f", "about": "", "before": {}, "after": {}, "verdict": "blocked", "cases": 1}
    flip |= {"cells": [], "waived": 0, "blocks": [block]}
    report = make.report(one, gate={"flips": [flip], "relaxed": [], "notes": []})
    text = render("annotations", report)
    first, second = (parsed(line) for line in text.removesuffix("\n").split("\n"))
    assert first == (
        "error",
        {"file": "new.py", "line": "7", "title": f"parity: {name} failed"},
        f"{id}: {parsed_report(report).cases[0].explanation.line}",
    )
    assert second[:2] == ("error", {"title": "flip held back"}) and second[2].endswith(block)
    assert parsed(_command("warning", where, {"file": f"x{folder}y"}))[1] == {"file": f"x{folder}y"}


def test_annotations_join_findings_of_one_line_and_count_the_cut_ones(make):
    def failed(number, line):
        place = make.finding(where=f"x{number}", candidate=f"at new.py:{line} in f")
        return make.case(f"toy{number}/f@single", "failed", {"values": make.channel("failed", "", [place])})

    same = render("annotations", make.report(*(failed(number, 7) for number in range(30))))
    assert same.count("::error") == 1 and "and 29 more cases" in same
    many = render("annotations", make.report(*(failed(number, number) for number in range(30)))).splitlines()
    assert len(many) == MOST and "21 further differences" in many[-1]
    assert render("annotations", make.report(make.case("toy/f@single"))) == ""


def test_places_of_a_finding(make):
    both = make.finding(
        reference="at a/b.py:3 in f", candidate="at a/b.py:3 in f, called at c.py:14", where="d.py:1"
    )
    assert places(Finding(**both)) == [("c.py", 14), ("a/b.py", 3), ("d.py", 1)]
    assert places(Finding(**make.finding(candidate="float32, 1.5:3"))) == []


def test_markdown_begins_with_the_verdict_and_no_text_becomes_markup(whole, make):
    text = render("markdown", whole)
    assert text.startswith("## Parity: does not pass\n\n1 passed, 1 failed, 1 vacuous, 1 error, 1 unproved")
    assert "<b>" not in text and "</script>" not in text and "&lt;b&gt; &amp;" in text
    assert "\n::error" not in text
    assert render("markdown", make.report(make.case("toy/f@single"))).startswith("## Parity: passes")


def test_markdown_fits_a_step_summary_however_much_is_wrong(make):
    findings = [make.finding(where=f"x{number}", candidate="y" * 5_000) for number in range(50)]
    cases = [
        make.case(f"toy{number}/f@single", "failed", {"values": make.channel("failed", "", findings)})
        for number in range(200)
    ]
    assert len(render("markdown", make.report(*cases)).encode()) < 2**20


class Page(html.parser.HTMLParser):
    """Content of a page: external links, texts of scripts, unclosed elements."""

    VOID = frozenset({"meta", "link", "br", "input", "img", "hr"})

    def __init__(self, text):
        super().__init__()
        self.links, self.scripts, self.open, self.ids, self.tags = [], [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [value for name, value in attrs if name in ("src", "href") and value]
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)


def test_the_page_is_complete_and_standalone_and_no_text_becomes_markup(whole):
    text = render("html", whole, [whole])
    page = Page(text)
    assert not page.open and len(set(page.ids)) == len(page.ids)
    assert all(link.startswith(("#", "data:")) for link in page.links)
    assert {link[1:] for link in page.links if link.startswith("#")} <= set(page.ids)
    assert "b" not in page.tags and "url(" not in text and "@import" not in text and "fetch(" not in text
    assert [json.loads(script) for script in page.scripts[: len(whole["cases"])]] == whole["cases"]
    assert "Does not pass" in text and "new/norms.py:25" in text and "old/norms.py:21" in text


def test_ids_of_a_page_with_first_differences_are_distinct(make):
    rests = make.channel("unproved", "differs", [make.finding()])
    page = Page(render("html", make.report(make.case("toy/f@single", channels={"program": rests}))))
    assert "firsts" in page.ids and len(set(page.ids)) == len(page.ids)


def test_numbers_that_json_has_no_word_for_reach_the_page_as_unknown(make):
    odd = make.case(
        "toy/f@single", channels={"values": make.channel(measures={"ratio": float("inf"), "b": 2.0})}
    )
    page = Page(render("html", make.report(odd)))
    assert json.loads(page.scripts[0])["channels"]["values"]["measures"] == {"ratio": None, "b": 2.0}


def test_the_page_shows_the_trend_and_the_changes(make):
    before = make.report(make.case("toy/f@single"), make.case("gone/f@single"))
    worse = make.case(
        "toy/f@single", "failed", {"program": make.channel("proved"), "values": make.channel("failed")}
    )
    text = render("html", make.report(worse), [before])
    assert (
        "toy/f@single values: proved -&gt; failed, worse" in text
        and "gone/f@single: gone, was passed" in text
    )
    assert 'id="trend"' in text and 'id="trend"' not in render("html", before)


def test_a_large_matrix_is_laid_out_in_part(make):
    cases = [make.case(f"toy{number}/f@single") for number in range(MOST_ROWS + 5)]
    text = render("html", make.report(*cases))
    assert len(re.findall(r"<tr data-words=[^>]* hidden>", text)) == 5


@pytest.mark.parametrize("name", FORMS)
def test_every_form_accepts_an_empty_report(make, name):
    assert isinstance(render(name, make.report()), str)
