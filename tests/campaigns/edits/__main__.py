"""``python tests/campaigns edits``: writes harmless edits as TOML, which ``parity mutants FOLDER`` then tries."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from campaigns.edits.armed import sources_of
from campaigns.edits.benign import benign_mutants, read_fields
from parity.compare.backends.workers import Pool
from parity.mutants.mutant import Mutant

LIMIT = 1_800.0


def as_toml(mutants: Sequence[Mutant]) -> str:
    """Returns the edits as ``[[mutant]]`` tables; a TOML string is written as JSON writes it."""
    lines = []
    for mutant in mutants:
        lines += ["[[mutant]]", f"id = {json.dumps(mutant.id)}", f"case = {json.dumps(mutant.case)}"]
        lines += [f"pairs = {json.dumps(list(mutant.pairs))}", "benign = true"]
        for edit in mutant.edits:
            fields = {"file": edit.file, "old": edit.old, "new": edit.new}
            lines += ["[[mutant.edits]]", *(f"{name} = {json.dumps(text)}" for name, text in fields.items())]
        lines.append("")
    return "\n".join(lines)


def main() -> int:
    """Writes the edits that the options name."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where benign.toml goes")
    parser.add_argument(
        "--fields", type=Path, default=Path("tests/mutants"), help="TOML files with [[benign]]"
    )
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0, help="chooses the places")
    chosen = parser.parse_args()
    root, pool = Path.cwd(), Pool(1, seconds=LIMIT)
    try:
        edits = benign_mutants(
            read_fields(chosen.fields), root, sources_of(root), chosen.count, chosen.seed, pool
        )
    finally:
        pool.close()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    (chosen.folder / "benign.toml").write_text(as_toml(edits))
    print(f"{len(edits)} edits written to {chosen.folder / 'benign.toml'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
