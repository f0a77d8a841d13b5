"""Cells of a flip: the definition of ready, and every cell that is not ready blocks exactly the flips it affects."""

import dataclasses
import fnmatch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parity.cases.accepted import Waiver
from parity.gate.flips import read_require, read_rules
from parity.gate.judge import BLOCKED, judge
from parity.run.record import CaseResult, Report
from parity.verdicts import BLOCKING, RUNGS, ChannelResult, Verdict

IDS = (
    "dense-scan/forward@data8-auto",
    "dense-scan/grad@data8-auto",
    "dense-unroll/grad@single",
    "moe-a/grad@expert8-auto",
    "mtp-a/grad@data8-auto",
    "other/grad@single",
)


def channel(verdict, **fields):
    return {"verdict": verdict, "detail": f"is {verdict}", "findings": [], **fields}


def held(report, rules, fallen=None, planned=IDS, part=False):
    """Returns ``{flip: blocks}`` of the flips that are held back."""
    found = {name: judge(name, report, rules, planned, fallen or {}, part) for name in rules.flips}
    return {name: list(one.blocks) for name, one in found.items() if one.verdict == "blocked"}


def test_a_proved_flip_is_ready(report, rules):
    assert held(report(), rules) == {}
    readiness = judge("pure_nnx", report(), rules, IDS, {})
    assert (len(readiness.cells), readiness.cases) == (9, 4)
    states = {(cell.feature, cell.mesh, cell.channel): cell.state for cell in readiness.cells}
    assert (
        states["dense", "single", "loops"] == "no question"
        and states["dense", "data8-auto", "loops"] == "ready"
    )


def test_a_pass_under_a_guessed_weight_map_blocks_its_flips_once_a_pair(report, rules):
    guessed = channel("equal", measures={"unnamed": 2})
    found = held(report(tree={"dense-scan": guessed, "mtp-a": channel("equal")}), rules)
    assert set(found) == {"pure_nnx", "scan_layers"}
    assert len(found["scan_layers"]) == 1 and found["scan_layers"][0].startswith(
        "dense-scan: 2 leaves paired by guess"
    )


@pytest.mark.parametrize("verdict", sorted(BLOCKING))
@pytest.mark.parametrize(
    ("start", "flips"),
    [
        ("dense-scan/grad", {"pure_nnx", "scan_layers"}),
        ("dense-unroll", {"pure_nnx"}),
        ("moe-a", {"pure_nnx"}),
        ("mtp-a", {"mtp"}),
        ("other", set()),
    ],
)
def test_a_difference_blocks_exactly_the_flips_it_touches(report, rules, verdict, start, flips):
    found = held(report(values={start: verdict}), rules)
    assert set(found) == flips
    for block in (block for blocks in found.values() for block in blocks):
        assert " failed: values: " in block and f": {verdict}, " in block and start in block


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (
            {"values": {"mtp-a": "floor"}},
            "below: values: mtp-a/grad@data8-auto: floor, gate.require requires bitwise; is floor",
        ),
        ({"program": {"mtp-a": "unproved"}}, "ambiguous: program"),
        ({"values": {"mtp-a": "tie"}}, "ambiguous: values"),
        ({"loops": {"mtp-a": "skipped"}}, "skipped: loops"),
        ({"loops": {"mtp-a": None}}, "missing: loops: mtp-a/grad@data8-auto: the report has no such channel"),
        (
            {"without": ["mtp-a"]},
            "missing: program, values, loops: mtp-a/grad@data8-auto: the report has no such case",
        ),
    ],
)
def test_an_inconclusive_result_blocks(report, rules, changed, words):
    found = held(report(**changed), rules)
    assert (
        set(found) == {"mtp"} and found["mtp"][0].startswith("mtp @data8-auto") and words in found["mtp"][0]
    )


def test_a_feature_may_demand_less_than_the_flip(report, rules):
    assert held(report(values={"moe-a": "floor"}), rules) == {}
    assert set(held(report(values={"dense-unroll": "floor"}), rules)) == {"pure_nnx"}


def test_another_case_of_the_cell_may_cover_a_skipped_one(report, rules):
    assert held(report(loops={"dense-scan/forward": "skipped"}), rules) == {}
    assert set(held(report(loops={"dense-scan": "skipped"}), rules)) == {"pure_nnx", "scan_layers"}


def test_a_selector_or_a_mesh_without_a_case_is_missing(report, rules):
    without = [id for id in IDS if not id.startswith("mtp-a")]
    words = held(report(), rules, planned=without)["mtp"][0]
    assert "selector 'mtp-a/*': matches none of 5 cases; did you mean moe-a?" in words
    without = [id for id in IDS if not id.endswith("8-auto")]
    assert any(
        "no case on a mesh *-auto" in block for block in held(report(), rules, planned=without)["scan_layers"]
    )


