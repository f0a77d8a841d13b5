"""Cases as Ray tasks: the record equals that of a local run, regardless of failures of workers."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import types
from pathlib import Path

import pytest
from toys import write_project

from parity.compare.backends.ray_cluster import attend, check_address, declared, here

TWINS = """
def working(name, at_work=lambda: None):
    class Working(Nnx):
        def __call__(self, x):
            at_work()
            return super().__call__(x)

    return pair(name, nnx=Working)

def crash():
    os.kill(os.getpid(), signal.SIGSEGV)

def once():
    now = pathlib.Path("now")
    if not now.exists():
        now.write_text(str(os.getpid()))
        time.sleep(120)

A, ONCE, CRASH = pair("a"), working("once", once), working("crash", crash)
"""


@pytest.fixture
def project(tmp_path):
    return write_project(tmp_path, "twins_here", TWINS, "A", "ONCE", "CRASH")


@pytest.fixture
def logs():
    """Folder for Ray's files: its processes have it in their command line, so that leftover ones are found."""
    with tempfile.TemporaryDirectory(prefix="r", dir="/tmp", ignore_cleanup_errors=True) as folder:
        yield folder


def left_behind(folder, seconds=10):
    """Returns the remaining processes of the Ray that kept its files there, after some time to end."""
    end = time.monotonic() + seconds
    while True:
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # ended in between
                if f"RAY_TMPDIR={folder}".encode() in (path / "environ").read_bytes():
                    found.append((path / "cmdline").read_bytes())
        if not found or time.monotonic() > end:
            return found
        time.sleep(0.2)


def written(path, process):
    """Waits for a file and returns the process that it names."""
    end = time.monotonic() + 90
    while not (path.exists() and path.read_text()):
        assert time.monotonic() < end and process.poll() is None
        time.sleep(0.05)
    return int(path.read_text())


def comparable(report):
    """Returns the cases of a report by id, without times."""
    cases = {}
    for case in report["cases"]:
        del case["seconds"]
        for channel in case["channels"].values():
            channel.get("measures", {}).pop("seconds", None)
        cases[case["id"]] = case
    return cases


@pytest.mark.long
def test_a_killed_worker_costs_nothing_and_one_that_a_case_kills_is_an_error(shell, project, logs):
    selected = ("a", "once", "crash/forward")
    process = shell.start(
        "run",
        *selected,
        "--ray",
        "local",
        "--workers",
        "2",
        "--json",
        "ray.json",
        cwd=project,
        RAY_TMPDIR=logs,
    )
    try:
        os.kill(written(project / "now", process), signal.SIGKILL)
        out, err = process.communicate(timeout=200)
    finally:
        process.kill()
    assert (process.returncode, err) == (1, "") and "6 passed, 1 error" in out
    assert left_behind(logs) == []
    remote = json.loads((project / "ray.json").read_text())
    assert "WorkerError: 3 Ray workers, the last lost (WorkerCrashedError)" in out

    assert shell("run", *selected, "--workers", "2", "--json", "local.json", cwd=project).code == 1
    local = json.loads((project / "local.json").read_text())
    assert [case["id"] for case in local["cases"]] == [case["id"] for case in remote["cases"]]
    left, right = comparable(local), comparable(remote)
    crashed = "crash/forward@single"
    assert (left.pop(crashed)["verdict"], right.pop(crashed)["verdict"]) == ("error", "error")
    assert len(left) == 6 and left == right


