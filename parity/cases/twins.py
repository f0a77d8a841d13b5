"""Registers a pair from a Linen module, an NNX module, a loss and inputs."""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Unpack

import optax
from flax import linen as flax_linen
from flax import nnx as flax_nnx

from parity.builds.build import Build
from parity.cases.case import Pair
from parity.cases.recipe import CallSpec, Inputs, Loss, linen_twin, nnx_twin
from parity.cases.shared import CaseOptions, build_options, registered, widened

PROGRAMS = ("forward", "grad", "train_step")


def twins(  # noqa: PLR0913 - a registration, all of it by keyword
    name: str,
    *,
    linen: Callable[..., Any] | flax_linen.Module,
    nnx: Callable[..., Any] | flax_nnx.Module,
    inputs: Inputs | Mapping[str, Any],
    loss: Loss,
    arguments: Sequence[str] = ("x",),
    keywords: Sequence[str] = (),
    linen_options: Mapping[str, Any] | None = None,
    nnx_options: Mapping[str, Any] | None = None,
    method: str | tuple[str, str] = "__call__",
    rngs: Sequence[str] = (),
    optimizer: optax.GradientTransformation | None = None,
    programs: Sequence[str] = PROGRAMS,
    axis_rules: Sequence[tuple[str, Any]] = (),
    **options: Unpack[CaseOptions],
) -> Pair:
    """Registers a Linen module and an NNX module as a pair of twins.

    Compares three programs: ``forward``, ``grad`` under a random loss scale, and three steps of
    ``train_step``. For a model without parameters ``grad`` is that of its inputs, and ``train_step`` must be left out.
    ``forward`` also compares collections that it changes, such as a cache. Sown ``intermediates`` are left out.

    Args:
        name: first word of the case ids.
        linen: the Linen module, or a function that makes it; one with a parameter ``mesh`` receives the mesh of the
            case, with its devices; None on a single device.
        nnx: the NNX module, or a function that makes it, called with ``rngs=``, and ``mesh=`` if it has the parameter.
        inputs: seed -> batch of host arrays; different seeds give different batches. Or one batch for all steps.
        loss: ``(outputs, batch) -> scalar``, or ``(scalar, anything)``, as with ``has_aux``.
        arguments: names of the inputs that a model takes by position.
        keywords: names of the inputs that it takes by keyword.
        linen_options, nnx_options: further keyword arguments, such as ``{"train": False}`` for one flavour and
            ``{"deterministic": True}`` for the other.
        method: the called method, of both or ``(Linen's, NNX's)``.
        rngs: streams that both receive, from one key in the batch. Linen gets them in ``apply``. An NNX method with a
            parameter ``rngs`` gets ``nnx.Rngs``; else the model is made with such streams, and they are reseeded.
        optimizer: for ``train_step``; Adam by default.
        programs: some of the three.
        axis_rules: logical axis name -> mesh axis, for models with logical axes.
        **options: of all cases, any of the following.
        state: initial variables of the Linen module, or the path of an Orbax checkpoint of them, instead of
            random ones.
        weight_rules: explicit weight pairings, if names and shapes are ambiguous.
        meshes: ``single``, ``data8-auto``, ...; batches are split along the first axis.
        require: the lowest rung of the ladder that passes; of several, such as ``("floor", "exact")``, any is enough.
        zero_gradients: globs of leaves that have no gradient by design.
        not_applicable: channels to leave out, with the reason, such as ``memory`` if one side fuses kernels.
        waivers: accepted differences, with the reason.
        keys: ``shared`` if the NNX module derives its keys as Linen does, so that both start from the same bits.
        full_size: a pair with the same models at their published sizes, which ``--full-size`` compares.
        config: the config of both models: a mapping, a dataclass instance or a pydantic model. The command
            ``parity list --coverage`` names its options that no pair with such a config varies.
        bridged: reason why a side runs modules of the other framework, through ``nnx.bridge``; else that is a finding.

    Returns:
        The pair, to be named in ``[tool.parity] pairs`` or ``--pair module:ATTRIBUTE``.

    Raises:
        TypeError: an unknown option, or a module of the other framework.
        ValueError: an unknown program or rung.
    """
    if unknown := sorted(set(programs) - set(PROGRAMS)):
        raise ValueError(f"pair {name}: got programs {unknown}, expected some of {', '.join(PROGRAMS)}")
    _check_sides(name, linen, nnx)
    recipe = CallSpec(
        inputs=inputs if callable(inputs) else lambda seed: inputs,
        loss=loss,
        arguments=tuple(arguments),
        keywords=tuple(keywords),
        options=(dict(linen_options or {}), dict(nnx_options or {})),
        method=(method, method) if isinstance(method, str) else method,
        streams=tuple(rngs),
        **({"optimizer": optimizer} if optimizer else {}),
    )
    builds = _makers(name, linen, nnx, recipe, axis_rules)
    return registered(name, "parity.twins", programs, builds, options, axis_rules)


