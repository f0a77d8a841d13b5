"""Sown values and the routing bias, in the Linen twin."""

from suite_moe import MoeSuite
from twin_linen import TWIN


class TestLinenMoe(MoeSuite):
    twin = TWIN
