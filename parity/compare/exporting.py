"""The map of a comparison as data, with its certificate."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from parity.builds.build import Build
from parity.builds.convert.exported import ExportedEntry, ExportedMap, ExportedSide
from parity.builds.skeleton import skeleton_of_paths
from parity.compare.backends.environment import describe_environment
from parity.compare.certificate import Certified
from parity.compare.comparison import Comparison
from parity.ir.jax_internals import key_implementation

__all__ = ["export"]


def export(work: Comparison, certified: Sequence[Certified]) -> ExportedMap:
    """Returns a map as data.

    Args:
        work: the comparison.
        certified: all entries of its map.
    """
    environment = describe_environment()
    return ExportedMap(
        case=work.case.id,
        sides=(_side(work.builds[0]), _side(work.builds[1])),
        entries=tuple(
            ExportedEntry(entry=one.entry, confirmed_by=one.confirmed_by, contradicted=one.contradicted)
            for one in certified
        ),
        alone=work.weights.alone,
        versions={name: environment[name] for name in ("python", "packages", "commit")},
    )


def _side(build: Build) -> ExportedSide:
    return ExportedSide(
        name=build.name,
        flavour=str(build.flavour),
        leaves=build.leaves,
        keys={
            path: key_implementation(leaf.dtype)
            for path, leaf in build.abstract.items()
            if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        },
        skeleton=skeleton_of_paths(build.leaves) if build.skeleton is None else build.skeleton,
    )
