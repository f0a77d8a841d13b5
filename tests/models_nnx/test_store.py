"""Named arrays on disk: complete or absent, as requested or refused, regardless of failures of disk and process."""

import json
import multiprocessing
import os
import random
import shutil
import socket
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models_nnx.shared import store
from models_nnx.shared.store import CheckpointError, Kind

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


def test_leaves_have_the_requested_placement(saved):
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


def wide(seed=0):
    """Leaves that a mesh of eight divides, of every kind that a train state has."""
    rng = np.random.default_rng(seed)
    return {
        "kernel": jnp.asarray(rng.normal(size=(8, 16)), jnp.float32),
        "half": jnp.asarray(rng.normal(size=(8, 8)), jnp.bfloat16),
        "count": jnp.asarray(3, jnp.int32),
        "flags": jnp.asarray(rng.integers(0, 2, 8), bool),
        "key": jax.random.key(seed),
        "keys": jax.random.split(jax.random.key(seed), 8),
        "nothing": jnp.zeros((0, 8), jnp.float32),
        "none of eight": jnp.zeros((8, 0), jnp.float32),
    }


P = jax.sharding.PartitionSpec
SPECS = {
    "first axis": ((8,), lambda rank: P(*("a", None)[:rank])),
    "last axis": ((8,), lambda rank: P(*(None, "a")[-rank:]) if rank else P()),
    "both axes": ((2, 4), lambda rank: P(*("a", "b")[:rank])),
    "one axis of two": ((2, 4), lambda rank: P(*("b", None)[:rank])),
    "together": ((2, 4), lambda rank: P(*(("b", "a"), None)[:rank])),
    "everywhere": ((2, 4), lambda rank: P()),
    "the last device": (None, None),
}


@pytest.mark.parametrize("mode", [jax.sharding.AxisType.Auto, jax.sharding.AxisType.Explicit], ids=str)
@pytest.mark.parametrize("where", SPECS)
def test_every_kind_of_leaf_goes_where_it_is_requested(tmp_path, where, mode):
    sizes, spec = SPECS[where]
    folder = store.write(tmp_path / "one", wide(), kind=STATE, about={})

    def place(leaf):
        if sizes is None:
            return jax.sharding.SingleDeviceSharding(jax.devices()[-1])
        mesh = jax.make_mesh(sizes, ("a", "b")[: len(sizes)], axis_types=(mode,) * len(sizes))
        return jax.sharding.NamedSharding(mesh, spec(leaf.ndim))

    like = {
        name: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place(leaf))
        for name, leaf in wide().items()
    }
    found = store.read(folder, like, kind=STATE)
    assert [
        n for n, leaf in found.items() if not leaf.sharding.is_equivalent_to(like[n].sharding, leaf.ndim)
    ] == []
    assert_same(found, wide())


def test_every_leaf_that_is_not_as_requested_is_listed_in_one_error(saved):
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


def test_the_last_complete_step_is_found_and_an_unfinished_one_is_not(tmp_path):
    with pytest.raises(CheckpointError, match="no checkpoint"):
        store.find(tmp_path)
    for step in (9, 10):
        store.write(store.step_folder(tmp_path, step), leaves(step), kind=STATE, about={})
    (tmp_path / ".step_00000011.elsewhere-1-0a.partial").mkdir()
    found = store.find(tmp_path)
    assert found == store.step_folder(tmp_path, 10) == store.find(found)


# --- the process dies, the disk is full ---

DIES = """
    import os, sys
    from pathlib import Path
    import jax.numpy as jnp
    from models_nnx.shared import store

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
    environment = {**os.environ, "PYTHONPATH": str(Path(store.__file__).parents[2])}
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
    import resource, sys, time
    from pathlib import Path
    import jax.numpy as jnp, numpy as np
    from models_nnx.shared import store

    root = Path(sys.argv[1])
    noise = np.random.default_rng(0).normal(size=(300, 1000)).astype(np.float32)  # does not compress
    store.write(store.step_folder(root, 1), {"x": jnp.arange(5.0)}, kind="train state", about={})
    for limit, count in ((1 << 20, 1), (1 << 20, 8), (100_000, 30), (300_000, 3)):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        leaves = {f"p{number}/x": jnp.asarray(noise) for number in range(count)}
        try:
            store.write(store.step_folder(root, 2), leaves, kind="train state", about={})
        except store.CheckpointError as error:
            print(error)
        time.sleep(0.2)  # writes that go on would leave files, or print
        print(sorted(path.name for path in root.iterdir()))
"""


