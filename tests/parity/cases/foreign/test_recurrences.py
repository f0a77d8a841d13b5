"""Recurrent layers that two engineers write in different ways."""

import jax
import jax.numpy as jnp
import pytest
from flax import linen, nnx

# B batch, T position, D features
LENGTH = 6


class LinenReset(linen.Module):
    """A recurrence whose state a flag clears by selection."""

    @linen.compact
    def __call__(self, x_BTD):
        class Cell(linen.Module):
            @linen.compact
            def __call__(self, h_BD, x_BD):
                kept = jnp.where(x_BD[:, :1] > 1, 0.0, h_BD)
                h_BD = jnp.tanh(linen.Dense(x_BD.shape[-1], name="dense")(kept) + x_BD)
                return h_BD, h_BD

        scan = linen.scan(
            Cell, variable_broadcast="params", split_rngs={"params": False}, in_axes=1, out_axes=1
        )
        return linen.Dense(3, name="out")(scan(name="cell")(jnp.zeros_like(x_BTD[:, 0]), x_BTD)[1])


class NnxReset(nnx.Module):
    """A recurrence whose state a product clears."""

    def __init__(self, rngs):
        self.dense, self.out = nnx.Linear(12, 12, rngs=rngs), nnx.Linear(12, 3, rngs=rngs)

    def __call__(self, x_BTD):
        def step(h_BD, x_BD):
            kept = h_BD * (1 - (x_BD[:, :1] > 1).astype(h_BD.dtype))
            h_BD = jnp.tanh(self.dense(kept) + x_BD)
            return h_BD, h_BD

        h_TBD = jax.lax.scan(self.body(step), jnp.zeros_like(x_BTD[:, 0]), x_BTD.swapaxes(0, 1))[1]
        return self.out(h_TBD.swapaxes(0, 1))

    def body(self, step):
        return step


class NnxResetWithoutResiduals(NnxReset):
    def body(self, step):
        return jax.checkpoint(step)


class LinenCached(linen.Module):
    """A scan over positions that writes a cache."""

    @linen.compact
    def __call__(self, x_BTD):
        kernel = self.param("kernel", linen.initializers.lecun_normal(), (12, 3))
        return filled(
            kernel, x_BTD, lambda cache, row, at: jax.lax.dynamic_update_slice(cache, row, (0, at, 0))
        )


class NnxCached(nnx.Module):
    def __init__(self, rngs):
        self.kernel = nnx.Param(nnx.initializers.lecun_normal()(rngs.params(), (12, 3)))

    def __call__(self, x_BTD):
        return filled(self.kernel[...], x_BTD, lambda cache, row, at: cache.at[:, at].set(row[:, 0]))


def filled(kernel, x_BTD, write):
    def step(carry, x_BD):
        cache, at = carry
        cache = write(cache, (x_BD @ kernel)[:, None], at)
        return (cache, at + 1), cache.sum(1)

    start = jnp.zeros((len(x_BTD), LENGTH, 3)), 0
    return jax.lax.scan(step, start, x_BTD.swapaxes(0, 1))[1].swapaxes(0, 1)


@pytest.mark.long
@pytest.mark.parametrize(
    ("reference", "candidate", "programs"),
    [(LinenReset, NnxReset, ("grad",)), (LinenCached, NnxCached, ("forward",))],
)
def test_arrays_of_a_loop_that_are_only_written_in_another_way_are_notes(
    compare, reference, candidate, programs
):
    found = compare(reference, candidate, programs=programs)
    found.assert_passed()
    assert any("stacks" in note for note in found.notes("loops"))


@pytest.mark.long
def test_residuals_that_one_side_lacks_are_found(compare):
    found = compare(LinenReset, NnxResetWithoutResiduals, programs=("grad",))
    assert found.verdicts("loops") == {"grad": "failed"}
