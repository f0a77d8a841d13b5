"""``python tests/parity/bisect/campaign.py [WORD ...]``: how many planted bugs ``op`` traces to their function.

A plant counts if the function that holds its edit, in its file, is one of the two that the sentence blames, the
reference's and the candidate's. Words choose among the plants.
"""

import sys
import tempfile
import time
from pathlib import Path

from parity.compare.backends.environment import prepare

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]


def main(words):
    """Runs the plants and prints a line for each; returns 1 if fewer than 95 % are traced."""
    prepare("cpu")
    import jax

    jax.config.update("jax_disable_most_optimizations", True)
    import plants

    from conftest import Planting  # pyright: ignore[reportAttributeAccessIssue]
    from parity.compare.session import Session

    bench, results = Session(), []
    for name, bug in plants.plants().items():
        if words and not any(word in name for word in words):
            continue
        start, worked = time.perf_counter(), time.process_time()
        with tempfile.TemporaryDirectory() as folder:
            try:
                finding, right = plants.found_in(bug, Path(folder), Planting, bench)
                verdict = "right" if right else "WRONG" if finding.found else "none"
                text = finding.sentence.replace(f"{folder}/", "")
            except Exception as error:  # a plant that cannot be evaluated is a plant that is not found
                verdict, text = "ERROR", f"{type(error).__name__}: {str(error).splitlines()[0]}"
        seconds, work = time.perf_counter() - start, time.process_time() - worked
        results.append((verdict, seconds, work))
        print(f"{verdict:6} {seconds:5.1f} s ({work:.1f} s of processor) {name}: {text}", flush=True)
    right = sum(verdict == "right" for verdict, *_ in results)
    longest, busiest = (max(column) for column in list(zip(*results, strict=True))[1:])
    print(
        f"{right} of {len(results)} named right, at most {longest:.0f} s each, {busiest:.0f} s of processor"
    )
    return int(right < 0.95 * len(results))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
