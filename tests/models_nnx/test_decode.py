"""Decoding of the NNX twin against plain forwards."""

from suite_decode import DecodeSuite
from twin_nnx import TWIN


class TestNnxDecode(DecodeSuite):
    twin = TWIN
