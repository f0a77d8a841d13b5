"""Makes the oracles and the shared suites importable, with rewritten asserts, before any test imports them."""

import sys
from pathlib import Path

import pytest

ORACLES = Path(__file__).parent / "oracles"

sys.path.append(str(ORACLES))
pytest.register_assert_rewrite(*(path.stem for path in ORACLES.glob("suite_*.py")))
