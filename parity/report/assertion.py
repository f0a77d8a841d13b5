"""An assertion for notebooks and tests: runs the channels and raises with all findings."""

import inspect
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen, nnx

from parity.cases.twins import twins
from parity.compare.placement import place
from parity.report.table import findings_text
from parity.run.record import CaseResult, assumptions
from parity.run.request import Request
from parity.run.run import case_runner
from parity.run.waiving import check_channels


class TwinsDifferError(AssertionError):
    """Two modules are not twins; the message contains every finding of ``results``, those of all programs."""

    def __init__(self, results: Sequence[CaseResult]):
        self.results = tuple(results)
        texts = (findings_text(result, runnable=False) for result in self.results)
        super().__init__("\n".join(filter(None, texts)))


def assert_twins(
    linen_module: linen.Module,
    nnx_module: nnx.Module,
    batch: Any,
    *,
    loss: Any = None,
    backend: str = "cpu",
    paranoid: bool = False,
    **options: Any,
) -> list[CaseResult]:
    """Raises unless a Linen module and an NNX module are the same program, or measure the same.

    Args:
        nnx_module: it is not changed.
        batch: an array, which both are called with, or named inputs.
        loss: ``(outputs, batch) -> scalar``; by default the mean of the squares of all outputs.
        backend: name of the backend, see ``parity run --backend``.
        paranoid: if True, proved programs are compiled and run, too.
        **options: of `twins`, such as ``require="proved"``, ``programs=("forward",)`` or
            ``arguments=("tokens", "mask")``. By default the arguments are the inputs that are parameters of the NNX
            module's method.

    Returns:
        The results, all of them passed.

    Raises:
        TwinsDifferError: a channel of a program blocks.
        ValueError: the backend or an option cannot be used.
    """
    named = batch if isinstance(batch, Mapping) else {"x": batch}
    if "arguments" not in options:
        options["arguments"] = _arguments(nnx_module, options, named)
    pair = twins(
        "assert_twins",
        linen=linen_module,
        nnx=nnx_module,
        inputs={name: np.asarray(array) for name, array in named.items()},
        loss=loss or _squares,
        **options,
    )
    request = Request(backend=backend, paranoid=paranoid)
    target = request.find_backend()
    cases = place(pair.cases({}), target)
    check_channels(cases)
    results = list(map(case_runner(request, target), cases))
    if any(result.blocking for result in results):
        raise TwinsDifferError(results)
    for words in assumptions(results):
        warnings.warn(words, stacklevel=2)
    return results


def _arguments(model: nnx.Module, options: Mapping[str, Any], batch: Mapping[str, Any]) -> tuple[str, ...]:
    method = options.get("method", "__call__")
    function = getattr(model, method if isinstance(method, str) else method[1])
    known = [name for name in inspect.signature(function).parameters if name in batch]
    return tuple(known) or tuple(name for name in batch if name not in options.get("keywords", ()))


def _squares(outputs: Any, batch: Mapping[str, Any]) -> jax.Array:
    floats = [leaf for leaf in jax.tree.leaves(outputs) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    return sum((jnp.mean(jnp.square(leaf)) for leaf in floats), jnp.zeros(()))
