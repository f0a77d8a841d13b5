"""The families of the Linen twin against an independent implementation."""

from suite_families import FamilySuite
from twin_linen import TWIN


class TestLinenFamilies(FamilySuite):
    twin = TWIN
