"""Common parts of pairs from user code: their options and cases, specs, a float64 copy, an initial state."""

import dataclasses
import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen

from parity.builds.build import Build
from parity.builds.convert.stored import read_stored
from parity.builds.meshes import MeshSpec
from parity.builds.tree import describe, flatten, to_host
from parity.builds.weights.map import Rule, strip_container
from parity.cases.accepted import Waiver
from parity.cases.case import Accept, Case, Keys, Pair
from parity.cases.coverage import options_of
from parity.cases.tables import unknown
from parity.values.noise import to_float64
from parity.verdicts import Requirement, Verdict


def mesh_axes(rules: Sequence[tuple[str, Any]]) -> set[str]:
    """Returns the mesh axes that rules name."""
    return {axis for _, axes in rules for axis in (axes if isinstance(axes, tuple) else (axes,)) if axis}


def specs_by_rules(rules: Sequence[tuple[str, Any]], state: Any, mesh: jax.sharding.Mesh) -> dict[str, Any]:
    """Returns the spec of each leaf from its axes; rules with axes that the mesh lacks are ignored.

    An axis that no rule names is taken as a mesh axis of that name, if there is one, as `with_partitioning` writes
    them.
    """
    leaves = describe(state)
    if not rules:
        named = mesh_axes([("", axis) for leaf in leaves.values() for axis in leaf.logical_axes or ()])
        MeshSpec(axes=tuple(mesh.shape.items())).check_axes(named)
    return {
        path: linen_spec(leaf.logical_axes or (), rules, mesh.axis_names) for path, leaf in leaves.items()
    }


def linen_spec(
    axes: Sequence[Any], rules: Sequence[tuple[str, Any]], mesh: Collection[str]
) -> jax.sharding.PartitionSpec:
    """Returns the spec that Flax Linen's resolver gives a leaf.

    Args:
        axes: a name, a tuple of mesh axes or None per dimension of the leaf; names without a rule are mesh axes.
        rules: ordered ``(logical name, mesh axis or axes or None)``; those with axes that the mesh lacks are ignored.
        mesh: its axis names.
    """

    def present(named: Any) -> bool:
        return set(named if isinstance(named, tuple) else (named,)) - {None} <= set(mesh)

    ruled = {name for name, _ in rules}
    own = [(name, name) for name in axes if name and name not in ruled]
    usable = [(name, named) for name, named in (*rules, *own) if present(named)]
    return linen.spmd.logical_to_mesh_axes(tuple(axes), usable) or jax.sharding.PartitionSpec()


def input_specs(batch: Mapping[str, Any], mesh: jax.sharding.Mesh) -> dict[str, Any]:
    """Returns specs that split inputs along the first mesh axis if its size divides them, and replicate the rest."""
    axis, size = mesh.axis_names[0], mesh.shape[mesh.axis_names[0]]

    def splits(array: Any) -> bool:
        return bool(np.ndim(array)) and np.shape(array)[0] % size == 0

    return {
        name: jax.sharding.PartitionSpec(axis) if splits(array) else jax.sharding.PartitionSpec()
        for name, array in batch.items()
    }


def build_options(rules: Sequence[tuple[str, Any]], inputs: Callable[[int], Any]) -> dict[str, Any]:
    """Returns the options of both builds of a pair."""
    return {
        "inputs": inputs,
        "specs": functools.partial(specs_by_rules, rules),
        "input_specs": input_specs,
        "rules": tuple(rules),
    }


def widened(build: Build) -> Build:
    """Returns ``build`` on float64 state and inputs, for models that follow the dtype of their inputs."""

    def wide(leaf: Any) -> Any:
        is_wide = jnp.issubdtype(leaf.dtype, jnp.floating)
        return jax.ShapeDtypeStruct(leaf.shape, np.float64 if is_wide else leaf.dtype)

    def inputs(seed: int) -> dict[str, np.ndarray]:
        return to_float64(build.inputs(seed))

    return dataclasses.replace(
        build,
        name=f"{build.name} float64",
        abstract={path: wide(leaf) for path, leaf in build.abstract.items()},
        inputs=inputs,
        abstract_inputs={name: wide(leaf) for name, leaf in build.abstract_inputs.items()},
    )


