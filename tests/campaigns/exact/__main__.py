"""``python tests/campaigns exact``: a line for each sample and each kept mutant; exit code 1 if one is wrong."""

import argparse
import collections
import sys
import time

from parity.compare.backends.environment import prepare


def main() -> int:
    """Runs the campaign and prints a line for each sample and each kept mutant."""
    prepare("cpu")
    from campaigns.exact.run import Campaign, Kept
    from campaigns.exact.samples import SAMPLES

    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--mutants", type=int, default=80, help="of each sample")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--part", default="1/1", help="which part of the mutants, such as 2/4")
    parser.add_argument("--samples", nargs="*", default=list(SAMPLES), choices=list(SAMPLES))
    chosen = parser.parse_args()
    number, of = map(int, chosen.part.split("/"))
    total: collections.Counter[str] = collections.Counter()
    for name in chosen.samples:
        start, campaign = time.perf_counter(), Campaign(name)
        counts: collections.Counter[str] = collections.Counter()
        for mutant, found in campaign.results(chosen.mutants, chosen.seed, slice(number - 1, None, of)):
            counts["refused" if found.refusal else "differs" if not found.proved else "kept"] += 1
            if found.proved:
                kept = Kept(mutant, campaign.distance(mutant.module))
                counts["wrong"] += kept.wrong
                same = "does not compile" if kept.distance is None else f"same when run, {kept.distance:.0e}"
                verdict = "WRONG" if kept.wrong else same
                print(f"  kept: {mutant.kind}: {mutant.detail[:100]}: {verdict}", flush=True)
        total += counts
        print(f"{name}: {dict(counts)} in {time.perf_counter() - start:.0f} s", flush=True)
    print(f"all: {dict(total)}, {total['wrong']} wrong")
    return 1 if total["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
