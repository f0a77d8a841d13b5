"""Calls and builds of a user's pair, in either flavour: inputs, arguments, random streams, and the three programs."""

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

from parity.builds.build import Build, linen_build, nnx_build
from parity.builds.constants import traceable
from parity.cases.shared import mesh_axes
from parity.ir.jaxprs import forwarded_arguments

Inputs = Callable[[int], Mapping[str, np.ndarray]]
Loss = Callable[[Any, Mapping[str, Any]], jax.Array]
SCALE, KEY = "loss_scale", "stream_key"
"""Names of two additional inputs: the loss scale, and a key if the models draw."""


def holds_64_bits() -> bool:
    """True if JAX uses 64-bit numbers."""
    return jax.dtypes.canonicalize_dtype(np.float64) == np.float64


def as_jax_holds(batch: Mapping[str, Any], wide: bool) -> dict[str, np.ndarray]:
    """Returns a batch in JAX's dtypes: 32 bits unless 64 are enabled; without inputs that are None."""
    arrays = {name: np.asarray(array) for name, array in batch.items() if array is not None}
    for name, array in arrays.items():
        if array.dtype == object:
            raise ValueError(
                f"inputs: {name}: got {type(batch[name]).__name__}, expected an array, a number or None"
            )
    with jax.enable_x64(wide):
        return {
            name: array.astype(jax.dtypes.canonicalize_dtype(array.dtype)) for name, array in arrays.items()
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class CallSpec:
    """Properties that both flavours of a user's pair share.

    Args:
        options: further constant keyword arguments of the Linen and of the NNX model.
        streams: names of the random streams that both receive.
        wide: True if JAX uses 64-bit numbers when the pair is registered.
    """

    inputs: Inputs
    loss: Loss
    arguments: tuple[str, ...]
    keywords: tuple[str, ...] = ()
    options: tuple[Mapping[str, Any], Mapping[str, Any]] = ({}, {})
    method: tuple[str, str] = ("__call__", "__call__")
    streams: tuple[str, ...] = ()
    optimizer: optax.GradientTransformation = dataclasses.field(default_factory=lambda: optax.adam(1e-2))
    wide: bool = dataclasses.field(init=False, default_factory=holds_64_bits)

    def call(self, which: int, model: Callable[..., Any], batch: Mapping[str, Any]) -> Any:
        """Returns a model's outputs for a batch; ``which`` is 0 for Linen and 1 for NNX."""
        batch = self.with_none(batch)
        for name in {*self.arguments, *self.keywords} - batch.keys():
            raise ValueError(
                f"the batch has no {name!r}, only {sorted(batch)}; name the entries in arguments=(...)"
            )
        keywords = {name: batch[name] for name in self.keywords}
        return model(*(batch[name] for name in self.arguments), **keywords, **self.options[which])

    @functools.cached_property
    def _none(self) -> dict[str, None]:
        return {name: None for name, array in self.inputs(0).items() if array is None}

    def with_none(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Returns a batch with the inputs that are None, which are no arguments of a program."""
        return {**self._none, **batch}

    def keys(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Returns a key for each stream, the same for both flavours."""
        if not self.streams:
            return {}
        root = jax.random.wrap_key_data(jnp.asarray(batch[KEY]), impl="threefry2x32")
        return {name: jax.random.fold_in(root, number) for number, name in enumerate(self.streams)}

    def check_streams(self, model: nnx.Module) -> None:
        """Raises ValueError if an NNX model lacks one of the streams and holds others."""
        if _takes_rngs(getattr(model, self.method[1])):
            return
        held = {variable.tag for _, variable in nnx.to_flat_state(nnx.state(model, nnx.RngKey))}
        missing = sorted(set(self.streams) - held)
        if missing and (others := sorted(held - set(self.streams))):
            raise ValueError(
                f"rngs: the NNX model holds no stream {', '.join(missing)}, which would set nothing; it holds "
                f"{', '.join(others)}: name those, make its layers with the rngs that they are given, or give "
                f"{self.method[1]} a parameter rngs"
            )

    def batch(self, seed: int) -> dict[str, np.ndarray]:
        """Returns a batch with a loss scale other than one, and a key if streams are given."""
        rng = np.random.default_rng(seed)
        added = {SCALE: np.asarray(rng.uniform(0.5, 8.0), np.float32)}
        if self.streams:
            added[KEY] = rng.integers(1, 2**32 - 1, 2, np.uint32)
        return {**as_jax_holds(self.inputs(seed), self.wide), **added}

    def scaled(self, outputs: Any, batch: Mapping[str, Any]) -> jax.Array:
        """Returns the loss of some outputs times the batch's scale, without auxiliary results."""
        loss = self.loss(outputs, self.with_none(batch))
        loss = loss[0] if isinstance(loss, tuple) else loss
        return loss * batch[SCALE].astype(loss.dtype)

    def linen_method(self, module: linen.Module) -> Callable[..., Any]:
        """Returns the called method, as Linen's ``apply`` takes it."""
        return getattr(type(module), self.method[0])

    def nnx_call(self, model: nnx.Module, batch: Mapping[str, Any]) -> Any:
        """Calls an NNX model with the keys as argument ``rngs``, or with its streams reseeded for the call."""
        method, keys = getattr(model, self.method[1]), self.keys(batch)
        if keys and _takes_rngs(method):
            return self.call(1, lambda *args, **rest: method(*args, rngs=nnx.Rngs(**keys), **rest), batch)
        own = jax.tree.map(lambda array: array, nnx.state(model, nnx.RngState))
        nnx.reseed(model, policy="match_shape", **keys)  # stacked layers split their keys
        outputs = self.call(1, method, batch)
        if keys:
            nnx.update(model, own)
        return outputs


def _takes_rngs(method: Callable[..., Any]) -> bool:
    return "rngs" in inspect.signature(method).parameters


OWN = ("opt_state", "step")
SOWN = "intermediates"
OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "forward": {},
    "grad": {},
    "train_step": {"steps": 3, "donate": True},
}


def _bound(
    module: linen.Module, state: Mapping[str, Any], recipe: CallSpec, batch: Mapping[str, Any]
) -> tuple[Any, dict[str, Any]]:
    """Returns the module's outputs for a batch, and the collections that it changes."""
    variables = {name: tree for name, tree in state.items() if name not in OWN}
    mutable = [name for name in variables if name != "params"]

    def model(*arguments: Any, **keywords: Any) -> Any:
        return module.apply(
            variables,
            *arguments,
            rngs=recipe.keys(batch),
            method=recipe.linen_method(module),
            mutable=mutable or False,
            **keywords,
        )

    out = recipe.call(0, model, batch)
    return out if mutable else (out, {})


def _variables(module: linen.Module, recipe: CallSpec) -> Callable[[jax.Array], dict[str, Any]]:
    """Returns a function that makes the variables of a module from a key, without sown ones."""
    example = recipe.batch(0)

    def variables(key: jax.Array) -> dict[str, Any]:
        batch = jax.tree.map(jnp.asarray, example)
        streams = {stream: jax.random.fold_in(key, 1 + at) for at, stream in enumerate(recipe.streams)}

        def init(*arguments: Any, **keywords: Any) -> Any:
            rngs = {"params": key, **streams}
            return module.init(rngs, *arguments, method=recipe.linen_method(module), **keywords)

        return {name: tree for name, tree in recipe.call(0, init, batch).items() if name != SOWN}

    return variables


def _untrained(name: str) -> Callable[[Any, Any], Any]:
    def train_step(state: Any, batch: Any) -> Any:
        raise ValueError(
            f"pair {name}: the model has no parameters to train; register it with programs=('forward', 'grad')"
        )

    return train_step


def linen_twin(name: str, make: Callable[[], linen.Module], recipe: CallSpec, rest: dict[str, Any]) -> Build:
    """Makes the build of a Linen module."""
    module = make()
    variables = _variables(module, recipe)
    trains = "params" in jax.eval_shape(variables, jax.random.key(0))

    def create(key: jax.Array) -> dict[str, Any]:
        state = variables(key)
        if not trains:
            return state
        opt_state = recipe.optimizer.init(state["params"])  # moments keep the boxes of their parameters
        return {**state, "opt_state": opt_state, "step": jnp.zeros((), jnp.uint32)}

    def value_and_grad(state: dict[str, Any], batch: dict[str, Any]):
        def loss(params: Any):
            out, updates = _bound(module, {**state, "params": params}, recipe, batch)
            return recipe.scaled(out, batch), updates

        return jax.value_and_grad(loss, has_aux=True)(state["params"])

    def forward(state: dict[str, Any], batch: dict[str, Any]):
        out, updates = _bound(module, state, recipe, batch)
        return {"values": {"outputs": out}, **({"state": updates} if updates else {})}

    def grad(state: dict[str, Any], batch: dict[str, Any]):
        (value, _), grads = value_and_grad(state, batch)
        return {"values": {"loss": value}, "gradients": {"params": grads}}

    def train_step(state: dict[str, Any], batch: dict[str, Any]):
        (value, updates), grads = value_and_grad(state, batch)
        moves, opt_state = recipe.optimizer.update(grads, state["opt_state"], state["params"])
        params = optax.apply_updates(state["params"], moves)
        after = {**state, **updates, "params": params, "opt_state": opt_state, "step": state["step"] + 1}
        return {"values": {"loss": value}, "state": after}

    def pull(state: dict[str, Any], batch: dict[str, Any]):
        return _pulled(recipe, batch, lambda batch: _bound(module, state, recipe, batch)[0])

    step = train_step if trains else _untrained(name)
    programs = _programs(rest["rules"], forward, grad if trains else pull, step)
    return linen_build(f"linen {name}", create, programs, **rest)


class _Trained(nnx.Module):
    def __init__(self, model: nnx.Module, optimizer: optax.GradientTransformation | None):
        self.model = model
        if optimizer is not None:
            self.optimizer = nnx.Optimizer(model, optimizer, wrt=nnx.Param)


def nnx_twin(name: str, make: Callable[..., nnx.Module], recipe: CallSpec, rest: dict[str, Any]) -> Build:
    """Makes the build of an NNX module; ``make`` gets ``rngs=``, with a default stream and those of the calls."""

    @traceable
    def model(key: jax.Array) -> nnx.Module:
        named = {name: jax.random.fold_in(key, 1 + at) for at, name in enumerate(recipe.streams)}
        return make(rngs=nnx.Rngs({**named, "default": key}))

    abstract = nnx.eval_shape(lambda: model(jax.random.key(0)))
    recipe.check_streams(abstract)
    trains = bool(jax.tree.leaves(nnx.state(abstract, nnx.Param)))

    def create(key: jax.Array) -> nnx.Module:
        return _Trained(model(key), recipe.optimizer if trains else None)

    def run(model: nnx.Module, batch: dict[str, Any]) -> Any:
        out = recipe.nnx_call(model, batch)
        nnx.pop(model, nnx.Intermediate)  # sown values are not state
        return out

    def value_and_grad(state: Any, batch: dict[str, Any]):
        graphdef, params, rest = nnx.split(state.model, nnx.Param, ...)
        changed = written(lambda model: run(model, batch), graphdef, params, rest)

        def loss(params: Any):
            model = nnx.merge(graphdef, params, rest, copy=True)  # separate Variables, to change inside grad
            return recipe.scaled(run(model, batch), batch), nnx.state(model, changed)

        (value, after), grads = jax.value_and_grad(loss, has_aux=True)(params)
        nnx.update(state.model, after)
        return value, grads

    written = _Written()

    def forward(state: Any, batch: dict[str, Any]):
        out = run(state.model, batch)
        after = nnx.state(state.model, nnx.All(nnx.Variable, nnx.Not(nnx.Any(nnx.Param, nnx.RngState))))
        return {"values": {"outputs": out}, **({"state": {"model": after}} if jax.tree.leaves(after) else {})}

    def grad(state: Any, batch: dict[str, Any]):
        value, grads = value_and_grad(state, batch)
        return {"values": {"loss": value}, "gradients": {"model": grads}}

    def train_step(state: Any, batch: dict[str, Any]):
        value, grads = value_and_grad(state, batch)
        state.optimizer.update(state.model, grads)
        return {"values": {"loss": value}, "state": state}

    def pull(state: Any, batch: dict[str, Any]):
        graphdef, held = nnx.split(state.model)
        return _pulled(recipe, batch, lambda batch: run(nnx.merge(graphdef, held, copy=True), batch))

    step = train_step if trains else _untrained(name)
    programs = _programs(rest["rules"], forward, grad if trains else pull, step)
    return nnx_build(f"nnx {name}", create, programs, **rest)


class _Written:
    """Finds the Variables that a call may change: a scan forwards parameters, but some layers write to them."""

    def __init__(self):
        self._same: set[Any] | None = None

    def __call__(self, run: Callable[[nnx.Module], Any], graphdef: Any, params: Any, rest: Any) -> Any:
        """Returns a filter for the changed Variables; only the first call traces ``run``."""

        def after(params: Any) -> list[Any]:
            model = nnx.merge(graphdef, params, rest, copy=True)
            run(model)
            return [variable.get_value() for _, variable in nnx.to_flat_state(nnx.state(model, nnx.Param))]

        if self._same is None:
            paths = [path for path, _ in nnx.to_flat_state(params)]
            found = forwarded_arguments(after, params)
            self._same = {
                path for at, (path, number) in enumerate(zip(paths, found, strict=True)) if at == number
            }
        same = self._same
        return lambda path, node: isinstance(node, nnx.Variable) and path not in same


def _pulled(
    recipe: CallSpec, batch: dict[str, Any], model: Callable[[dict[str, Any]], Any]
) -> dict[str, Any]:
    """Returns loss and gradients of the inputs, for models without parameters."""
    given = {
        name: batch[name]
        for name in (*recipe.arguments, *recipe.keywords)
        if name in batch and jnp.issubdtype(batch[name].dtype, jnp.floating)
    }
    value, grads = jax.value_and_grad(lambda given: recipe.scaled(model({**batch, **given}), batch))(given)
    return {"values": {"loss": value, "inputs": grads}}


def _programs(rules: Sequence[tuple[str, Any]], *functions: Callable[..., Any]) -> dict[str, Any]:
    named = zip(OPTIONS, functions, strict=True)
    return {name: (with_rules(function, rules), dict(OPTIONS[name])) for name, function in named}


def with_rules(function: Callable[..., Any], rules: Sequence[tuple[str, Any]]) -> Callable[..., Any]:
    """Returns a program that is traced with a pair's axis rules, for logical constraints."""

    @functools.wraps(function)
    def program(state: Any, batch: Mapping[str, Any]) -> Any:
        with linen.logical_axis_rules(_rules_of_mesh(rules)):
            return function(state, batch)

    return program


def _rules_of_mesh(rules: Sequence[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Returns the axis rules whose axes the ambient mesh has, as for specs of the state.

    On an explicit mesh there are none, because a constraint there asserts how a value is already sharded.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if jax.sharding.AxisType.Explicit in mesh.axis_types:
        return []
    return [rule for rule in rules if set(mesh_axes([rule])) <= set(mesh.axis_names)]
