"""Cases of three features and two flips over them, as data."""

import copy

import pytest

from parity.gate.flips import read_rules
from parity.report.reading import parse_report

TABLE = {
    "gate": {
        "require": {"program": "proved", "values": "bitwise", "loops": "equal"},
        "not_applicable": [{"mesh": "single", "channel": "loops", "reason": "one device"}],
    },
    "flips": {
        "pure_nnx": {
            "about": "all in NNX",
            "before": {"pure_nnx": False},
            "after": {"pure_nnx": True},
            "features": {"dense": ["dense"], "moe": {"cases": ["moe-*"], "require": {"values": "floor"}}},
        },
        "scan_layers": {"about": "one loop", "features": {"dense": ["dense-scan"]}, "meshes": ["*-auto"]},
        "mtp": {"about": "predictors", "features": {"mtp": ["mtp-a/*"]}},
    },
}
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


def case(id, **verdicts):
    loops = "skipped" if id.endswith("@single") else "equal"
    found = {"program": "proved", "values": "proved", "loops": loops, **verdicts}
    channels = {name: one if isinstance(one, dict) else channel(one) for name, one in found.items() if one}
    return {
        "id": id,
        "reference": "old",
        "candidate": "new",
        "program": "grad",
        "mesh": "single",
        "backend": "cpu",
        "verdict": "passed",
        "channels": channels,
        "seconds": {},
    }


@pytest.fixture
def table():
    return copy.deepcopy(TABLE)


@pytest.fixture
def rules(table):
    return read_rules(table)


@pytest.fixture
def report():
    """``report(values={"moe-a": "floor"})``: everything is proved, except channels of cases with these prefixes."""

    def make(without=(), **changed):
        cases = []
        for id in IDS:
            if id.startswith(tuple(without)) and without:
                continue
            mine = {
                name: verdict
                for name, cases_of in changed.items()
                for start, verdict in cases_of.items()
                if id.startswith(start)
            }
            cases.append(case(id, **mine))
        return parse_report(
            {"schema": 1, "environment": {}, "cases": cases, "summary": {}, "seconds": 1.0}, "report"
        )

    return make
