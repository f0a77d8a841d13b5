"""``python tests/parity/bisect/campaign.py [WORD ...]``: counts the planted bugs that ``op`` traces, by strategy.

docs/find-the-cause.md lists the bugs of the table at the end. A bug counts if the function that holds its edit, in its
file, is one of the two that the sentence blames, the reference's and the candidate's. A strategy earns the bugs that
are traced only with it. Words select bugs.
"""

import collections
import sys
import tempfile
import time
from pathlib import Path

from parity.compare.backends.environment import prepare

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]


def main(words):
    """Returns 0 if 95 % of the bugs are traced, 1 if fewer are, 2 if no bug has such a name; prints a line for each."""
    prepare("cpu")
    import jax
    import plants

    chosen = {
        name: bug for name, bug in plants.plants().items() if not words or any(word in name for word in words)
    }
    if not chosen:
        print(f"no planted bug has a name with {' or '.join(words)}")
        return 2
    jax.config.update("jax_disable_most_optimizations", True)
    results, earned = _trace(plants, chosen)
    right = sum(verdict == "right" for verdict, *_ in results)
    longest, busiest = (max(column) for column in list(zip(*results, strict=True))[1:])
    print(
        f"{right} of {len(results)} named right, at most {longest:.0f} s each, {busiest:.0f} s of processor"
    )
    for each in plants.STRATEGIES:
        names = ", ".join(f"`{name}`" for name in earned[each])
        print(f"| {each} | {len(earned[each])}: {names} |")
    return int(right < 0.95 * len(results))


def _trace(plants, chosen):
    """Returns the verdict and the times of each bug, and the names of the bugs that each strategy earns."""
    from conftest import Planting  # pyright: ignore[reportAttributeAccessIssue]
    from parity.compare.session import Session

    bench, results, earned = Session(), [], collections.defaultdict(list)
    for name, bug in chosen.items():
        start, worked = time.perf_counter(), time.process_time()
        with tempfile.TemporaryDirectory() as folder:
            try:
                found = plants.evaluated(bug, Path(folder), Planting, bench)
                finding = plants.describe(found)
                verdict = "right" if plants.is_right(finding, bug) else "WRONG" if finding.found else "none"
                text = finding.sentence.replace(f"{folder}/", "")
            except Exception as error:  # a bug that cannot be evaluated counts as not found
                found, verdict, text = None, "ERROR", f"{type(error).__name__}: {str(error).splitlines()[0]}"
            seconds, work = time.perf_counter() - start, time.process_time() - worked
            for strategy in plants.earners(found, bug) if verdict == "right" else ():
                earned[strategy].append(name)
        results.append((verdict, seconds, work))
        print(f"{verdict:6} {seconds:5.1f} s ({work:.1f} s of processor) {name}: {text}", flush=True)
    return results, earned


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
