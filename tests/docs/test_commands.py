"""Every command that a page names exists, with its options; its cases, files, targets and tests are there."""

import importlib.util
import re
import shlex
import sys
from pathlib import Path

import pytest
import typer

from parity.cases.case import selects
from parity.cases.settings import collect
from parity.cli import app

sys.path.insert(0, str(Path(__file__).parent))
import pages

WORD = re.compile(r"(parity|pytest|make|python) (?!\.\.\.)\S")
COMMANDS = typer.main.get_command(app).commands
TARGETS = set(re.findall(r"^(\w[\w-]*):", (pages.ROOT / "Makefile").read_text(), re.MULTILINE))
PLUGIN = (pages.ROOT / "parity" / "plugin.py").read_text()
OWN_PAIRS = ("docs/maxtext.md",)  # pages about pairs that are not here
TAKES_CASES = {"case", "select"}
ELSEWHERE = (
    "scorer",
    "plans-",
    "pipeline-plans-",
    "mlp",
    "net",
    "smoke",
    "core",
    "optax>=",
    "head:",
)  # pairs that a page invents, and words with a slash that are no case ids


def lines():
    """Each command of each page, as (page, line)."""
    for page in pages.PAGES:
        for text in pages.code_spans(page):
            line = text.removeprefix("$ ")
            if WORD.match(line):
                yield page.relative_to(pages.ROOT).as_posix(), line


def words(line: str) -> list[str]:
    """The words of a command, without comments, a second column of explanations, or a pipe."""
    line = re.split(r"\s{3,}|\s#|\s\||, parity|\$\{\{", line)[0]
    return shlex.split(line.replace("[", " ").replace("]", " "))


def takes_a_word(option) -> bool:
    return not option.is_flag


def positional(command, tokens):
    """The arguments that belong to no option.

    Raises:
        AssertionError: an option does not exist.
    """
    options = {name: option for option in command.params for name in (*option.opts, *option.secondary_opts)}
    found, tokens = [], iter(tokens)
    for token in tokens:
        if not token.startswith("-"):
            found.append(token)
            continue
        name = token.split("=")[0]
        assert name in options or name == "--help", f"no option {name}"
        if name in options and takes_a_word(options[name]) and "=" not in token:
            next(tokens, None)
    return found


@pytest.fixture(scope="module")
def ids():
    """The ids of all cases included in parity, small and at published size."""
    grid = ("campaigns.matrix.pipeline_grid:PAIR",)
    sizes = (None, 4, 16, 512)
    return {case.id for devices in sizes for case in collect(grid, start=pages.ROOT, devices=devices)[1]}


def check_make(rest, ids):
    assert {word for word in rest if "=" not in word} <= TARGETS


def check_python(rest, ids):
    if rest[0] == "-m":
        assert importlib.util.find_spec(rest[1]) is not None
    else:
        assert "DIR" in rest[0] or (pages.ROOT / rest[0]).exists()


def check_pytest(rest, ids):
    for word in rest:
        assert not word.startswith("--parity-") or f'"{word.split("=")[0]}"' in PLUGIN, f"no option {word}"
        assert not word.startswith("tests/") or (pages.ROOT / word.split("::")[0]).exists(), f"no test {word}"


def check_parity(rest, ids):
    command = COMMANDS[rest[0]]
    named = positional(command, rest[1:])
    if ids and TAKES_CASES & {parameter.name for parameter in command.params}:
        for word in filter(str.islower, named):
            assert word.startswith(ELSEWHERE) or any(selects(id, word) for id in ids), f"no case {word}"


CHECKS = {"make": check_make, "python": check_python, "pytest": check_pytest, "parity": check_parity}


@pytest.mark.slow
@pytest.mark.parametrize(("page", "line"), sorted(set(lines())))
def test_exists(page, line, ids):
    program, *rest = words(line)
    CHECKS[program](rest, None if page in OWN_PAIRS else ids)


def test_every_page_is_read():
    assert len({page for page, _ in lines()}) > 15
    assert "parity" in {words(line)[0] for _, line in lines()}
