"""A pair from nothing but a Linen module, an NNX module, a loss and inputs."""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen, nnx

from parity.cases.case import Case, Keys, Pair
from parity.programs.build import Build, linen_build, nnx_build
from parity.programs.meshes import MeshSpec
from parity.programs.tree import describe
from parity.values.noise import is_float
from parity.verdicts import Verdict
from parity.weights.map import Rule

__all__ = ["twins"]

Inputs = Callable[[int], Mapping[str, np.ndarray]]
Loss = Callable[[Any, Mapping[str, Any]], jax.Array]
SCALE = "loss_scale"


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Recipe:
    """What both flavours of a foreign pair share."""

    inputs: Inputs
    loss: Loss
    arguments: tuple[str, ...]
    optimizer: optax.GradientTransformation

    def call(self, model: Callable[..., Any], batch: Mapping[str, Any]) -> Any:
        return model(*(batch[name] for name in self.arguments))

    def batch(self, seed: int) -> dict[str, np.ndarray]:
        scale = np.random.default_rng(seed).uniform(0.5, 8.0)
        return {**self.inputs(seed), SCALE: np.asarray(scale, np.float32)}

    def scaled(self, model: Callable[..., Any], batch: Mapping[str, Any]) -> jax.Array:
        loss = self.loss(self.call(model, batch), batch)
        return loss * batch[SCALE].astype(loss.dtype)


class _Trained(nnx.Module):
    def __init__(self, model: nnx.Module, optimizer: optax.GradientTransformation):
        self.model = model
        self.optimizer = nnx.Optimizer(model, optimizer, wrt=nnx.Param)


def _bound(module: linen.Module, state: Mapping[str, Any]) -> tuple[Callable[..., Any], dict[str, Any]]:
    """Returns the module as a function of its arguments, and where it leaves what it mutates."""
    variables = {name: tree for name, tree in state.items() if name not in ("opt_state", "step")}
    mutable = [name for name in variables if name != "params"]
    updates: dict[str, Any] = {}

    def model(*arguments: Any) -> Any:
        if not mutable:
            return module.apply(variables, *arguments)
        out, changed = module.apply(variables, *arguments, mutable=mutable)
        updates.update(changed)
        return out

    return model, updates


def _linen(name: str, make: Callable[[], linen.Module], recipe: _Recipe, rest: dict[str, Any]) -> Build:
    module = make()
    example = recipe.batch(0)

    def create(key: jax.Array) -> dict[str, Any]:
        variables = recipe.call(functools.partial(module.init, key), jax.tree.map(jnp.asarray, example))
        opt_state = recipe.optimizer.init(variables["params"])  # moments keep the boxes of their parameters
        return {**variables, "opt_state": opt_state, "step": jnp.zeros((), jnp.uint32)}

    def value_and_grad(state: dict[str, Any], batch: dict[str, Any]):
        def loss(params: Any):
            model, updates = _bound(module, {**state, "params": params})
            return recipe.scaled(model, batch), updates

        return jax.value_and_grad(loss, has_aux=True)(state["params"])

    def forward(state: dict[str, Any], batch: dict[str, Any]):
        return {"values": {"outputs": recipe.call(_bound(module, state)[0], batch)}}

    def grad(state: dict[str, Any], batch: dict[str, Any]):
        (value, _), grads = value_and_grad(state, batch)
        return {"values": {"loss": value}, "gradients": {"params": grads}}

    def train_step(state: dict[str, Any], batch: dict[str, Any]):
        (value, updates), grads = value_and_grad(state, batch)
        moves, opt_state = recipe.optimizer.update(grads, state["opt_state"], state["params"])
        params = optax.apply_updates(state["params"], moves)
        after = {**state, **updates, "params": params, "opt_state": opt_state, "step": state["step"] + 1}
        return {"values": {"loss": value}, "state": after}

    return linen_build(f"linen {name}", create, _with_options(forward, grad, train_step), **rest)


def _nnx(name: str, make: Callable[..., nnx.Module], recipe: _Recipe, rest: dict[str, Any]) -> Build:
    def create(key: jax.Array) -> nnx.Module:
        return _Trained(make(rngs=nnx.Rngs(key)), recipe.optimizer)

    def value_and_grad(state: Any, batch: dict[str, Any]):
        graphdef, params, rest = nnx.split(state.model, nnx.Param, ...)

        def loss(params: Any):
            model = nnx.merge(graphdef, params, rest, copy=True)  # its own Variables, to change inside grad
            return recipe.scaled(model, batch), nnx.state(model, nnx.Not(nnx.Param))

        (value, after), grads = jax.value_and_grad(loss, has_aux=True)(params)
        nnx.update(state.model, after)
        return value, grads

    def forward(state: Any, batch: dict[str, Any]):
        return {"values": {"outputs": recipe.call(state.model, batch)}}

    def grad(state: Any, batch: dict[str, Any]):
        value, grads = value_and_grad(state, batch)
        return {"values": {"loss": value}, "gradients": {"model": grads}}

    def train_step(state: Any, batch: dict[str, Any]):
        value, grads = value_and_grad(state, batch)
        state.optimizer.update(state.model, grads)
        return {"values": {"loss": value}, "state": state}

    return nnx_build(f"nnx {name}", create, _with_options(forward, grad, train_step), **rest)


def _with_options(forward: Any, grad: Any, train_step: Any) -> dict[str, Any]:
    return {
        "forward": (forward, {}),
        "grad": (grad, {}),
        "train_step": (train_step, {"steps": 3, "donate": True}),
    }


