"""Decoding of the Linen twin against plain forwards."""

from suite_decode import DecodeSuite
from twin_linen import TWIN


class TestLinenDecode(DecodeSuite):
    twin = TWIN
