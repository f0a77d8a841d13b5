"""Slips in a registration, in a project's settings and in a pair's file: each message has the place and the remedy."""

import dataclasses
import json
import subprocess
import sys
import types

import jax.numpy as jnp
import msgspec
import numpy as np
import pytest
from flax import linen, nnx

import parity
from parity.cases.coverage import unvaried_options
from parity.cases.settings import SettingsError, collect
from parity.cli.list import command as list_cases
from parity.run.record import Report
from parity.run.request import Request
from parity.run.run import case_runner
from parity.run.schedule import Schedule
from parity.run.waiving import unused_in

GOOD = """
import numpy as np
import parity
from flax import linen, nnx

class Nnx(nnx.Module):
    def __init__(self, rngs):
        self.dense = nnx.Linear(4, 3, rngs=rngs)
    def __call__(self, x):
        return self.dense(x)

class Linen(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.Dense(3, name="dense")(x)

def pair(**options):
    return parity.twins("good", linen=Linen, nnx=Nnx, inputs={"x": np.ones((2, 4))}, loss=lambda out, batch: out.sum(),
                        programs=("forward",), **options)

PAIR = pair()
"""


class Linen(linen.Module):
    @linen.compact
    def __call__(self, x, mask=None):
        x = linen.Dense(3, name="dense")(x)
        return x if mask is None else x * mask


class Nnx(nnx.Module):
    def __init__(self, rngs):
        self.dense = nnx.Linear(4, 3, rngs=rngs)

    def __call__(self, x, mask=None):
        x = self.dense(x)
        return x if mask is None else x * mask


def inputs(seed):
    return {"x": np.random.default_rng(seed).normal(size=(2, 4)).astype("float32")}


def twins(**options):
    given = {"linen": Linen, "nnx": Nnx, "inputs": inputs, "loss": lambda out, batch: jnp.mean(out**2)}
    return parity.twins("slip", **{**given, "programs": ("forward",), **options})


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        (
            {"not_applicable": ("memory",)},
            TypeError,
            "not_applicable: got ('memory',), expected {channel: reason}",
        ),
        (
            {"weight_rules": (("a", "b"),)},
            TypeError,
            "weight_rules: got ('a', 'b'), expected a sequence of parity.Rule",
        ),
        (
            {"keys": "share"},
            ValueError,
            "keys: got share, expected one of shared, independent; did you mean shared?",
        ),
        (
            {"linen": Nnx, "nnx": Linen},
            TypeError,
            "linen=: got Nnx, which is a module of the other framework",
        ),
        (
            {"config": 3},
            TypeError,
            "config: got int, expected a mapping, a dataclass instance or a pydantic model",
        ),
    ],
)
def test_a_wrong_option_is_named_where_the_pair_is_registered(options, error, words):
    with pytest.raises(error) as raised:
        twins(**options)
    assert words in str(raised.value)


def test_a_weight_rule_names_its_malformed_expression():
    with pytest.raises(ValueError, match=r"weight rule: reference: got '\(a', expected a regular expression"):
        parity.Rule(reference=("(a",), candidate=("b",))
    with pytest.raises(TypeError, match="reference: got 'a', expected a tuple"):
        parity.Rule(reference="a", candidate=("b",))


def project(tmp_path, monkeypatch, text, **modules):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "pyproject.toml").write_text(text)
    for name, content in modules.items():
        (tmp_path / f"{name}.py").write_text(content)
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def test_a_broken_pair_has_its_line_and_does_not_block_another_pair(tmp_path, monkeypatch):
    text = '[tool.parity]\npairs = ["broken_one:PAIR"]\n'
    start = project(
        tmp_path, monkeypatch, text, broken_one="import sys\nimport no_such_thing\n", good_one=GOOD
    )
    with pytest.raises(SettingsError, match=r"broken_one.py:2: import no_such_thing"):
        collect(start=start)
    _, cases = collect(["good_one:PAIR"], start=start)
    results = {result.id: result for result in map(case_runner(Request(channels=("tree",))), cases)}
    assert results["good/forward@single"].verdict == "passed"
    broken = results["broken_one:PAIR/import@single"]
    assert broken.verdict == "error" and "broken_one.py:2" in broken.sentence()


def test_a_selector_without_a_case_may_mean_one_of_a_broken_pair(tmp_path, monkeypatch):
    text = '[tool.parity]\npairs = ["broken_two:PAIR", "good_three:PAIR"]\n'
    start = project(tmp_path, monkeypatch, text, broken_two="import no_such_thing\n", good_three=GOOD)
    assert len(collect(start=start, select=["good"])[1]) == 2
    with pytest.raises(SettingsError, match=r"broken_two.py:1: import no_such_thing"):
        collect(start=start, select=["good", "mine/forward@single"])


def test_a_pair_is_taken_though_the_table_names_none(tmp_path, monkeypatch):
    start = project(tmp_path, monkeypatch, "[tool.parity]\nworkers = 1\n", good_two=GOOD)
    assert [case.id for case in collect(["good_two:PAIR"], start=start)[1]] == ["good/forward@single"]
    with pytest.raises(SettingsError, match=r"\[tool.parity\]: got no pairs, expected pairs = "):
        collect(start=start)


def test_an_error_in_a_pairs_own_cases_has_its_line(tmp_path, monkeypatch):
    text = "import parity\ndef cases(settings):\n    raise ValueError('no such size')\n"
    text += "PAIR = parity.Pair(name='own', about='', cases=cases)\n"
    start = project(tmp_path, monkeypatch, '[tool.parity]\npairs = ["own_cases:PAIR"]\n', own_cases=text)
    with pytest.raises(SettingsError, match=r"no such size; at .*own_cases.py:3: raise ValueError"):
        collect(start=start)