@pytest.mark.long
def test_a_full_disk_is_one_sentence_and_nothing_is_lost_or_left(tmp_path):
    """A file size limit simulates a full disk; TensorStore writes many leaves at once."""
    folder, ended = child(tmp_path, FULL)
    assert (ended.returncode, ended.stderr) == (0, "")
    said, left = ended.stdout.splitlines()[::2], ended.stdout.splitlines()[1::2]
    expected = (
        f"{folder}/step_00000002: not written (File too large); earlier checkpoints are unchanged; free space, or "
        "name another folder"
    )
    assert said == [expected] * 4 and left == ["['step_00000001']"] * 4
    like = {"x": jax.ShapeDtypeStruct((5,), jnp.float32)}
    np.testing.assert_array_equal(store.read(store.find(folder), like, kind=STATE)["x"], np.arange(5.0))


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda root: root / "file", "Not a directory"),
        (lambda root: root / "file" / "run", "Not a directory"),
        (lambda root: root / "nowhere" / "run", "No such file or directory"),
        (lambda root: root / ("long" * 100) / "run", "File name too long"),
        (lambda root: root / "new" / ("long" * 100), "File name too long"),
        (lambda root: Path("/proc/run"), "No such file or directory"),
    ],
    ids=["file", "below a file", "dangling link", "long", "long below new", "system"],
)
def test_a_folder_that_cannot_be_made_is_refused_before_anything_is_written(tmp_path, make, reason):
    (tmp_path / "file").touch()
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(CheckpointError, match=f"cannot be written to .{reason}.; name another folder"):
        store.check_writable(make(tmp_path), leaves())
    assert sorted(tmp_path.iterdir()) == before


def test_a_checkpoint_without_disk_space_is_refused_before_anything_is_written(tmp_path, monkeypatch):
    needed = sum(host(leaf).nbytes for leaf in leaves().values())
    for name in ("run", "run/deeper", "."):
        store.check_writable(tmp_path / name, leaves())
    for free in (0, needed - 1, needed):
        monkeypatch.setattr(
            store.shutil, "disk_usage", lambda path, free=free: shutil._ntuple_diskusage(9**9, 0, free)
        )
        if free == needed:
            store.check_writable(tmp_path / "run", abstract(leaves()))
            continue
        with pytest.raises(
            CheckpointError, match=f"has {free} bytes free, a checkpoint needs {needed}; free"
        ):
            store.check_writable(tmp_path / "run", abstract(leaves()))
    assert not list(tmp_path.iterdir())


# --- other writers to the folder ---


def sleeping():
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])


@pytest.fixture
def processes():
    """``{name: process id}``: one that lives, one that is dead, and others that live."""
    alive, dead = sleeping(), sleeping()
    dead.kill()
    dead.wait()
    yield {"own": os.getpid(), "parent": os.getppid(), "first": 1, "child": alive.pid, "dead": dead.pid}
    alive.kill()
    alive.wait()


def test_only_leftovers_of_dead_writers_of_this_machine_are_removed(tmp_path, processes):
    host = socket.gethostname()
    for name, process in processes.items():
        for writer in (f"{host}-{process}-0a", f"elsewhere-{process}-0a", f"{host}x-{process}-0a"):
            (tmp_path / f".step_{name}.{writer}.partial" / "arrays").mkdir(parents=True)
    others = (f".x.{host}-{processes['dead']}-0a.partial.kept", f"x.{host}-{processes['dead']}-0a.partial")
    for name in others:
        (tmp_path / name).mkdir()
    before = {path.name for path in tmp_path.iterdir()}
    store.write(tmp_path / "step_00000001", leaves(), kind=STATE, about={})
    gone = before - {path.name for path in tmp_path.iterdir()}
    assert gone == {f".step_dead.{host}-{processes['dead']}-0a.partial"}


