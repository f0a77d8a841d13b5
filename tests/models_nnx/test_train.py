"""The NNX training step against plain NumPy."""

import pytest
from suite_train import TrainSuite, keys_drawn  # noqa: F401
from twin_nnx import TWIN

pytestmark = pytest.mark.slow


class TestNnxTrain(TrainSuite):
    twin = TWIN
