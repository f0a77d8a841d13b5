"""Masks of padding that the usual batch does not have: lost ones are found, and other forms pass."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx

import parity
from parity.builds.build import Group
from parity.channels import measure
from parity.verdicts import ChannelResult, Verdict

# B batch, T tokens (queries) or keys, D features, V vocabulary
B, T, D, V = 4, 6, 8, 11
CAUSAL = jnp.tril(jnp.ones((1, T, T)))
LEAST = float(jnp.finfo("float32").min)
SCORES = {
    "none": lambda scores, valid: jnp.where(CAUSAL > 0, scores, -1e9),
    "selected": lambda scores, valid: jnp.where(valid * CAUSAL > 0, scores, -1e9),
    "less one": lambda scores, valid: scores + (valid * CAUSAL - 1) * 1e9,
    "from one": lambda scores, valid: scores + (1 - valid * CAUSAL) * LEAST,
    "logarithm": lambda scores, valid: scores + jnp.log(valid * CAUSAL),
    "minimum": lambda scores, valid: jnp.where(jnp.minimum(valid, CAUSAL) == 1, scores, LEAST),
    "twice": lambda scores, valid: jnp.where(CAUSAL > 0, jnp.where(valid > 0.5, scores, -1e9), -1e9),
}
LOSSES = {
    "none": lambda losses, valid: losses.mean(),
    "weighted": lambda losses, valid: (losses * valid).sum() / valid.sum(),
    "selected": lambda losses, valid: losses.mean(where=valid > 0),
    "guarded": lambda losses, valid: jnp.where(valid == 1, losses, 0).sum() / jnp.maximum(valid.sum(), 1),
    "numerator": lambda losses, valid: (losses * valid).mean(),
    "denominator": lambda losses, valid: losses.sum() / valid.sum(),
}


def run(embed, query, readout, tokens, scores, loss):
    valid = (tokens != 0).astype(jnp.float32)
    x = embed(tokens)
    weights = jax.nn.softmax(SCORES[scores](jnp.einsum("btd,bsd->bts", query(x), x), valid[:, None]))
    logits = readout(weights @ x)[:, :-1]
    targets = jax.nn.one_hot(tokens[:, 1:], V)
    return LOSSES[loss](-(targets * jax.nn.log_softmax(logits)).sum(-1), valid[:, 1:])


class Reference(linen.Module):
    scores: str = "selected"
    loss: str = "weighted"

    @linen.compact
    def __call__(self, tokens):
        layers = linen.Embed(V, D, name="embed"), linen.Dense(D, name="query"), linen.Dense(V, name="readout")
        return run(*layers, tokens, self.scores, self.loss)


class Candidate(nnx.Module):
    def __init__(self, rngs, scores="selected", loss="weighted"):
        self.embed = nnx.Embed(V, D, rngs=rngs)
        self.query = nnx.Linear(D, D, rngs=rngs)
        self.readout = nnx.Linear(D, V, rngs=rngs)
        self.scores, self.loss = scores, loss

    def __call__(self, tokens):
        return run(self.embed, self.query, self.readout, tokens, self.scores, self.loss)


def compare(reference, candidate, batch, arguments=("tokens",)):
    return parity.assert_twins(
        reference,
        candidate,
        batch,
        arguments=arguments,
        loss=lambda loss, batch: jnp.mean(loss),
        programs=("forward",),
    )


def tokens():
    return {"tokens": np.random.default_rng(3).integers(1, V, (B, T)).astype(np.int32)}


def assert_found(reference, candidate, batch, words, **rest):
    with pytest.raises(parity.TwinsDifferError) as raised:
        compare(reference, candidate, batch, **rest)
    assert raised.value.results[0].channels["values"].verdict is Verdict.FAILED
    assert words in str(raised.value)


def assert_same(reference, candidate, batch, **rest):
    program = compare(reference, candidate, batch, **rest)[0].channels["program"]
    assert program.verdict is Verdict.UNPROVED  # so that the runs decide


FORMS = [name for name in SCORES if name not in ("none", "selected")]
LOST = [
    *((name, "none", "none", "none") for name in FORMS),
    ("none", "none", "weighted", "none"),
    ("none", "none", "none", "guarded"),
    ("selected", "selected", "selected", "none"),
    ("selected", "selected", "weighted", "numerator"),
    ("selected", "selected", "denominator", "guarded"),
]
"""The scores of the reference and of the candidate, then their losses."""


@pytest.mark.long
@pytest.mark.parametrize(("scores", "other_scores", "loss", "other_loss"), LOST)
def test_a_lost_mask_of_padding_is_found(scores, other_scores, loss, other_loss):
    candidate = Candidate(nnx.Rngs(0), other_scores, other_loss)
    assert_found(Reference(scores, loss), candidate, tokens(), "padding, tokens = 0")


@pytest.mark.long
@pytest.mark.parametrize(
    ("scores", "loss"),
    list(zip(FORMS, ["selected", "guarded", "weighted", "guarded", "selected"], strict=True)),
)
def test_a_mask_of_padding_written_differently_passes(scores, loss):
    assert_same(Reference(), Candidate(nnx.Rngs(0), scores, loss), tokens())


class Masked(linen.Module):
    @linen.compact
    def __call__(self, x, mask):
        return jnp.where(mask[..., None] == 1, linen.Dense(D, name="dense")(x), 0)


class MaskedNnx(nnx.Module):
    def __init__(self, rngs, lost=False):
        self.dense, self.lost = nnx.Linear(D, D, rngs=rngs), lost

    def __call__(self, x, mask):
        return self.dense(x) * (1 if self.lost else mask[..., None])


def of_mask(mask):
    return {"x": np.random.default_rng(5).normal(size=(B, T, D)).astype(np.float32), "mask": mask}


BITS = np.random.default_rng(7).integers(0, 2, (B, T))


def test_a_mask_of_the_batch_that_hides_nothing_is_padded():
    batch = of_mask(np.ones((B, T), bool))
    assert_found(
        Masked(), MaskedNnx(nnx.Rngs(0), lost=True), batch, "padding, mask = 0", arguments=("x", "mask")
    )


@pytest.mark.parametrize("dtype", [bool, np.float32])
def test_a_mask_of_the_batch_keeps_its_bits(dtype):
    assert_same(Masked(), MaskedNnx(nnx.Rngs(0)), of_mask(BITS.astype(dtype)), arguments=("x", "mask"))


class Mean(linen.Module):
    @linen.compact
    def __call__(self, x, mask):
        return jnp.sum(linen.Dense(D, name="dense")(x) * mask[..., None]) / jnp.maximum(jnp.sum(mask), 1)


class MeanNnx(nnx.Module):
    def __init__(self, rngs):
        self.dense = nnx.Linear(D, D, rngs=rngs)

    def __call__(self, x, mask):
        return jnp.sum(self.dense(x) * mask[..., None]) / jnp.sum(mask)


def test_a_lost_guard_of_weights_that_are_all_zero_is_found():
    batch = of_mask(BITS.astype(np.float32))
    assert_found(Mean(), MeanNnx(nnx.Rngs(0)), batch, "mask = 0", arguments=("x", "mask"))


EDGES = np.asarray([18, 25, 35, 50], np.int32)
BUCKETS = {
    "searched": lambda ages: jnp.searchsorted(EDGES, ages, side="right", method="compare_all"),
    "more than less one": lambda ages: (ages[:, None] > EDGES[None] - 1).sum(-1),
    "at least": lambda ages: (ages[:, None] >= EDGES[None]).sum(-1),
    "more than": lambda ages: (ages[:, None] > EDGES[None]).sum(-1),
    "more than less two": lambda ages: (ages[:, None] > EDGES[None] - np.asarray([[1, 1, 2, 1]])).sum(-1),
    "one further": lambda ages: (ages[:, None] >= EDGES[None] + np.asarray([[0, 0, 1, 0]])).sum(-1),
}


class Aged(nnx.Module):
    def __init__(self, rngs, form):
        self.embed, self.form = nnx.Embed(5, D, rngs=rngs), form

    def __call__(self, ages):
        return self.embed(BUCKETS[self.form](ages))


class LinenAged(linen.Module):
    @linen.compact
    def __call__(self, ages):
        return linen.Embed(5, D, name="embed")(BUCKETS["searched"](ages))


@pytest.mark.parametrize(
    ("form", "found"),
    [
        ("at least", ""),
        ("more than less one", ""),
        ("more than", "ages = 18, 25, 35, 50"),
        ("one further", "ages = 18, 25, 35"),
        ("more than less two", "34"),
    ],
)
def test_integers_also_equal_the_constants_between_those_of_the_batch(form, found):
    ages = np.random.default_rng(0).permutation([3, 17, 17, 24, 26, 33, 36, 49, 51, 90]).astype(np.int32)
    arguments = LinenAged(), Aged(nnx.Rngs(0), form), {"ages": ages}
    if found:
        assert_found(*arguments, found, arguments=("ages",))
    else:
        assert_same(*arguments, arguments=("ages",))


POOLS = {
    "guarded": lambda x, kept: (x * kept).sum(1) / jnp.maximum(kept.sum(1), 1),
    "selected": lambda x, kept: jnp.where(kept > 0, x, 0).sum(1) / jnp.clip(kept.sum(1), 1),
    "bare": lambda x, kept: (x * kept).sum(1) / kept.sum(1),
    "softmax": lambda x, kept: (x * jax.nn.softmax(jnp.where(kept > 0, x, -1e9), 1)).sum(1),
    "exponentials": lambda x, kept: (x * shares(jnp.where(kept > 0, x, -1e9))).sum(1),
    "added": lambda x, kept: (x * jax.nn.softmax(x + (kept - 1) * 1e4, 1)).sum(1),
    "infinity": lambda x, kept: (x * jax.nn.softmax(jnp.where(kept > 0, x, -jnp.inf), 1)).sum(1),
}


def shares(x):
    exponentials = jnp.exp(x - x.max(1, keepdims=True))
    return exponentials * (1 / exponentials.sum(1, keepdims=True))


class Pooled(linen.Module):
    pool: str

    @linen.compact
    def __call__(self, x, mask):
        return POOLS[self.pool](linen.Dense(D, name="dense")(x), mask[..., None].astype(x.dtype))


class PooledNnx(nnx.Module):
    def __init__(self, rngs, pool):
        self.dense, self.pool = nnx.Linear(D, D, rngs=rngs), pool

    def __call__(self, x, mask):
        return POOLS[self.pool](self.dense(x), mask[..., None].astype(x.dtype))


@pytest.mark.parametrize("dtype", [bool, np.float32])
@pytest.mark.parametrize(
    ("reference", "candidate", "passes"),
    [
        ("guarded", "selected", True),
        ("guarded", "bare", False),
        ("softmax", "exponentials", True),
        ("softmax", "added", True),
        ("softmax", "infinity", False),
    ],
)
def test_masks_are_also_empty(reference, candidate, passes, dtype):
    sides = Pooled(reference), PooledNnx(nnx.Rngs(0), candidate), of_mask((BITS > 0).astype(dtype))
    if passes:
        assert_same(*sides, arguments=("x", "mask"))
    else:
        assert_found(*sides, "mask = 0", arguments=("x", "mask"))


class Capped(nnx.Module):
    def __init__(self, rngs, last):
        self.embed, self.last = nnx.Embed(6, D, rngs=rngs), last

    def __call__(self, places):
        return self.embed(jnp.clip(jnp.minimum(places.astype(jnp.int32), 300) >> 3, max=self.last))


class LinenCapped(linen.Module):
    @linen.compact
    def __call__(self, places):
        return linen.Embed(6, D, name="embed")(jnp.clip(places // 8, 0, 5))


@pytest.mark.parametrize(("last", "passes"), [(5, True), (4, False)])
def test_integers_that_a_program_clamps_also_lie_beyond(last, passes):
    sides = LinenCapped(), Capped(nnx.Rngs(0), last), {"places": np.asarray([0, 3, 9, 17, 26, 38], np.uint8)}
    if passes:
        assert_same(*sides, arguments=("places",))
    else:
        assert_found(*sides, "integers on constants", arguments=("places",))


def test_several_processes_say_that_no_stress_inputs_ran(monkeypatch):
    monkeypatch.setattr(measure.jax, "process_count", lambda: 2)
    result = ChannelResult(name="values", verdict=Verdict.BITWISE, detail="equal")
    said = measure._stressed(types.SimpleNamespace(unproved=True), Group.VALUES, result)
    assert said.verdict is Verdict.BITWISE and "stress inputs run in one process only" in said.detail


class Halved(linen.Module):
    """A mean over the first frames of half of a signal, whose lengths are at least one."""

    @linen.compact
    def __call__(self, x, lengths):
        valid = (jnp.arange(T // 2)[None] < (lengths + 1)[:, None] // 2)[..., None]
        return jnp.sum(linen.Dense(D, name="dense")(x[:, ::2]) * valid, 1) / jnp.sum(valid, 1)


class HalvedNnx(nnx.Module):
    def __init__(self, rngs):
        self.dense = nnx.Linear(D, D, rngs=rngs)

    def __call__(self, x, lengths):
        valid = 1.0 - (jnp.arange(T // 2)[None] >= (lengths + 1)[:, None] // 2).astype(x.dtype)
        frames = self.dense(x[:, ::2])
        return jnp.einsum("btd,bt->bd", frames, valid) / jnp.maximum(valid.sum(1, keepdims=True), 1)


def test_a_division_that_looks_at_signs_says_nothing_about_lengths():
    x = of_mask(BITS)["x"]
    batch = {"x": x, "lengths": np.asarray([2, 5, 3, 6], np.int32)}
    assert_same(Halved(), HalvedNnx(nnx.Rngs(0)), batch, arguments=("x", "lengths"))
