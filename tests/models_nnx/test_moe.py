"""Sown values and the routing bias, in the NNX twin."""

import pytest
from suite_moe import MoeSuite
from twin_nnx import TWIN

pytestmark = pytest.mark.slow


class TestNnxMoe(MoeSuite):
    twin = TWIN
