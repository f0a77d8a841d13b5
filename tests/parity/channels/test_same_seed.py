"""Same seed, both flavours: initial parameters and three dropout training steps are bit-identical."""

import dataclasses

import jax
import numpy as np
import pytest

from parity.builds.meshes import MeshSpec
from parity.builds.tree import to_host
from parity.compare.evidence import Evidence
from parity.compare.session import Session
from parity.matrix.llama2 import PAIR


@pytest.fixture
def quick():
    """Disables XLA's optimisations, which take most of the time of tiny models."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.mark.long
@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("variant", ["scan-dropout", "unroll-dropout"])
def test_three_dropout_steps_from_one_seed(variant):
    id = f"llama2-{variant}/train_step@fsdp4.tensor2-auto"
    (case,) = [case for case in PAIR.cases({}) if case.id == id]
    work = Evidence.of(dataclasses.replace(case, mesh=MeshSpec()), Session())
    fresh = [to_host(jax.jit(build.create)(jax.random.key(11))) for build in work.builds]
    carried = work.weights.to_reference(fresh[1])
    assert carried.keys() == fresh[0].keys()
    for path, array in fresh[0].items():
        np.testing.assert_array_equal(array, carried[path], err_msg=f"initial {path}")
    after = [side.run(state, 5) for side, state in zip((work.reference, work.candidate), fresh, strict=True)]
    for name, left in after[0]["values"].items():
        np.testing.assert_array_equal(left, after[1]["values"][name], err_msg=name)
    losses = [float(after[0]["values"][f"step{step}/loss"]) for step in (1, 2, 3)]
    assert len(set(losses)) == 3
    for entry in work.weights.entries:
        left = after[0]["state"][f"step3/{entry.reference[0]}"]
        right = after[1]["state"][f"step3/{entry.candidate[0]}"]
        np.testing.assert_array_equal(left, right, err_msg=entry.candidate[0])
