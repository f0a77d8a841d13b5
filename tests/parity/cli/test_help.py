"""Unknown words of the command line, and the sections of its help."""

import re

import pytest
import typer

from parity.cli import app

COMMANDS = typer.main.get_command(app).commands


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "smoke", "--set", "--demand"), "--set '--demand': expected FIELD=VALUE"),
        (("run", "--demands", "proved"), "No such option: --demands"),
        (("map", "hlo"), "selector 'hlo'"),
        (("run", "--json"), "requires an argument"),
    ],
    ids=" ".join,
)
def test_a_wrong_word_is_named(command, words, said):
    ended = command(*words)
    assert ended.code == 2 and said in ended.err


def test_the_help_of_run_lists_rarely_used_options_separately_and_none_is_lost(command):
    ended = command("run", "--help")
    usual, rare = ended.out.split("Rarely used")
    listed = [set(re.findall(r"^│ (--[a-z-]+)", text, re.MULTILINE)) for text in (usual, rare)]
    assert {"--json", "--set", "--require", "--cached", "--channel", "--help"} <= listed[0]
    assert {"--ray", "--processes", "--traceback", "--refresh", "--builtin"} <= listed[1]
    known = {option.opts[0] for option in COMMANDS["run"].params if option.opts[0].startswith("--")}
    assert listed[0] | listed[1] == known | {"--help"} and not listed[0] & listed[1]
    assert len(listed[0]) <= 14
