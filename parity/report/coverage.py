"""Prints the options of a pair's cases and the coverage of their combinations."""

from rich.console import Console
from rich.text import Text

from parity.cases.coverage import Combination, Coverage, Factor

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
    lines = [
        f"{_kinds(coverage)}: {coverage.covered:,} of {coverage.allowed:,} covered, {_percent(coverage)}",
        f"besides, {len(coverage.refused):,} are refused, {coverage.idle:,} have no say; "
        f"{len(coverage.rare):,} are covered by one case only",
        *(f"refused: {reason}" for reason in sorted(set(coverage.refused.values()))),
        *(f"missing: {_shown(combination)}" for combination in coverage.missing[:MOST]),
    ]
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


def _kinds(coverage: Coverage) -> str:
    thorough = len(coverage.space.thorough)
    return "pairs of values" + (f", and triples of the first {thorough} factors" if thorough else "")


def _percent(coverage: Coverage) -> str:
    share = coverage.covered / coverage.allowed if coverage.allowed else 1.0
    return "100 %" if share == 1 else f"{100 * share:.2f} %"


def _shown(combination: Combination) -> str:
    return " with ".join(f"{name}={value}" for name, value in combination)
