"""Which flavour made a program, and batches that hide what packing breaks."""

import dataclasses

import numpy as np
import pytest

from parity.channels.attest import attest
from parity.comparison.comparison import Workbench
from parity.pairs.llama2 import PAIR
from parity.programs.meshes import MeshSpec
from parity.report.table import findings_text
from parity.running.run import run_case


def real(id):
    return next(case for case in PAIR.cases({}) if case.id == id)


@pytest.mark.slow
def test_one_segment_in_the_batch_is_vacuous_where_values_decide():
    """History P2: rows of one document hide whatever packing breaks. A proof holds for all batches."""
    case = real("llama2-scan/forward@fsdp4.tensor2-auto")

    def packed_into_one(make):
        build = make()

        def inputs(seed):
            batch = build.inputs(seed)
            return {**batch, "segments": np.ones_like(batch["segments"])}

        return lambda: dataclasses.replace(build, name=f"{build.name} one segment", inputs=inputs)

    sides = {name: packed_into_one(getattr(case, name)) for name in ("reference", "candidate")}
    result = run_case(dataclasses.replace(case, mesh=MeshSpec(), **sides), Workbench(paranoid=True))
    assert (result.verdict, result.channels["values"].verdict) == ("vacuous", "vacuous")
    assert "batch segments: expected entries that differ, got all 320 entries are 1" in findings_text(result)


def test_a_program_without_operations_of_its_own_model_code_is_not_attested():
    build = real("llama2-scan/forward@fsdp4.tensor2-auto").candidate()
    own = {"/somewhere/models_nnx/mlp.py": 7, "/somewhere/jax/lax.py": 90}
    foreign = ("models_linen/",)
    assert attest(build, own, foreign, {}) == []
    (finding,) = attest(build, {"/somewhere/jax/lax.py": 90}, foreign, {})
    assert (
        finding.where == f"flavour of {build.name}" and "no operation from models_nnx/" in finding.candidate
    )
    (finding,) = attest(build, {**own, "/somewhere/models_linen/mlp.py": 2}, foreign, {})
    assert finding.candidate == "2 operations from models_linen/"
