"""``python tests/docs/generate.py``: writes the parts of the pages that list items of the code.

Such a part is placed between ``<!-- generated: NAME -->`` and ``<!-- end -->``; ``NAME`` is a function in `PARTS`.
"""

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import typer

from parity.channels import CHANNELS
from parity.cli import app
from parity.prove.rules import RULES, RewriteRule
from parity.report import channels_markdown
from parity.report.formats import FORMS

DOCS = Path(__file__).parents[2] / "docs"
PART = re.compile(r"(<!-- generated: (\w+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a Markdown table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def _rules(chosen: Iterable[RewriteRule]) -> str:
    heads = ("rule", "rewrites, if", "why no bit changes", "attacked by")
    rows = [
        (f"`{rule.name}`", f"{rule.rewrites}{_if(rule)}", rule.argument, rule.attacked_by)
        for rule in sorted(chosen, key=lambda rule: rule.name)
    ]
    return table(heads, rows)


def _if(rule: RewriteRule) -> str:
    return "" if rule.condition == "any" else f"; if: {rule.condition}"


def exact_rules() -> str:
    """Returns the table of the rules of ``proved``."""
    return _rules(rule for rule in RULES.values() if not rule.loose)


def loose_rules() -> str:
    """Returns the table of the rules of ``reordered`` alone."""
    return _rules(rule for rule in RULES.values() if rule.loose)


def channels() -> str:
    """Returns the table of channels and the subject of each."""
    return table(("channel", "compares"), [(f"`{name}`", one.about) for name, one in CHANNELS.items()])


def forms() -> str:
    """Returns the table of the forms of a report."""
    rows = [("`--json FILE`", "the record: [schema](#json)")]
    rows += [(f"`--{name} FILE`", form.about) for name, form in FORMS.items()]
    return table(("option of `run`, `gate`, `report`", "writes"), rows)


def commands() -> str:
    """Returns the table of commands: the first sentence of each one's help."""
    found = typer.main.get_command(app).commands  # pyright: ignore[reportAttributeAccessIssue]
    return table(
        ("command", "does"),
        [(f"`parity {name}`", _first(one.callback)) for name, one in found.items() if not one.hidden],
    )


def _first(documented: object) -> str:
    """Returns the first line of a docstring."""
    return (inspect.getdoc(documented) or "").partition("\n")[0]


PARTS: dict[str, Callable[[], str]] = {
    "exact_rules": exact_rules,
    "loose_rules": loose_rules,
    "channels": channels,
    "channels_in_full": channels_markdown,
    "commands": commands,
    "forms": forms,
}


def generated(text: str) -> str:
    """Returns a page with its generated parts written again.

    Raises:
        KeyError: if the page has a part that no function writes.
    """
    return PART.sub(lambda found: found[1] + PARTS[found[2]]() + found[4], text)


def main() -> int:
    """Writes the pages, and names those that changed."""
    for page in sorted(DOCS.rglob("*.md")):
        old = page.read_text()
        new = generated(old)
        if new != old:
            page.write_text(new)
            print(page.relative_to(DOCS.parent))
    return 0


if __name__ == "__main__":
    sys.exit(main())
