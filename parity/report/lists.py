"""Lists of `parity list` and `parity map`: channels, combinations of options, entries of a weight map."""

import os.path
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.text import Text

from parity.builds.weights.map import strip_container
from parity.cases.coverage import Coverage, Factor
from parity.channels import CHANNELS
from parity.compare.certificate import Certified

__all__ = ["channels_markdown", "map_line", "print_coverage", "unvaried_text"]

HEADS = ("channel", "column", "compares", "needs", "a proof settles it")
SETTLES = {"lowered": "yes", "compiled": "unless one came for compiled programs", "nothing": "no"}
MOST = 10
"""Maximum number of missing combinations that are printed."""


def channels_markdown() -> str:
    """Returns a Markdown table with one row per channel, in the order of reports."""
    rows = [
        (f"`{one.name}`", one.column, one.about, str(one.needs), SETTLES[str(one.settled)])
        for one in CHANNELS.values()
    ]
    lines = [" | ".join(row) for row in (HEADS, ("---",) * len(HEADS), *rows)]
    return "".join(f"| {line} |\n" for line in lines)


def unvaried_text(found: Mapping[str, Mapping[str, str]], most: int | None = None) -> str:
    """Returns the options that no case varies as one line.

    Args:
        found: ``{variants: {option: its only value}}``.
        most: maximum number of options that are named; None for all.
    """
    every = [
        (names, f"{option}={value}") for names, options in found.items() for option, value in options.items()
    ]
    named: dict[str, list[str]] = {}
    for names, words in every[:most]:
        named.setdefault(names, []).append(words)
    listed = "; ".join(f"{names}: no case varies {', '.join(words)}" for names, words in named.items())
    more = len(every) - sum(map(len, named.values()))
    return f"{listed} and {more} more; `parity list --coverage` names all" if more else listed


def print_coverage(screen: Console, coverage: Coverage) -> int:
    """Prints factors, values and counts of covered, refused and rare combinations; returns the number missing.

    Args:
        screen: the console.
        coverage: coverage of one space.
    """
    space = coverage.space
    screen.print(Text(f"{space.name}: {len(coverage.rows)} cases", "bold"))
    width = max(len(factor.name) for factor in space.factors)
    for factor in space.factors:
        line = Text(factor.name.ljust(width + 2), "cyan").append(_values(coverage, factor), "default")
        screen.print(line, soft_wrap=True)
    kinds = "pairs of values"
    if space.thorough:
        kinds += f", and triples of the first {len(space.thorough)} factors"
    share = f"{100 * coverage.covered / coverage.allowed:.2f} %" if coverage.missing else "100 %"
    lines = [
        f"{kinds}: {coverage.covered:,} of {coverage.allowed:,} covered, {share}",
        f"besides, {len(coverage.refused):,} are refused, {coverage.idle:,} have no say; "
        f"{len(coverage.rare):,} are covered by one case only",
        *(f"refused: {reason}" for reason in sorted(set(coverage.refused.values()))),
    ]
    for combination in coverage.missing[:MOST]:
        lines.append("missing: " + " with ".join(f"{name}={value}" for name, value in combination))
    for line in lines:
        style = "red" if line.startswith("missing") else "dim" if line.startswith("refused") else ""
        screen.print(Text(line, style), soft_wrap=True)
    return len(coverage.missing)


def _values(coverage: Coverage, factor: Factor) -> str:
    """Returns a factor's values, each with its number of cases, and an example case with the rarest value."""
    having = {value: coverage.cases_with(factor.name, value) for value in factor.values}
    rarest = min(having, key=lambda value: len(having[value]))
    first = having[rarest][0] if having[rarest] else "no case"
    return "  ".join(f"{value} {len(ids)}" for value, ids in having.items()) + f"  ({rarest}: {first})"


def map_line(certified: Certified) -> Text:
    """Returns one entry of a map as text: leaves, transform, kind of match and confirmation."""
    entry = certified.entry
    reference, candidate = _brief(entry.reference), _brief(entry.candidate)
    line = Text(f"  {reference}")
    line.append(f"  {entry.transform}" if reference == candidate else f"  -> {candidate}  {entry.transform}")
    line.append(f"; by {entry.matched_by}; ", "dim")
    return line.append(certified.confirmed_by, "bold red" if certified.contradicted else "green")


def _brief(paths: Sequence[str]) -> str:
    """Returns one name, or ``layers/{0..3}/mlp`` for several that differ at one place."""
    names = [strip_container(path) for path in paths]
    if len(names) == 1:
        return names[0]
    head = os.path.commonprefix(names)
    tail = os.path.commonprefix([name[len(head) :][::-1] for name in names])[::-1]
    middle = [name[len(head) : len(name) - len(tail)] for name in names]
    return f"{head}{{{middle[0]}..{middle[-1]}}}{tail}"
