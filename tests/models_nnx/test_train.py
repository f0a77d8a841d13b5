"""The NNX training step against plain NumPy."""

from suite_train import TrainSuite, keys_drawn  # noqa: F401
from twin_nnx import TWIN


class TestNnxTrain(TrainSuite):
    twin = TWIN
