"""Versions of a dependency shadow the installed one; the first failing one is found, and nothing is left behind."""

import functools
import importlib.util
import sys
import zipfile

import pytest
from packaging.requirements import Requirement

from parity.bisect.axis import Signature
from parity.bisect.history import Check
from parity.bisect.version import available, search_versions

VERSIONS, CULPRIT, RED, BROKEN, UNMET = 16, 11, (3,), (7, 9), (8,)
"""1.0 to 1.15 in version order, which differs from alphabetical order."""
CHECK = """import json, pathlib, sys
import wobble
import wobblelib
asked = pathlib.Path(sys.argv[2])
asked.open("a").write(f"{wobble.number}\\n")
assert wobblelib.number == wobble.number, "what a version needs was not laid beside it"
flips = "flaky" in wobble.state and asked.read_text().split().count(str(wobble.number)) % 2 == 0
leaves = ["loss"] * ("bad" in wobble.state and not flips) + ["weight"] * ("red" in wobble.state)
finding = [{"where": leaf, "reference": "", "candidate": ""} for leaf in leaves[:1]]
channels = {"values": {"verdict": "failed" if leaves else "bitwise", "detail": "", "findings": finding}}
pathlib.Path(sys.argv[1]).write_text(json.dumps({"cases": [{"id": "a/b@c", "channels": channels}]}))
"""


def wheel(folder, name, version, text, requires=()):
    """Writes a package of one module."""
    info = f"{name}-{version}.dist-info"
    metadata = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as file:
        file.writestr(f"{name}.py", text)
        file.writestr(
            f"{info}/METADATA", "\n".join([*metadata, *(f"Requires-Dist: {each}" for each in requires), ""])
        )
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", "")


def index(folder, *, flaky=False, culprit=CULPRIT, fixed=False):
    """Makes a folder of wheels that is pip's only index."""
    folder.mkdir()
    for number in range(VERSIONS):
        words = ["bad"] * ((number >= culprit) is not fixed) + ["red"] * (number in RED)
        words += ["flaky"] * (flaky and number >= culprit)
        text = f"number, state = {number}, {words!r}\n"
        if number in BROKEN:
            text = "raise ImportError('not for this Python')\n"
        needs = [f"wobblelib==1.{number}", "numpy", "nowhere>=3; extra == 'more'"]
        needs += ["wobblelib-there-is-none"] * (number in UNMET)
        wheel(folder, "wobble", f"1.{number}", text, needs)
        wheel(folder, "wobblelib", f"1.{number}", f"number = {number}\n")
    wheel(folder, "wobble", "2.0rc1", "number, state = 99, ['bad']\n", ["wobblelib==1.1"])
    return folder


@pytest.fixture
def search(tmp_path, monkeypatch):
    def made(requirement="wobble>=1.1", **more):
        monkeypatch.setenv("PIP_NO_INDEX", "1")
        monkeypatch.setenv("PIP_FIND_LINKS", str(index(tmp_path / "wheels", **more)))
        script = tmp_path / "check.py"
        script.write_text(CHECK)
        words = (sys.executable, str(script), "{report}", str(tmp_path / "asked.txt"))
        check = Check(words=words, case="a/b@c")
        return functools.partial(search_versions, check, tmp_path, requirement)

    return made


@pytest.mark.long
def test_the_culprit_is_found_among_an_unrelated_red_and_versions_that_cannot_be_tested(search, tmp_path):
    covered = []
    found = search()(notify=covered.append)
    facts = found.axes[0].facts
    assert (facts["first"], facts["does"], found.ambiguous) == ([f"1.{CULPRIT}"], "fails", False)
    assert found.signature == Signature(channel="values", leaf="loss", kind="failed")
    assert facts["tested"] <= 6
    said = dict(facts["log"])
    untested = [said[f"1.{number}"] for number in (*BROKEN, *UNMET) if f"1.{number}" in said]
    assert untested and all(text.startswith("cannot be tested: ") for text in untested)
    reasons = " ".join(untested)
    assert "ImportError: not for this Python" in reasons or "wobblelib-there-is-none" in reasons
    assert importlib.util.find_spec("wobble") is None


@pytest.mark.long
def test_if_the_version_before_cannot_be_tested_all_are_named_and_a_fixed_case_is_noted(search):
    found = search(culprit=10, fixed=True)()
    facts = found.axes[0].facts
    assert (facts["first"], facts["does"]) == (["1.7", "1.8", "1.9", "1.10"], "passes")
    assert "is one of" in found.sentence and not found.ambiguous


@pytest.mark.long
def test_a_check_that_disagrees_with_itself_is_ambiguous(search):
    assert search(flaky=True)().ambiguous


@pytest.mark.long
def test_equal_ends_and_empty_ranges_are_refused(search):
    check, where, _ = search().args
    for requirement, words in (
        ("wobble>=1.1,<1.3", r"got 1\.1 passes, 1\.2 passes, expected one end"),
        ("wobble>=1.12", "got 1.12 fails, 1.15 fails"),
        ("wobble>1.14", r"got 1 versions, expected two at least; there are 1\.15, 1\.14"),
        ("wobblenone", "pip index: got No matching distribution"),
        ("wobble >", "expected a package and a range"),
    ):
        with pytest.raises(ValueError, match=words):
            search_versions(check, where, requirement)


@pytest.mark.long
def test_versions_are_ordered_and_prereleases_need_a_request(search):
    search()
    assert available(Requirement("wobble>=1.8,<1.12")) == ["1.8", "1.9", "1.10", "1.11"]
    assert available(Requirement("wobble>=1.14,<=2.0rc1")) == ["1.14", "1.15", "2.0rc1"]
