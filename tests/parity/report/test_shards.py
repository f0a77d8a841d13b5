"""Parts of a run merge to the report of one run in any order; anything else is refused."""

import itertools
import json

import pytest

from parity.report import reading
from parity.report.reading import parse_report
from parity.run.request import Shard
from parity.verdicts import plain


def parts(whole, count):
    """Cuts a report as ``--shard`` would have written it."""
    found = {}
    for number in range(1, count + 1):
        shard = Shard(number, count)
        cases = shard.take(whole["cases"])
        places = tuple(shard.take(range(len(whole["cases"]))))
        part = {**whole, "cases": cases, "seconds": whole["seconds"] / count}
        part["summary"] = {name: sum(case["verdict"] == name for case in cases) for name in whole["summary"]}
        part["shard"] = Shard(number, count, places, len(whole["cases"]))
        found[f"{number}.json"] = json.loads(json.dumps(plain(part)))
    return found


def merge(found):
    """Returns the record that parts, as JSON, merge to."""
    return plain(reading.merge({name: parse_report(part, f"report {name}") for name, part in found.items()}))


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_parts_merge_to_the_whole_in_any_order(whole, count):
    found = parts(whole, count)
    orders = [dict(order) for order in itertools.permutations(found.items())]
    assert all(list(merge(order).items()) == list(whole.items()) for order in orders)


def test_every_case_is_in_exactly_one_part():
    items = list(range(11))
    taken = [item for number in range(1, 5) for item in Shard.parse(f"{number}/4").take(items)]
    assert sorted(taken) == items
    assert Shard.parse("9/12").take(items[:3]) == []


@pytest.mark.parametrize("text", ["0/4", "5/4", "1", "a/b", "1/0", "-1/3", "1/2/3"])
def test_a_part_that_does_not_exist(text):
    with pytest.raises(ValueError, match="expected a part of all, such as 1/8"):
        Shard.parse(text)


def test_a_part_that_was_interrupted_makes_the_whole_partial(whole):
    found = parts(whole, 2)
    part = found["2.json"]
    part["cases"].pop()
    part["shard"]["places"].pop()
    part["partial"] = {"planned": 3, "finished": 2}
    assert merge(found)["partial"] == {"planned": 6, "finished": 5}


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda found: found.pop("2.json"), "got 2 of 3 parts, missing 2"),
        (lambda found: found.update({"again.json": found["1.json"]}), "got part 1 again, after 1.json"),
        (lambda found: found["1.json"].pop("shard"), "report 1.json: got a whole run"),
        (
            lambda found: found["3.json"]["environment"].update(commit="other"),
            "got commit other, expected abc",
        ),
        (lambda found: found["3.json"]["environment"].update(packages={"jax": "9"}), "got packages"),
        (lambda found: found["3.json"]["shard"].update(total=99), "parts of 99 cases"),
        (lambda found: found["2.json"].update(cases=found["1.json"]["cases"]), "expected each case once"),
        (lambda found: found["2.json"]["cases"][0].update(backend="tpu"), "got backends"),
    ],
)
def test_records_that_are_not_parts_of_one_run_are_refused(whole, spoil, words):
    found = parts(whole, 3)
    spoil(found)
    with pytest.raises(ValueError, match="report") as refused:
        merge(found)
    assert words in str(refused.value)


def test_waivers_of_all_parts_are_kept_once(whole):
    found = parts(whole, 2)
    known, other = {"reason": "known", "case": "a"}, {"reason": "other"}
    found["1.json"]["waivers"], found["2.json"]["waivers"] = [known, other], [other]
    merged = merge(found)["waivers"]
    assert merged == merge(dict(reversed(found.items())))["waivers"]
    assert sorted(one["reason"] for one in merged) == ["known", "other"]
