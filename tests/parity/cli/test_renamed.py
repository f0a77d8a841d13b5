"""Old words of the command line end with exit code 2 and one sentence that names the new word."""

import msgspec
import pytest
import typer

from parity.cases.settings import Settings
from parity.cli import app
from parity.cli.options import NEW

COMMANDS = typer.main.get_command(app).commands
OLD = [
    ("run", "--demand", "proved"),
    ("run", "smoke", "--demand=proved"),
    ("run", "--remember"),
    ("run", "--cached", "--fresh"),
    ("report", "r.json", "--compare", "s.json"),
    ("run", "--last-failed"),
    ("gate", "--remember"),
    ("mutants", "--fresh"),
    ("run", "--no-cache"),
    ("run", "--no-compile-cache"),
    ("inspect", "smoke", "--compile-gib", "20"),
    ("run", "smoke", "--compile-seconds=1200"),
    ("bisect", "smoke", "--axis", "op"),
    ("prove", "smoke", "--modulo", "sharding"),
    ("inspect", "smoke", "--no-cache"),
    ("prove", "smoke", "--paranoid"),
    ("run", "--from", "r.json", "--html", "x.html"),
    ("run", "smoke", "--explain"),
    ("hlo", "smoke", "--full-size"),
    ("structure",),
    ("shardings", "smoke"),
    ("flags",),
    ("merge", "1.json", "2.json", "--json", "all.json"),
    ("repro", "smoke", "--repro", "shown"),
    ("bench", "--harness"),
]


@pytest.mark.parametrize("words", OLD, ids=" ".join)
def test_an_old_word_names_the_new_one(command, words):
    ended = command(*words)
    old = next(
        (word.split("=")[0] for word in words if word.startswith("--") and word.split("=")[0] in NEW),
        words[0],
    )
    assert (ended.code, ended.out, ended.err) == (2, "", f"parity: {old} is now {NEW[old]}\n")


def test_every_old_word_is_tried_and_no_command_still_has_it():
    assert {word.split("=")[0] for words in OLD for word in words} >= set(NEW)
    assert not set(NEW) & set(COMMANDS)


@pytest.mark.parametrize("new", NEW.values())
def test_a_new_word_exists(new):
    options = {name for command in COMMANDS.values() for option in command.params for name in option.opts}
    words = new.split()
    if words[0] == "[tool.parity]":
        assert words[1] in {field.encode_name for field in msgspec.structs.fields(Settings)}
        return
    assert words[0] == "pytest" or {word for word in words if word.startswith("--")} <= options
    assert (
        words[0].startswith("--")
        or words[1] in COMMANDS
        or words[0] == "pytest"
        or words[1] == "tests/campaigns"
    )
