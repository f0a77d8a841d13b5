"""Batches, schedules, placements and tiles are proved equal to the plain program, DiLoCo's outer step to a formula."""

import dataclasses
import fnmatch
import functools

import jax
import jax.numpy as jnp
import pytest
from campaigns.matrix import plans

from parity.compare.evidence import Evidence
from parity.compare.exactness import named
from parity.compare.session import Session
from parity.matrix import batch_split, diloco, pipeline, sharded
from parity.matrix.diloco import PLAIN
from parity.prove.exact import Link, Named, Relation, equal

UNROLLED = dataclasses.replace(PLAIN, replicas=4, period=3)


def case(pair, pattern, session=None):
    (found,) = [case for case in pair.cases({}) if fnmatch.fnmatch(case.id, pattern)]
    return Evidence.of(found, session or Session())


def only_clips(found):
    """True if the one assumption is that rounding does not decide whether the gradients' norm is too large."""
    (jump,) = found.assumptions
    return "compare across a threshold at " in jump and "optax/transforms/_clipping.py" in jump


@pytest.mark.long
def test_a_batch_in_parts_is_the_whole_batch():
    found = case(plans.PAIR, "plans-accumulate2-*").exact_proof
    assert found.proved and only_clips(found), found


@pytest.mark.long
def test_tiles_of_the_vocabulary_are_all_logits_at_once():
    found = case(plans.PAIR, "plans-tiles2-*").exact_proof
    assert found.proved, found
    assert found.assumptions == ("input targets is in [0, 272)",)


@pytest.mark.long
@pytest.mark.parametrize("family", ["gemma2", "qwen3"])
def test_a_family_in_a_pipeline_is_its_layers_in_sequence(family):
    found = case(plans.PAIR, f"*-{family}-*/grad@*").exact_proof
    assert found.proved and found.assumptions == (), found


@pytest.mark.long
def test_moments_that_are_spread_make_the_same_step():
    session = Session()
    for pair, pattern in (
        (sharded.PAIR, "sharded-plain-against-zero1-linen*"),
        (plans.PAIR, "plans-pipeline-zero1-*auto"),
    ):
        found = case(pair, pattern, session).exact_proof
        assert found.proved and only_clips(found), found


@pytest.mark.long
@pytest.mark.parametrize(
    ("pair", "pattern"),
    [
        (pipeline.PAIR, "pipeline-sequential-mixtral-*"),
        (batch_split.PAIR, "batch-split-plain-against-split-nnx*"),
    ],
    ids=["pipeline", "batch split"],
)
def test_experts_are_refused_by_the_choosing_field(pair, pattern):
    found = case(pair, pattern).exact_proof
    assert not found.proved and "top_k" in found.refusal and "routing.py:" in found.refusal, found


def meeting(config, state, *, nesterov=True, mean=True, spared=""):
    """Computes the outer update of DiLoCo's algorithm 1, written out, on a state by paths."""
    made = dict(state)
    for path, x in state.items():
        place = path.removeprefix("outer/params/")
        if place in (path, spared):
            continue
        (own,) = {f"inner/params/{place}", f"inner/model/{place}"} & set(state)
        replicas = state[own].astype(jnp.float32)
        change = x - (replicas.mean(0) if mean else replicas.sum(0))
        momentum = change + config.momentum * state[f"outer/momentum/{place}"]
        made[f"outer/momentum/{place}"] = momentum
        made[path] = x - config.learning_rate * (
            change + config.momentum * momentum if nesterov else momentum
        )
    return made


@pytest.fixture(scope="module")
def sync():
    return case(diloco.PAIR, "diloco-plain-unroll/sync_step@*")


def against_formula(side, config=UNROLLED, **changed):
    """Returns whether a side's outer step equals the formula, for the state on one device."""
    state = {path: jax.ShapeDtypeStruct(x.shape, x.dtype) for path, x in side.arguments[0].items()}
    formula = jax.jit(functools.partial(meeting, config, **changed), keep_unused=True).lower(state)
    names = [f"state {path}" for path in sorted(state)]
    links = [Link(reference=(name,), candidate=(name,)) for name in names]
    written = Named(program=formula, arguments=names, results=names)
    return equal(written, named(side), Relation(arguments=links, results=links))


@pytest.mark.long
@pytest.mark.parametrize("which", ["reference", "candidate"])
def test_a_meeting_of_replicas_is_its_formula(sync, which):
    found = against_formula(getattr(sync, which))
    assert found.proved and found.assumptions == (), found


@pytest.mark.parametrize(
    "changed",
    [
        {"nesterov": False},
        {"mean": False},
        {"spared": "decoder/layers_2/mlp/down/kernel"},
        {"config": dataclasses.replace(UNROLLED, learning_rate=0.5)},
        {"config": dataclasses.replace(UNROLLED, momentum=0.5)},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_a_meeting_is_no_other_formula(sync, changed):
    found = against_formula(sync.candidate, **changed)
    assert not found.proved and "state outer/" in found.difference
