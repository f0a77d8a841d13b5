"""The NNX model against plain NumPy."""

from suite_model import ModelSuite
from twin_nnx import TWIN


class TestNnxModel(ModelSuite):
    twin = TWIN
