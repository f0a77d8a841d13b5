"""``python tests/campaigns mutants [FOLDER...]``: every planted bug of a project against every channel."""

import argparse
import os
import sys
from pathlib import Path

from campaigns.mutants.matrix import as_json, as_markdown, print_matrix, read_outcomes, succeeded
from campaigns.mutants.mutant import PREFIX, choose, read_mutants
from campaigns.mutants.trial import try_mutants
from parity.cli.options import DIFFERENCE, INTERRUPTED, PARITY, USAGE, checked_files, console, echo
from parity.compare.backends.environment import describe_environment
from parity.report.records import write_json, write_text
from parity.run.request import Shard


def options() -> argparse.Namespace:
    """Returns the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="*", type=Path, help="with *.toml files; default: tests/mutants")
    parser.add_argument("--select", action="append", default=[], help="globs of ids, cases or origins")
    parser.add_argument("--shard", help="try one part of the mutants, such as 3/8")
    parser.add_argument("--json", type=Path, help="write the record to this file")
    parser.add_argument("--markdown", type=Path, help="write the matrix as Markdown")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="default: one per core")
    parser.add_argument("--seconds", type=float, default=600.0, help="time limit of one mutant")
    parser.add_argument("--refresh", action="store_true", help="try again what the record already has")
    return parser.parse_args()


def main() -> int:
    """Plants bugs and prints which channels catch them: the kill matrix, survivors first."""
    asked = options()
    checked_files(json=asked.json, markdown=asked.markdown)
    every, root = read_mutants(*(asked.folders or [Path("tests/mutants")])), Path.cwd()
    chosen = choose(every, asked.select)
    chosen = Shard.parse(asked.shard).take(chosen) if asked.shard else chosen
    before = read_outcomes(asked.json) if asked.json else {}
    screen, outcomes, tried, environment = console(), dict(before), [], describe_environment()
    known = {} if asked.refresh else before

    def keep() -> None:
        if asked.json:
            ids = [one.id for one in every]
            ids += [id for id in outcomes if id.startswith(PREFIX) and id not in ids]  # of another run
            write_json(as_json([outcomes[id] for id in ids if id in outcomes], environment), asked.json)

    trials = try_mutants(chosen, root, known, workers=asked.workers, limit=asked.seconds)
    try:
        for outcome in trials:
            outcomes[outcome.id] = outcome
            tried.append(outcome)
            by = f" by {', '.join(outcome.by)}" if outcome.by else ""
            echo(f"[{len(tried)}/{len(chosen)}] {outcome.id} {outcome.status}{by}")
            keep()
    except KeyboardInterrupt:
        trials.close()
        print_matrix(screen, tried)
        echo(f"interrupted: {len(tried)} of {len(chosen)}; repeat the command with --json to continue")
        return INTERRUPTED
    print_matrix(screen, tried)
    if asked.markdown:
        write_text(as_markdown(tried, every), asked.markdown)
    return PARITY if succeeded(tried) else DIFFERENCE


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ValueError as error:
        print(f"mutants: {error}", file=sys.stderr)
        sys.exit(USAGE)
