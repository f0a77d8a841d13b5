"""Named arrays on disk: whole or not at all, as asked or not at all, whatever happens to disk and process."""

import json
import multiprocessing
import os
import random
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models_nnx import store
from models_nnx.store import CheckpointError, Kind

STATE = Kind.TRAIN_STATE
KILLS = int(os.environ.get("KILLS", "50"))


def leaves(seed=0):
    rng = np.random.default_rng(seed)
    return {
        "params/decoder/layers_0/kernel": jnp.asarray(rng.normal(size=(3, 5)), jnp.float32),
        "params/decoder/layers_0/scale": jnp.asarray(rng.normal(size=7), jnp.bfloat16),
        "opt_state/1/0/count": jnp.asarray(seed, jnp.int32),
        "opt_state/last_finite": jnp.asarray(True),
        "step": jnp.asarray(seed, jnp.uint32),
        "key": jax.random.key(seed + 5),
        "keys": jax.random.split(jax.random.key(seed + 6), 2),
        "nothing": jnp.zeros((0, 4), jnp.float32),
    }


def abstract(flat):
    return {name: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for name, leaf in flat.items()}


def host(leaf):
    return np.asarray(jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf)


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, leaf in expected.items():
        assert found[name].dtype == leaf.dtype, name
    chex.assert_trees_all_equal(
        *({name: host(leaf) for name, leaf in side.items()} for side in (found, expected))
    )


@pytest.fixture
def saved(tmp_path):
    return store.write(tmp_path / "one", leaves(), kind=STATE, about={"note": [1, "a"]})


def test_all_leaves_come_back_with_their_bits_dtypes_and_notes(saved):
    assert_same(store.read(saved, abstract(leaves()), kind=STATE), leaves())
    assert store.inspect(saved).about == {"note": [1, "a"]}
    assert [path.name for path in saved.parent.iterdir()] == ["one"]


def test_leaves_lie_where_they_are_asked_to(saved):
    mesh = jax.make_mesh((2, 4), ("a", "b"), axis_types=(jax.sharding.AxisType.Explicit,) * 2)
    like = abstract({"x": jnp.zeros((4, 8))})
    folder = store.write(saved.with_name("two"), {"x": jnp.arange(32.0).reshape(4, 8)}, kind=STATE, about={})
    place = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("b", "a"))
    found = store.read(folder, {"x": jax.ShapeDtypeStruct((4, 8), "float32", sharding=place)}, kind=STATE)[
        "x"
    ]
    assert found.sharding == place
    np.testing.assert_array_equal(found, np.arange(32.0).reshape(4, 8))
    again = store.write(saved.with_name("three"), {"x": found}, kind=STATE, about={})
    np.testing.assert_array_equal(store.read(again, like, kind=STATE)["x"], found)


def test_every_leaf_that_is_not_as_asked_is_listed_in_one_error(saved):
    like = abstract(leaves())
    del like["step"]
    like["more"] = jax.ShapeDtypeStruct((2, 3), jnp.float32)
    like["params/decoder/layers_0/kernel"] = jax.ShapeDtypeStruct((5, 3), jnp.float32)
    like["params/decoder/layers_0/scale"] = jax.ShapeDtypeStruct((7,), jnp.float32)
    like["key"] = jax.ShapeDtypeStruct((), jax.random.key(0, impl="rbg").dtype)
    with pytest.raises(CheckpointError) as raised:
        store.read(saved, like, kind=STATE)
    said = str(raised.value).splitlines()
    assert "5 of 9 leaves" in said[0] and said[1:] == [
        "  more: missing, expected float32[2, 3]",
        "  step: got uint32[], expected no such leaf",
        "  key: got key<fry>[], expected key<rbg>[]",
        "  params/decoder/layers_0/kernel: got float32[3, 5], expected float32[5, 3]",
        "  params/decoder/layers_0/scale: got bfloat16[7], expected float32[7]",
    ]


