"""Content of the documentation pages: files, commands, and the output of the commands."""

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
TITLE = re.compile(r'title="([^":]+)(: replace)?"')
NUMBER = re.compile(r"[-+]?\d+(\.\d+)?(e[-+]?\d+)?")


@dataclass(frozen=True)
class Fence:
    """A fenced block of a page: its language, the title on its first line, its text."""

    language: str
    info: str
    text: str


def fences(page: Path) -> Iterator[Fence]:
    """The fenced blocks of a page, in order."""
    for token in MarkdownIt().parse(page.read_text()):
        if token.type == "fence":
            yield Fence(token.info.split(" ")[0], token.info, token.content)


def code_spans(page: Path) -> Iterator[str]:
    """Everything between single backticks, and each line of the fenced blocks."""
    for token in MarkdownIt().enable("table").parse(page.read_text()):
        if token.type == "fence":
            yield from (line.strip() for line in token.content.splitlines())
        for child in token.children or ():
            if child.type == "code_inline":
                yield child.content.strip()


def write(fence: Fence, folder: Path) -> None:
    """Writes the file that the title of a block names, or replaces a text in it; does nothing without a title.

    Raises:
        ValueError: the text to be replaced does not occur exactly once in the file.
    """
    title = TITLE.search(fence.info)
    if title is None:
        return
    file, replace = folder / title[1], title[2]
    if not replace:
        file.write_text(fence.text)
        return
    old, new = fence.text.split("---\n")
    if file.read_text().count(old) != 1:
        raise ValueError(
            f"{title[1]}: {old!r} stands there {file.read_text().count(old)} times, expected once"
        )
    file.write_text(file.read_text().replace(old, new))


def transcripts(fence: Fence) -> Iterator[tuple[str, list[str]]]:
    """The commands of a console block, each with the lines that it must print."""
    command, shown = None, []
    for line in fence.text.splitlines():
        if line.startswith("$ "):
            if command is not None:
                yield command, shown
            command, shown = line[2:], []
        else:
            shown.append(line)
    if command is not None:
        yield command, shown


def shows(printed: str, shown: list[str]) -> str | None:
    """The first line that a page shows and a command did not print in that order; None if there is none.

    Numbers may differ, and so may the width of their columns: times, rounding, versions. `...` matches anything.
    """
    lines = iter(map(_without_numbers, printed.splitlines()))
    for line in shown:
        pattern = ".*".join(re.escape(part) for part in _without_numbers(line).split("..."))
        if line != "..." and not any(re.fullmatch(pattern, other) for other in lines):
            return line
    return None


def _without_numbers(line: str) -> str:
    return re.sub(r"\s+", " ", NUMBER.sub("#", line)).strip()


def run(command: str, folder: Path, environment: dict[str, str]) -> str:
    """Returns both output streams of a shell command in the folder, for 80 columns."""
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env={**environment, "COLUMNS": "80"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
    )
    return done.stdout
