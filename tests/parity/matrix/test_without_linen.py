"""The matrix without `models_linen`: all cases are listed, NNX against NNX is compared, the rest is skipped."""

import json

import pytest

from parity.cases.settings import collect

GONE = """
import sys

class Gone:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "models_linen":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Gone())
"""
REASON = "there is no package models_linen: install it to run the linen models"
KINDS = (
    "llama2-scan-against-unroll-nnx/forward",
    "sharded-auto-against-mesh-nnx/train_step@fsdp8.context1-explicit",
    "sharded-plain-against-zero1-nnx",
    "moe-dropless-against-ample-nnx",
    "tiled-against-plain-nnx",
    "pipeline-sequential-s2-m2-r1-d1-once-nnx",
    "pipeline-auto-against-explicit-storage-nnx",
    "pipeline-per_iteration-against-per_repeat-nnx",
    "diloco-layouts-scan-against-unroll-nnx",
    "gpt-oss-scan-against-unroll-nnx",
    "mtp-experts-scan-against-unroll-nnx",
    "batch-split-plain-against-split-nnx",
)
"""One case of each kind; `test_each_kind_is_there` compares them with the matrix."""


@pytest.fixture
def without(tmp_path, shell):
    """``without("run", ...)`` is a command in a process that cannot import `models_linen`."""
    (tmp_path / "sitecustomize.py").write_text(GONE)
    return lambda *arguments: shell(*arguments, cwd=tmp_path, path=[tmp_path])


def families(ids):
    return {id.split("-")[0] for id in ids}


def test_each_kind_is_there():
    one_flavour = [case.id for case in collect((), {})[1] if "-nnx/" in case.id]
    assert families(one_flavour) - families(KINDS) == {"deepseek3", "training"}  # other layouts, as gpt-oss


@pytest.mark.long
def test_all_is_listed_and_a_case_of_both_flavours_is_skipped_in_one_sentence(without, shell, tmp_path):
    assert without("list", "--builtin") == shell("list", "--builtin", cwd=tmp_path)
    ended = without("run", "--builtin", "llama2-scan/forward", KINDS[0], "--json", "found.json")
    assert (ended.code, ended.err) == (0, "")
    cases = {case["id"]: case for case in json.loads((tmp_path / "found.json").read_text())["cases"]}
    assert {id: case["verdict"] for id, case in cases.items()} == {
        "llama2-scan/forward@fsdp4.tensor2-auto": "skipped",
        "llama2-scan-against-unroll-nnx/forward@single": "passed",
    }
    assert REASON in json.dumps(cases["llama2-scan/forward@fsdp4.tensor2-auto"])


@pytest.mark.long
def test_what_needs_both_flavours_ends_in_one_sentence(without):
    ended = without("run", "--builtin", "llama2-scan/forward")
    assert ended.code == 2 and f"every case was skipped ({REASON})" in ended.out and not ended.err
    ended = without("train", "--steps", "1")
    assert ended.code == 2 and ended.err.strip() == f"parity: {REASON}"


@pytest.mark.long
@pytest.mark.parametrize("id", KINDS)
def test_each_kind_of_one_flavour_passes(without, id):
    ended = without("run", "--builtin", id)
    assert ended.code == 0 and "1 passed" in ended.out, ended.out + ended.err