@pytest.mark.long
def test_an_interrupted_run_leaves_a_partial_report_and_no_ray(shell, project, logs):
    process = shell.start(
        "run", "once/forward", "--ray", "local", "--json", "r.json", cwd=project, RAY_TMPDIR=logs
    )
    try:
        written(project / "now", process)
        assert left_behind(logs, seconds=0)
        process.send_signal(signal.SIGTERM)  # Ray has a separate handler for it
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, err) == (130, "") and "PARTIAL" in out
    assert json.loads((project / "r.json").read_text())["partial"] == {"finished": 0, "planned": 1}
    assert left_behind(logs) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--processes 2 --ray local", "--ray: cannot be combined with --processes"),
        ("--ray 127.0.0.1:1", "--ray 127.0.0.1:1: nothing answers"),
        ("--ray 127.0.0.1:99999", "--ray 127.0.0.1:99999: nothing answers"),
        ("--ray ray://head:10001", "expected HOST:PORT of the head, auto, or local"),
        ("--ray auto --workers 2", "--workers: the cluster at auto determines the number"),
        ("--ray auto --cached", "--cached: files that the machines of auto read cannot be checked here"),
    ],
)
def test_conflicting_options_are_reported_in_one_line(command, project, words, message):
    ended = command("run", *words.split(), cwd=project)
    assert ended.code == 2 and message in ended.err and len(ended.err.splitlines()) == 1


def test_without_ray_the_way_to_it_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ValueError, match=r'Ray is not installed; pip install "linen-nnx-parity\[ray\]"'):
        check_address("local")


def test_a_worker_reports_the_lacks_of_its_machine(monkeypatch, tmp_path):
    module = types.ModuleType("works_here")
    module.work = lambda number, notify: (Path.cwd(), number + 1)
    monkeypatch.setitem(sys.modules, "works_here", module)
    monkeypatch.chdir(tmp_path)
    site = here()
    monkeypatch.chdir("/")
    asked = ("cpu", "works_here:work", (3,), 60)
    assert attend(site, *asked) == ("done", (tmp_path, 4))

    for name, text in (("jax", "0.1"), ("commit", "a" * 40)):
        other = site._replace(versions={**site.versions, name: text})
        kind, (_, why) = attend(other, *asked)
        assert kind == "raised" and f"expected {name} {text}; install the same versions, and check out" in why
    assert "got no folder /no/such/folder" in attend(site._replace(folder="/no/such/folder"), *asked)[1][1]


@pytest.mark.slow
def test_a_call_that_takes_too_long_ends_its_worker():
    lines = (
        "import sys, time, types",
        "hangs = sys.modules['hangs'] = types.ModuleType('hangs')",
        "hangs.work = lambda notify: time.sleep(60)",
        "from parity.compare.backends.ray_cluster import attend, here",
        "attend(here(), 'cpu', 'hangs:work', (), 1)",
    )
    environment = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PATH": os.environ["PATH"]}
    ended = subprocess.run([sys.executable, "-c", "\n".join(lines)], env=environment, timeout=50)
    assert ended.returncode == -signal.SIGALRM


def test_a_worker_finds_the_accelerator_that_the_driver_left_free():
    lines = (
        "import os",
        "from parity.compare.backends.environment import prepare",
        "from parity.compare.backends.ray_cluster import attend, here",
        "prepare('cpu')",
        "attend(here(), 'tpu', '', (), 60)",
        "print(os.environ['JAX_PLATFORMS'], os.environ.get('TPU_SKIP_MDS_QUERY'))",
    )
    environment = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PATH": os.environ["PATH"]}
    ended = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], env=environment, capture_output=True, text=True
    )
    assert (ended.stdout, ended.stderr) == ("tpu,cpu None\n", "")


def test_a_task_declares_the_resources_of_one_machine():
    gib = 2**30
    has = [{"CPU": 4.0, "memory": 16.0 * gib}, {"CPU": 8.0, "memory": 64.0 * gib, "GPU": 4.0, "TPU": 8.0}]
    assert declared("cpu", 8, has) == {"num_cpus": 1, "memory": 2 * gib}
    assert declared("aot:v5p:2x2x1", 4, [{"CPU": 1.0, "memory": gib}]) == {"num_cpus": 1, "memory": gib}
    assert declared("gpu", 8, has) == {"num_cpus": 1, "memory": 2 * gib, "num_gpus": 4, "max_calls": 1}
    assert declared("tpu", 4, has)["resources"] == {"TPU": 4}
    with pytest.raises(ValueError, match="no machine of the Ray cluster has a GPU; add one, or use cpu"):
        declared("gpu", 1, has[:1])
