"""``parity prove``: its exit codes, the published sizes on slices without hardware, and bad input."""

import json

import pytest

from parity.run import schedule
from parity.run.parallel import run_in_workers

BROKEN = {"norms.py": [("self.config.norm_epsilon", "2 * self.config.norm_epsilon")]}


@pytest.mark.long
def test_a_proof_that_was_tried_and_failed_exits_1_and_names_the_caller(shell, planting, tmp_path):
    scratch = planting.copy(tmp_path / "scratch", BROKEN)
    ended = shell("prove", "llama2-scan/forward", "--json", "report.json", cwd=tmp_path, path=[scratch])
    assert ended.code == 1
    assert "0 of 1 proved" in ended.out and "models_nnx/norms.py" in ended.out
    (case,) = json.loads((tmp_path / "report.json").read_text())["cases"]
    assert list(case["channels"]) == ["program"] and case["channels"]["program"]["verdict"] == "failed"
    assert case["seconds"]["execute"] == 0


@pytest.mark.long
def test_an_intended_other_program_is_no_failed_proof(shell, tmp_path):
    ended = shell("prove", "llama2-scan/forward", "llama2-scan-against-unroll-nnx/forward", cwd=tmp_path)
    assert (ended.code, ended.err) == (0, "")
    assert "1 of 2 proved" in ended.out and "operations a second" in ended.out


@pytest.mark.long
def test_ignoring_shardings_prints_differences_and_claims_no_bits(shell, tmp_path):
    case = "sharded-plain-against-zero1-nnx/train_step@data2.fsdp2.tensor2-explicit"
    ended = shell("prove", case, "--ignore-sharding", "--json", "report.json", cwd=tmp_path)
    assert (
        ended.code == 0 and "1 of 1 same up to sharding" in ended.out and "no bits are claimed" in ended.out
    )
    (found,) = json.loads((tmp_path / "report.json").read_text())["cases"]
    assert found["verdict"] == "same up to sharding" and len(found["annotations"]) > 20
    assert {"place", "reference", "candidate"} == set(found["annotations"][0])


@pytest.mark.long
def test_the_published_sizes_are_proved_for_a_slice_of_hundreds_of_chips(shell, tmp_path):
    ended = shell("prove", "llama2-70b*", "--full-size", "--topology", "v5p:8x8x8", cwd=tmp_path)
    assert (ended.code, ended.err) == (0, "")
    assert "3 of 3 proved" in ended.out and "@fsdp64.tensor8-auto" in ended.out


@pytest.mark.long
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--full-size",), "--full-size: add --topology"),
        (("--topology", "v5q:2x2x1"), "topology 'v5q:2x2x1': expected one of"),
        (
            ("smoke", "--ignore-sharding", "--exact"),
            "--ignore-sharding: cannot be combined with --exact",
        ),
        (("smoke", "--topology", "v5p:2x1x1"), "choose a larger topology"),
        (
            ("smoke", "--workers", "2", "--ignore-sharding"),
            "--workers: --ignore-sharding proves one case at a time",
        ),
    ],
)
def test_bad_input_gets_one_line_and_exit_2(shell, tmp_path, arguments, message):
    ended = shell("prove", *arguments, cwd=tmp_path)
    assert (ended.code, ended.out) == (2, "")
    assert message in ended.err and ended.err.count("\n") == 1


@pytest.mark.long
def test_parts_prove_each_case_once_and_merge_into_one_report(command, tmp_path):
    whole = [f"llama2-scan/{program}@fsdp4.tensor2-auto" for program in ("forward", "grad", "prefill")]
    for number in (1, 2):
        ended = command("prove", *whole, "--shard", f"{number}/2", "--json", f"{number}.json", cwd=tmp_path)
        assert ended.code == 0 and f"{3 - number} of {3 - number} proved" in ended.out, ended.out
    assert command("report", "1.json", "2.json", "--json", "all.json", cwd=tmp_path).code == 0
    cases = json.loads((tmp_path / "all.json").read_text())["cases"]
    assert sorted(case["id"] for case in cases) == sorted(whole)


