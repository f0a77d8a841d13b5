"""The scripts of docs/found.md are short, need no harness, print what the page shows, and show a difference."""

import re
import sys
from pathlib import Path

import flax
import pytest
from packaging.version import Version

sys.path.insert(0, str(Path(__file__).parent))
import pages

FOUND = pages.ROOT / "docs" / "examples" / "found"
PAGE = pages.ROOT / "docs" / "found.md"
SCRIPTS = sorted(set(FOUND.rglob("*.py")) - {FOUND / "maxtext" / "small.py"})
SHOWN = {
    command.split()[1]: (command, shown)
    for fence in pages.fences(PAGE)
    if fence.language == "console"
    for command, shown in pages.transcripts(fence)
}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_script_is_short_and_needs_no_harness(script):
    text = script.read_text()
    assert text.count("\n") <= 40 and not re.search(r"import parity|from parity", text)
    assert script.name in PAGE.read_text()


@pytest.mark.long
@pytest.mark.parametrize("name", SHOWN)
def test_a_difference_is_as_the_page_shows_it(name, users_shell):
    command, shown = SHOWN[name]
    printed = pages.run(command, pages.ROOT, users_shell)
    missing = pages.shows(printed, shown)
    assert missing is None, f"{command}\ndid not print {missing}\nbut\n{printed}"
    compared = list(sides(printed))
    assert all(linen != nnx for linen, nnx in compared), printed
    assert compared or name.endswith("weight_norms.py")


def sides(printed: str):
    """Yields the values of Linen and of NNX for each quantity that a script prints for both."""
    values = {
        name.strip(): value.strip()
        for name, _, value in (line.partition(":") for line in printed.splitlines())
    }
    for name, value in values.items():
        twin = values.get(name.replace("Linen", "NNX"))
        trained = "trained leaves" in name and Version(flax.__version__) >= Version("0.12.12")  # fixed there
        if "Linen" in name and twin is not None and not trained:
            yield value, twin
