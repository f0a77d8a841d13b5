"""Builds of a user's pair: the programs ``forward``, ``grad`` and ``train_step``, in either flavour."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import linen, nnx

from parity.builds.build import Build, linen_build, nnx_build
from parity.builds.constants import traceable
from parity.cases.recipe import CallSpec
from parity.ir.jaxprs import forwarded_arguments

__all__ = ["linen_twin", "nnx_twin"]

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
    """Makes the build of a Linen module.

    Args:
        name: name of the pair.
        make: makes the module.
        recipe: arguments and streams of its calls.
        rest: the other fields of `Build`.
    """
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

    programs = _programs(forward, grad if trains else pull, train_step if trains else _untrained(name))
    return linen_build(f"linen {name}", create, programs, **rest)


class _Trained(nnx.Module):
    def __init__(self, model: nnx.Module, optimizer: optax.GradientTransformation | None):
        self.model = model
        if optimizer is not None:
            self.optimizer = nnx.Optimizer(model, optimizer, wrt=nnx.Param)


def nnx_twin(name: str, make: Callable[..., nnx.Module], recipe: CallSpec, rest: dict[str, Any]) -> Build:
    """Makes the build of an NNX module.

    Args:
        name: name of the pair.
        make: makes the module; called with ``rngs=``.
        recipe: arguments and streams of its calls.
        rest: the other fields of `Build`.
    """

    @traceable
    def model(key: jax.Array) -> nnx.Module:
        return recipe.make_nnx(make, key)

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
        return {
            "values": {"outputs": out},
            **({"state": {"model": after}} if jax.tree.leaves(after) else {}),
        }

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

    programs = _programs(forward, grad if trains else pull, train_step if trains else _untrained(name))
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


def _programs(forward: Any, grad: Any, train_step: Any) -> dict[str, Any]:
    functions = {"forward": forward, "grad": grad, "train_step": train_step}
    return {name: (function, dict(OPTIONS[name])) for name, function in functions.items()}
