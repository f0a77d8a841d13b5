"""What options and which of their combinations a pair's cases cover, for people."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from parity.coverage import Combination, Coverage

__all__ = ["print_coverage"]

MOST = 10
"""Missing combinations that are printed."""


def print_coverage(screen: Console, coverage: Coverage) -> int:
    """Prints factors, values, what is covered, refused and rare; returns how many combinations are missing.

    Args:
        screen: where to.
        coverage: of one space.
    """
    space = coverage.space
    screen.print(Text(f"{space.name}, {len(coverage.rows)} cases", "bold"))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for head in ("factor", "values, with the cases that have them", "has a say", "rare"):
        table.add_column(head, overflow="fold")
    for factor in space.factors:
        counts = {value: len(coverage.cases_with(factor.name, value)) for value in factor.values}
        table.add_row(
            factor.name,
            "  ".join(f"{value} {count}" for value, count in counts.items()),
            "" if not factor.needs else "with " + ", ".join("|".join(values) for values in factor.needs.values()),
            _rarest(coverage, factor.name),
        )
    screen.print(table)
    screen.print(f"{_kinds(coverage)}: {coverage.covered:,} of {coverage.allowed:,} covered ({_percent(coverage)})")
    screen.print(
        f"{len(coverage.refused):,} more are refused by the configs, {coverage.idle:,} have no say; "
        f"{len(coverage.rare):,} are in one case only"
    )
    for combination in coverage.missing[:MOST]:
        screen.print(Text(f"missing: {_shown(combination)}", "red"))
    for reason in sorted(set(coverage.refused.values())):
        screen.print(f"refused: {reason}", style="dim", soft_wrap=True, markup=False, highlight=False)
    return len(coverage.missing)


def _rarest(coverage: Coverage, name: str) -> str:
    """Returns the case that has the rarest value of a factor, where one alone has it or few do."""
    having = {value: coverage.cases_with(name, value) for value in coverage.space.by_name[name].values}
    value = min(having, key=lambda value: len(having[value]))
    return f"{value}: {having[value][0]}" if having[value] else f"{value}: none"


def _kinds(coverage: Coverage) -> str:
    thorough = len(coverage.space.thorough)
    return "pairs of values" + (f", and triples of the first {thorough} factors" if thorough else "")


def _percent(coverage: Coverage) -> str:
    share = coverage.covered / coverage.allowed if coverage.allowed else 1.0
    return "100 %" if share == 1 else f"{100 * share:.2f} %"


def _shown(combination: Combination) -> str:
    return " with ".join(f"{name}={value}" for name, value in combination)
