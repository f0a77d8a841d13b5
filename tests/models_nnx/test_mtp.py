"""Multi-token prediction in the NNX twin, against a direct loop."""

import pytest
from suite_mtp import MtpSuite
from twin_nnx import TWIN

pytestmark = pytest.mark.slow


class TestNnxMtp(MtpSuite):
    twin = TWIN
