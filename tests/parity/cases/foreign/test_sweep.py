"""Every layer that Flax has in both flavours: equal, or a declared difference that the docs explain."""

import fnmatch
import re
from pathlib import Path

import pytest
from flax_layers import ROWS, names

from parity.report.table import findings_text
from parity.run.request import Request
from parity.run.run import case_runner

PAGE = Path(__file__).parents[4] / "docs" / "known-differences.md"
DECLARED = {row.differs.about: row.differs for row in ROWS.values() if row.differs}


def found_in(row):
    """Returns the blocking findings of a row's cases, as channel -> places; and the text of all findings."""
    results = list(map(case_runner(Request()), row.pair("layer").cases({})))
    found = {}
    for result in results:
        for channel in result.blocking:
            found.setdefault(str(channel.name), []).extend(finding.where for finding in channel.findings)
    return found, "\n".join(map(findings_text, results))


@pytest.mark.long
@pytest.mark.parametrize("name", ROWS)
def test_a_layer_of_both_flavours(name):
    row = ROWS[name]
    found, said = found_in(row)
    expected = row.differs.finds if row.differs else {}
    assert set(found) == set(expected), said
    astray = [
        where
        for channel, places in found.items()
        for where in places
        if not fnmatch.fnmatchcase(where, expected[channel])
    ]
    assert not astray, said


@pytest.mark.long
def test_every_layer_of_flax_has_a_row():
    """A new version of Flax may have new layers: they get a row, or a reason in `names.LEFT_OUT`."""
    rows = {re.split(": ", name)[0] for name in ROWS}
    assert {name for name in names.layers() if names.SAME.get(name, name) not in rows} <= set(names.LEFT_OUT)
    assert not rows & set(names.LEFT_OUT)


@pytest.mark.long
@pytest.mark.parametrize("about", DECLARED)
def test_a_declared_difference_is_on_the_page(about):
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith(f"| {about}")]
    assert len(lines) == 1, lines
    finding = lines[0].split(" | ")[1]
    channels = {
        channel
        for row in ROWS.values()
        if row.differs and row.differs.about == about
        for channel in row.differs.finds
    }
    assert channels <= set(re.findall(r"`(\w+)`", finding)), finding
