"""Values that the Linen twin keeps for its backward pass."""

from suite_remat import RematSuite
from twin_linen import TWIN


class TestLinenRemat(RematSuite):
    twin = TWIN
