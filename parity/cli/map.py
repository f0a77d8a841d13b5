"""``parity map``: the weight map and its evidence."""

import os.path
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from parity.cli import options
from parity.cli.options import DIFFERENCE, PARITY, checked_files, console, echo, make_request

if TYPE_CHECKING:
    from parity.builds.convert.exported import Certified
    from parity.builds.weights.map import Entry


def command(
    select: Annotated[str, typer.Argument(help="A pair, a variant or a case.")],
    pair: options.Pairs = None,
    setting: options.Settings = None,
    every: Annotated[
        bool, typer.Option("--all", help="Also list optimizer state that follows its parameter.")
    ] = False,
    export: Annotated[
        Path | None, typer.Option("--export", help="Write the map as JSON, for `parity convert`.")
    ] = None,
) -> None:
    """Print the weight map of a case. If several match, use the first; print the evidence for each entry."""
    from parity.builds.tree import Role
    from parity.builds.weights.map import FOLLOWS, MapError
    from parity.compare.certificate import certify
    from parity.compare.certificate import export as exported
    from parity.compare.evidence import Evidence
    from parity.report.records import write_json

    checked_files(export=export)
    cases, session = make_request([select], pair, setting).open_cases()
    work = Evidence.of(cases[0], session)
    screen = console()
    echo(f"{cases[0].id}: {work.builds[0].name} against {work.builds[1].name}")
    try:
        certified = certify(work)
    except MapError as error:
        for side, leaves in (("reference", error.reference), ("candidate", error.candidate)):
            for leaf in leaves:
                screen.print(Text(f"  only in the {side}: {leaf.path} {leaf.dtype}{list(leaf.shape)}", "red"))
        advice = "; ".join(error.hints) or "add the leaf to the other side, or give the pair a weight rule"
        echo(f"no map: {advice}")
        raise typer.Exit(DIFFERENCE) from None
    for role in Role:
        rows = [one for one in certified if one.role is role]
        listed = [one for one in rows if every or one.contradicted or one.matched_by != FOLLOWS]
        following = len(rows) - len(listed)
        words = f", {following} of them as their parameters (--all lists them)" if following else ""
        screen.print(Text(f"{role}, {len(rows)} entries{words}", "bold cyan"))
        for one in listed:
            screen.print(_map_line(one), soft_wrap=True)
    wrong = sum(one.contradicted for one in certified)
    leaves = [len(build.leaves) for build in work.builds]
    echo(
        f"{leaves[0]} reference and {leaves[1]} candidate leaves in {len(certified)} entries: total, one-to-one"
        + (f"; {wrong} contradicted by the probe" if wrong else "")
    )
    if guesses := [one for one in work.weights.entries if one.is_unnamed or one.is_guess]:
        echo(
            "If the guesses are right, give the pair, or `parity.assert_twins`, these rules; else change them. "
            "Transforms are in `parity.transforms`."
        )
        echo("\n".join(["weight_rules=(", *map(_rule, guesses), ")"]))
    if export:
        data = exported(work, certified)
        write_json(data.as_json(), export)
        echo(f"map: {export}")
        doubtful = [one for one in data.entries if one.doubt]
        if doubtful:
            echo(f"{len(doubtful)} entries are only guessed: parity convert refuses them")
    raise typer.Exit(DIFFERENCE if wrong else PARITY)


def _map_line(entry: "Certified") -> Text:
    reference, candidate = _brief(entry.reference), _brief(entry.candidate)
    line = Text(f"  {reference}")
    line.append(f"  {entry.transform}" if reference == candidate else f"  -> {candidate}  {entry.transform}")
    line.append(f"; by {entry.matched_by}; ", "dim")
    return line.append(entry.confirmed_by, "bold red" if entry.contradicted else "green")


def _rule(entry: "Entry") -> str:
    """Returns the rule that states an entry, as Python."""
    from parity.builds.weights.map import Rule, strip_container

    left, right = (tuple(map(strip_container, side)) for side in (entry.reference, entry.candidate))
    rule = Rule(reference=left, candidate=right, transform=entry.transform)
    return f"    parity.{rule},".replace(", transform=Identity()", "")


def _brief(paths: Sequence[str]) -> str:
    """Returns one name, or ``layers/{0..3}/mlp`` for several that differ at one place."""
    from parity.builds.weights.map import strip_container

    names = [strip_container(path) for path in paths]
    if len(names) == 1:
        return names[0]
    head = os.path.commonprefix(names)
    tail = os.path.commonprefix([name[len(head) :][::-1] for name in names])[::-1]
    middle = [name[len(head) : len(name) - len(tail)] for name in names]
    return f"{head}{{{middle[0]}..{middle[-1]}}}{tail}"
