"""The vocabulary of sharding: mesh axes, rule tables, specs and their error. Free of Flax."""

import difflib
import enum
import itertools
from collections.abc import Collection, Sequence
from typing import Any

from jax.sharding import AbstractMesh, Mesh, PartitionSpec

__all__ = [
    "DEFAULT_RULES",
    "MESH_AXES",
    "AnyMesh",
    "Rule",
    "Rules",
    "ShardMode",
    "ShardingError",
    "as_axes",
    "as_entry",
    "canonical_spec",
    "near_matches",
]

MESH_AXES = ("data", "stage", "fsdp", "fsdp_transpose", "context", "tensor", "expert", "replica")

AnyMesh = Mesh | AbstractMesh
Rule = tuple[str, str | tuple[str, ...] | None]
Rules = tuple[Rule, ...]


class ShardMode(enum.StrEnum):
    """Source of shardings: the compiler, from hints (auto), or the types of arrays (explicit)."""

    AUTO = "auto"
    EXPLICIT = "explicit"


class ShardingError(ValueError):
    """An impossible sharding; the message names the place, the value, the expectation and the next step.

    Attributes:
        where: the leaf or call that failed, as named by its caller; "" if unnamed.
        dim: the dimension at fault, or None.
        spec: the spec that the rules require, or None.
        fitting_spec: the same spec with the dimension at fault replicated, or None.
    """

    def __init__(
        self,
        message: str,
        where: str = "",
        dim: int | None = None,
        spec: PartitionSpec | None = None,
        fitting_spec: PartitionSpec | None = None,
    ):
        super().__init__(f"{where}: {message}" if where else message)
        self.where, self.dim, self.spec, self.fitting_spec = where, dim, spec, fitting_spec


def as_axes(entry: Any) -> tuple[str, ...]:
    """Returns one entry of a spec or rule as a tuple of mesh axes."""
    if entry is None:
        return ()
    return (entry,) if isinstance(entry, str) else tuple(entry)


def as_entry(axes: Sequence[str]) -> str | tuple[str, ...] | None:
    """Returns mesh axes as one entry of a spec: None, a string, or a tuple of several."""
    return tuple(axes) if len(axes) > 1 else (axes[0] if axes else None)


def _with_variants(name: str, *axes: str) -> Rules:
    """Returns one rule per non-empty subset of ``axes``, larger ones first, for meshes that lack some of them."""
    return tuple(
        (name, as_entry(subset))
        for size in range(len(axes), 0, -1)
        for subset in itertools.combinations(axes, size)
    )


DEFAULT_RULES: Rules = (
    # Stacks and experts claim their axis before anything that could also use it.
    ("stage", "stage"),
    ("replica", "replica"),
    ("expert", "expert"),
    ("layers", None),
    ("layers_outside_pipeline", None),
    ("repeats", None),
    # Activations.
    ("activation_stage", "stage"),
    ("activation_expert", "expert"),
    *_with_variants("activation_batch", "data", "fsdp", "fsdp_transpose", "expert"),
    *_with_variants("activation_batch_no_exp", "data", "fsdp", "fsdp_transpose"),
    *_with_variants("activation_embed_and_logits_batch", "data", "fsdp", "fsdp_transpose", "expert"),
    ("activation_length", "context"),
    ("activation_kv_length", None),
    ("activation_heads", "tensor"),
    ("activation_kv_heads", "tensor"),
    ("activation_head_dim", None),
    ("activation_mlp", "tensor"),
    ("activation_vocab", "tensor"),
    ("activation_embed", None),
    # Weights. "mlp" claims fsdp_transpose before "embed" does; elsewhere "embed" takes both.
    *_with_variants("mlp", "fsdp_transpose", "tensor"),
    ("heads", "tensor"),
    ("kv_heads", "tensor"),
    ("vocab", "tensor"),
    *_with_variants("embed", "fsdp", "fsdp_transpose"),
    *_with_variants("q_lora", "fsdp", "fsdp_transpose"),
    *_with_variants("kv_lora", "fsdp", "fsdp_transpose"),
    ("head_dim", None),
    ("router", None),
    ("norm", None),
)


def near_matches(name: object, known: Collection[str]) -> str:
    """Returns the end of an error message: known names that resemble ``name``, or all of them."""
    matches = difflib.get_close_matches(str(name), list(known), n=3)
    return f"did you mean {' or '.join(map(repr, matches))}?" if matches else f"choose from {tuple(known)}"


def canonical_spec(spec: PartitionSpec, ndim: int, mesh: AnyMesh) -> PartitionSpec:
    """Returns a spec in the form of `resolve`, so that equal placements compare equal.

    Args:
        spec: any spec, such as that of a compiled input.
        ndim: number of dimensions of the array.
        mesh: the mesh; its axes of size one are left out.

    Raises:
        ShardingError: if the spec has more entries than the array has dimensions, or an axis the mesh lacks.
    """
    if len(spec) > ndim:
        raise ShardingError(
            f"got {spec} for {ndim} dimensions, expected at most one entry each; shorten the spec"
        )
    entries = [as_axes(entry) for entry in spec] + [()] * (ndim - len(spec))
    for axis in itertools.chain.from_iterable(entries):
        if axis not in mesh.shape:
            raise ShardingError(
                f"got {spec}, expected axes of the mesh; {near_matches(axis, tuple(mesh.shape))}"
            )
    return PartitionSpec(*(as_entry([axis for axis in axes if mesh.shape[axis] > 1]) for axes in entries))
