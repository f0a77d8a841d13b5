"""One side of a comparison: a build and its programs, made from a Linen or an NNX model."""

import contextlib
import contextvars
import dataclasses
import enum
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import nnx

from parity.builds.attributes import Effects, changes, note_effects, settings_of
from parity.builds.constants import take_apart, traceable, traced_once
from parity.builds.skeleton import Skeleton, skeleton
from parity.builds.tree import Codec, Leaf, describe, flatten, path_name
from parity.ir.jax_internals import short_sharding_errors, traced_closures
from parity.verdicts import grouped

SEED = 20_240_229
"""Seed of the batch and the initial state of a case."""


_TRACED_BEFORE: contextvars.ContextVar[Collection[weakref.ref[Any]]] = contextvars.ContextVar(
    "traced_before", default=frozenset()
)
"""The closures that JAX had traced when the outermost `building` began; empty outside such a block."""


@contextlib.contextmanager
def building() -> Iterator[None]:
    """Marks the start of a build, or of several, for `Build.former`: user code may trace before the build exists."""
    token = _TRACED_BEFORE.set(_TRACED_BEFORE.get() or traced_closures())
    try:
        yield
    finally:
        _TRACED_BEFORE.reset(token)


class Flavour(enum.StrEnum):
    """The framework a build claims to run."""

    LINEN = "linen"
    NNX = "nnx"


class Group(enum.StrEnum):
    """Groups of results that a program may return; the channel of the same name compares each.

    ``routing`` holds ``LAYER/preferred`` and ``LAYER/margin`` of layers that choose experts. A program that
    returns it uses the inputs ``forced/LAYER`` as choices if they are given, and still returns its preferences.
    """

    VALUES = "values"
    GRADIENTS = "gradients"
    STATE = "state"
    ROUTING = "routing"

    @property
    def by_leaf(self) -> bool:
        """True if the paths are those of state leaves."""
        return self in (Group.GRADIENTS, Group.STATE)