def waived(reason="known"):
    found = {"where": "x", "reference": "1", "candidate": "2", "next_step": f"waived: {reason}"}
    return channel("waived", findings=[found])


def test_a_waiver_passes_until_its_day_and_is_counted(report, rules):
    found = report(values={"mtp-a": waived()})
    assert "has no end" in held(found, rules)["mtp"][0]
    found = dataclasses.replace(found, waivers=(Waiver(reason="known", expires="2999-01-31"),))
    assert held(found, rules) == {}
    record = judge("mtp", found, rules, IDS, {})
    assert (record.verdict, record.waived) == ("ready", 1)


def test_a_fallen_baseline_blocks(report, rules):
    assert set(held(report(), rules, fallen={"moe-a/grad@expert8-auto": ["values fell"]})) == {"pure_nnx"}


MEMORY = {"tables": {"memory": [{"quantity": "temp", "reference": 100, "candidate": 120}]}}


def budget(table, ratio):
    fields = {"temp": {"ratio": ratio, "reason": "why"}}
    table["flips"]["mtp"]["budgets"] = {"memory": fields}
    return read_rules(table)


def test_budgets_bound_the_measured_quantities(report, table):
    found = report(memory={"mtp-a": channel("equal", **MEMORY)})
    assert held(found, budget(table, 1.25)) == {}
    assert held(found, budget(table, 1.1))["mtp"] == [
        "mtp-a/grad@data8-auto: memory.temp: 100 -> 120, budget 1.1 x (why)"
    ]
    unknown = report(memory={"mtp-a": channel("equal")}, program={"mtp-a": "reordered"})
    assert any("no numbers" in block for block in held(unknown, budget(table, 1.1))["mtp"])
    assert held(report(memory={"mtp-a": channel("proved")}), budget(table, 1.0)) == {}


def test_a_budget_of_loops_counts_those_that_the_table_leaves_out(report, table):
    table["flips"]["mtp"]["budgets"] = {"loops": {"count": {"ratio": 1.1, "reason": "why"}}}
    measures = {"reference_count": 90, "candidate_count": 120}
    found = report(loops={"mtp-a": channel("equal", measures=measures)})
    assert held(found, read_rules(table))["mtp"] == [
        "mtp-a/grad@data8-auto: loops.count: 90 -> 120, budget 1.1 x (why)"
    ]


@pytest.mark.parametrize(
    ("where", "source"),
    [
        ("gate.require", "gate.require"),
        ("flips.mtp.require", "flips.mtp.require"),
        ("flips.mtp.features.mtp.require", "flips.mtp.features.mtp.require"),
    ],
)
@pytest.mark.parametrize("verdict", ["floor", "unproved", "failed", "skipped"])
def test_a_requirement_that_is_missed_is_named_with_the_table_that_sets_it(
    report, table, where, source, verdict
):
    table["flips"]["mtp"]["features"]["mtp"] = {"cases": ["mtp-a/*"]}
    *folders, last = where.split(".")
    here = table
    for folder in folders:
        here = here.setdefault(folder, {})
    here[last] = {**here.get(last, {}), "values": ["bitwise", "exact"]}
    (block,) = held(report(values={"mtp-a": verdict}), read_rules(table))["mtp"]
    assert f"mtp-a/grad@data8-auto: {verdict}, {source} requires bitwise or exact; is {verdict}" in block


@pytest.mark.parametrize(
    ("required", "passing"),
    [
        (["floor", "exact"], {"proved", "reordered", "bitwise", "floor", "exact"}),
        (["exact", "floor"], {"proved", "reordered", "bitwise", "floor", "exact"}),
        ("floor", {"proved", "bitwise", "floor"}),
        ("exact", {"proved", "reordered", "exact"}),
        (["equal", "arbitrated"], {"proved", "bitwise", "floor", "arbitrated", "equal"}),
        ("bitwise", {"proved", "bitwise"}),
    ],
)
def test_one_rung_or_several_of_which_any_is_enough(report, table, required, passing):
    table["flips"]["mtp"]["require"] = {"values": required}
    rules = read_rules(table)
    found = {one for one in (*RUNGS, "equal") if "mtp" not in held(report(values={"mtp-a": one}), rules)}
    assert found == passing


