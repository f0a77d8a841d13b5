"""``python tests/parity/prove/rewrites [--run] [WORD ...]``: how many rewrites are proved, and why the others are not.

``--compile BACKEND``, such as ``aot:v5e:2x2``, tells which of the others that backend's compiler makes one program of.

``--run`` runs both spellings of each at LLVM's levels 0 and 3 on all kinds of data. ``--fuzz SECONDS`` makes random
programs of the steps instead, in two spellings each, and runs those that are proved. ``--attack PROGRAMS`` makes small
ones a hundred to a module, three of ten with a near miss, and runs all. Products and sums are compiled
as two operations, as a proof takes them; ``--contract`` lets the compiler make them one where the processor can.
"""

import argparse
import collections
import os
import sys
import time
from pathlib import Path

TESTS = Path(__file__).parents[3]
sys.path[1:1] = [str(TESTS.parent), str(TESTS)]  # the project first: `tests` alone would hide its packages

os.environ.setdefault("JAX_PLATFORMS", "cpu")
if "--contract" not in sys.argv:
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_max_isa=AVX".strip()


def main() -> int:
    """Prints a line for each rewrite; returns 1 if a proved one gives different bits, or a miss has no reason."""
    parser = argparse.ArgumentParser(prog="python tests/parity/prove/rewrites", description=__doc__)
    parser.add_argument("words", nargs="*", help="only rewrites whose names hold one of these")
    parser.add_argument("--run", action="store_true")
    parser.add_argument("--compile", metavar="BACKEND")
    parser.add_argument("--strangers", action="store_true", help="the list of rewrites as people write them")
    parser.add_argument("--settle", action="store_true", help="count by subject what holds for all inputs")
    parser.add_argument("--fuzz", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--contract", action="store_true")
    parser.add_argument("--attack", type=int, default=0)
    options = parser.parse_args()
    if options.attack:
        return _attack(options)
    if options.settle:
        return _settle(options)
    return _fuzz(options) if options.fuzz else _list(options)


def _settle(options: argparse.Namespace) -> int:
    from measure import REWRITES, STRANGERS, differ, settled  # pyright: ignore[reportMissingImports]

    from parity.compare.backends.registry import find

    counts, failures = collections.defaultdict(collections.Counter), 0
    for rewrite in STRANGERS if options.strangers else REWRITES:
        if options.words and not any(word in rewrite.name for word in options.words):
            continue
        left, right, proof = rewrite.prove()
        word = settled(left, right, proof, find("cpu"))
        differing = differ(left, right) if rewrite.runs else []
        failures += bool(differing) and word in ("proved", "one program")
        counts[rewrite.subject]["other bits" if differing else word or "open"] += 1
        print(
            f"{word or 'open':11} {rewrite.name}{f' OTHER BITS on {differing}' if differing else ''}",
            flush=True,
        )
    counts["all"] = sum(counts.values(), collections.Counter())
    for subject, each in counts.items():
        equal = each.total() - each["other bits"]
        print(
            f"{subject}: of {equal} with equal bits {each['proved']} proved, "
            f"{equal - each['open']} settled: {dict(each)}"
        )
    return 1 if failures else 0


def _list(options: argparse.Namespace) -> int:
    from measure import REWRITES, STRANGERS, differ  # pyright: ignore[reportMissingImports]
    from reasons import REASONS  # pyright: ignore[reportMissingImports]

    from parity.compare.backends.registry import find
    from parity.ir.hlo.anonymous import compiled_digest

    backend = find(options.compile) if options.compile else None
    rungs, ones, failures = collections.Counter(), 0, 0
    for rewrite in STRANGERS if options.strangers else REWRITES:
        if options.words and not any(word in rewrite.name for word in options.words):
            continue
        left, right, proof = rewrite.prove(backend and backend.placement)
        one = ""
        if backend and not proof.proved:
            digests = [compiled_digest(backend.start(side)()) for side in (left, right)]
            one = f" ONE PROGRAM on {backend.name}" if digests[0] == digests[1] is not None else ""
        differing = differ(left, right) if options.run and rewrite.runs else []
        rungs[proof.rung] += 1
        listed = proof.rung == "unproved" and not options.strangers
        reason = REASONS.get(rewrite.name, "NO REASON") if listed else ""
        ones += bool(one)
        failures += reason == "NO REASON" or bool((proof.proved or one) and differing)
        steps = ", ".join(f"{name} {times}" for name, times in proof.rules.items())
        rules = f" ({steps})" if steps else ""
        bits = f" OTHER BITS on {', '.join(differing)}" if differing else ""
        print(f"{proof.rung:9} {rewrite.name}{rules}{f': {reason}' if reason else ''}{bits}{one}")
    compiled = f"; {ones} others compile to one program on {backend.name}" if backend else ""
    print(
        f"{sum(rungs.values())} rewrites: {', '.join(f'{count} {rung}' for rung, count in rungs.items())}{compiled}"
    )
    return 1 if failures else 0


def _attack(options: argparse.Namespace) -> int:
    from batches import examine  # pyright: ignore[reportMissingImports]

    totals, failures, seed = collections.Counter(), 0, options.seed
    while totals["programs"] < options.attack:
        batch = examine(seed)
        for name in ("programs", "proved", "run", "missed", "proved_missed"):
            totals[name] += getattr(batch, name)
        failures += len(batch.wrong)
        for line in batch.wrong:
            print(f"OTHER BITS: {line}", flush=True)
        seed += 1
        # After each batch, so that an interrupted run has reported its progress.
        print(
            f"{totals['programs']} programs: {totals['proved']} proved, {totals['run']} of them run; "
            f"{totals['missed']} with a near miss, {totals['proved_missed']} of them proved; "
            f"{failures} with other bits",
            flush=True,
        )
    return 1 if failures else 0


def _fuzz(options: argparse.Namespace) -> int:
    from fuzz import CHAINS, examine  # pyright: ignore[reportMissingImports]

    rungs, failures, start, seed = collections.Counter(), 0, time.monotonic(), options.seed
    while time.monotonic() - start < options.fuzz:
        proof, names, differing = examine(seed)
        rungs[f"{proof.rung}{' by rules' if proof.rules else ''}"] += 1
        if differing:
            failures += 1
            print(
                f"seed {seed}: OTHER BITS on {', '.join(differing)}; rules {', '.join(proof.rules)}; steps {names}"
            )
        seed += 1
    print(
        f"{sum(rungs.values())} programs of up to {CHAINS} results: {dict(rungs)}, {failures} with other bits"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
