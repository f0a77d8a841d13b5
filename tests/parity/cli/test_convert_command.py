"""``parity map --export`` and ``parity convert`` as a user types them."""

import json
import shutil
from pathlib import Path

import numpy as np
import orbax.checkpoint as ocp

EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "foreign_mlp.py"
SHAPES = {"up": (16, 24), "down": (24, 5)}


def test_a_checkpoint_goes_there_and_back(command, tmp_path):
    shutil.copy(EXAMPLE, tmp_path / "my_twins.py")
    (tmp_path / "pyproject.toml").write_text('[tool.parity]\npairs = ["my_twins:PAIR"]\n')
    ended = command("map", "mlp/train_step", "--export", "map.json")
    assert ended.code == 0 and "map: map.json" in ended.out and "only guessed" not in ended.out, ended.err
    record = json.loads((tmp_path / "map.json").read_text())
    assert record["schema"] == 1 and len(record["entries"]) == 14
    assert {entry["confirmed_by"] for entry in record["entries"]} == {"proof"}

    rng = np.random.default_rng(0)
    params = {
        name: {"kernel": rng.normal(size=shape).astype("float32"), "bias": np.ones(shape[1], "float32")}
        for name, shape in SHAPES.items()
    }
    ocp.PyTreeCheckpointer().save(tmp_path / "linen", {"params": params})
    ended = command("convert", "--map", "map.json", "linen", "nnx", "--root", "model")
    assert (
        ended.code == 0 and "4 leaves: params 4; 0 entries transformed; read back: the same bits" in ended.out
    )
    ended = command("convert", "--map", "map.json", "nnx", "linen-again")
    assert ended.code == 2 and ended.err.endswith("add --to linen or --to nnx\n")
    ended = command("convert", "--map", "map.json", "nnx", "linen-again", "--to", "linen")
    assert ended.code == 0, ended.err
    again = ocp.PyTreeCheckpointer().restore(tmp_path / "linen-again")
    np.testing.assert_array_equal(again["params"]["up"]["kernel"], params["up"]["kernel"])

    there = sorted(tmp_path.iterdir())
    for arguments, words in {
        ("map.json", "linen", "nnx"): "nnx: already exists, expected a new folder",
        ("map.json", "absent", "new"): "absent: got no folder, expected an Orbax checkpoint",
        ("my_twins.py", "linen", "new"): "map my_twins.py: cannot be read",
        ("absent.json", "linen", "new"): "map absent.json: cannot be read",
    }.items():
        ended = command("convert", "--map", *arguments)
        assert ended.code == 2 and words in ended.err and len(ended.err.splitlines()) == 1
    assert sorted(tmp_path.iterdir()) == there
