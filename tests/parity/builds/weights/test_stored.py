"""A converted checkpoint on a full disk: one sentence, no traceback, no leftover files."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import parity

FULL = """
    import resource, sys, time
    from pathlib import Path
    import numpy as np
    from parity.builds.convert.stored import write_stored

    root = Path(sys.argv[1])
    noise = np.random.default_rng(0).normal(size=(300, 1000)).astype(np.float32)  # does not compress
    for limit, count in ((500_000, 1), (1 << 20, 8), (100_000, 30)):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        try:
            write_stored(root / "new", {f"p{number}": noise for number in range(count)})
        except ValueError as error:
            print(error)
        time.sleep(0.2)  # writes that go on would leave files, or print
        print(sorted(path.name for path in root.iterdir()))
"""


@pytest.mark.long
def test_a_full_disk_is_one_sentence_and_nothing_is_left(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(Path(parity.__file__).parents[1])}
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(FULL), str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    said, left = ended.stdout.splitlines()[::2], ended.stdout.splitlines()[1::2]
    assert said == [f"{tmp_path}/new: not written (File too large); make room, or name another"] * 3
    assert left == ["[]"] * 3
