"""Two records of the same cases: all differences are named, except times."""

import copy

import pytest
from campaigns.records import differences

FINDING = {"where": "outputs[0]", "reference": "1", "candidate": "2", "traceback": "at 0x1"}
OTHER = {"where": "outputs[1]", "reference": "3", "candidate": "4"}
RECORD = {
    "environment": {"python": "3.11"},
    "seconds": 3.0,
    "cases": [
        {
            "id": "toy/forward@single",
            "verdict": "passed",
            "seconds": {"trace": 1.0},
            "channels": {
                "program": {
                    "verdict": "proved",
                    "detail": "a",
                    "measures": {"operations": 3, "seconds": 0.1},
                },
                "values": {"verdict": "floor", "detail": "b", "findings": [FINDING, OTHER]},
            },
        },
        {"id": "toy/grad@single", "verdict": "passed", "seconds": {}, "channels": {}},
    ],
}


def edited(edit):
    record = copy.deepcopy(RECORD)
    edit(record["cases"][0], record)
    return record


@pytest.mark.parametrize(
    "edit",
    [
        lambda case, record: None,
        lambda case, record: record.update(seconds=9.0, environment={}),
        lambda case, record: case.update(seconds={"trace": 2.0}, remembered=True),
        lambda case, record: case["channels"]["program"]["measures"].update(seconds=7.0),
        lambda case, record: case["channels"]["values"]["findings"][0].update(traceback="at 0x2"),
        lambda case, record: record["cases"].reverse(),
    ],
)
def test_times_and_the_order_of_cases_are_no_difference(edit):
    assert differences(RECORD, edited(edit)) == differences(edited(edit), RECORD) == []


def test_where_packages_are_installed_is_no_difference():
    one, other = (
        edited(
            lambda case, _, at=at: case["channels"]["program"].update(detail=f"at {at}/site-packages/x.py:3")
        )
        for at in ("/a/.venv", "/b/c/.venv")
    )
    assert differences(one, other) == []


@pytest.mark.parametrize(
    ("edit", "sentence"),
    [
        (lambda case, record: case.update(verdict="failed"), "toy/forward@single verdict: passed -> failed"),
        (
            lambda case, record: case["channels"]["program"].update(verdict="unproved"),
            "toy/forward@single program verdict: proved -> unproved",
        ),
        (
            lambda case, record: case["channels"]["program"]["measures"].update(operations=4),
            'toy/forward@single program measures: {"operations": 3} -> {"operations": 4}',
        ),
        (
            lambda case, record: case["channels"]["values"]["findings"].pop(),
            "toy/forward@single values findings: only in the first record: ",
        ),
        (
            lambda case, record: case["channels"]["values"]["findings"].append(dict(OTHER)),
            "toy/forward@single values findings: only in the second record: ",
        ),
        (
            lambda case, record: case["channels"]["values"]["findings"].reverse(),
            "toy/forward@single values findings: in another order",
        ),
        (
            lambda case, record: case["channels"]["values"].pop("findings"),
            "toy/forward@single values findings: only in the first record: ",
        ),
        (
            lambda case, record: case["channels"]["values"].update(notes=[OTHER]),
            "toy/forward@single values notes: only in the second record: ",
        ),
        (
            lambda case, record: case["channels"].pop("program"),
            "toy/forward@single program verdict: proved -> nothing",
        ),
        (lambda case, record: case.update(backend="gpu"), "toy/forward@single backend: nothing -> gpu"),
        (lambda case, record: record["cases"].pop(), "toy/grad@single: only in the first record"),
    ],
)
def test_each_difference_is_named(edit, sentence):
    found = differences(RECORD, edited(edit))
    assert found and found[0].startswith(sentence), found
    assert differences(edited(edit), RECORD)
