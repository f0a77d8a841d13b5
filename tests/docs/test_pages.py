"""The pages agree with the code that they describe, and with each other."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import parity
from parity.channels import CHANNELS
from parity.verdicts import BLOCKING, Verdict

sys.path.insert(0, str(Path(__file__).parent))
import generate
import pages

DOCS = pages.ROOT / "docs"


def table(page: str, head: str) -> dict[str, list[str]]:
    """The rows of the table that starts with a cell: name in the first cell -> the cells."""
    lines = (DOCS / page).read_text().split(f"| {head} |")[1].splitlines()[2:]
    rows = [line.strip("| ").split(" | ") for line in lines[: lines.index("")]]
    return {name: cells for cells in rows for name in re.findall(r"`([\w-]+)`", cells[0])}


@pytest.mark.parametrize("page", pages.PAGES, ids=lambda page: page.name)
def test_generated_parts_are_what_the_code_has(page):
    text = page.read_text()
    assert generate.generated(text) == text, "run: python tests/docs/generate.py"


def test_every_generated_part_is_on_a_page():
    text = "".join(page.read_text() for page in pages.PAGES)
    assert {name for _, name, _, _ in generate.PART.findall(text)} == set(generate.PARTS)


def test_a_stale_part_is_noticed():
    text = (DOCS / "results.md").read_text()
    stale = text.replace("| `tree` | tree | ", "| `trees` | tree | ")
    assert generate.generated(stale) == text != stale


def test_every_verdict_has_a_row_that_states_if_it_passes():
    rows = table("results.md", "verdict")
    assert list(rows) == [verdict.value for verdict in Verdict]
    assert {name for name, cells in rows.items() if cells[-1] == "no"} == set(BLOCKING)


def test_every_public_name_is_in_the_reference():
    named = {
        line.rsplit(".", 1)[1] for line in (DOCS / "api.md").read_text().splitlines() if line[:3] == ":::"
    }
    assert named == set(parity.__all__)


def test_every_page_is_in_the_site():
    text = re.sub(r"!!python/name:\S+", "", (pages.ROOT / "mkdocs.yml").read_text())
    shown = set(re.findall(r"[\w./-]+\.md", str(yaml.safe_load(text)["nav"])))
    written = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    assert {path for path in written if not path.startswith("decisions/0")} == shown


def test_every_decision_is_in_the_list():
    listed = re.findall(r"\((\d[^)]*\.md)\)", (DOCS / "decisions" / "README.md").read_text())
    assert listed == sorted(path.name for path in (DOCS / "decisions").glob("0*.md"))


@pytest.mark.parametrize("page", pages.PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if target.startswith(("http", "mailto")):
            continue
        name, _, anchor = target.partition("#")
        other = (page.parent / name).resolve() if name else page
        assert other.exists(), target
        if anchor and other.suffix == ".md":
            heads = re.findall(r"^#+ (.*)$", other.read_text(), re.MULTILINE)
            slugs = {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}
            assert anchor in slugs, target


@pytest.mark.long
def test_the_site_builds(tmp_path):
    mkdocs = shutil.which("mkdocs", path=str(Path(sys.executable).parent))
    assert mkdocs, "mkdocs is not installed: pip install -e .[docs]"
    command = [mkdocs, "build", "--quiet", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=pages.ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "assert_twins" in (tmp_path / "site" / "api" / "index.html").read_text()


def test_the_lines_that_a_proof_rests_on_are_counted():
    printed = subprocess.run(
        [sys.executable, pages.ROOT / "tests" / "trusted_lines.py"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    counted = int(re.search(r"(\d+) lines that a wrong", printed)[1])
    covered = int(
        re.search(r"about ([\d,]+) lines. `python", (DOCS / "soundness.md").read_text())[1].replace(",", "")
    )
    assert abs(counted - covered) < 0.1 * covered, printed
    for module in ("frontier", "search", "rules.weight_views", "counters", "rules.terms"):
        assert f" parity.prove.{module}\n" in printed


def test_the_table_of_passes_has_a_row_for_every_channel_and_rung():
    text = (DOCS / "soundness.md").read_text().partition("## What a pass means")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    assert {len(row) for row in rows} == {4}
    assert max(len(cell.split()) for row in rows for cell in row) <= 12
    named = set(re.findall(r"`([\w-]+)`", text))
    assert set(CHANNELS) | {str(verdict) for verdict in Verdict} - {*map(str, BLOCKING)} <= named
