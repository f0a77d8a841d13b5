"""Tests of the residuals that each remat policy keeps, in either twin; a subclass names the twin."""

import collections
import contextlib
import dataclasses
import io
import re

import jax
import pytest
from oracle_decoder import LENGTH, ROWS, SMALL, random_batch, random_params

from models_nnx.shared.config import CHECKPOINT_NAMES, LayerLayout, RematConfig, RematPolicy, TrainConfig

LAYERS = 2
HEADS, KV_HEADS, HIDDEN = (6, 10), (3, 10), (22,)
SHAPES = dict(zip(CHECKPOINT_NAMES, (HEADS, KV_HEADS, KV_HEADS, HEADS, HIDDEN), strict=True))
# Dots without batch dimensions: query; key and value; gate and up.
MINIMAL = {HEADS: LAYERS, KV_HEADS: 2 * LAYERS, HIDDEN: 2 * LAYERS}


def residuals(function, *arguments):
    """Returns ``(shape, source)`` of the residuals of a gradient, without arguments, as reported by JAX."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        jax.ad_checkpoint.print_saved_residuals(function, *arguments)
    rows = re.findall(r"^\w+\[([\d,]*)\] (.*)$", text.getvalue(), re.MULTILINE)
    assert rows
    return [
        (tuple(map(int, filter(None, shape.split(",")))), source)
        for shape, source in rows
        if "from the argument" not in source
    ]


def inside_blocks(rows):
    """Returns the count of each shape that only occurs inside a block; a stack counts once per layer."""
    counts = collections.Counter()
    for shape, _ in rows:
        stacked = len(shape) > 2 and shape[:3] == (LAYERS, ROWS, LENGTH)
        if stacked or shape[:2] == (ROWS, LENGTH):
            counts[shape[3:] if stacked else shape[2:]] += LAYERS if stacked else 1
    return {shape: counts[shape] for shape in (HEADS, KV_HEADS, HIDDEN) if counts[shape]}


class RematSuite:
    """Tests of the saved residuals of the loss."""

    twin = None

    def saved(self, layout, policy, names=()):
        remat = RematConfig(policy=policy, names=names)
        config = dataclasses.replace(SMALL, layers=LAYERS, layout=layout, remat=remat)
        loss, tree = self.twin.pure(self.twin.loss(config, TrainConfig()), config, random_params(config))
        batch = jax.tree.map(jax.numpy.asarray, random_batch(config.vocab))
        return residuals(lambda tree, batch: loss(tree, batch)[0], tree, batch)

    @pytest.mark.slow
    @pytest.mark.parametrize("layout", LayerLayout)
    def test_full_keeps_nothing_but_the_input_of_each_block(self, layout):
        rows = self.saved(layout, RematPolicy.FULL)
        assert inside_blocks(rows) == {}
        stacks = [shape for shape, source in rows if shape[:2] == (LAYERS, ROWS)]
        assert stacks == ([(LAYERS, ROWS, LENGTH, SMALL.embed)] if layout is LayerLayout.SCANNED else [])

    @pytest.mark.parametrize("layout", LayerLayout)
    def test_minimal_keeps_the_plain_matrix_products(self, layout):
        assert inside_blocks(self.saved(layout, RematPolicy.MINIMAL)) == MINIMAL

    @pytest.mark.parametrize("layout", LayerLayout)
    def test_none_keeps_more_than_minimal(self, layout):
        kept = inside_blocks(self.saved(layout, RematPolicy.NONE))
        assert kept[HIDDEN] > MINIMAL[HIDDEN] and sum(kept.values()) > sum(MINIMAL.values())

    @pytest.mark.parametrize("name", CHECKPOINT_NAMES)
    def test_save_named_keeps_exactly_the_named_residual(self, name):
        rows = self.saved(LayerLayout.UNROLLED, RematPolicy.SAVE_NAMED, (name,))
        found = [re.match(r"named '(\w+)'", source) for _, source in rows]
        assert [match[1] for match in found if match] == [name] * LAYERS
        assert inside_blocks(rows) == {SHAPES[name]: LAYERS}

    def test_save_named_keeps_stacks_of_the_named_residuals(self):
        rows = self.saved(LayerLayout.SCANNED, RematPolicy.SAVE_NAMED, ("value", "mlp_hidden"))
        assert inside_blocks(rows) == {KV_HEADS: LAYERS, HIDDEN: LAYERS}
