"""Ties of routing: named with token, layer and margin, values compared past them; other flips fail."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from parity.builds.meshes import MeshSpec
from parity.compare.session import Session
from parity.matrix.moe import PAIR, nearly_alike
from parity.report.table import findings_text, ties_text
from parity.run.run import run_case
from parity.values.routing import find_flips, forced_inputs, margin_noise

TIED = "moe-dropless-tied-against-mesh-nnx/forward@expert2.tensor2.fsdp2-auto"


def routing(preferred, margin):
    return {
        "layers_1/preferred": np.array(preferred, np.int32),
        "layers_1/margin": np.array(margin, np.float32),
    }


def test_a_flip_is_a_tie_within_the_noise_of_its_margin_whatever_the_order_of_choices():
    left = routing([[[0, 1], [2, 3], [4, 5]]], [[0.5, 3e-8, 1e-3]])
    right = routing([[[1, 0], [2, 6], [4, 7]]], [[0.5, 2e-8, 2e-3]])
    flips = find_flips(left, right, {"layers_1": 1e-8})
    assert [(flip.token, flip.is_tie) for flip in flips] == [((0, 2), False), ((0, 1), True)]
    assert (flips[1].reference, flips[1].candidate, flips[1].layer) == ((3,), (6,), "layers_1")
    sentence = flips[1].finding().sentence()
    assert sentence == (
        "layers_1 token [0, 1]: reference choice 3, candidate choice 6; margin 3e-08, noise of a margin 1e-08; "
        "likely a tie that rounding decides"
    )
    assert "which no rounding explains" in flips[0].finding().sentence()


def test_noise_is_the_median_over_tokens_so_that_tokens_that_flip_do_not_count():
    margin = np.full((1, 9), 0.5, np.float32)
    nudged = margin + 2e-6
    nudged[0, 0] = 40.0
    choices = np.zeros((1, 9, 1))
    noise = margin_noise(routing(choices, margin), [routing(choices, nudged), routing(choices, margin)])
    np.testing.assert_allclose(noise["layers_1"], 2e-6, rtol=0.02)
    quiet = margin_noise(routing(choices, margin), [routing(choices, margin)])
    assert quiet["layers_1"] == np.finfo(np.float32).eps / 2
    everywhere = routing(choices, np.full((1, 9), np.inf))
    assert margin_noise(everywhere, [everywhere])["layers_1"] == np.finfo(np.float32).eps / 2


def test_choices_become_inputs_in_separate_buffers():
    left = routing([[[0, 1]]], [[0.5]])
    forced = forced_inputs(left)
    assert list(forced) == ["forced/layers_1"]
    assert not np.shares_memory(forced["forced/layers_1"], left["layers_1/preferred"])


def test_nearly_equal_routers_distinguish_experts_by_the_last_place_only():
    kernel = np.random.default_rng(0).normal(size=(5, 8)).astype(np.float32)
    found = nearly_alike({"decoder/router/kernel": kernel, "other": kernel})
    matching = found["decoder/router/kernel"]
    for first in (0, 3):
        for other in (1, 2):
            difference = np.abs(matching[:, first + other] - kernel[:, first])
            assert (difference > 0).all() and (difference <= 2 * np.spacing(np.abs(kernel[:, first]))).all()
    np.testing.assert_array_equal(matching[:, 6:], kernel[:, 6:])
    assert found["other"] is kernel


@pytest.fixture(scope="module")
def tied():
    case = next(case for case in PAIR.cases({}) if case.id == TIED)
    return case, Session()


@pytest.mark.long
def test_near_ties_are_reported_as_ties_and_values_are_compared_past_them(tied):
    case, bench = tied
    result = run_case(case, bench)
    found = result.channels["routing"]
    assert (result.verdict, found.verdict) == ("passed", "tie")
    assert found.measures["ties"] == found.measures["flips"] == len(found.findings) > 0
    assert "routing forced equal past" in result.channels["values"].detail
    assert result.channels["values"].verdict in ("bitwise", "floor")
    text = ties_text(result)
    assert "routing tie:" in text and "token [" in text and "margin" in text and "layers_" in text
    assert findings_text(result) == ""


@pytest.mark.long
def test_a_flip_that_is_no_tie_fails_though_there_are_ties_as_well(tied):
    case, bench = tied

    def other_router():
        build = case.candidate()
        forward = build.programs["forward"]

        def function(state, inputs):
            path = next(path for path in state if path.endswith("router/kernel"))
            likes = 1 + 0.02 * jnp.arange(state[path].shape[-1], dtype=state[path].dtype)
            return forward.function({**state, path: state[path] * likes[None, None]}, inputs)

        programs = {"forward": dataclasses.replace(forward, function=function)}
        return dataclasses.replace(build, name=f"{build.name} other router", programs=programs)

    broken = dataclasses.replace(case, candidate=other_router, candidate_mesh=MeshSpec())
    result = run_case(broken, bench)
    found = result.channels["routing"]
    failed = (result.verdict, found.verdict, result.channels["values"].verdict)
    assert failed == ("failed",) * 3, findings_text(result)
    assert found.measures["ties"] < found.measures["flips"]
    assert "which no rounding explains" in found.findings[0].sentence()
    assert "tokens choose otherwise" in findings_text(result)


@pytest.mark.long
def test_a_case_without_changed_choices_reports_that_all_tokens_choose_equally():
    case = next(case for case in PAIR.cases({}) if case.id.startswith("moe-mixtral-dropless-scan/forward"))
    jax.config.update("jax_disable_most_optimizations", True)
    try:
        alone = dataclasses.replace(case, mesh=MeshSpec())
        found = run_case(alone, Session(paranoid=True), ("routing",)).channels["routing"]
    finally:
        jax.config.update("jax_disable_most_optimizations", False)
    assert (found.verdict, found.detail) == ("equal", "every token chooses alike")