@pytest.mark.long
def test_an_unfinished_writer_keeps_its_folder_while_others_write(tmp_path, monkeypatch):
    """Three threads write at once, two of them the same step: none takes a file of another."""
    barrier, original = threading.Barrier(3, timeout=30), store._write_manifest

    def wait_for_the_others(*arguments):
        barrier.wait()
        original(*arguments)
        barrier.wait()

    monkeypatch.setattr(store, "_write_manifest", wait_for_the_others)
    results = []

    def save(step):
        try:
            results.append(store.write(store.step_folder(tmp_path, step), leaves(step), kind=STATE, about={}))
        except CheckpointError as error:
            results.append(error)

    threads = [threading.Thread(target=save, args=(step,)) for step in (1, 1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    refused = [result for result in results if isinstance(result, CheckpointError)]
    assert len(refused) == 1 and "step_00000001: not written" in str(refused[0])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step_00000001", "step_00000002"]
    for step in (1, 2):
        found = store.read(store.step_folder(tmp_path, step), abstract(leaves()), kind=STATE)
        assert_same(found, leaves(step))


def test_the_disk_holds_every_file_and_folder_before_the_folder_gets_its_name(tmp_path, monkeypatch):
    """A computer that loses power may lose unflushed files, yet keep the new name."""
    flushed, names = set(), []
    fsync, rename = os.fsync, os.rename

    def state(found):
        return found.st_ino, found.st_size, found.st_mtime_ns

    def flush(descriptor):
        fsync(descriptor)
        flushed.add(state(os.fstat(descriptor)))

    def name(source, target, **rest):
        if Path(target) == tmp_path / "run" / "one":
            paths = [Path(source), *Path(source).rglob("*")]
            names.append((len(paths), [str(path) for path in paths if state(path.stat()) not in flushed]))
        rename(source, target, **rest)

    monkeypatch.setattr(os, "fsync", flush)
    monkeypatch.setattr(os, "rename", name)
    store.write(tmp_path / "run" / "one", leaves(), kind=STATE, about={})
    ((count, unflushed),) = names
    assert count > 5 and unflushed == []
    assert state((tmp_path / "run").stat()) in flushed  # and then the name


def numbers(step):
    return np.random.default_rng(step).normal(size=(64, 65)).astype(np.float32)


def save_for_ever(root, pipe):
    """Saves step after step, and sends the number of each complete step."""
    step = int(store.find(root).name.removeprefix("step_")) if list(root.glob("step_*")) else 0
    while True:
        step += 1
        leaves = {"x": jnp.asarray(numbers(step)), "step": jnp.asarray(step, jnp.uint32)}
        store.write(store.step_folder(root, step), leaves, kind=STATE, about={})
        pipe.send(step)


@pytest.mark.long
def test_killed_at_any_moment_of_a_save_the_one_before_always_loads(tmp_path):
    """SIGKILL at random moments, KILLS times. Each child continues from the last save of the killed one."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "models_nnx.shared.store"])
    rng = random.Random(3)
    root = tmp_path / "run"
    root.mkdir()
    like = {"x": jax.ShapeDtypeStruct((64, 65), "float32"), "step": jax.ShapeDtypeStruct((), "uint32")}
    cut_short = 0
    for _ in range(KILLS):
        reference, candidate = context.Pipe(duplex=False)
        process = context.Process(target=save_for_ever, args=(root, candidate))
        process.start()
        saved = reference.recv()
        time.sleep(rng.uniform(0, 0.15))
        process.kill()
        process.join()
        candidate.close()
        while reference.poll():
            try:
                saved = reference.recv()
            except EOFError:
                break
        cut_short += any(path.name.endswith(".partial") for path in root.iterdir())
        found = store.read(store.find(root), like, kind=STATE)
        step = int(found["step"])
        assert step >= saved  # every reported save is present; the next may be, unreported
        np.testing.assert_array_equal(found["x"], numbers(step))
    assert cut_short > KILLS / 3  # most were killed during a save, so that the test is meaningful