@pytest.mark.parametrize(
    ("without", "changed", "verdicts", "absent"),
    [
        (["mtp-a"], {}, ("ready", "ready", "open"), (0, 0, 3)),
        (["dense-scan/grad"], {}, ("open", "open", "ready"), (3, 3, 0)),
        (["dense-unroll"], {}, ("open", "ready", "ready"), (3, 0, 0)),
        (
            ["dense-scan/grad"],
            {"values": {"dense-scan/forward": "floor"}},
            ("blocked",) * 2 + ("ready",),
            (2, 2, 0),
        ),
        (
            ["dense-scan/grad"],
            {"loops": {"dense-scan/forward": None}},
            ("blocked",) * 2 + ("ready",),
            (2, 2, 0),
        ),
        (
            ["dense-scan/grad"],
            {"loops": {"dense-scan/forward": "skipped"}},
            ("open", "open", "ready"),
            (3, 3, 0),
        ),
    ],
)
def test_a_record_of_a_part_is_judged_as_far_as_it_goes(report, rules, without, changed, verdicts, absent):
    """Cells whose cases it lacks are named, and keep a flip from being ready; no other cell replaces them."""
    found = report(without=without, **changed)
    judged = [judge(flip, found, rules, IDS, {}, part=True) for flip in rules.flips]
    assert tuple(one.verdict for one in judged) == verdicts
    assert tuple(one.absent for one in judged) == absent
    assert held(found, rules)  # not as a whole run
    cells = [cell for one in judged for cell in one.cells if "not in" in cell.state]
    gone = [id for id in IDS if id.startswith(tuple(without))]
    assert {cell.mesh for cell in cells} <= {id.rpartition("@")[2] for id in gone}


def test_a_part_excuses_no_selector_or_mesh_without_a_case(report, rules):
    without = [id for id in IDS if not id.startswith("mtp-a")]
    assert "matches none of" in held(report(), rules, planned=without, part=True)["mtp"][0]


NAMES = ("dense-scan", "dense-unroll", "moe-a")
MESHES = ("single", "data8-auto", "data8-explicit", "expert8-auto")
CHANNELS = ("program", "values", "loops")
GLOBS = ("single", "*-auto", "*-explicit", "data8-*", "expert8-auto", "fsdp8-auto")
everything = [f"{name}/grad@{mesh}" for name in NAMES for mesh in MESHES]


def bare(id, channels):
    fields = {"program": "grad", "mesh": "single", "backend": "cpu", "verdict": "passed", "seconds": {}}
    return CaseResult(id=id, channels=channels, **fields)


def some(values):
    return st.sets(st.sampled_from(values))


@pytest.mark.long
@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    planned=some(everything), lost=some(everything), gone=some([(one, c) for one in everything for c in CHANNELS]),
    globs=some(GLOBS), features=st.sets(st.sampled_from(("dense-scan", "dense", "moe-*")), min_size=1),
)  # fmt: skip
def test_a_flip_is_ready_only_if_each_feature_has_a_result_for_each_mesh_case_and_channel(
    planned, lost, gone, globs, features
):
    """Any part of the matrix may be missing, from the plan, the report or a case; each omission blocks."""
    lost, gone = (set() if len(one) > 3 else one for one in (lost, gone))
    rules = read_rules(
        {
            "gate": {"require": dict.fromkeys(CHANNELS, "passes")},
            "flips": {"flip": {"features": {one: [one] for one in features}, "meshes": sorted(globs)}},
        }
    )
    cases = [
        bare(one, {c: ChannelResult(verdict=Verdict.PROVED) for c in CHANNELS if (one, c) not in gone})
        for one in sorted(planned - lost)
    ]
    found = judge("flip", Report(environment={}, cases=cases, seconds=0), rules, sorted(planned), {})
    expected = set()
    for feature in features:
        mine = [one for one in planned if fnmatch.fnmatch(one, f"{feature}*")]
        meshes = {one.partition("@")[2] for one in mine}
        if not mine:
            expected.add((feature, ""))
        expected |= {(feature, glob) for glob in globs if not fnmatch.filter(meshes, glob)}
        broken = [one for one in mine if one in lost or any((one, c) in gone for c in CHANNELS)]
        expected |= {(feature, one.partition("@")[2]) for one in broken}
    blocked = [cell for cell in found.cells if cell.state in BLOCKED]
    assert {(cell.feature, cell.mesh) for cell in blocked} == expected
    assert bool(found.blocks) == bool(expected)
    assert found.verdict == ("blocked" if expected else "ready")


@pytest.mark.parametrize("demand", [*map(str, RUNGS), "equal", "passes", ["floor", "exact"]])
def test_blocking_and_inconclusive_results_satisfy_no_requirement(demand):
    quiet = BLOCKING | {Verdict.SKIPPED, Verdict.UNPROVED, Verdict.TIE, Verdict.WAIVED}
    required = read_require({"values": demand}, "require")["values"]
    assert not quiet & required.accepted and required.met_by(Verdict.PROVED)


def test_a_requirement_of_unproved_accepts_unproved_and_no_failure():
    required = read_require({"program": "unproved"}, "require")["program"]
    assert required.met_by(Verdict.UNPROVED) and required.met_by(Verdict.REORDERED)
    assert not (BLOCKING | {Verdict.SKIPPED}) & required.accepted
