"""``python tests/campaigns NAME [OPTIONS]``: runs one campaign or generator."""

import runpy
import sys
from pathlib import Path

HERE = Path(__file__).parent
NAMES = {
    "prover": "mutants and benign variants of lowered programs against the prover; --attack runs each rule",
    "exact": "mutants of pipelines against the proof in exact arithmetic",
    "edits": "writes harmless edits of sources as mutants that must pass, for `parity mutants`",
    "harness.dispatch": "host time of a call of a step, in every way to call it",
    "harness.fresh": "first trace and peak host memory of both sides of a case, in new processes",
    "harness.overhead": "cost of `parity run` over a script that compares without it",
    "harness.wrong": "cost of a pair that is wrong in every leaf over a right one",
    "records": "all differences of two records of `parity run` but times",
    "matrix.core": "chooses the core of the matrix again",
    "matrix.covering": "chooses the covering cases of the matrix again",
}


def main() -> int | str:
    """Runs the named campaign as a module of this package; without a name, lists all."""
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in NAMES:
        return "\n".join(
            [
                "usage: python tests/campaigns NAME [OPTIONS]",
                *(f"  {one:16} {about}" for one, about in NAMES.items()),
            ]
        )
    sys.path[:1] = [str(HERE.parents[1]), str(HERE.parent)]
    sys.argv[:2] = [f"python tests/campaigns {name}"]
    runpy.run_module(f"campaigns.{name}", run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main())
