"""Prints the options of a pair's cases and the coverage of their combinations."""

from rich.console import Console
from rich.text import Text

from parity.cases.coverage import Coverage, Factor

__all__ = ["print_coverage"]

MOST = 10
"""Maximum number of missing combinations that are printed."""


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
