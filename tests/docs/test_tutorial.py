"""The first page works as printed: its files are written, its commands run, and its output appears."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import pages


@pytest.mark.long
def test_first_page(tmp_path, users_shell):
    commands = 0
    for fence in pages.fences(pages.ROOT / "docs" / "index.md"):
        pages.write(fence, tmp_path)
        for command, shown in pages.transcripts(fence) if fence.language == "console" else ():
            if command.startswith("pip install"):
                continue
            printed = pages.run(command, tmp_path, users_shell)
            missing = pages.shows(printed, shown)
            assert missing is None, f"{command}\ndid not print {missing}\nbut\n{printed}"
            commands += 1
    assert commands == 6
    assert (tmp_path / "report.html").stat().st_size > 10_000


@pytest.mark.long
def test_the_session_of_the_readme(tmp_path, users_shell):
    """It is that of the first page before the fix."""
    for fence in pages.fences(pages.ROOT / "docs" / "index.md"):
        if "replace" not in fence.info:
            pages.write(fence, tmp_path)
    commands = [
        transcript
        for fence in pages.fences(pages.ROOT / "README.md")
        if fence.language == "console"
        for transcript in pages.transcripts(fence)
    ]
    for command, shown in commands:
        printed = pages.run(command, tmp_path, users_shell)
        missing = pages.shows(printed, shown)
        assert missing is None, f"{command}\ndid not print {missing}\nbut\n{printed}"
    assert len(commands) == 2


@pytest.mark.parametrize(
    ("printed", "shown", "missing"),
    [
        ("a 1.5 s\nb", ["a 2 s", "b"], None),
        ("a\nb", ["b", "a"], "a"),
        ("3 passed in 10 s (trace 1 s)", ["3 passed in 9 s ..."], None),
        ("x failed", ["x passed"], "x passed"),
        ("a\nthen\nb", ["a", "...", "b"], None),
    ],
)
def test_shown_output_must_be_printed(printed, shown, missing):
    assert pages.shows(printed, shown) == missing
