"""Inputs that are the same for every seed are named if the verdict depends on the data that ran."""

import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx

import parity
from parity.run.request import Request
from parity.run.run import case_runner

B, T, D = 4, 5, 6
RAMP = np.broadcast_to(np.arange(T, dtype=np.int32), (B, T)).copy()
MASK = np.tril(np.ones((T, T), bool))


class Old(linen.Module):
    @linen.compact
    def __call__(self, x, positions, mask):
        x = linen.Dense(D, name="out")(x) * jnp.cos(positions)[..., None]
        return jnp.einsum("ts,bsd->btd", mask.astype(x.dtype), x)


class New(nnx.Module):
    """A twin that is never the same program; with ``ignores`` it ignores the values of the positions."""

    def __init__(self, rngs, ignores=False):
        self.out, self.ignores = nnx.Linear(D, D, rngs=rngs), ignores

    def __call__(self, x, positions, mask):
        positions = jnp.arange(T)[None] + 0 * positions if self.ignores else positions
        x = self.out(x) * jnp.cos(positions)[..., None]
        return jnp.einsum("ts,bsd->btd", jnp.where(mask, 1.0, 0.0), x)


def result_of(change=lambda seed, rng: {}, make=New, **options):
    def inputs(seed):
        rng = np.random.default_rng(seed)
        batch = {"x": rng.normal(size=(B, T, D)).astype("float32"), "positions": RAMP, "mask": MASK}
        return {**batch, **change(seed, rng)}

    pair = parity.twins(
        "own",
        linen=Old,
        nnx=make,
        loss=lambda out, batch: jnp.mean(out**2),
        arguments=("x", "positions", "mask"),
        programs=("forward",),
        **{"inputs": inputs, **options},
    )
    return next(iter(map(case_runner(Request()), pair.cases({}))))


def notes(result):
    return [note.sentence() for note in result.channels["values"].notes]


def drawn(rng):
    return rng.integers(0, 9, (B, T), np.int32)


def drawn_mask(rng):
    return (rng.random((T, T)) > 0.5) | np.eye(T, dtype=bool)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda seed, rng: {}, "mask, positions"),
        (lambda seed, rng: {"mask": drawn_mask(rng)}, "positions"),
        (lambda seed, rng: {"positions": drawn(rng)}, "mask"),
        (
            lambda seed, rng: {
                "positions": drawn(rng),
                "mask": drawn_mask(rng),
                "x": np.ones((B, T, D), "f").cumsum(0),
            },
            "x",
        ),
        (
            lambda seed, rng: {"positions": drawn(np.random.default_rng(0)), "mask": drawn_mask(rng)},
            "positions",
        ),
        (
            lambda seed, rng: {"positions": drawn(rng), "mask": drawn_mask(rng), "scale": np.float32(2)},
            "scale",
        ),
    ],
)
def test_leaves_that_no_seed_changes_are_named(change, named):
    result = result_of(change)
    assert result.channels["program"].verdict == "unproved"
    (note,) = notes(result)
    assert note.startswith(f"inputs {named}: the same for every seed; ")


def test_one_batch_for_all_seeds_is_named():
    batch = {
        "x": np.random.default_rng(0).normal(size=(B, T, D)).astype("f"),
        "positions": RAMP,
        "mask": MASK,
    }
    assert notes(result_of(inputs=batch))[0].startswith("inputs mask, positions, x: ")


def test_a_difference_that_fixed_positions_hide_is_found_once_they_vary():
    hidden = result_of(make=lambda rngs: New(rngs, ignores=True))
    assert hidden.verdict == "passed" and "positions" in notes(hidden)[0]
    found = result_of(lambda seed, rng: {"positions": drawn(rng)}, make=lambda rngs: New(rngs, ignores=True))
    assert found.channels["values"].verdict == "failed"


def test_varying_leaves_are_not_named():
    assert notes(result_of(lambda seed, rng: {"positions": drawn(rng), "mask": drawn_mask(rng)})) == []


def test_a_proof_needs_no_other_data():
    class Same(New):
        def __call__(self, x, positions, mask):
            x = self.out(x) * jnp.cos(positions)[..., None]
            return jnp.einsum("ts,bsd->btd", mask.astype(x.dtype), x)

    result = result_of(make=Same)
    assert result.channels["values"].verdict == "proved" and notes(result) == []
