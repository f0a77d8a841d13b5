"""``parity prove``: its exit codes, the published sizes on slices that need not exist, and bad input."""

import json

import pytest

BROKEN = {"norms.py": [("self.config.norm_epsilon", "2 * self.config.norm_epsilon")]}


@pytest.mark.long
def test_a_proof_that_was_tried_and_failed_exits_1_and_names_the_caller(shell, planting, tmp_path):
    scratch = planting.copy(tmp_path / "scratch", BROKEN)
    ended = shell("prove", "llama2-scan/forward", "--json", "report.json", cwd=tmp_path, path=[scratch])
    assert ended.code == 1
    assert "0 of 1 proved" in ended.out and "models_nnx/norms.py" in ended.out
    (case,) = json.loads((tmp_path / "report.json").read_text())["cases"]
    assert list(case["channels"]) == ["program"] and case["channels"]["program"]["verdict"] == "failed"
    assert case["seconds"]["compile"] == case["seconds"]["execute"] == 0


@pytest.mark.long
def test_what_is_another_program_by_intent_is_no_failed_proof(shell, tmp_path):
    ended = shell("prove", "llama2-scan/forward", "llama2-scan-against-unroll-nnx/forward", cwd=tmp_path)
    assert (ended.code, ended.err) == (0, "")
    assert "1 of 2 proved" in ended.out and "operations a second" in ended.out


@pytest.mark.long
def test_modulo_sharding_says_what_differs_and_that_no_bits_are_claimed(shell, tmp_path):
    case = "sharded-plain-against-zero1-nnx/train_step@data2.fsdp2.tensor2-explicit"
    ended = shell("prove", case, "--modulo", "sharding", "--json", "report.json", cwd=tmp_path)
    assert (
        ended.code == 0 and "1 of 1 same up to sharding" in ended.out and "no bits are claimed" in ended.out
    )
    (found,) = json.loads((tmp_path / "report.json").read_text())["cases"]
    assert found["verdict"] == "same up to sharding" and len(found["annotations"]) > 20
    assert {"place", "reference", "candidate"} == set(found["annotations"][0])


@pytest.mark.slow
def test_the_published_sizes_are_proved_for_a_slice_of_hundreds_of_chips(shell, tmp_path):
    ended = shell("prove", "llama2-70b*", "--full-size", "--topology", "v5p:8x8x8", cwd=tmp_path)
    assert (ended.code, ended.err) == (0, "")
    assert "3 of 3 proved" in ended.out and "@fsdp64.tensor8-auto" in ended.out


@pytest.mark.long
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--full-size",), "--full-size: needs --topology"),
        (("--topology", "v5q:2x2x1"), "topology 'v5q:2x2x1': expected one of"),
        (("--topology", "v5p:2x2x1", "--paranoid"), "--paranoid: got --topology too"),
        (("smoke", "--modulo", "loops"), "--modulo: got 'loops', expected 'sharding'"),
        (("smoke", "--modulo", "sharding", "--exact"), "--modulo: got --exact or --paranoid too"),
        (("smoke", "--topology", "v5p:2x1x1"), "choose a larger topology"),
    ],
)
def test_bad_input_gets_one_line_and_exit_2(shell, tmp_path, arguments, message):
    ended = shell("prove", *arguments, cwd=tmp_path)
    assert (ended.code, ended.out) == (2, "")
    assert message in ended.err and ended.err.count("\n") == 1


@pytest.mark.slow
def test_parts_prove_each_case_once_and_merge_into_one_report(command, tmp_path):
    whole = [f"llama2-scan/{program}@fsdp4.tensor2-auto" for program in ("forward", "grad", "prefill")]
    for number in (1, 2):
        ended = command("prove", *whole, "--shard", f"{number}/2", "--json", f"{number}.json", cwd=tmp_path)
        assert ended.code == 0 and f"{3 - number} of {3 - number} proved" in ended.out, ended.out
    assert command("merge", "1.json", "2.json", "--json", "all.json", cwd=tmp_path).code == 0
    cases = json.loads((tmp_path / "all.json").read_text())["cases"]
    assert sorted(case["id"] for case in cases) == sorted(whole)