def test_arrays_and_numbers_of_numpy_come_back_too(tmp_path):
    given = {
        "array": np.arange(6, dtype=np.float32).reshape(2, 3),
        "number": np.float32(1.5),
        "count": np.int32(3),
    }
    folder = store.write(tmp_path / "numpy", given, kind=STATE, about={})
    assert_same(store.read(folder, abstract(given), kind=STATE), given)


def test_a_float64_leaf_is_no_float32_leaf(tmp_path):
    with jax.enable_x64(True):
        folder = store.write(tmp_path / "wide", {"x": jnp.ones(3, "float64")}, kind=STATE, about={})
        like = {"x": jax.ShapeDtypeStruct((3,), jnp.float64)}
        assert store.read(folder, like, kind=STATE)["x"].dtype == "float64"
    with pytest.raises(
        CheckpointError, match=r"x was read as float32\[3\], expected float64\[3\].*enable_x64"
    ):
        store.read(folder, like, kind=STATE)


def test_every_file_cut_short_turned_or_removed_is_refused_by_name(saved):
    like = abstract(leaves())
    files = [path for path in saved.rglob("*") if path.is_file()]
    assert len(files) > 5
    for path in files:
        whole = path.read_bytes()
        middle = len(whole) // 2
        turned = whole[:middle] + bytes([whole[middle] ^ 4]) + whole[middle + 1 :]
        for damaged in (whole[:middle], whole[:-1], b"", turned, whole + b" "):
            path.write_bytes(damaged)
            with pytest.raises(CheckpointError, match=path.name):
                store.read(saved, like, kind=STATE)
        path.unlink()
        with pytest.raises(CheckpointError, match=path.name):
            store.read(saved, like, kind=STATE)
        path.write_bytes(whole)
    assert_same(store.read(saved, like, kind=STATE), leaves())


def test_a_file_too_many_is_refused(saved):
    (saved / "arrays" / "d" / "more").write_bytes(b"x")
    with pytest.raises(CheckpointError, match="arrays/d/more: not of this checkpoint"):
        store.read(saved, abstract(leaves()), kind=STATE)


def test_a_manifest_that_someone_edited_is_refused(saved):
    path = saved / store.MANIFEST
    written = json.loads(path.read_bytes())
    written["body"]["leaves"]["step"]["dtype"] = "int32"
    path.write_text(json.dumps(written))
    with pytest.raises(CheckpointError, match="digest"):
        store.inspect(saved)


def test_parameters_are_no_train_state(saved):
    with pytest.raises(CheckpointError, match="got train state, expected parameters"):
        store.read(saved, abstract(leaves()), kind=Kind.PARAMETERS)


def test_a_checkpoint_is_never_written_over(saved):
    with pytest.raises(CheckpointError, match="already exists"):
        store.write(saved, leaves(1), kind=STATE, about={})
    assert_same(store.read(saved, abstract(leaves()), kind=STATE), leaves())


def test_the_last_step_is_found_and_what_was_cut_short_is_not(tmp_path):
    with pytest.raises(CheckpointError, match="no checkpoint"):
        store.find(tmp_path)
    for step in (9, 10):
        store.write(store.step_folder(tmp_path, step), leaves(step), kind=STATE, about={})
    (tmp_path / ".step_00000011.elsewhere-1.partial").mkdir()
    found = store.find(tmp_path)
    assert found == store.step_folder(tmp_path, 10) == store.find(found)


# --- the process dies, the disk is full ---

DIES = """
    import os, sys
    from pathlib import Path
    import jax.numpy as jnp
    from models_nnx import store

    root = Path(sys.argv[1])
    whole = {"x": jnp.arange(5.0)}
    store.write(store.step_folder(root, 1), whole, kind="train state", about={})
    store._write_manifest = lambda *rest: os._exit(9)
    store.write(store.step_folder(root, 2), whole, kind="train state", about={})
"""


