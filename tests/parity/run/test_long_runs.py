"""A process that runs hundreds of cases stays within the system's limits."""

import types
import weakref

import jax
import pytest

from parity.run.run import MAPS, clear_caches_if_many_mappings

pytestmark = pytest.mark.skipif(not MAPS.exists(), reason="only Linux tells and limits the maps of a process")


@pytest.mark.long
def test_caches_are_cleared_if_there_are_too_many_mappings():
    traces = []

    @jax.jit
    def traced(x):
        traces.append(x)
        return x + 1

    for most, expected in ((10**9, 1), (10**9, 1), (0, 1), (10**9, 2)):
        traced(1)
        assert len(traces) == expected
        clear_caches_if_many_mappings(most)


def test_programs_in_reference_cycles_are_let_go_too(monkeypatch):
    monkeypatch.setattr(jax, "clear_caches", lambda: None)
    cycle = types.SimpleNamespace(program=types.FunctionType(compile("0", "", "eval"), {}))
    cycle.itself, program = cycle, weakref.ref(cycle.program)
    del cycle
    clear_caches_if_many_mappings(0)
    assert program() is None
