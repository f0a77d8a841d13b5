"""``parity inspect`` of one case: the structure of both sides, its differences, and the exit codes."""

import json
import re
from pathlib import Path

import pytest

from parity.builds.meshes import MeshSpec
from parity.compare.backends import aot
from parity.compare.evidence import Evidence
from parity.compare.inspection import inspect_sides
from parity.compare.session import Session
from parity.matrix.llama2 import PAIR

REPO = Path(__file__).parents[3]
TITLES = [
    "loops, before optimisation",
    "loops, after optimisation",
    "collectives, after optimisation",
    "memory per device, after optimisation",
    "cost, after optimisation",
]
PAIR_TEXT = """
import parity, jax, jax.numpy as jnp, numpy as np
from flax import linen, nnx

class LinenMlp(linen.Module):
    @linen.compact
    def __call__(self, x):
        w = self.param("w", linen.initializers.lecun_normal(), (8, 8))
        return jax.lax.scan(lambda x, _: (jnp.tanh(x @ w), None), x, None, length=5)[0]

class NnxMlp(nnx.Module):
    def __init__(self, rngs):
        self.w = nnx.Param(nnx.initializers.lecun_normal()(rngs.params(), (8, 8)))

    def __call__(self, x):
        w = self.w[...]
        return jax.lax.scan(lambda x, _: (jnp.tanh(x @ w), None), x, None, length=TRIPS)[0]

def inputs(seed):
    return {"x": np.random.default_rng(seed).normal(size=(8, 8)).astype("float32")}

PAIR = parity.twins("looped", linen=LinenMlp, nnx=NnxMlp, inputs=inputs, loss=lambda y, batch: jnp.sum(y**2))
"""


@pytest.fixture
def pair(tmp_path):
    def write(trips):
        (tmp_path / f"looped_{trips}.py").write_text(PAIR_TEXT.replace("TRIPS", str(trips)))
        return f"looped_{trips}:PAIR"

    return write


@pytest.mark.slow
def test_equal_sides_exit_0_and_every_section_is_there_in_100_columns(command, pair):
    ended = command("inspect", "looped/grad", "--pair", pair(5))
    assert (ended.code, ended.err) == (0, "")
    lines = ended.out.splitlines()
    assert max(len(line) for line in lines if " equal" not in line) <= 100
    assert [title for title in TITLES if not any(line.startswith(title) for line in lines)] == []
    assert re.search(r"0 forward +\S+ +5 +\d+ +[\d,]+ +\S+ +5 ", ended.out)
    for verdict in ("dots equal", "loops equal", "collectives skipped: one device", "memory equal"):
        assert verdict in ended.out
    assert "no cycles: the backend states no cycles" in ended.out


def test_a_difference_exits_1_and_is_shown_next_to_the_expected_value(command, pair, tmp_path):
    ended = command("inspect", "looped/forward", "--pair", pair(7), "--json", "hlo.json")
    assert (ended.code, ended.err) == (1, "")
    assert "loops failed" in ended.out and "reference 5 trips, candidate 7 trips" in ended.out
    (record,) = json.loads((tmp_path / "hlo.json").read_text())["cases"]
    assert (record["id"], record["channels"]["loops"]) == ("looped/forward@single", "failed")
    assert [section["title"] for section in record["sections"]] == TITLES
    rows = record["sections"][0]["rows"]
    assert [[row and row["trips"] for row in pair] for pair in rows] == [[5, None], [None, 7]]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("no-such-case",), "selector 'no-such-case': matches none"),
        (
            ("llama2-scan/forward", "--backend", "tpu9"),
            "backend 'tpu9': expected one of cpu",
        ),
        (("llama2-scan/forward", "--json", "no/such/folder.json"), "folder no"),
    ],
)
def test_wrong_usage_is_one_message(arguments, message, command):
    ended = command("inspect", *arguments, cwd=REPO)
    assert (ended.code, ended.out) == (2, "")
    assert message in ended.err and ended.err.count("\n") == 1


@pytest.mark.long
@pytest.mark.skipif(bool(aot.missing_compiler()), reason=f"libtpu is not installed: {aot.missing_compiler()}")
def test_cycles_and_collectives_of_the_tpu_compiler(command):
    ended = command("inspect", "llama2-scan/forward@fsdp4", "--backend", "aot:v5p:2x2x1", cwd=REPO)
    assert ended.code == 0
    assert max(len(line) for line in ended.out.splitlines() if " equal" not in line) <= 100
    assert "mesh fsdp4.tensor2-auto fitted as fsdp2.tensor2-auto" in ended.out
    cycles = re.search(r"estimated cycles x trips +([\d,]+) +([\d,]+)", ended.out)
    assert cycles and int(cycles[1].replace(",", "")) > 0
    assert re.search(r"all-gather +bf16 +[\d,]+ +2 +4 forward", ended.out)


@pytest.mark.slow
def test_rows_are_aligned_not_zipped():
    """Scanned against unrolled: a loop on one side has a row without partner."""
    (case,) = [
        case for case in PAIR.cases({}) if case.id == "llama2-scan-against-unroll-linen/forward@single"
    ]
    assert case.mesh == MeshSpec()
    sections = {section.title: section for section in inspect_sides(Evidence.of(case, Session()))}
    ((reference, candidate),) = sections["loops, before optimisation"].rows
    assert reference and reference["trips"] == 4 and candidate is None
