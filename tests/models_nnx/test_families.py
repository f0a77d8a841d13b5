"""The families of the NNX twin against an independent implementation."""

from suite_families import FamilySuite
from twin_nnx import TWIN


class TestNnxFamilies(FamilySuite):
    twin = TWIN
