"""`models_nnx.rngs` gives NNX the random numbers of Linen: the same parameters, keys and masks, bit for bit."""

import dataclasses

import jax
import numpy as np
import pytest
import twin_linen
import twin_nnx
from oracle_decoder import SMALL, random_batch, random_params
from suite_train import keys_drawn  # noqa: F401

from models_nnx.shared.config import Head, LayerLayout, RematConfig, RematPolicy

pytestmark = pytest.mark.usefixtures("quick")
TWINS = (twin_linen.TWIN, twin_nnx.TWIN)
UNROLLED = LayerLayout.UNROLLED
# The first and third are those of test_initial_values: computed once.
LAYOUTS = {
    "scanned": SMALL,
    "scanned-axis0-tied": dataclasses.replace(SMALL, scan_axis=0, head=Head.TIED, layers=2),
    "unrolled": dataclasses.replace(SMALL, layout=UNROLLED),
}
DROPOUTS = {
    "scanned": {},
    "scanned-full": {"remat": RematConfig(policy=RematPolicy.FULL)},
    "unrolled": {"layout": UNROLLED},
    "unrolled-full": {"layout": UNROLLED, "remat": RematConfig(policy=RematPolicy.FULL)},
}


@pytest.mark.long
@pytest.mark.parametrize("layout", LAYOUTS)
def test_equal_keys_give_bit_identical_initial_parameters(layout):
    linen, nnx = (twin.initial(LAYOUTS[layout], 3) for twin in TWINS)
    assert linen.keys() == nnx.keys()
    for name, leaf in linen.items():
        assert leaf.dtype == nnx[name].dtype
        np.testing.assert_array_equal(leaf, nnx[name], err_msg=name)


@pytest.mark.parametrize("case", DROPOUTS)
def test_equal_keys_drop_the_same_entries_in_each_layer(case, keys_drawn):  # noqa: F811
    config = dataclasses.replace(SMALL, dropout=0.25, layers=2, **DROPOUTS[case])
    batch, params = random_batch(config.vocab), random_params(config)
    logits, keys = [], []
    for twin in TWINS:
        forward, tree = twin.pure(twin.forward(config), config, params)
        logits.append(np.asarray(jax.jit(forward)(tree, batch, jax.random.key(8))))
        jax.effects_barrier()
        keys.append(set(keys_drawn))
        keys_drawn.clear()
    assert keys[0] == keys[1] and len(keys[0]) == 2 * config.layers
    np.testing.assert_array_equal(*logits)
