"""NNX keeps RNG streams in the model, Linen receives keys: one-sided RNG state stops no case and hides nothing."""

import functools

import jax
import jax.numpy as jnp
import pytest
from flax import linen, nnx

import parity
from parity.compare.unpaired import POINTER, describe_unpaired

B, T, D, H, F, L = 4, 5, 12, 6, 3, 2


class LinenDrop(linen.Module):
    @linen.compact
    def __call__(self, x):
        x = jnp.tanh(linen.Dense(H, name="up")(x))
        return linen.Dense(F, name="out")(linen.Dropout(0.5, deterministic=True)(x))


class NnxDrop(nnx.Module):
    def __init__(self, rngs, noise=0.0, idle=False):
        self.up, self.out = nnx.Linear(D, H, rngs=rngs), nnx.Linear(H, F, rngs=rngs)
        self.drop = nnx.Dropout(0.5, deterministic=True, rngs=rngs)
        self.noise, self.idle = noise, idle

    def __call__(self, x):
        x = self.drop(jnp.tanh(self.up(x)))
        if self.idle:
            self.drop.rngs()
        if self.noise:
            x += self.noise * jax.random.normal(self.drop.rngs(), x.shape)
        return self.out(x)


class LinenLayer(linen.Module):
    @linen.compact
    def __call__(self, x, _):
        return x + jnp.tanh(linen.Dense(D, name="dense")(x)), None


class LinenStack(linen.Module):
    @linen.compact
    def __call__(self, x):
        split = {"params": True, "dropout": True}
        layer = linen.remat(LinenLayer, prevent_cse=False)
        scan = linen.scan(layer, variable_axes={"params": 0}, split_rngs=split, length=L)
        return linen.Dense(F, name="out")(scan(name="layers")(x, None)[0])


class NnxLayer(nnx.Module):
    def __init__(self, rngs):
        self.dense = nnx.Linear(D, D, rngs=rngs)
        self.drop = nnx.Dropout(0.3, deterministic=True, rngs=rngs)

    def __call__(self, x):
        return x + self.drop(jnp.tanh(self.dense(x)))


class NnxStack(nnx.Module):
    def __init__(self, rngs):
        create = nnx.split_rngs(splits=L)(nnx.vmap(lambda rngs: NnxLayer(rngs), in_axes=0))
        self.layers, self.out = create(rngs), nnx.Linear(D, F, rngs=rngs)

    def __call__(self, x):
        layer = nnx.remat(lambda x, layer: layer(x), prevent_cse=False)
        body = nnx.scan(layer, in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)
        return self.out(body(x, self.layers))


@pytest.mark.slow
def test_streams_of_one_side_are_carried_and_the_rest_is_proved(compare):
    found = compare(LinenDrop, NnxDrop)
    found.assert_passed()
    assert {found.verdicts(name)["train_step"] for name in ("program", "state", "memory")} == {"proved"}
    channels = found["train_step"].channels
    assert channels["tree"].detail.endswith("2 RNG leaves on one side")
    assert "but for 0 and 2 results that one side has alone" in channels["program"].detail
    assert not found.notes("rng")


@pytest.mark.long
def test_scanned_streams_are_carried_through_the_loop(compare):
    found = compare(LinenStack, NnxStack)
    found.assert_passed()
    assert found.verdicts("program") == {"train_step": "proved"}
    assert not found.notes("loops")


@pytest.mark.slow
def test_a_stream_that_is_advanced_and_not_drawn_from_passes(compare):
    compare(LinenDrop, functools.partial(NnxDrop, idle=True)).assert_passed()


def test_a_stream_whose_key_moves_is_followed(compare):
    """A module that folds a number into its held keys draws nothing from them."""

    class Folded(NnxDrop):
        def __call__(self, x):
            key = self.drop.rngs.key
            key.set_value(jax.random.fold_in(key[...], 1))
            return super().__call__(x)

    found = compare(LinenDrop, functools.partial(Folded, idle=True), channels=("rng",))
    assert found.verdicts("rng") == {"train_step": "equal"}, found.text


