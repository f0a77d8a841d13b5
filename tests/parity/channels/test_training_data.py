"""The training cases' data exercise a spike, a non-finite batch, and both sides of a schedule's end."""

import functools

import jax
import pytest

from parity.builds.build import SEED
from parity.compare.evidence import Evidence
from parity.compare.session import Session
from parity.matrix.trajectories import PAIR, SHORT

pytestmark = pytest.mark.slow


@functools.cache
def real(id):
    return next(case for case in PAIR.cases({}) if case.id == id)


@pytest.fixture(scope="module")
def bench():
    """Shared, so that the untouched reference is traced, compiled and run once; compiles without optimising."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield Session()
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.mark.long
@pytest.mark.parametrize("id", ["training-across-warmup", "training-past-the-end"])
def test_the_data_of_the_cases_detects_differences(id, bench):
    """One batch spikes and one is not finite; the learning rate is from both sides of an end of the schedule."""
    work = Evidence.of(real(f"{id}/train_step@single"), bench)
    leaves = work.reference.run(work.state, SEED, steps=6)["state"]
    state = {path.removeprefix("step6/"): leaf for path, leaf in leaves.items() if path.startswith("step6/")}
    assert state["opt_state/total_notfinite"] == state["opt_state/inner_state/total_skipped"] == 1
    begins = int(work.state["step"])
    assert state["opt_state/inner_state/inner_state/1/2/count"] == begins + 4
    ends = (SHORT.warmup_steps, SHORT.total_steps)
    assert any(begins < end < begins + 4 for end in ends)