def test_a_waivers_misspelt_channel_is_named_with_the_nearest():
    waiver = parity.Waiver(reason="r", channel="memroy")
    (result,) = map(case_runner(Request(channels=("tree",))), twins(waivers=(waiver,)).cases({}))
    (sentence,) = unused_in(Report(environment={}, seconds=1, cases=(result,), waivers=(waiver,)))
    assert "channel: got memroy" in sentence and "did you mean memory?" in sentence
    known = msgspec.structs.replace(waiver, channel="memory")
    (result,) = map(case_runner(Request(channels=("tree",))), twins(waivers=(known,)).cases({}))
    record = Report(environment={}, seconds=1, cases=(result,), waivers=(known,))
    assert unused_in(record) == []  # its channel did not run


def test_an_unknown_channel_that_does_not_apply_is_refused(tmp_path, monkeypatch):
    text = GOOD + 'PAIR = pair(not_applicable={"memroy": "r"})\n'
    start = project(tmp_path, monkeypatch, '[tool.parity]\npairs = ["good_four:PAIR"]\n', good_four=text)
    with pytest.raises(ValueError, match=r"not_applicable: got memroy, .*did you mean memory\?"):
        Schedule(Request.of(start))


def test_an_input_may_be_none():
    options = {"inputs": lambda seed: {**inputs(seed), "mask": None}, "arguments": ("x", "mask")}
    cases = twins(programs=("forward", "grad"), **options).cases({})
    results = list(map(case_runner(Request(channels=("tree", "program"))), cases))
    assert {result.verdict for result in results} == {"passed"}, [result.sentence() for result in results]
    bad = twins(inputs={"x": object()})
    (result,) = map(case_runner(Request(channels=("tree",))), bad.cases({}))
    assert "inputs: x: got object, expected an array" in result.sentence()


@dataclasses.dataclass(frozen=True)
class Loss:
    z_loss: float = 0.0
    scale: float = 1.0


@dataclasses.dataclass(frozen=True)
class Config:
    width: int = 8
    loss: Loss = Loss()


def unvaried(configs):
    """The options that no case of these pairs varies; a case is its pair's name and its config."""
    return unvaried_options(
        types.SimpleNamespace(id=f"{pair}/state@single", config=config) for pair, config in configs
    )


def test_options_that_no_config_varies_are_listed():
    varied = [("one", Config()), ("two", Config(width=16, loss=Loss(scale=2.0)))]
    assert unvaried(varied) == {"one, two": {"loss.z_loss": "0.0"}}
    assert unvaried([("map", {"a": 1, "b": 2}), ("map", {"a": 1, "b": 3})]) == {"map": {"a": "1"}}
    assert unvaried([("map", {"a": 1, "b": 2}), ("map", {"a": 1})]) == {"map": {"a": "1"}}
    assert unvaried([("bare", None), ("map", {"a": 1})]) == {"map": {"a": "1"}}


@pytest.mark.parametrize(
    ("config", "words"),
    [(None, "no case has a config; give one as twins(..., config=)"), ({}, "every option is varied")],
)
def test_no_option_to_list_is_one_sentence(config, words, tmp_path, monkeypatch, capsys):
    text = GOOD + f"PAIR = pair(config={config})\n"
    start = project(tmp_path, monkeypatch, '[tool.parity]\npairs = ["good_six:PAIR"]\n', good_six=text)
    monkeypatch.chdir(start)
    list_cases(coverage=True)
    assert capsys.readouterr().out == f"{words}\n"


@pytest.mark.long
def test_the_command_lists_them(tmp_path, monkeypatch):
    text = GOOD + "PAIR = pair(config={'z_loss': 0.0, 'width': 8, 'a': 1, 'b': 2, 'c': 3})\n"
    start = project(tmp_path, monkeypatch, '[tool.parity]\npairs = ["good_five:PAIR"]\n', good_five=text)

    def shown(*arguments):
        command = [sys.executable, "-m", "parity", *arguments]
        done = subprocess.run(command, cwd=start, capture_output=True, text=True)
        return done.stdout, done.stderr

    out, error = shown("list", "--coverage")
    assert "good: no case varies z_loss=0.0, width=8, a=1, b=2, c=3\n" in out, error
    line = (
        "good: no case varies z_loss=0.0, width=8, a=1, b=2 and 1 more; `parity list --coverage` names all\n"
    )
    out, error = shown("run", "good/forward", "--channel", "tree", "--json", "record.json")
    assert line in out, error
    found = json.loads((start / "record.json").read_text())["unvaried"]
    assert found == {"good": {"z_loss": "0.0", "width": "8", "a": "1", "b": "2", "c": "3"}}
    assert line in shown("report", "record.json")[0]


def test_results_are_short_in_a_notebook():
    results = parity.assert_twins(Linen(), Nnx(nnx.Rngs(0)), inputs(0), programs=("forward",))
    assert repr(results) == "[<CaseResult assert_twins/forward@single: passed>]"


def test_transforms_keep_their_former_home():
    from parity.transforms import Permute

    assert Permute((1, 0)).order == (1, 0)


def test_a_subclass_that_inherits_its_body_is_attested(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "slip_base.py").write_text(GOOD)
    (tmp_path / "slip_child.py").write_text("from slip_base import Nnx\nclass Child(Nnx):\n    pass\n")
    from slip_child import Child

    (result,) = map(case_runner(Request(channels=("program",))), twins(nnx=Child).cases({}))
    assert result.verdict == "passed", result.sentence()
