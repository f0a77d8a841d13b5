"""The noise of a leaf that is not far beyond it includes that of other rounding."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from parity.compare.runs import Runs

Y = np.linspace(1, 2, 64, dtype=np.float32)
NUDGED, REROUNDED = 1e-6, 8e-6


def moved(size: float) -> dict[str, dict[str, np.ndarray]]:
    return {
        "values": dict.fromkeys(("y", "far"), (Y * (1 + size * np.cos(np.arange(64)))).astype(np.float32))
    }


@dataclasses.dataclass
class Measured:
    """Runs whose candidate deviates by a given size."""

    size: float
    changed: Callable[[Any], Any] | None = None

    @property
    def outputs(self):
        return {"values": {"y": Y, "far": Y}}, {"values": moved(self.size)["values"] | {"far": Y + 1}}

    @property
    def nudged(self):
        return [moved(NUDGED if self.changed is None else REROUNDED)] * 3


@pytest.mark.parametrize(
    ("size", "noise"),
    [(5e-6, NUDGED), (3e-5, REROUNDED), (9e-5, REROUNDED), (1e-3, NUDGED)],
    ids=["within", "near", "not far", "far"],
)
def test_only_a_leaf_near_its_noise_is_judged_by_other_rounding(size, noise):
    floor: Any = Runs._floor(Measured(size), "values")  # pyright: ignore[reportArgumentType]
    alone = Runs._floor(Measured(0.0), "values")["y"]  # pyright: ignore[reportArgumentType]
    assert floor["y"] / alone == pytest.approx(noise / NUDGED, rel=0.2)
    assert floor["far"] == alone
