"""Verdicts that are remembered, attacked: whatever changes a case must change its key."""

import dataclasses
import importlib
import os
import subprocess
import sys
from importlib import metadata

import jax
import jax.numpy as jnp
import pytest

from parity.backends.cache import DiskCache
from parity.cases.case import Case
from parity.running.content import file_digest
from parity.running.memory import Memory, disagreement
from parity.running.run import CaseResult
from parity.verdicts import ChannelResult, Finding, Verdict

pytestmark = pytest.mark.slow

SOURCES = {
    "toy_table": "RATES = {'slow': [0.5]}\ndef unused():\n    return 1\n",
    "toy_model": """
import functools
from toy_table import RATES

class Model:
    scale = 2.0
    def __call__(self, x):
        def inner(y):
            return y * self.scale
        return inner(x) * RATES['slow'][0]

@functools.cache
def build(name):
    return Model()

def reference():
    return build("a")
""",
    "toy_other": "def build(name):\n    return name\ndef holding(value):\n    return lambda: value\n",
}


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A scratch project; called, it gives the keys of its two cases, with its modules read anew."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    for name, text in SOURCES.items():
        (tmp_path / f"{name}.py").write_text(text)

    def cases(**fields):
        for name in SOURCES:
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        model, other = importlib.import_module("toy_model"), importlib.import_module("toy_other")
        return [
            Case(
                id="toy/forward@single",
                reference=model.reference,  # what is written here reaches all modules
                candidate=model.build,
                program="f",
                **fields,
            ),
            Case(id="other/forward@single", reference=other.build, candidate=other.build, program="f"),
        ]

    def keys(asked="", cases=cases, alter=lambda: None, **fields):
        made = cases(**fields)
        alter()
        return Memory.of(made, asked).keys

    keys.folder, keys.cases = tmp_path, cases
    yield keys
    for name in SOURCES:
        sys.modules.pop(name, None)


MODEL, OTHER = "toy/forward@single", "other/forward@single"


def test_what_has_not_changed_has_its_key(project):
    assert project() == project() and set(project()) == {MODEL, OTHER}


@pytest.mark.parametrize(
    "file, old, new",
    [
        ("toy_model", "y * self.scale", "y + self.scale"),
        ("toy_model", "scale = 2.0", "scale = 2.5"),
        ("toy_table", "0.5", "0.25"),
        ("toy_table", "return 1", "return 2"),
        ("toy_model", "import functools\n", "import functools  # a comment: when in doubt, decide again\n"),
    ],
)
def test_an_edited_source_changes_the_cases_that_reach_it_and_no_others(project, file, old, new):
    before, path = project(), project.folder / f"{file}.py"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    after = project()
    assert after[MODEL] != before[MODEL] and after[OTHER] == before[OTHER]


def _patch(text):
    def alter():
        exec(text, {name: sys.modules[name] for name in SOURCES})

    return alter


@pytest.mark.parametrize(
    "text",
    [
        "toy_model.Model.__call__ = lambda self, x: x",
        "toy_model.Model.scale = 3.0",
        "toy_table.RATES['slow'][0] = 0.75",
        "toy_table.RATES['fast'] = 1",
        "toy_model.RATES = {}",
        "toy_table.unused = toy_other.build",
        "toy_model.Model.extra = 1",
        "toy_model.build.__wrapped__.__defaults__ = ('b',)",
    ],
)
def test_what_is_replaced_while_the_file_stays_changes_the_key(project, text):
    before, after = project(), project(alter=_patch(text))
    assert after[MODEL] != before[MODEL] and after[OTHER] == before[OTHER]


def test_a_library_that_somebody_patched(project, monkeypatch):
    before = project()
    with monkeypatch.context() as patch:
        patch.setattr(jnp, "tanh", jnp.sin)
        assert set(project().values()).isdisjoint(before.values())
    with monkeypatch.context() as patch:
        patch.setattr(jax.nn, "relu", sys.modules["toy_other"].build)
        refused = Memory.of([Case(id="a", reference=len, candidate=len, program="f")], "")
        assert refused.keys == {} and "jax.nn.relu: replaced by build" in refused.refused["a"]
    assert project() == before


@pytest.mark.parametrize(
    "name", ["JAX_DEFAULT_MATMUL_PRECISION", "XLA_FLAGS", "LIBTPU_INIT_ARGS", "MY_MODEL_WIDTH"]
)
def test_a_variable_of_the_environment(project, monkeypatch, name):
    before = project()
    monkeypatch.setenv(name, os.environ.get(name, "") + " --other")
    assert set(project().values()).isdisjoint(before.values())


def test_a_variable_that_says_nothing(project, monkeypatch):
    before = project()
    monkeypatch.setenv("COLUMNS", "77")
    assert project() == before


def test_a_setting_of_jax(project):
    before = project()
    old = jax.config.jax_default_matmul_precision
    jax.config.update("jax_default_matmul_precision", "float32")
    try:
        assert set(project().values()).isdisjoint(before.values())
    finally:
        jax.config.update("jax_default_matmul_precision", old)


def test_another_version_of_a_package(project, monkeypatch):
    before, found = project(), list(metadata.distributions())

    class Newer:
        metadata, version = found[0].metadata, "999.0"

    monkeypatch.setattr(metadata, "distributions", lambda: [Newer(), *found[1:]])
    assert set(project().values()).isdisjoint(before.values())


