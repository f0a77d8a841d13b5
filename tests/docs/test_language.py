"""Pages and code keep to plain words, short tables and lines; the counts in ``ceilings.txt`` may only fall."""

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import language
import pages

CEILINGS = language.ceilings()
WRITTEN = language.written_pages()
NAMES = [page.relative_to(pages.ROOT).as_posix() for page in WRITTEN]
WIDE = {"CHANGELOG.md": 2}
"""Page -> the columns of its widest table, if more than four."""
MINUTES = 90
LONGEST = 8.5


@pytest.mark.slow
@pytest.mark.parametrize("expression", CEILINGS)
def test_an_expression_to_avoid_becomes_no_more_frequent(expression):
    (markdown, code), (most, most_code) = language.found(expression), CEILINGS[expression]
    assert markdown <= most, f"{expression}: {markdown} times in pages, at most {most}"
    assert code <= most_code, f"{expression}: {code} times in code, at most {most_code}"


def test_the_ceilings_of_the_pages_are_a_tenth_of_the_first_count():
    assert sum(markdown for markdown, _ in CEILINGS.values()) <= 92


def test_an_expression_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("A value that is\nasked for, and told apart.\nOf each of what was kept\n")
    expressions = (r"\basks?\b|\basked\b", r"\btold\b", r"(^|[.:;] |\"\"\")Of (an?|the|each)\b", r"\bsays?\b")
    assert [language.count(one, (page,)) for one in expressions] == [1, 1, 1, 0]


@pytest.mark.slow
def test_docstrings_begin_with_a_noun_or_returns():
    first = list(language.first_words())
    assert sum(word in language.RIDDLES for word in first) < 0.01 * len(first)


def lines(page: Path) -> list[str]:
    """Returns the lines of a page that people write, without fenced blocks."""
    outside, kept = True, []
    for line in language.prose(page).splitlines():
        outside ^= line.lstrip().startswith("```")
        kept += [line] if outside else []
    return kept


@pytest.mark.parametrize(("page", "name"), list(zip(WRITTEN, NAMES, strict=True)), ids=NAMES)
def test_lines_and_tables_fit_a_screen(page, name):
    found = lines(page)
    rows = [re.split(r"(?<!\\)\|", line.strip("| ")) for line in found if line.startswith("|")]
    assert max(map(len, rows), default=0) <= WIDE.get(name, 4)
    if name not in WIDE:
        assert [line for line in found if len(line) > 120] == []
        assert [cell for row in rows for cell in row if len(cell.split()) > 12] == []


def test_all_pages_are_read_in_an_hour_and_a_half():
    minutes = {
        name: language.words(page) / language.WORDS_A_MINUTE
        for page, name in zip(WRITTEN, NAMES, strict=True)
    }
    assert sum(minutes.values()) <= MINUTES, minutes
    assert max(minutes.values()) <= LONGEST, minutes
