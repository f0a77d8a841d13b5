"""Layers determined from the paths of leaves, and the worst leaf of each."""

import numpy as np
import pytest

from parity.values.ladder import Judge, Place, climb, layer_table, place_of
from parity.verdicts import Verdict


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("params/layers_4/norm/bias", ("params", "layers", 4)),
        ("params/decoder/layers_12/attention/query/kernel", ("params", "decoder/layers", 12)),
        ("params/layers/4/kernel", ("params", "layers", 4)),
        ("params/decoder/layers/4/mlp/kernel", ("params", "decoder/layers", 4)),
        ("params/Dense_0/kernel", ("params", "Dense", 0)),
        ("params/block12/kernel", ("params", "block", 12)),
        ("params/decoder/layers/mlp/wi_0/kernel", ("params", "decoder", None)),
        ("params/embedder/embedding", ("params", "embedder", None)),
        ("step1/opt_state/0/mu/layers_3/up/kernel", ("step1/opt_state/0/mu", "layers", 3)),
        ("step2/opt_state/0/count", ("step2/opt_state", "count", None)),
        ("step3/loss", ("step3/loss", "", None)),
        ("logits", ("logits", "", None)),
        ("step1", ("step1", "", None)),
    ],
)
def test_the_module_of_a_leaf(path, place):
    assert place_of(path) == Place(*place)


def test_a_layer_is_as_far_off_as_its_worst_leaf_and_the_same_bits_are_no_number():
    paths = [f"params/layers_{number}/{name}/kernel" for number in range(11) for name in ("up", "down")]
    floors = {
        paths[2]: 3.0,
        paths[3]: 40.0,
        paths[4]: float("inf"),
        paths[5]: 900.0,
        paths[20]: 50.0,
        paths[21]: 20.0,
    }
    rungs = {path: Verdict.FAILED for path in floors} | {
        paths[2]: Verdict.FLOOR,
        paths[20]: Verdict.ARBITRATED,
    }
    rows = layer_table([*paths, "params/head/kernel"], floors, rungs)
    assert [row["number"] for row in rows] == [*range(11), None]  # by number, not by letters
    shown = [(row["differ"], row["floors"], row["rung"], row["leaf"]) for row in rows]
    assert shown[0] == (0, None, None, "")
    assert shown[1] == (2, 40.0, "failed", paths[3])
    assert shown[2] == (2, None, "failed", paths[4])
    assert shown[10] == (2, 20.0, "failed", paths[21])
    assert rows[-1]["stack"] == "head" and rows[-1]["leaves"] == 1


def test_the_ladder_also_names_the_layers_that_agree():
    reference = {f"params/layers_{n}/up/kernel": np.full((3,), 1.0 + n, np.float32) for n in range(3)}
    candidate = {**reference, "params/layers_1/up/kernel": np.full((3,), 2.5, np.float32)}
    judge = Judge(floor=lambda: dict.fromkeys(reference, 1e-7), exact=None)
    rows = climb(reference, candidate, judge).tables["layers"]
    assert [(row["number"], row["differ"]) for row in rows] == [(0, 0), (1, 1), (2, 0)]
    assert rows[1]["floors"] == pytest.approx(0.25 / 1e-7) and rows[0]["floors"] is None
    noiseless = climb(reference, candidate, Judge(floor=lambda: {}, exact=None)).tables["layers"]
    assert noiseless[1]["differ"] == 1 and noiseless[1]["floors"] is None