def test_what_was_asked_and_the_fields_of_the_case(project):
    before = project()
    assert set(project(asked="--paranoid").values()).isdisjoint(before.values())
    for fields in (
        {"lowest": Verdict.BITWISE},
        {"zero_gradients": ("a",)},
        {"arrange": sys.modules["toy_other"].build},
    ):
        assert project(**fields)[MODEL] != before[MODEL]


def test_what_a_function_closes_over(project):
    def keys(rate):
        import optax

        case = Case(id="a", reference=holding(optax.sgd(rate)), candidate=len, program="f")
        return Memory.of([case], "").keys

    project.cases()
    holding = sys.modules["toy_other"].holding
    assert keys(0.1) == keys(0.1) != keys(0.2)


def test_another_pair_of_the_same_name(project):
    before = project()
    other = sys.modules["toy_other"]
    taken = Case(id=MODEL, reference=other.build, candidate=other.build, program="f")
    assert Memory.of([taken], "").keys[MODEL] != before[MODEL]


def test_what_cannot_be_told_is_not_remembered(project):
    project.cases()
    lines = sys.modules["toy_other"].holding(iter([1, 2]))
    memory = Memory.of([Case(id="a", reference=lines, candidate=len, program="f")], "")
    assert memory.keys == {} and "its content cannot be told" in memory.refused["a"]


# --- keeping and recalling ---


@pytest.fixture
def kept(project, tmp_path):
    case = project.cases()[0]
    channel = ChannelResult(name="values", verdict=Verdict.PROVED, detail="equal", measures={"ulp": 0.5})
    result = CaseResult(
        case=case,
        reference="left",
        candidate="right",
        verdict="passed",
        channels={"values": channel},
        seconds={"trace": 1.0},
        read={},
    )
    return dataclasses.replace(Memory.of([case], ""), cache=DiskCache(folder=tmp_path / "verdicts")), result


def test_what_passed_comes_back_as_remembered(kept):
    memory, result = kept
    assert memory.recall(result.case) is None
    memory.keep(result)
    assert memory.recall(result.case) == dataclasses.replace(result, seconds={}, remembered=True, read=None)
    assert memory.sample([result]) == {result.case.id} and memory.sample([]) == set()


@pytest.mark.parametrize("verdict", ["failed", "error", "vacuous", "open", "skipped"])
def test_only_what_passed_is_kept(kept, verdict):
    memory, result = kept
    memory.keep(dataclasses.replace(result, verdict=verdict))
    assert memory.recall(result.case) is None


def test_what_passed_with_findings_and_notes_comes_back_with_them(kept):
    memory, result = kept
    moment = Finding(where="w.mu", reference="1", candidate="2", labels=("a", "b"))
    finding = Finding(where="w", reference="1", candidate="2", distance="3 ulp", follows=(moment,))
    told = dataclasses.replace(
        result.channels["values"],
        findings=(finding,),
        notes=(moment,),
        tables={"leaves": [{"leaf": "w", "ulp": 3}]},
    )
    result = dataclasses.replace(result, channels={"values": told})
    memory.keep(result)
    recalled = memory.recall(result.case)
    assert recalled is not None and recalled.channels == {"values": told}


def test_what_was_not_watched_is_not_kept(kept):
    memory, result = kept
    memory.keep(dataclasses.replace(result, read=None))
    assert memory.recall(result.case) is None


def test_a_source_that_is_edited_during_the_run_keeps_nothing(kept, tmp_path):
    memory, result = kept
    (tmp_path / "toy_table.py").write_text("RATES = {'slow': [0.125]}\n")
    memory.keep(result)
    assert memory.recall(result.case) is None


@pytest.mark.parametrize("change", ["edit", "delete", "break"])
def test_data_that_was_read(kept, tmp_path, change):
    memory, result = kept
    data = tmp_path / "data.txt"
    data.write_text("1 2 3")
    absent = str(tmp_path / "absent.txt")
    memory.keep(
        dataclasses.replace(result, read={str(data): file_digest(str(data)), absent: file_digest(absent)})
    )
    assert memory.recall(result.case) is not None
    if change == "edit":
        data.write_text("1 2 4")
    elif change == "delete":
        data.unlink()
    else:
        for entry in (tmp_path / "verdicts").iterdir():
            entry.write_bytes(entry.read_bytes()[:-9])
    assert memory.recall(result.case) is None


def test_a_file_that_was_missed_and_now_is_there(kept, tmp_path):
    memory, result = kept
    absent = str(tmp_path / "absent.txt")
    memory.keep(dataclasses.replace(result, read={absent: file_digest(absent)}))
    assert memory.recall(result.case) is not None
    (tmp_path / "absent.txt").write_text("now")
    assert memory.recall(result.case) is None


def test_a_disagreement_is_said(kept):
    _, result = kept
    assert disagreement(result, result) == ""
    worse = dataclasses.replace(result.channels["values"], verdict=Verdict.FAILED)
    words = disagreement(result, dataclasses.replace(result, verdict="failed", channels={"values": worse}))
    assert words == f"{MODEL}: remembered as passed, decided again as failed (values)"


@pytest.mark.long
def test_libraries_are_the_same_whatever_the_order_of_sets():
    line = "import scipy.special, parity.running.content as content; print(content._live_libraries())"
    digests = set()
    for seed in ("1", "2"):
        environment = {
            **os.environ,
            "PYTHONHASHSEED": seed,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }
        ended = subprocess.run([sys.executable, "-c", line], env=environment, capture_output=True, text=True)
        assert ended.returncode == 0, ended.stderr
        digests.add(ended.stdout)
    assert len(digests) == 1