def kept_state(name: str, state: Any, random: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns a random state with the given leaves in place of the random ones.

    Args:
        state: a tree with all or some of the reference's leaves, or the path of a checkpoint of them.

    Raises:
        ValueError: the reference has no such leaves, or has them in another shape.
    """
    given = _read(state, random) if isinstance(state, str | Path) else to_host(flatten(state))
    wrong = [
        f"{path} {array.dtype}{list(array.shape)}"
        for path, array in given.items()
        if path not in random or random[path].shape != array.shape
    ]
    if wrong:
        raise ValueError(
            f"pair {name}: got state leaves {', '.join(wrong)}; expected some of "
            f"{', '.join(f'{path} {list(array.shape)}' for path, array in random.items())}"
        )
    return {**random, **{path: array.astype(random[path].dtype) for path, array in given.items()}}


def _read(path: str | Path, random: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns a checkpoint under the paths of a state; holders such as ``params`` may be missing."""
    names = {strip_container(name): name for name in random}
    arrays = read_stored(Path(path)).arrays
    return {
        name if name in random else names.get(strip_container(name), name): array
        for name, array in arrays.items()
    }


Make = Callable[..., Build]


class CaseOptions(TypedDict, total=False):
    """Options of a registration for all its cases; `parity.cases.twins.twins` describes each."""

    state: Any
    weight_rules: Sequence[Rule]
    meshes: Sequence[str]
    require: Verdict | Sequence[Verdict]
    zero_gradients: Sequence[str]
    not_applicable: Mapping[str, str] | None
    waivers: Sequence[Waiver]
    keys: Keys
    bridged: str
    full_size: Pair
    config: Any


def _check(name: str, options: CaseOptions) -> None:
    """Checks the types of options, so that a slip is named where the pair is registered."""
    channels, rules = options.get("not_applicable") or {}, options.get("weight_rules", ())
    if not isinstance(channels, Mapping):
        raise TypeError(
            f'pair {name}: not_applicable: got {channels!r}, expected {{channel: reason}}, such as {{"memory": "..."}}'
        )
    for rule in rules if isinstance(rules, Sequence) else [rules]:
        if not isinstance(rule, Rule):
            raise TypeError(
                f"pair {name}: weight_rules: got {rule!r}, expected a sequence of parity.Rule(reference=, candidate=)"
            )
    if (keys := options.get("keys", Keys.SHARED)) not in list(Keys):
        raise ValueError(f"pair {name}: keys: {unknown(str(keys), Keys)}")


def registered(
    name: str,
    by: str,
    programs: Sequence[str],
    builds: Mapping[str, Make],
    options: CaseOptions,
    axis_rules: Sequence[tuple[str, Any]] = (),
) -> Pair:
    """Returns a pair with a case for each program on each mesh.

    Args:
        by: the function that registers it.
        builds: ``reference``, ``candidate`` and optionally ``float64_reference``, as `Case` takes them.
    """
    if extra := sorted(set(options) - set(CaseOptions.__annotations__)):
        known = ", ".join(sorted(CaseOptions.__annotations__))
        raise TypeError(f"pair {name}: {by} got {', '.join(extra)}, expected its own arguments or {known}")
    _check(name, options)
    state, require = options.get("state"), options.get("require", Verdict.ARBITRATED)
    Requirement.of(require, f"pair {name}: require")
    given = {
        "rules": tuple(options.get("weight_rules", ())),
        "keys": Keys(options.get("keys", Keys.INDEPENDENT)),
        "config": options.get("config"),
        "prepare_state": dict if state is None else functools.partial(kept_state, name, state),
        "accept": Accept(
            require=require,
            zero_gradients=options.get("zero_gradients", ()),
            not_applicable=options.get("not_applicable") or {},
            waivers=tuple(options.get("waivers", ())),
            bridged=options.get("bridged", ""),
        ),
    }

    def cases(settings: Mapping[str, str]) -> list[Case]:
        if settings:
            raise ValueError(f"pair {name}: got settings {dict(settings)}, expected none; it has no config")
        meshes = [MeshSpec.parse(mesh) for mesh in options.get("meshes", ("single",))]
        for mesh in meshes:
            mesh.check_axes(mesh_axes(axis_rules))
        return [
            Case(id=f"{name}/{program}@{mesh}", program=program, mesh=mesh, smoke=True, **builds, **given)
            for program in programs
            for mesh in meshes
        ]

    options_of(options.get("config"))
    whole = Pair(name=name, about=f"registered with {by}", cases=cases)
    published = options.get("full_size")
    if published is None:
        return whole
    return dataclasses.replace(whole, full_size=lambda settings, devices: published.cases(settings))
