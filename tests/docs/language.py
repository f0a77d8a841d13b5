"""The language of pages and code: expressions to avoid, words of each page, first words of docstrings.

``python tests/docs/language.py`` prints words and minutes of each page, and the counts of all expressions.
``--lower`` writes lower counts to ``ceilings.txt``; ``--set`` writes all of them.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import generate
import grid
import pages

CEILINGS = Path(__file__).with_name("ceilings.txt")
CODE = ("*.py", "*.toml", "Makefile")
RIDDLES = ("What", "Which", "Where", "How", "Who", "When", "Whether")
WORDS_A_MINUTE = 230
FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
GENERATED = ("docs/kill-matrix.md",)
"""Pages that a command writes as a whole."""


@cache
def files(*patterns: str) -> tuple[Path, ...]:
    """Returns the tracked files that match the patterns, without this list of expressions and its test."""
    listed = subprocess.run(
        ["git", "ls-files", "--", *patterns], cwd=pages.ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    found = (pages.ROOT / name for name in listed)
    return tuple(path for path in found if path.exists() and path.parent != CEILINGS.parent)


def count(expression: str, paths: Sequence[Path]) -> int:
    """Returns how often an expression occurs in files, line by line, without regard to case."""
    pattern = re.compile(expression, re.IGNORECASE | re.MULTILINE)
    return sum(len(pattern.findall(_text(path))) for path in paths)


@cache
def _text(path: Path) -> str:
    return prose(path) if path.suffix == ".md" else path.read_text()


def ceilings() -> Mapping[str, tuple[int, int]]:
    """Returns expression -> the highest counts in Markdown and in code."""
    rows = (line.split(maxsplit=2) for line in CEILINGS.read_text().splitlines() if line[:1] != "#")
    return {expression: (int(markdown), int(code)) for markdown, code, expression in rows}


def counts() -> Mapping[str, tuple[int, int]]:
    """Returns expression -> today's counts in Markdown and in code."""
    return {one: found(one) for one in ceilings()}


def found(expression: str) -> tuple[int, int]:
    """Returns how often an expression occurs in Markdown and in code."""
    return count(expression, files("*.md")), count(expression, files(*CODE))


def _whole() -> set[Path]:
    return {pages.ROOT / name for name in GENERATED}


def prose(page: Path) -> str:
    """Returns a page without what a command writes."""
    return "" if page in _whole() else grid.PART.sub("", generate.PART.sub("", page.read_text()))


def words(page: Path) -> int:
    """Returns how many words of a page are written by hand, tables included and blocks of code left out."""
    return len(re.findall(r"[^\s|`*#>-]\S*", FENCE.sub("", prose(page))))


def written_pages() -> list[Path]:
    """Returns all pages that people write, and the changelog."""
    return [page for page in (*pages.PAGES, pages.ROOT / "CHANGELOG.md") if page not in _whole()]


def first_words() -> Iterator[str]:
    """Yields the first word of each docstring of the code."""
    for path in files("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and (
                text := ast.get_docstring(node)
            ):
                yield re.split(r"\W", text, maxsplit=1)[0]


def write(found: Mapping[str, tuple[int, int]]) -> None:
    """Writes counts as ceilings, with the comments that are there."""
    head = [line for line in CEILINGS.read_text().splitlines() if line[:1] == "#"]
    rows = [f"{markdown:5d} {code:5d} {one}" for one, (markdown, code) in found.items()]
    CEILINGS.write_text("\n".join([*head, *rows]) + "\n")


def main(arguments: Sequence[str]) -> int:
    """Prints the counts, and writes them on request."""
    today, highest = counts(), ceilings()
    if "--set" in arguments:
        write(today)
    elif "--lower" in arguments:
        write(
            {
                one: (min(today[one][0], most), min(today[one][1], code))
                for one, (most, code) in highest.items()
            }
        )
    by_page = {page.relative_to(pages.ROOT).as_posix(): words(page) for page in written_pages()}
    for name, number in sorted(by_page.items(), key=lambda row: -row[1]):
        print(f"{number:6,}  {number / WORDS_A_MINUTE:5.1f} min  {name}")
    total = sum(by_page.values())
    print(f"{total:6,}  {total / WORDS_A_MINUTE:5.1f} min  all")
    for one, (markdown, code) in today.items():
        print(f"{markdown:5d} {code:5d}  {one}")
    print(f"{sum(a for a, _ in today.values()):5d} {sum(b for _, b in today.values()):5d}  all expressions")
    first = list(first_words())
    riddles = sum(word in RIDDLES for word in first)
    print(f"{riddles} of {len(first)} docstrings begin with {', '.join(RIDDLES)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
