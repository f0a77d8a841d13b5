"""``python tests/docs/generate.py``: writes the parts of the pages that list items of the code.

Such a part is placed between ``<!-- generated: NAME -->`` and ``<!-- end -->``; ``NAME`` is a function in `PARTS`.
"""

import inspect
import re
import sys
import textwrap
import typing
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
import typer

from parity.cases.accepted import Budget, Waiver
from parity.cases.settings import _Project
from parity.channels import CHANNELS
from parity.cli import app
from parity.compare.timing.measure import _Bench
from parity.compare.timing.measure import _Entry as Comparison
from parity.gate.flips import Feature, Flip, Gate, NoQuestion, Relaxed
from parity.prove.rules import RULES, RewriteRule
from parity.report.formats import FORMS

DOCS = Path(__file__).parents[2] / "docs"
PART = re.compile(r"(<!-- generated: (\w+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a Markdown table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def _rules(chosen: Iterable[RewriteRule]) -> str:
    return "".join(_entry(rule) for rule in sorted(chosen, key=lambda rule: rule.name))


def _entry(rule: RewriteRule) -> str:
    """Returns a rule as one item of a list, in lines of 120 columns."""
    texts = (rule.rewrites, rule.condition, rule.argument, rule.attacked_by)
    rewrites, condition, argument, attack = (text.replace("*", r"\*") for text in texts)
    condition = "" if condition == "any" else f" **If** {condition}."
    text = f"- `{rule.name}`: {rewrites}.{condition} **Why:** {argument} **Attack:** {attack}."
    lines = textwrap.fill(text, 118, subsequent_indent="  ", break_long_words=False)
    return lines.replace("\n  - ", "\n  \\- ").replace("\n  + ", "\n  \\+ ") + "\n"


def exact_rules() -> str:
    """Returns the list of the rules of ``proved``."""
    return _rules(rule for rule in RULES.values() if not rule.loose)


def loose_rules() -> str:
    """Returns the list of the rules of ``reordered`` alone."""
    return _rules(rule for rule in RULES.values() if rule.loose)


def channels() -> str:
    """Returns the table of channels: column, subject, and what a proof settles."""
    rows = [(f"`{name}`", one.column, one.about, one.settled_by_proof) for name, one in CHANNELS.items()]
    return table(("channel", "column", "about", "a proof settles it"), rows)


def forms() -> str:
    """Returns the table of the forms of a report."""
    helps = {option.name: option.help for option in _commands()["report"].params}
    rows = [("`--json FILE`", "Write the record: [schema](record.md).")]
    rows += [(f"`--{name} FILE`", helps[name]) for name in FORMS]
    return table(("option of `run`, `gate`, `report`", "help"), rows)


def commands() -> str:
    """Returns a section for each command: its help, and a list of its arguments and options."""
    return "\n".join(_section(name, one) for name, one in _commands().items() if not one.hidden)


def _commands():
    return typer.main.get_command(app).commands  # pyright: ignore[reportAttributeAccessIssue]


def _section(name: str, command) -> str:
    context = typer.Context(command, info_name=f"parity {name}")
    records = [one.get_help_record(context) for one in command.get_params(context) if one.name != "help"]
    items = (f"- `{flags}`: {_plain(text)}" for flags, text in filter(None, records))
    return "\n".join((f"## parity {name}", "", inspect.getdoc(command.callback) or "", "", *items, ""))


def _plain(text: str) -> str:
    """Returns a help text on one line, without angle brackets, which Markdown takes for HTML."""
    return " ".join(text.split()).replace("<", "&lt;")


TABLES: dict[str, type[msgspec.Struct]] = {
    "": _Project,
    "waivers": Waiver,
    "budgets.CHANNEL.QUANTITY": Budget,
    "flips.NAME": Flip,
    "flips.NAME.features.NAME": Feature,
    "gate": Gate,
    "gate.not_applicable": NoQuestion,
    "relaxed": Relaxed,
    "bench": _Bench,
    "bench.compare": Comparison,
}
"""The tables below ``[tool.parity]`` and the types that read them."""


def keys() -> str:
    """Returns the table of the keys of ``[tool.parity]``."""
    rows = [row for place, kind in TABLES.items() for row in _keys(place, kind)]
    return table(("key", "value", "default"), rows)


def _keys(place: str, kind: type[msgspec.Struct]) -> Iterator[tuple[str, str, str]]:
    for field in msgspec.structs.fields(kind):
        name = f"{place}.{field.encode_name}".lstrip(".")
        if name in TABLES or any(
            other.startswith(f"{name}.NAME") or other.startswith(f"{name}.C") for other in TABLES
        ):
            continue
        yield f"`{name}`", _value(field.type), _default(field)


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "required"
    return "" if field.default in (msgspec.NODEFAULT, None, "", ()) else f"`{field.default}`"


def _value(kind: object) -> str:
    """Returns the expected value of a key: its description, else a word for its type."""
    for part in (kind, *typing.get_args(kind)):
        if typing.get_origin(part) is typing.Annotated:
            for meta in part.__metadata__:  # pyright: ignore[reportAttributeAccessIssue]
                if meta.description:
                    return meta.description
    plain = str(kind)
    words = {
        "tuple": "a list",
        "dict": "a table",
        "list": "a list",
        "bool": "true or false",
        "float": "a number",
    }
    words |= {"int": "a whole number", "str": "a text"}
    return next(word for name, word in words.items() if name in plain)


PARTS: dict[str, Callable[[], str]] = {
    "exact_rules": exact_rules,
    "loose_rules": loose_rules,
    "channels": channels,
    "commands": commands,
    "forms": forms,
    "keys": keys,
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
