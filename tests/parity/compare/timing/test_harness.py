"""The cost of the harness: exponents over layers, leaves and devices, counted in calls; its share of a run."""

import io

import pytest
from calls import calls
from campaigns.harness import overhead
from rich.console import Console

from parity.compare.backends.registry import find
from parity.compare.placement import place
from parity.compare.session import Session
from parity.compare.timing import scaling
from parity.compare.timing.scaling import AXES, FULL, HIGHEST, SHORT, fit, measure_scaling, parse_sizes
from parity.report.bench import print_curve
from parity.run.run import run_case
from parity.values.rng.demand import Demand


def counted(axis, size):
    """Returns the calls of each phase, and of a whole run."""
    counts = {}
    for phase, step in scaling.phases(axis, size, run_case).items():
        counts[phase] = calls(step)
    return counts


@pytest.mark.long
@pytest.mark.parametrize(
    ("axis", "sizes"), [("layers", (10, 40)), ("leaves", (40, 160)), ("devices", (8, 512))]
)
def test_no_phase_grows_faster_than_its_axis(axis, sizes):
    counted(axis, sizes[0])  # imports and caches
    few, many = (counted(axis, size) for size in sizes)
    assert few.keys() >= {"build", "trace", "lower", "map", "prove"}
    exponents = {phase: fit(sizes, (few[phase], many[phase])) for phase in few}
    assert {phase: found for phase, found in exponents.items() if found > HIGHEST[axis]} == {}


@pytest.mark.long
@pytest.mark.parametrize("axis", AXES)
def test_the_pairs_pass(axis):
    make, name = AXES[axis]
    backend = find(name)
    (case,) = place([make(4)], backend)
    channels = ("program",) if not backend.executes else ("program", "tree", "values", "rng")
    assert run_case(case, Session(backend=backend), channels).verdict == "passed"


def test_a_search_for_one_output_does_not_pass_over_the_whole_program():
    import jax
    import jax.numpy as jnp

    def initial(key, count):
        made, number = [], jnp.uint32(0)
        for _ in range(count):
            made.append(jax.random.normal(jax.random.fold_in(key, number), (3,)))
            number += 1  # as NNX counts: the last key depends on all additions
        return made

    def searches(count):
        jaxpr = jax.make_jaxpr(lambda key: initial(key, count))(jax.random.key(0)).jaxpr

        def search():
            return [Demand(jaxpr, [at], all_draws=False, drawn=True).draws for at in range(count)]

        assert search() == [Demand(jaxpr, [at], all_draws=False).draws for at in range(count)]
        assert [len(draws) for draws in search()] == [1] * count
        return calls(search)

    assert fit((20, 80), (searches(20), searches(80))) < HIGHEST["leaves"]


def test_the_fit_is_that_of_a_power_law_and_leaves_out_short_times():
    assert fit((1, 10, 100), (2, 20, 200)) == pytest.approx(1)
    assert fit((1, 10, 100), (1e-9, 1, 100)) == pytest.approx(2)
    assert fit((1, 10), (1e-9, 1)) is None


def test_a_curve_keeps_the_least_of_the_rounds_and_names_phases_that_grow_too_fast(monkeypatch):
    times = iter([9.0, 1.0, 4.0, 2.0, 8.0])  # one to warm up, then two rounds
    monkeypatch.setattr(scaling, "_seconds", lambda *asked: {"map": next(times), "prove": 1.0})
    curve = measure_scaling("layers", (20, 10, 20), lambda case, session: None)
    assert curve["sizes"] == [10, 20] and curve["too_fast"] == ["map"]
    assert {name: row["seconds"] for name, row in curve["phases"].items()} == {
        "map": [1.0, 4.0],
        "prove": [1.0, 1.0],
    }
    assert curve["phases"]["map"]["exponent"] == pytest.approx(2)
    screen = Console(width=80, file=io.StringIO())
    print_curve(screen, curve)
    printed = screen.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]
    assert "map   1 s 4 s     2.00" in printed
    assert "grows too fast: map, exponent 2.00, at most 1.3" in printed


def test_an_exponent_that_cannot_be_fitted_is_null_in_the_record(monkeypatch):
    monkeypatch.setattr(scaling, "_seconds", lambda *asked: {"map": 1.0})
    row = measure_scaling("leaves", (3,), lambda case, session: None)
    assert row["phases"] == {"map": {"seconds": [1.0], "exponent": None}} and row["too_fast"] == []


def test_sizes_are_named_or_short_or_full():
    assert parse_sizes(()) == SHORT and parse_sizes(("full",)) == FULL
    assert parse_sizes(("layers=10,100", "devices=8")) == {"layers": (10, 100), "devices": (8,)}


@pytest.mark.parametrize("text", ["half", "layers", "layers=", "layers=0,1", "depth=3", "layers=1;2"])
def test_bad_sizes_are_refused(text):
    with pytest.raises(ValueError, match=r"--sizes .*: expected full, or layers, leaves, devices"):
        parse_sizes((text,))


def test_the_own_share_is_the_total_less_the_part_of_jax():
    seconds = {"build": 1.0, "trace": 2.0, "lower": 1.0, "prove": 3.0, "compile": 2.0, "execute": 1.0}
    report = {"seconds": 20.0, "cases": [{"seconds": seconds}, {"seconds": seconds}]}
    assert overhead.own_share(report) == 1 - 12 / 20


@pytest.mark.long
def test_a_run_is_measured_against_a_script(tmp_path, capsys):
    script = tmp_path / "script.py"
    script.write_text("import jax\n")
    found = overhead.measure_overhead(("llama2-scan/forward",), script, 2)
    overhead.print_overhead(found)
    assert all(0 < share < 1 for shares in found.own.values() for share in shares)
    assert all(pair.middle > 1 for pair in found.ratios.values())
    assert "own time of parity run:" in capsys.readouterr().out
