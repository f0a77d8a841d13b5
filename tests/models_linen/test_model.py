"""The Linen model against plain NumPy."""

from suite_model import ModelSuite
from twin_linen import TWIN


class TestLinenModel(ModelSuite):
    twin = TWIN
