"""Pipelines of the twins against their sequence: proved, evaluated as numbers, and refuted if a bug is planted."""

import numpy as np
import pytest
from campaigns.exact.evaluate import Evaluator
from campaigns.exact.run import Campaign
from campaigns.exact.samples import sample

from models_nnx.shared.ops.pipeline import Pipe
from models_nnx.shared.ops.stages import StageTransfers
from models_nnx.shared.schedule import Schedule
from parity.builds.build import Flavour
from parity.compare.evidence import Evidence
from parity.compare.exactness import named, relation
from parity.compare.session import Session
from parity.prove.exact.claim import _inputs
from parity.prove.exact.interpreter import Interpreter, Shared


def comparison(name, flavour=Flavour.NNX):
    return Evidence.of(sample(name, flavour), Session())


@pytest.mark.long
@pytest.mark.parametrize("flavour", Flavour)
def test_a_pipeline_equals_its_layers(flavour):
    found = comparison("forward", flavour).exact_proof
    assert found.proved, found
    assert found.assumptions == ()


@pytest.mark.long
@pytest.mark.parametrize("name", ["grad", "prefetch", "train_step", "delay"])
def test_gradients_and_steps_too(name):
    found = comparison(name, Flavour.LINEN).exact_proof
    assert found.proved, found
    jumps = [each.split(" across a threshold at ") for each in found.assumptions]
    clips = (
        name == "train_step"
    )  # it is a comparison of rounded numbers whether the norm of the gradients is too large
    assert [(what, place.split("optax")[-1][:24]) for what, place in jumps] == [
        ("rounding takes no operand of compare", "/transforms/_clipping.py")
    ] * clips


BUGS = {
    "segments of another microbatch": (
        Schedule,
        "microbatch",
        lambda self, t, s: (self.processed(t, s) + 1) % self.microbatches,
    ),
    "weights of another repeat": (Schedule, "repeat", lambda self, t, s: self.processed(t, s) * 0),
    "storage read a slot late": (Schedule, "stored", lambda self, t: (t + 1) % self.microbatches),
    "storage written a slot late": (Schedule, "storing", lambda self, t: (t - self.lag) % self.microbatches),
    "outputs turned by one": (Schedule, "first_slot", property(lambda self: 0)),
    "rows of microbatches side by side": (
        StageTransfers,
        "split",
        lambda self, x: x.reshape(self.schedule.microbatches, -1, *x.shape[1:]),
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_in_the_schedule_is_found(bug, monkeypatch):
    where, name, wrong = BUGS[bug]
    monkeypatch.setattr(where, name, wrong)
    found = comparison("forward").exact_proof
    assert not found.proved and "values logits" in found.difference, found


@pytest.mark.long
def test_a_bug_that_lives_only_in_the_custom_vjp_is_found(monkeypatch):
    right = Pipe._scatter
    monkeypatch.setattr(Pipe, "_scatter", lambda self, leaves: [2 * x for x in right(self, leaves)])
    found = comparison("prefetch").exact_proof
    assert not found.proved and found.difference.startswith("gradients "), found


@pytest.mark.long
def test_terms_of_both_sides_evaluate_like_both_sides():
    case = comparison("grad")
    cache, sides = Shared(), []
    for side in (case.reference, case.candidate):
        sides.append(Interpreter(named(side), cache))
    given = _inputs(sides, relation(case.reference, case.weights, case.case), cache.tensors)
    batch = case.reference.build.inputs(0)
    arrays = {
        f"state {path}": np.asarray(x, np.float64) for path, x in case.state.items() if "key" not in path
    }
    arrays |= {f"input {path}": x for path, x in batch.items()}
    arrays |= {f"state {path}": x for path, x in case.state.items() if x.dtype.kind == "f"}
    evaluator = Evaluator(cache.algebra.terms, arrays)
    states = (case.state, case.candidate_state)
    for side, each, state, inputs in zip((case.reference, case.candidate), sides, states, given, strict=True):
        computed = side.run(state, 0)
        for name, tensor in each.walk(inputs).items():
            group, path = name.split(" ", 1)
            one, other = evaluator.tensor(tensor), computed[group][path]
            np.testing.assert_allclose(one, other, rtol=2e-3, atol=2e-4 * np.abs(one).max(), err_msg=name)


@pytest.mark.long
def test_mutants_are_refused_or_compute_the_same():
    campaign = Campaign("forward")
    found = [(mutant, campaign.claim(mutant.module)) for mutant, _ in campaign.results(12, seed=7)]
    kept = [mutant for mutant, claimed in found if claimed.proved]
    assert len(found) - len(kept) >= 5
    for mutant in kept[:3]:
        distance = campaign.distance(mutant.module)
        assert distance is None or distance < 1e-4, mutant.detail
