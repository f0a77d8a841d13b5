"""The channel ``exact``: cases that request it are shown equal in exact arithmetic, or their difference is named."""

import pytest
from campaigns.exact.samples import sample

from models_nnx.shared.schedule import Schedule
from parity.channels import CHANNELS
from parity.compare.evidence import Evidence
from parity.compare.exactness import difference
from parity.compare.session import Session
from parity.matrix.batch_split import PAIR
from parity.prove.exact import Equality
from parity.verdicts import Verdict


def looked(case):
    return CHANNELS["exact"].look(Evidence.of(case, Session()))


@pytest.mark.long
def test_a_pipeline_is_proved_equal_in_exact_arithmetic():
    result = looked(sample("forward"))
    assert result.verdict is Verdict.EQUAL
    assert result.detail == "equal in exact arithmetic" and result.measures["terms"] > 1_000
    assert looked(sample("forward").with_accept(prove_exact=False)).verdict is Verdict.SKIPPED


@pytest.mark.long
def test_assumptions_are_listed():
    result = looked(sample("loss").with_accept(prove_exact=True))
    assert result.detail == "equal in exact arithmetic, if input targets is in [0, 272)"


def test_another_microbatch_fails_the_case_with_its_place(monkeypatch):
    monkeypatch.setattr(
        Schedule, "microbatch", lambda self, t, s: (self.processed(t, s) + 1) % self.microbatches
    )
    result = looked(sample("forward"))
    assert result.verdict is Verdict.FAILED
    (finding,) = result.findings
    assert finding.where.startswith("values logits[0")
    assert ".py:" in finding.candidate and ", only it reads input segments[" in finding.candidate
    assert "(" not in finding.sentence(), "no terms"


def test_results_of_unequal_shapes_have_no_operations():
    text = "values out: real[3] against real[4]"
    finding = difference(Equality(proved=False, difference=text))
    assert text in finding.sentence() and "compare what both sides return" in finding.sentence()


@pytest.mark.long
def test_an_unsupported_operation_is_reported_by_a_case_that_requires_it():
    case = next(case for case in PAIR.cases({}) if case.id.startswith("batch-split-plain-against-split-nnx"))
    result = looked(case.with_accept(prove_exact=True))
    assert result.verdict is Verdict.FAILED
    assert "top_k" in result.findings[0].sentence()
