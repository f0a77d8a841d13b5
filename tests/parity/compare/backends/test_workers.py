"""Worker processes: a crash, hang or memory excess in one is an error here, and no process keeps running."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

import parity
from parity.compare.backends.workers import (
    GIB,
    SECONDS,
    Pool,
    RemoteError,
    Worker,
    WorkerError,
    default_memory,
    machine_memory,
)

TASKS = """
import os, signal, sys, time

def add(a, b, notify):
    return a + b

def pid(notify):
    return os.getpid()

def variable(name, notify):
    return os.environ.get(name)

def path(notify):
    return sys.path

def meet(folder, name, other, notify):
    open(os.path.join(folder, name), "w").close()
    end = time.monotonic() + 20
    while not os.path.exists(os.path.join(folder, other)):
        if time.monotonic() > end:
            return "alone"
        time.sleep(0.01)
    return "together"

def refuse(notify):
    raise KeyError("no such luck")

def unsendable(notify):
    return lambda: None

def hang(notify):
    notify("nnx toy, compile")
    time.sleep(60)

def die(notify):
    notify("nnx toy, compile")
    print("said on stdout", flush=True)
    print("F0000 out of registers", file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGSEGV)

def leave(notify):
    os._exit(7)

def fill(bytes, seconds, notify):
    block = os.urandom(1 << 20) * (bytes >> 20)
    time.sleep(seconds)
    return len(block) > 0
"""
MIB = 2**20


@pytest.fixture
def tasks(tmp_path, monkeypatch):
    """Returns a function from names to tasks that workers can call."""
    (tmp_path / "worker_tasks.py").write_text(TASKS)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "worker_tasks:{}".format


@pytest.fixture
def pool():
    pools = []

    def make(size=2, environment=None, **limits):
        pools.append(Pool(size, environment, **limits))
        return pools[-1]

    yield make
    for each in pools:
        each.close()


def gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_rooms_of_the_engine_do_not_hide_modules_of_their_names(pool, tasks):
    """If ``parity/`` itself were on the path, ``import bisect`` or a user's ``values`` would import ours."""
    assert str(Path(parity.__file__).parent) not in pool(1).submit(tasks("path")).result()


def test_a_call_returns_the_result_of_the_function_and_the_worker_stays(pool, tasks):
    one = pool(1, {"PARITY_TEST": "here"})
    assert one.submit(tasks("add"), 2, 3).result() == 5
    pids = {one.submit(tasks("pid")).result() for _ in range(3)}
    assert len(pids) == 1 and os.getpid() not in pids
    assert one.submit(tasks("variable"), "PARITY_TEST").result() == "here"
    one.close()
    assert gone(pids.pop())


def test_two_workers_are_at_work_at_once(pool, tasks, tmp_path):
    two = pool(2)
    calls = [two.submit(tasks("meet"), str(tmp_path), *names) for names in (("a", "b"), ("b", "a"))]
    assert [call.result() for call in calls] == ["together", "together"]


def test_an_exception_keeps_its_type_and_words_and_the_worker_lives(pool, tasks):
    one = pool(1)
    before = one.submit(tasks("pid")).result()
    with pytest.raises(RemoteError, match="KeyError: 'no such luck'"):
        one.submit(tasks("refuse")).result()
    with pytest.raises(RemoteError, match=r"result of worker_tasks:unsendable"):
        one.submit(tasks("unsendable")).result()
    with pytest.raises(RemoteError, match="ModuleNotFoundError: No module named 'nowhere'"):
        one.submit("nowhere:nothing").result()
    assert one.submit(tasks("pid")).result() == before


def test_a_death_is_reported_with_signal_and_last_output_and_the_next_call_works(pool, tasks, capfd):
    one = pool(1)
    with pytest.raises(WorkerError) as died:
        one.submit(tasks("die")).result()
    message = "died with signal 11 (SIGSEGV): said on stdout | F0000 out of registers"
    assert str(died.value).startswith(message)
    with pytest.raises(WorkerError, match="died with exit code 7"):
        one.submit(tasks("leave")).result()
    assert one.submit(tasks("add"), 1, 1).result() == 2
    assert capfd.readouterr() == ("", "")


@pytest.mark.long
def test_a_call_that_takes_too_long_is_stopped(pool, tasks):
    start = time.monotonic()
    with pytest.raises(WorkerError, match=r"^exceeded 1 s$"):
        pool(1, seconds=1.0).submit(tasks("hang")).result()
    assert time.monotonic() - start < 10


@pytest.mark.long
def test_a_call_that_takes_too_much_memory_is_stopped(pool, tasks):
    one = pool(1, memory=300 * MIB)
    assert one.submit(tasks("fill"), 50 * MIB, 0.5).result()
    with pytest.raises(WorkerError, match=r"^exceeded 0\.293 GiB of host memory$"):
        one.submit(tasks("fill"), 600 * MIB, 20).result()


@pytest.mark.long
def test_calls_that_fit_only_one_after_the_other_run_so(pool, tasks):
    two = pool(2, memory=500 * MIB, seconds=30)
    calls = [two.submit(tasks("fill"), 300 * MIB, 2) for _ in range(2)]
    start = time.monotonic()
    assert [call.result() for call in calls] == [True, True]
    assert time.monotonic() - start > 3.5, "they ran at once, in twice the memory"


def test_phases_are_known_while_a_call_runs(tasks):
    worker = Worker()
    worker.begin(tasks("hang"), ())
    while worker.phase != "nnx toy, compile":
        worker.poll(5)
    assert worker.resident > 5 * MIB and worker.seconds > 0
    worker.kill()
    assert gone(worker.pid)


def test_workers_end_when_the_parent_closes_even_in_the_middle_of_a_call(tasks):
    worker = Worker()
    worker.begin(tasks("hang"), ())
    worker.poll(5)
    worker.channel.close()
    assert worker._process.wait(10) == 0
    worker.kill()


def test_a_pool_that_is_forgotten_leaves_no_process(tasks):
    pool = Pool(1)
    pid = pool.submit(tasks("pid")).result()
    del pool
    end = time.monotonic() + 10
    while not gone(pid) and time.monotonic() < end:
        time.sleep(0.05)
    assert gone(pid)


@pytest.mark.long
def test_closing_a_pool_ends_a_call_with_an_error(tasks):
    pool = Pool(1)
    call = pool.submit(tasks("hang"))
    threading.Timer(1.0, pool.close).start()
    with pytest.raises(WorkerError, match="died with signal 9"):
        call.result()


def test_the_default_memory_is_a_share_of_the_machine():
    assert 0 < default_memory() < machine_memory()
    assert default_memory() / machine_memory() == pytest.approx(0.8, abs=0.01)
    assert machine_memory() > GIB // 4 and SECONDS == 600


def test_ctrl_c_does_not_reach_a_worker(tasks):
    """The worker has a separate session: the parent decides."""
    worker = Worker()
    worker.begin(tasks("hang"), ())
    while not worker.phase:
        worker.poll(5)
    assert os.getsid(worker.pid) != os.getsid(0)
    worker.kill()
    assert worker._process.returncode == -signal.SIGKILL and sys.exc_info() == (None, None, None)