def _specs(rules: Sequence[tuple[str, Any]], state: Any, mesh: jax.sharding.Mesh) -> dict[str, Any]:
    usable = [(name, axis) for name, axis in rules if axis is None or {axis} <= set(mesh.axis_names)]
    return {
        path: linen.spmd.logical_to_mesh_axes(leaf.logical_axes or (), usable) or jax.sharding.PartitionSpec()
        for path, leaf in describe(state).items()
    }


def _input_specs(batch: Mapping[str, Any], mesh: jax.sharding.Mesh) -> dict[str, Any]:
    """Batches lie along the first mesh axis, scalars everywhere."""
    axis = mesh.axis_names[0]
    return {
        name: jax.sharding.PartitionSpec(axis if np.ndim(array) else None)
        if np.ndim(array)
        else jax.sharding.PartitionSpec()
        for name, array in batch.items()
    }


def _source(make: Any) -> str | None:
    """Returns the file of a module class, by which operations are told apart; None for what is no class."""
    return inspect.getsourcefile(make) if inspect.isclass(make) else None


def _widened(build: Build) -> Build:
    """Returns ``build`` on float64 state and inputs, for models that follow the dtype of what they get."""

    def wide(leaf: Any) -> Any:
        is_wide = jnp.issubdtype(leaf.dtype, jnp.floating)
        return jax.ShapeDtypeStruct(leaf.shape, np.float64 if is_wide else leaf.dtype)

    def inputs(seed: int) -> dict[str, np.ndarray]:
        batch = build.inputs(seed)
        return {name: array.astype(np.float64) if is_float(array) else array for name, array in batch.items()}

    abstract = {path: wide(leaf) for path, leaf in build.abstract.items()}
    abstract_inputs = {name: wide(leaf) for name, leaf in build.abstract_inputs.items()}
    name = f"{build.name} float64"
    return dataclasses.replace(
        build, name=name, abstract=abstract, inputs=inputs, abstract_inputs=abstract_inputs
    )


def twins(  # noqa: PLR0913 - a registration, all of it by keyword
    name: str,
    *,
    linen: Callable[[], linen.Module],
    nnx: Callable[..., nnx.Module],
    inputs: Inputs,
    loss: Loss,
    arguments: Sequence[str] = ("x",),
    optimizer: optax.GradientTransformation | None = None,
    weight_rules: Sequence[Rule] = (),
    axis_rules: Sequence[tuple[str, Any]] = (),
    meshes: Sequence[str] = ("single",),
    lowest: Verdict = Verdict.ARBITRATED,
    zero_gradients: Sequence[str] = (),
    not_applicable: Mapping[str, str] | None = None,
    keys: Keys = Keys.INDEPENDENT,
) -> Pair:
    """Registers a Linen module and an NNX module as a pair of twins.

    Compares three programs: ``forward``, ``grad`` under a random loss scale, and three steps of
    ``train_step``. Both models must be deterministic: dropout draws different keys in Linen and NNX.

    Args:
        name: first word of the case ids.
        linen: makes the Linen module.
        nnx: makes the NNX module, called with ``rngs=``.
        inputs: seed -> batch of host arrays; different seeds give different batches.
        loss: ``(outputs, batch) -> scalar``.
        arguments: names of the inputs a model is called with.
        optimizer: for ``train_step``; Adam by default.
        weight_rules: explicit weight pairings, where names and shapes do not tell.
        axis_rules: logical axis name -> mesh axis, for models with logical axes.
        meshes: ``single``, ``data8-auto``, ...; batches lie along the first axis.
        lowest: the lowest rung of the ladder that passes.
        zero_gradients: globs of leaves that have no gradient by design.
        not_applicable: channels to leave out, with the reason, such as ``memory`` where one side fuses kernels.
        keys: ``shared`` where the NNX module derives its keys as Linen does, so that both start from the same bits.

    Returns:
        The pair, to be named in ``[tool.parity] pairs`` or ``--pair module:ATTRIBUTE``.
    """
    recipe = _Recipe(
        inputs=inputs, loss=loss, arguments=tuple(arguments), optimizer=optimizer or optax.adam(1e-2)
    )
    rest = {
        "inputs": functools.cache(recipe.batch),
        "specs": functools.partial(_specs, axis_rules),
        "input_specs": _input_specs,
    }
    files = [_source(make) for make in (linen, nnx)]
    apart = None not in files and files[0] != files[1]
    sources = [(file,) if apart else () for file in files]
    reference = functools.cache(lambda: _linen(name, linen, recipe, {**rest, "sources": sources[0]}))
    candidate = functools.cache(lambda: _nnx(name, nnx, recipe, {**rest, "sources": sources[1]}))

    def cases(settings: Mapping[str, str]) -> list[Case]:
        if settings:
            raise ValueError(f"pair {name}: got settings {dict(settings)}, expected none; it has no config")
        return [
            Case(
                id=f"{name}/{program}@{mesh}",
                reference=reference,
                candidate=candidate,
                program=program,
                mesh=MeshSpec.parse(mesh),
                lowest=lowest,
                rules=tuple(weight_rules),
                exact=lambda: _widened(reference()),
                zero_gradients=zero_gradients,
                not_applicable=not_applicable or {},
                keys=keys,
                smoke=True,
            )
            for program in ("forward", "grad", "train_step")
            for mesh in meshes
        ]

    return Pair(name=name, about="registered with parity.twins", cases=cases)