TWINS = """
import jax.numpy as jnp, numpy as np
from flax import linen, nnx
import parity

class Linen(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.Dense(5, name="dense")(x)

class Same(nnx.Module):
    def __init__(self, rngs):
        self.dense = nnx.Linear(6, 5, rngs=rngs)
    def __call__(self, x):
        return self.dense(x)

class More(Same):
    def __init__(self, rngs):
        super().__init__(rngs)
        self.gain = nnx.Param(jnp.ones(7))

class Wide(nnx.Module):
    def __init__(self, rngs):
        self.dense = nnx.Linear(6, 9, rngs=rngs)
    def __call__(self, x):
        return self.dense(x)[..., :5]

class NoBias(Same):
    def __init__(self, rngs):
        self.dense = nnx.Linear(6, 5, use_bias=False, rngs=rngs)

def inputs(seed):
    return {"x": np.random.default_rng(seed).normal(size=(4, 6)).astype("float32")}

def pair(name, module, **options):
    return parity.twins(name, linen=Linen, nnx=module, inputs=inputs, loss=lambda out, batch: jnp.mean(out**2),
                        **{"programs": ("forward",), **options})

APART = {"not_applicable": {"program": "other programs by intent", "values": "the same"}}
PAIRS = [PAIRS]
"""


def project(folder, pairs):
    (folder / "some_twins.py").write_text(TWINS.replace("[PAIRS]", f"[{pairs}]"))
    (folder / "pyproject.toml").write_text('[tool.parity]\npairs = ["some_twins:PAIRS"]\n')
    return folder


@pytest.mark.parametrize(
    ("pairs", "code", "words"),
    [
        ("pair('a', Same)", 0, "1 of 1 proved"),
        ("pair('a', More)", 1, "a/forward@single  tree failed: "),
        ("pair('a', Wide)", 1, "one name with another shape on each side"),
        ("pair('a', NoBias)", 1, "a params leaf that only the reference has"),
        ("pair('a', More, programs=('forward', 'grad'))", 1, "a/grad@single  tree failed"),
        ("pair('a', Same), pair('b', More)", 1, "b/forward@single  tree failed"),
        ("pair('a', Same, **APART)", 2, "every case was skipped (other programs by intent)"),
        ("pair('a', Same, **APART), pair('b', Same, **APART)", 2, "nothing was compared"),
        ("pair('a', Same), pair('b', Same, **APART)", 0, "1 of 2 proved"),
    ],
)
def test_a_case_without_evidence_does_not_pass(command, tmp_path, pairs, code, words):
    ended = command("prove", "--json", "report.json", cwd=project(tmp_path, pairs))
    assert ended.code == code, ended.out
    assert words in ended.out
    again = command("report", "report.json", cwd=tmp_path)
    assert again.code == code


@pytest.mark.long
def test_workers_prove_the_same_as_one_process(command, tmp_path, monkeypatch):
    started = []
    monkeypatch.setattr(schedule, "run_in_workers", lambda *a: started.append(a) or run_in_workers(*a))
    project(tmp_path, "pair('a', Same), pair('b', More)")

    def verdicts(*options):
        ended = command("prove", "--json", "report.json", *options, cwd=tmp_path)
        cases = json.loads((tmp_path / "report.json").read_text())["cases"]
        found = {
            case["id"]: {name: one["verdict"] for name, one in case["channels"].items()} for case in cases
        }
        return ended.code, found

    alone = verdicts()
    assert alone[0] == 1 and alone[1]["a/forward@single"] == {"program": "proved"}
    assert not started
    assert verdicts("--workers", "2") == alone
    assert len(started) == 1


@pytest.mark.parametrize("pairs", ["pair('a', Same, **APART)"])
def test_a_part_may_hold_nothing_but_skipped_cases(command, tmp_path, pairs):
    ended = command("prove", "--shard", "1/2", cwd=project(tmp_path, f"{pairs}, pair('b', Same)"))
    other = command("prove", "--shard", "2/2", cwd=tmp_path)
    assert (ended.code, other.code) == (0, 0)
