"""Programs that are the same up to sharding annotations, for `parity prove CASE --ignore-sharding`."""

import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text

from parity.cli.options import console

if TYPE_CHECKING:
    from parity.compare.modulo import ModuloSharding
    from parity.run.request import Request

__all__ = ["prove_modulo"]

MOST = 12
"""Maximum number of annotations that are printed for a case; the JSON report has all."""


def prove_modulo(request: "Request", json: Path | None) -> bool:
    """Compares each case without its sharding annotations, and prints the differences of programs and annotations.

    Args:
        request: selects the cases.
        json: file of the report; None for none.

    Returns:
        True if all are the same up to sharding.
    """
    from parity.compare.evidence import Evidence
    from parity.compare.modulo import prove_modulo_sharding
    from parity.report import write_json
    from parity.run.selection import open_cases

    cases, session = open_cases(request)
    records: list[dict[str, Any]] = []
    start = time.perf_counter()
    with contextlib.suppress(KeyboardInterrupt):
        for case in cases:
            found = prove_modulo_sharding(Evidence.of(case, session))
            records.append(_record(case.id, found))
            _print(case.id, found)
    same = sum(record["verdict"] != "differs" for record in records)
    console().print(
        f"{same} of {len(cases)} same up to sharding in {time.perf_counter() - start:.0f} s; no bits are claimed",
        highlight=False,
    )
    if json:
        write_json({"modulo": "sharding", "cases": records}, json)
        console().print(f"report: {json}", soft_wrap=True)
    return same == len(cases)


def _record(name: str, found: "ModuloSharding") -> dict[str, Any]:
    proof = found.proof
    return {
        "id": name,
        "verdict": found.verdict,
        "rules": dict(proof.rules) if proof else {},
        "operations": proof.operations if proof else (0, 0),
        "seconds": proof.seconds if proof else 0.0,
        "frontier": [entry.sentence() for entry in proof.frontier] if proof else list(found.unmatched),
        "annotations": [row._asdict() for row in found.differing],
    }


def _print(name: str, found: "ModuloSharding") -> None:
    proof = found.proof
    size = f": {proof.operations[0]:,} and {proof.operations[1]:,} operations" if proof else ""
    rules = f" (rules: {', '.join(proof.rules)})" if proof and proof.rules else ""
    console().print(Text(f"{name}  ").append(found.verdict, "bold").append(f"{rules}{size}"), soft_wrap=True)
    lines = list(found.unmatched)
    if found.verdict == "differs" and proof:
        lines += [entry.sentence() for entry in proof.frontier]
    lines.append(f"annotations differ at {len(found.differing)} places")
    lines += [
        f"{place}: reference {left}, candidate {right}" for place, left, right in found.differing[:MOST]
    ]
    if len(found.differing) > MOST:
        lines.append(f"and {len(found.differing) - MOST} more, which --json lists")
    for line in lines:
        console().print(f"  {line}", soft_wrap=True, markup=False, highlight=False)
