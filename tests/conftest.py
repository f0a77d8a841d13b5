"""Makes the oracles and the shared suites importable, with rewritten asserts, before any test imports them."""

import signal
import sys
from pathlib import Path

import jax
import pytest

ORACLES = Path(__file__).parent / "oracles"

sys.path.append(str(ORACLES))
pytest.register_assert_rewrite(*(path.stem for path in ORACLES.glob("suite_*.py")))

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Shells start background jobs so, and programs that tests interrupt would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


MAPS = Path("/proc/self/maps")
MANY_MAPS = 20_000
"""Of the 65,530 that Linux grants a process; one module makes up to 20,000."""


@pytest.fixture(scope="module", autouse=True)
def compiled_programs_are_let_go():
    """Each compiled program maps memory, and a process that has too many such maps crashes in the compiler."""
    yield
    if MAPS.exists() and MAPS.read_bytes().count(b"\n") > MANY_MAPS:
        jax.clear_caches()