def child(tmp_path, code):
    path = tmp_path / "child.py"
    path.write_text(textwrap.dedent(code))
    folder = tmp_path / "run"
    environment = {**os.environ, "PYTHONPATH": str(Path(store.__file__).parents[1])}
    ended = subprocess.run(
        [sys.executable, str(path), str(folder)], env=environment, capture_output=True, text=True
    )
    return folder, ended


@pytest.mark.slow
def test_a_save_that_dies_before_its_end_leaves_the_one_before_and_the_next_save_cleans_up(tmp_path):
    folder, ended = child(tmp_path, DIES)
    assert ended.returncode == 9, ended.stderr
    assert store.find(folder) == store.step_folder(folder, 1)
    partial = [path for path in folder.iterdir() if path.name.endswith(".partial")]
    assert len(partial) == 1
    store.write(store.step_folder(folder, 2), {"x": jnp.arange(5.0)}, kind=STATE, about={})
    assert sorted(path.name for path in folder.iterdir()) == ["step_00000001", "step_00000002"]


FULL = """
    import resource, signal, sys
    from pathlib import Path
    import jax.numpy as jnp, numpy as np
    from models_nnx import store

    root = Path(sys.argv[1])
    noise = np.random.default_rng(0).normal(size=(1000, 1000)).astype(np.float32)  # does not compress
    store.write(store.step_folder(root, 1), {"x": jnp.arange(5.0)}, kind="train state", about={})
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
    try:
        store.write(store.step_folder(root, 2), {"x": jnp.asarray(noise)}, kind="train state", about={})
    except store.CheckpointError as error:
        print(error)
    print(sorted(path.name for path in root.iterdir()))
"""


@pytest.mark.slow
def test_a_full_disk_is_one_error_and_nothing_is_lost(tmp_path):
    """The system refuses files above a megabyte, as a full disk would."""
    folder, ended = child(tmp_path, FULL)
    said, left = ended.stdout.splitlines()[-2:]
    assert "step_00000002: not written" in said and "what was saved before is as it was" in said, ended.stdout
    assert "File too large" in said and len(said) < 600 and "Traceback" not in ended.stderr
    assert left == "['step_00000001']"
    like = {"x": jax.ShapeDtypeStruct((5,), jnp.float32)}
    np.testing.assert_array_equal(store.read(store.find(folder), like, kind=STATE)["x"], np.arange(5.0))


def numbers(step):
    return np.random.default_rng(step).normal(size=(64, 65)).astype(np.float32)


def save_for_ever(root, pipe):
    """Saves step after step, and tells of each that is complete."""
    step = int(store.find(root).name.removeprefix("step_")) if list(root.glob("step_*")) else 0
    while True:
        step += 1
        leaves = {"x": jnp.asarray(numbers(step)), "step": jnp.asarray(step, jnp.uint32)}
        store.write(store.step_folder(root, step), leaves, kind=STATE, about={})
        pipe.send(step)


@pytest.mark.long
def test_killed_at_any_moment_of_a_save_the_one_before_always_loads(tmp_path):
    """SIGKILL at random moments; KILLS says how many. Each child goes on where the one before was killed."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "models_nnx.store"])
    rng = random.Random(3)
    root = tmp_path / "run"
    root.mkdir()
    like = {"x": jax.ShapeDtypeStruct((64, 65), "float32"), "step": jax.ShapeDtypeStruct((), "uint32")}
    cut_short = 0
    for _ in range(KILLS):
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=save_for_ever, args=(root, theirs))
        process.start()
        told = ours.recv()
        time.sleep(rng.uniform(0, 0.15))
        process.kill()
        process.join()
        theirs.close()
        while ours.poll():
            try:
                told = ours.recv()
            except EOFError:
                break
        cut_short += any(path.name.endswith(".partial") for path in root.iterdir())
        found = store.read(store.find(root), like, kind=STATE)
        step = int(found["step"])
        assert step >= told  # what was said to be saved is there; the next may be, unsaid
        np.testing.assert_array_equal(found["x"], numbers(step))
    assert cut_short > KILLS / 3  # most were at work, so that the test is of something