def _check_sides(name: str, linen: Any, nnx: Any) -> None:
    for side, given, wrong in (("linen", linen, flax_nnx.Module), ("nnx", nnx, flax_linen.Module)):
        if isinstance(given, wrong) or (inspect.isclass(given) and issubclass(given, wrong)):
            made = given.__name__ if inspect.isclass(given) else type(given).__name__
            other = "nnx" if side == "linen" else "linen"
            raise TypeError(
                f"pair {name}: {side}=: got {made}, which is a module of the other framework; pass it as {other}="
            )


def _makers(
    name: str, linen: Any, nnx: Any, recipe: CallSpec, axis_rules: Sequence[tuple[str, Any]]
) -> dict[str, Callable[..., Build]]:
    """Returns functions that make each build once, or once per mesh if the model depends on it."""
    files = [_sources(make) for make in (linen, nnx)]
    separate = all(files) and not set(files[0]) & set(files[1])
    shared = build_options(axis_rules, functools.cache(recipe.batch))

    def maker(which: int, given: Any, twin: Callable[..., Build]) -> Callable[..., Build]:
        make, of_mesh = _factory(given)
        method = recipe.method[which]
        rest = {
            **shared,
            "sources": files[which] if separate else (),
            "method": "" if method == "__call__" else method,
        }

        def on_mesh(mesh: Any = None) -> Build:
            return twin(name, functools.partial(make, mesh=mesh), recipe, rest)

        return functools.cache(on_mesh if of_mesh else lambda: twin(name, make, recipe, rest))

    reference, wide = maker(0, linen, linen_twin), functools.cache(widened)

    @functools.wraps(reference)
    def float64(**mesh: Any) -> Build:
        return wide(reference(**mesh))

    return {"reference": reference, "candidate": maker(1, nnx, nnx_twin), "float64_reference": float64}


def _factory(given: Any) -> tuple[Callable[..., Any], bool]:
    """Returns a function that makes a module, and True if it takes the mesh."""
    if isinstance(given, flax_linen.Module):
        return (lambda: given), False
    if isinstance(given, flax_nnx.Module):
        graphdef, held = flax_nnx.split(given)
        return (lambda rngs: flax_nnx.merge(graphdef, held)), False
    return given, not inspect.isclass(given) and "mesh" in inspect.signature(given).parameters


def _sources(make: Any) -> tuple[str, ...]:
    """Returns the files of a module class and of the classes that it inherits from; empty for anything but a class."""
    classes = inspect.getmro(make) if inspect.isclass(make) else ()
    own = [
        cls
        for cls in classes
        if cls.__module__.partition(".")[0] not in ("builtins", "flax", "typing", "abc")
    ]
    return tuple(dict.fromkeys(file for cls in own if (file := inspect.getsourcefile(cls))))
