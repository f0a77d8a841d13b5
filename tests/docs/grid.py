"""``python tests/docs/grid.py PAGE RECORD...``: writes the grid of verdicts of a page from records of ``parity run``.

The grid is placed between ``<!-- measured: grid -->`` and ``<!-- end -->``. A case of a
later record replaces that of an earlier one.
"""

import json
import re
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from parity.verdicts import BLOCKING

PART = re.compile(r"(<!-- measured: grid -->\n)(.*?)(<!-- end -->)", re.DOTALL)
HEADS = ("forward", "train step")


def verdict(case: Mapping) -> str:
    """Returns ``proved``, ``passed`` without a proof, or the verdict with the channels that block."""
    blocking = [name for name, one in case["channels"].items() if one["verdict"] in BLOCKING]
    if blocking or case["verdict"] != "passed":
        return f"**{case['verdict']}**: {', '.join(blocking)}".removesuffix(": ")
    return "proved" if case["channels"]["program"]["verdict"] == "proved" else "passed"


def grid(cases: Iterable[Mapping]) -> str:
    """Returns the cases as a Markdown list: variants with equal verdicts share an item.

    Args:
        cases: cases of records, as ``parity run --json`` writes them.
    """
    rows: dict[str, dict[str, list[str]]] = {}
    for case in {(case["id"], case["backend"]): case for case in cases}.values():
        variant, _, rest = case["id"].partition("/")
        program, _, mesh = rest.partition("@")
        place = mesh if case["backend"] == "cpu" else f"{mesh} on {case['backend']}"
        row = rows.setdefault(variant, {"forward": [], "train_step": []})
        row[program].append(f"{verdict(case)} (`{place}`)")
    matching: dict[tuple[str, ...], list[str]] = {}
    for name, row in rows.items():
        matching.setdefault(tuple(", ".join(found) for found in row.values()), []).append(name)
    return "".join(_item(names, *row) for row, names in matching.items())


def _item(names: Sequence[str], forward: str, train_step: str) -> str:
    """Returns equal rows as one item of a list, in lines of 120 columns; ``a`` is ``a-scan`` and ``a-unroll``."""
    short = dict.fromkeys(
        name.removesuffix("-scan").removesuffix("-unroll")
        if {f"{name.rsplit('-', 1)[0]}-{layout}" for layout in ("scan", "unroll")} <= set(names)
        else name
        for name in names
    )
    verdicts = [f"{head} {found}" for head, found in zip(HEADS, (forward, train_step), strict=True) if found]
    text = f"- {'; '.join(verdicts)}: {', '.join(f'`{name}`' for name in short)}"
    return textwrap.fill(text, 118, subsequent_indent="  ", break_on_hyphens=False) + "\n"


def main(page: str, *records: str) -> int:
    """Writes the grid of a page."""
    cases = [case for record in records for case in json.loads(Path(record).read_text())["cases"]]
    old = Path(page).read_text()
    Path(page).write_text(PART.sub(lambda found: found[1] + grid(cases) + found[3], old))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
