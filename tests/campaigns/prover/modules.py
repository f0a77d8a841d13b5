"""Modules of StableHLO that tests write, exchange and run, with the private names of JAX that this needs."""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jaxlib import xla_client

from parity.ir.jax_internals import ir

__all__ = ["compile_module", "parse_module", "run_module", "with_module"]


def parse_module(text: str, like: ir.Module) -> ir.Module:
    """Parses and verifies StableHLO text in the context of another module, which has the dialects loaded."""
    return ir.Module.parse(text, context=like.context)


def with_module(lowered: Any, module: ir.Module) -> Any:
    """Returns a lowered program that compiles another module, with the same arguments and results.

    ``Lowered._lowering``, ``MeshComputation._hlo`` and ``_executable`` are private (JAX 0.10 to 0.12).
    """
    other = copy.copy(lowered)
    object.__setattr__(other, "_lowering", copy.copy(lowered._lowering))
    other._lowering._hlo, other._lowering._executable = module, None
    return other


def compile_module(module: ir.Module, level: int = 3) -> Callable[[Sequence[Any]], list[np.ndarray]]:
    """Compiles a single-device StableHLO module for the first CPU device.

    ``Client.compile_and_load`` and ``LoadedExecutable.execute_sharded`` are private (JAX 0.10 to 0.12).

    Args:
        module: a module.
        level: LLVM's optimisation level; users have the highest.

    Returns:
        A function of the NumPy arrays that ``@main`` takes, with its results as NumPy arrays.
    """
    device = jax.devices("cpu")[0]
    text = module.operation.get_asm(enable_debug_info=False)
    options = xla_client.CompileOptions()
    options.executable_build_options.debug_options.xla_backend_optimization_level = level
    executable = device.client.compile_and_load(text, xla_client.DeviceList((device,)), options)

    def run(inputs: Sequence[Any]) -> list[np.ndarray]:
        ran = executable.execute_sharded([jax.device_put(each, device) for each in inputs])
        return [np.asarray(each[0]) for each in ran.disassemble_into_single_device_arrays()]

    return run


def run_module(module: ir.Module, batches: Sequence[Sequence[Any]], level: int = 3) -> list[list[np.ndarray]]:
    """Returns the results of a compiled module for each of some lists of arrays; see `compile_module`."""
    return [*map(compile_module(module, level), batches)]
