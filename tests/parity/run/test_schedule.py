"""The scheduler: a request is made once, its backend found once, and listeners are notified of every step."""

import dataclasses
from pathlib import Path

import pytest

from parity.compare.backends import registry
from parity.run import request as requests
from parity.run import schedule
from parity.run.request import CacheMode, Request, Shard
from parity.run.schedule import Listener, Schedule, check_schedule, execute

EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "foreign_mlp.py"


@pytest.fixture
def request_of(tmp_path, monkeypatch, undone_imports):
    """``request_of(field=value)`` returns a request for the cases of a project with one pair of MLPs."""
    (tmp_path / "foreign_mlp.py").write_text(EXAMPLE.read_text())
    (tmp_path / "pyproject.toml").write_text('[tool.parity]\npairs = ["foreign_mlp:PAIR"]\n')
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path.parent / "cache"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))  # the first run would do it, and so change the manifest
    return lambda **fields: Request.of(tmp_path, **{"channels": ("program",), **fields})


class Notes(Listener):
    """Records its notifications."""

    def __init__(self):
        self.notes = []

    def begins(self, planned, changed):
        self.notes.append(("begins", planned))

    def started(self, case):
        self.notes.append(("started", case.program))

    def finished(self, result):
        self.notes.append(("finished", result.program))

    def ended(self, report, changed):
        self.notes.append(("ended", len(report.cases)))


def test_the_backend_is_found_once(request_of, monkeypatch):
    found = []

    def find(name, compiler=None):
        found.append(name)
        return registry.find(name, compiler)

    def find_again(name, compiler=None):
        raise AssertionError(f"{name} was found a second time")

    monkeypatch.setattr(requests, "find", find)
    monkeypatch.setattr("parity.compare.session.find", find_again)
    record = execute(request_of(select=("mlp/forward",)))
    assert [result.verdict for result in record.cases] == ["passed"] and found == ["cpu"]


def test_a_listener_is_notified_of_every_step(request_of):
    notes = Notes()
    record = execute(request_of(select=("mlp/forward", "mlp/grad")), notes)
    assert record.planned == len(record.cases) == 2
    steps = [("started", "forward"), ("finished", "forward"), ("started", "grad"), ("finished", "grad")]
    assert notes.notes == [("begins", 2), *steps, ("ended", 2)]


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_a_listener_is_notified_of_the_end_of_a_run_that_breaks(request_of, monkeypatch, error):
    def run(case):
        raise error

    monkeypatch.setattr(schedule, "case_runner", lambda *arguments: run)
    notes = Notes()
    if error is KeyboardInterrupt:
        assert execute(request_of(select=("mlp/forward",)), notes).partial
    else:
        with pytest.raises(error):
            execute(request_of(select=("mlp/forward",)), notes)
    assert notes.notes == [("begins", 1), ("started", "forward"), ("ended", 0)]


def test_a_run_of_cached_verdicts_alone_starts_no_workers(request_of, monkeypatch):
    wanted = request_of(select=("mlp/forward",), cache=CacheMode.REUSE)
    (first,) = execute(wanted).cases
    monkeypatch.setattr(schedule, "run_in_workers", lambda *arguments: pytest.fail("workers were started"))
    (again,) = execute(dataclasses.replace(wanted, workers=2)).cases
    assert (first.remembered, again.remembered) == (False, True) and again.channels == first.channels


@pytest.mark.long
def test_a_refreshed_verdict_is_not_reused(request_of):
    wanted = request_of(select=("mlp/forward",), cache=CacheMode.REUSE)
    execute(wanted)
    assert (reuse := Schedule(wanted)).cache.reused(reuse.cases[0])
    refreshed = Schedule(dataclasses.replace(wanted, cache=CacheMode.REFRESH))
    assert refreshed.cache.reused(refreshed.cases[0]) is None
    (result,) = execute(refreshed.request).cases
    assert not result.remembered


def test_a_part_of_the_cases_knows_its_places_among_all(request_of):
    record = execute(request_of(shard=Shard(2, 2)))
    assert record.shard and (record.shard.places, record.shard.total) == ((1,), 3)


def test_a_command_that_schedules_nothing_checks_no_schedule(request_of, monkeypatch):
    monkeypatch.setattr(schedule, "check_schedule", lambda request: pytest.fail("nothing is scheduled"))
    cases, session = request_of(paranoid=True, processes=3, ray="nowhere:1").open_cases()
    assert len(cases) == 3 and session.paranoid


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"backend": "gpu", "workers": 2}, "--workers 2: backend gpu belongs to one process"),
        ({"processes": 3}, "--processes 3: choose a divisor of the 8 simulated devices"),
        ({"processes": 2, "workers": 2}, "--processes: runs one case at a time, on cpu"),
        ({"processes": 2, "backend": "aot:v5p:2x2x1"}, "--processes: runs one case at a time, on cpu"),
        ({"processes": 2, "cache": CacheMode.REUSE}, "--cached: cannot be combined with --processes"),
        ({"processes": 2, "ray": "local"}, "--ray: cannot be combined with --processes"),
        ({"ray": "head:1", "workers": 2}, "--workers: the cluster at head:1"),
        ({"ray": "head:1", "cache": CacheMode.REFRESH}, "--cached: files that the machines of head:1 read"),
    ],
)
def test_what_cannot_be_scheduled_together_is_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        check_schedule(Request(**fields))
