"""Typical user pairs, a file each: they pass, and a planted bug is named by its line."""

import dataclasses
import importlib.util
import sys
from pathlib import Path

import pytest

from parity.bisect.report import bisect_case
from parity.report.table import findings_text
from parity.run.request import Request
from parity.run.run import case_runner

FOLDER = Path(__file__).parent / "pairs"
PAIRS = sorted(path.stem for path in FOLDER.glob("*.py"))
MOST_LINES = 40


@dataclasses.dataclass(frozen=True)
class Bug:
    """A text and its replacement.

    Args:
        old, new: the texts.
        words: text that the findings must contain; by default its line.
        bisect: whether finding it requires a bisect.
    """

    old: str
    new: str
    words: str = ""
    bisect: bool = False


BUGS = {
    "cache": [Bug('model(batch["x"])', 'model(2 * batch["x"])', bisect=True)],
    "cnn": [Bug("jax.nn.relu(self.norm", "jax.nn.gelu(self.norm")],
    "ema": [
        Bug(
            "self.model, decay=0.9",
            "self.model, decay=0.99",
            "in nnx_step (through flax/nnx/variablelib.py",
            True,
        )
    ],
    "encoder": [Bug("nnx.make_attention_mask(ids > 0", "nnx.make_attention_mask(ids > 1")],
    "half": [Bug("self.block(x))", "2 * self.block(x))")],
    "lora": [Bug('jnp.mean(model(batch["x"])', 'jnp.mean(2 * model(batch["x"])', bisect=True)],
    "mlp": [Bug("self.dropout(jnp.tanh(x)", "self.dropout(jnp.sin(x)")],
    "refactor": [Bug("(scores / 8**0.5)", "(scores / 8)")],
    "rnn": [Bug("self.rnn(x, seq", "self.rnn(x[:, ::-1], seq")],
    "scan": [Bug("x + jnp.tanh(self.dense(x))", "x - jnp.tanh(self.dense(x))")],
    "sharded": [
        Bug("jnp.tanh(self.up(x))", "jnp.sin(self.up(x))"),
        Bug('nnx_init("embed", "mlp")', 'nnx_init("mlp", "embed")', "model/up/kernel"),
    ],
    "to_linen": [Bug("x = self.first(x)", "x = -self.first(x)")],
    "train_state": [Bug('loss(model(batch["x"])', 'loss(2 * model(batch["x"])', bisect=True)],
}


@pytest.fixture
def cases(tmp_path, monkeypatch):
    """``cases(name, text)`` gives the cases of a user's file."""

    def load(name, text):
        path = tmp_path / f"{name}.py"
        path.write_text(text)
        spec = importlib.util.spec_from_file_location(f"foreign_{name}", path)
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, spec.name, module)
        spec.loader.exec_module(module)
        return module.PAIR.cases({})

    return load


def source(name):
    return (FOLDER / f"{name}.py").read_text()


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=getattr(pytest.mark, "long" if name == "rnn" else "slow")) for name in PAIRS],
)
def test_a_right_pair_passes(cases, name):
    results = list(map(case_runner(Request()), cases(name, source(name))))
    assert {str(result.verdict) for result in results} == {"passed"}, "\n".join(map(findings_text, results))


@pytest.mark.long
@pytest.mark.parametrize(("name", "bug"), [(name, bug) for name, bugs in BUGS.items() for bug in bugs])
def test_a_planted_bug_is_named_by_its_line(cases, name, bug):
    text = source(name)
    assert text.count(bug.old) == 1
    line = text[: text.index(bug.old)].count("\n") + 1
    planted = cases(name, text.replace(bug.old, bug.new))
    results = list(map(case_runner(Request()), planted))
    failed = [one for one in zip(planted, results, strict=True) if one[1].verdict == "failed"]
    said = "\n".join(map(findings_text, results))
    assert failed, said
    if bug.bisect:
        said = bisect_case(failed[0][0], ("op",), result=failed[0][1]).sentence
    assert (bug.words or f"{name}.py:{line}") in said, said


@pytest.mark.parametrize("name", PAIRS)
def test_a_pair_is_little_code_and_has_a_bug(name):
    code = [line for line in source(name).splitlines()[1:] if line.strip()]
    assert len(code) <= MOST_LINES
    assert name in BUGS