Outputs = dict[str, dict[str, Any]]
Spec = jax.sharding.PartitionSpec
Specs = Callable[[Any, Any], Any]
InputSpecs = Callable[[Mapping[str, Any], Any], dict[str, Spec]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Program:
    """A pure function of named state and inputs.

    Args:
        function: ``(state, inputs) -> {group: {path: array}}``, all flat; gradients and state use the paths of
            their state leaves.
        steps: number of times the state is fed back in a run; 1 for programs that return no state.
        donate: if True, the state's buffers are donated, as in a training loop.
    """

    name: str
    function: Callable[[dict[str, Any], dict[str, Any]], Outputs]
    steps: int = 1
    donate: bool = False


Flat = Mapping[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Saving:
    """Functions that save and load the state of a build, flat and under the paths of the build.

    Args:
        save: state, a new folder and optionally notes to store; writes a checkpoint.
        load: folder and ``{path: jax.ShapeDtypeStruct}``, shardings included -> state.
        export: state and a new folder; writes the parameters alone; None if the model is not served.
        load_export: folder -> the parameters; None if ``export`` is.
        named: state -> its leaves by their names in a checkpoint; None if that is not known.
    """

    save: Callable[..., Any]
    load: Callable[[Path, Flat], dict[str, Any]]
    export: Callable[[Flat, Path], Any] | None = None
    load_export: Callable[[Path], dict[str, Any]] | None = None
    named: Callable[[Flat], Mapping[str, Any]] | None = None

    def __post_init__(self):
        if (self.export is None) != (self.load_export is None):
            raise ValueError("Saving: got one of export and load_export, expected both or neither")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Build:
    """One side of a comparison. Caches use the object itself as key; its name is only for display.

    Args:
        name: for display, such as ``linen llama2-scan``.
        flavour: the claimed framework; the attestation checks the claim.
        create: key -> flat concrete state, traceable.
        leaves: the state's leaves without values.
        abstract: ``{path: jax.ShapeDtypeStruct}`` of the same leaves.
        inputs: seed -> flat batch of host arrays.
        abstract_inputs: ``{path: jax.ShapeDtypeStruct}`` of a batch.
        specs: mesh -> spec of each state leaf.
        input_specs: batch and mesh -> spec of each input.
        rules: ordered logical axis rules behind ``specs``; empty if there are none.
        explain: state leaf and mesh -> the rule behind each dimension, as text.
        sources: path fragments of files that hold only this flavour's model code; may be empty.
        saving: saves and loads the state; None if the build does not support it.
        skeleton: the state's tree with paths at its leaves, which its checkpoints must match; None if it has none.
        shared: computes the paths of each leaf that a module holds under several names.
        method: the method that the programs call if that is not the whole model; leaves that it does not use are then
            compared only if the other side has them. Empty if the programs use the whole model.
        former: closures that JAX had traced before, for other builds; this build calls none of them.
    """

    name: str
    flavour: Flavour
    create: Callable[[jax.Array], dict[str, Any]]
    leaves: Mapping[str, Leaf]
    abstract: Mapping[str, Any]
    programs: Mapping[str, Program]
    inputs: Callable[[int], dict[str, np.ndarray]]
    abstract_inputs: Mapping[str, Any]
    specs: Callable[[Any], dict[str, Spec]]
    input_specs: InputSpecs
    rules: tuple[tuple[str, Any], ...] = ()
    explain: Callable[[Leaf, Any], str] = lambda leaf, mesh: ""
    sources: tuple[str, ...] = ()
    saving: Saving | None = None
    skeleton: Skeleton = None
    shared: Callable[[], list[list[str]]] = list
    method: str = ""
    former: Collection[weakref.ref[Any]] = dataclasses.field(
        default_factory=lambda: _TRACED_BEFORE.get() or traced_closures(), repr=False
    )


Native = Callable[[Any, dict[str, Any]], dict[str, Any]]


def linen_build(
    name: str,
    create: Callable[[jax.Array], Any],
    programs: Mapping[str, tuple[Native, dict]],
    *,
    specs: Specs,
    **rest: Any,
) -> Build:
    """Makes a build from a state tree and functions of it, as Linen code has them.

    Args:
        create: key -> any tree; boxed leaves give their logical axes.
        programs: name -> ``(function, options)``; the function takes the unboxed tree and the batch
            and returns ``{group: tree}``; options go to `Program`.
        specs: abstract state, still boxed or in Variables, and mesh -> tree of specs.
        **rest: the other fields of `Build`.
    """
    example, fresh = traced_once(lambda key: create(key))
    codec = Codec(example)

    def pure(name: str, function: Native) -> Callable[..., Outputs]:
        def run(state: dict[str, Any], inputs: dict[str, Any]) -> Outputs:
            outputs = function(codec.restore(state), inputs)
            return {group: flatten(tree) for group, tree in outputs.items()}

        return run

    return _build(example, fresh, specs, programs, pure, {"name": name, "flavour": Flavour.LINEN, **rest})


def nnx_build(
    name: str,
    create: Callable[[jax.Array], nnx.Module],
    programs: Mapping[str, tuple[Native, dict]],
    *,
    specs: Specs,
    **rest: Any,
) -> Build:
    """Makes a build from an NNX module and functions of it; a program may change the module in place.

    Args:
        create: key -> module holding all state (model, optimizer, keys).
        programs: as in `linen_build`; the function takes the module and the batch. ``{"state": module}`` returns the
            module's state after the call.
        specs, **rest: as in `linen_build`.
    """
    graphdef, example, constants, fresh = take_apart(traceable(create))
    codec, build = Codec(example), name

    def pure(name: str, function: Native) -> Callable[..., Outputs]:
        def called(states: tuple[Any, ...], state: dict[str, Any], inputs: dict[str, Any]):
            module = nnx.merge(graphdef, codec.restore(state), *states)
            before = settings_of(module)
            with short_sharding_errors():
                outputs = function(module, inputs)
            return module, outputs, changes(before, settings_of(module))

        def run(state: dict[str, Any], inputs: dict[str, Any]) -> Outputs:
            module, outputs, attributes = called(constants.states(), state, inputs)
            leaves = describe(nnx.state(module, constants.is_state))
            note_effects(Effects(leaves=leaves, attributes=attributes))
            written = constants.changed(module) and constants.altered(
                lambda *given: called(*given)[0], state, inputs
            )
            if written:
                raise ValueError(
                    f"{build}: {name} changes {', '.join(written)}, which the module holds as plain arrays; "
                    "expected state in Variables; hold them in an nnx.Variable"
                )
            return {
                group: flatten(nnx.state(tree, constants.is_state) if isinstance(tree, nnx.Module) else tree)
                for group, tree in outputs.items()
            }

        return run

    def shared() -> list[list[str]]:
        module = nnx.merge(graphdef, example, *constants.states())
        held, _ = jax.tree_util.tree_flatten_with_path(module, is_leaf=lambda x: isinstance(x, nnx.Variable))
        variables = [one for one in held if isinstance(one[1], nnx.Variable)]
        found = grouped(variables, lambda one: id(one[1])).values()
        return [[path_name(path) for path, _ in each] for each in found if len(each) > 1]

    fields = {"name": name, "flavour": Flavour.NNX, "shared": shared, **rest}
    return _build(example, fresh, specs, programs, pure, fields)


def _build(
    example: Any,
    fresh: Callable[[jax.Array], Any],
    specs: Specs,
    programs: Mapping[str, tuple[Native, dict]],
    pure: Callable[[str, Native], Callable[..., Outputs]],
    fields: dict[str, Any],
) -> Build:
    """Returns a build of an abstract state; ``fields`` are those of `Build` that do not follow from it."""
    batch = fields["inputs"](0)
    return Build(
        create=lambda key: flatten(fresh(key)),
        leaves=describe(example),
        abstract=flatten(example),
        programs={
            name: Program(name=name, function=pure(name, function), **options)
            for name, (function, options) in programs.items()
        },
        abstract_inputs={name: jax.ShapeDtypeStruct(one.shape, one.dtype) for name, one in batch.items()},
        specs=lambda mesh: flatten(specs(example, mesh)),
        skeleton=skeleton(example),
        **fields,
    )
