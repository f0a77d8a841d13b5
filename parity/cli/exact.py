"""Equality in exact real arithmetic, for `parity prove CASE --exact`."""

import contextlib
import dataclasses
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text

from parity.cli.options import console

if TYPE_CHECKING:
    from parity.prove.exact import Equality
    from parity.run.request import Request

__all__ = ["prove_cases"]


def prove_cases(request: "Request", json: Path | None) -> bool:
    """Proves each case equal in exact arithmetic, one after the other, and prints the results.

    Args:
        request: selects the cases.
        json: file of the report; None for none.

    Returns:
        True if all are proved.
    """
    from parity.compare.evidence import Evidence
    from parity.report import write_json
    from parity.run.run import raised_gc_threshold
    from parity.run.selection import open_cases

    cases, session = open_cases(request)
    records: list[dict[str, Any]] = []
    start = time.perf_counter()
    with contextlib.suppress(KeyboardInterrupt), raised_gc_threshold():
        for case in cases:
            began = time.perf_counter()
            found = Evidence.of(case, session).exact_proof
            records.append({"id": case.id, **dataclasses.asdict(found), "total": time.perf_counter() - began})
            _print(case.id, found, records[-1]["total"])
    proved = sum(record["proved"] for record in records)
    seconds = time.perf_counter() - start
    console().print(f"{proved} of {len(cases)} exact in {seconds:.0f} s", highlight=False)
    if json:
        write_json({"exact": records, "seconds": seconds}, json)
        console().print(f"report: {json}", soft_wrap=True)
    return proved == len(cases)


def _print(name: str, found: "Equality", seconds: float) -> None:
    verdict = "exact" if found.proved else "refused" if found.refusal else "differs"
    size = f"{found.steps:,} steps, {found.terms:,} terms, {found.seconds:.1f} s of {seconds:.1f} s"
    console().print(Text(f"{name}  ").append(verdict, "bold").append(f": {size}"), soft_wrap=True)
    for assumption in found.assumptions:
        console().print(f"  assumes: {assumption}", soft_wrap=True, markup=False, highlight=False)
    if found.refusal or found.difference:
        console().print(
            f"  {found.refusal or found.difference}", soft_wrap=True, markup=False, highlight=False
        )
