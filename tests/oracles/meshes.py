"""Meshes by name for tests of the models, made by the engine."""

import jax
import numpy as np

from parity.builds.meshes import MeshSpec, Mode


def parse_mesh(text):
    """Returns the sizes by axis of a name such as ``fsdp4.tensor2``."""
    return dict(MeshSpec.parse(text).axes)


def make_mesh(axes, mode):
    """Returns a mesh over the first devices; without axes one device that constrains nothing."""
    if not axes:
        return jax.sharding.Mesh(np.array(jax.devices()[0]), ())
    return MeshSpec(axes=tuple(axes.items()), mode=Mode(mode)).on(jax.devices())