def test_inner_scans_and_tiles_have_separate_names_and_sizes():
    abstract = {"keys": jax.ShapeDtypeStruct((1, 5), jax.random.key(0).dtype)}
    (flat,), (tiled,) = (describe_unpaired(abstract, ["keys"], tiled=tiled) for tiled in (False, True))
    assert flat.traced == ("key<fry>[1, 5]", "key<fry>[5]")
    assert flat.compiled == ("u32[1,5,2]", "u32[5,2]")
    assert (flat.size, tiled.size) == (1 * 5 * 2 * 4 + POINTER, 1 * 8 * 128 * 4 + POINTER)


@pytest.mark.parametrize(
    ("shape", "numbers"),
    [((), 128), ((2,), 128), ((129,), 256), ((2, 2), 256), ((3, 2), 512), ((2, 9, 2), 2 * 16 * 128)],
)
def test_small_arrays_take_whole_tiles(shape, numbers):
    (found,) = describe_unpaired({"count": jax.ShapeDtypeStruct(shape, "uint32")}, ["count"], tiled=True)
    assert found.size == 4 * numbers + POINTER


@pytest.mark.long
def test_state_of_scans_inside_of_scans_is_no_finding(compare):
    """A body that returns all its state, as nested blocks do: the streams of the inner one have lost an axis."""

    class Blocks(nnx.Module):
        def __init__(self, rngs):
            def stack(make):
                return nnx.split_rngs(splits=L)(nnx.vmap(make, in_axes=0))

            self.blocks = stack(stack(lambda rngs: NnxLayer(rngs)))(rngs)
            self.out = nnx.Linear(D, F, rngs=rngs)

        def __call__(self, x):
            graph, params, rest = nnx.split(self.blocks, nnx.Param, ...)

            def inner(x, held):
                layer = nnx.merge(graph, *held)
                return layer(x), nnx.state(layer, nnx.Not(nnx.Param))

            def block(x, held):
                return jax.lax.scan(jax.checkpoint(inner), x, held)

            return self.out(jax.lax.scan(block, x, (params, rest))[0])

    class LinenBlock(linen.Module):
        @linen.compact
        def __call__(self, x, _):
            scan = linen.scan(LinenLayer, variable_axes={"params": 0}, split_rngs={"params": True}, length=L)
            return scan(name="layers")(x, None)[0], None

    class LinenBlocks(linen.Module):
        @linen.compact
        def __call__(self, x):
            scan = linen.scan(LinenBlock, variable_axes={"params": 0}, split_rngs={"params": True}, length=L)
            return linen.Dense(F, name="out")(scan(name="blocks")(x, None)[0])

    rule = parity.Rule(reference=(r"(.*)blocks/layers/(.*)",), candidate=(r"\1blocks/\2",))
    found = compare(LinenBlocks, Blocks, programs=("forward",), weight_rules=(rule,))
    found.assert_passed()
    assert found.verdicts("loops") == {"forward": "equal"}


@pytest.mark.slow
def test_results_that_depend_on_a_stream_of_one_side_fail(compare):
    noisy = functools.partial(NnxDrop, noise=1e-3)
    channels = ("program", "values", "rng")
    found = compare(LinenDrop, noisy, programs=("forward",), channels=channels)
    assert found.verdicts("values") == {"forward": "failed"}
    assert found.verdicts("program") == {"forward": "unproved"}
    assert not found.notes("rng")


@pytest.mark.long
def test_a_program_that_is_not_proved_carries_them_too(compare):
    """A different order of summation: the lower rungs run both sides, and structure is compared."""

    class Reordered(NnxStack):
        def __call__(self, x):
            return super().__call__(x) * (1 + 2.0**-23)

    found = compare(LinenStack, Reordered)
    found.assert_passed()
    assert found.verdicts("loops") == {"train_step": "equal"}
    assert found.verdicts("state")["train_step"] in ("floor", "arbitrated")
