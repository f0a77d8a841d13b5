"""The Linen training step against plain NumPy."""

from suite_train import TrainSuite, keys_drawn  # noqa: F401
from twin_linen import TWIN


class TestLinenTrain(TrainSuite):
    twin = TWIN
