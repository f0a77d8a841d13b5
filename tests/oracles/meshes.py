"""Meshes by name for tests of the models, made by the engine."""

import jax
import numpy as np

from parity.builds.meshes import MeshSpec, Mode


def parse_mesh(text):
    """Sizes by axis of ``fsdp4.tensor2``."""
    return dict(MeshSpec.parse(text).axes)


def make_mesh(axes, mode):
    """A mesh over the first devices; without axes one device that constrains nothing."""
    if not axes:
        return jax.sharding.Mesh(np.array(jax.devices()[0]), ())
    return MeshSpec(axes=tuple(axes.items()), mode=Mode(mode)).on(jax.devices())
