"""Multi-token prediction in the Linen twin, against a direct loop."""

import pytest
from suite_mtp import MtpSuite
from twin_linen import TWIN

pytestmark = pytest.mark.slow


class TestLinenMtp(MtpSuite):
    twin = TWIN
