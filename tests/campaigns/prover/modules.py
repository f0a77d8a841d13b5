"""Modules of StableHLO that tests write, exchange and run, with the private names of JAX that this needs."""

import copy
from typing import Any

import jax
import numpy as np
from jaxlib import xla_client

from parity.ir.jax_internals import ir

__all__ = ["parse_module", "run_module", "with_module"]


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


def run_module(module: ir.Module, batches: list[list[Any]], level: int | None = None) -> list[list[Any]]:
    """Compiles a single-device StableHLO module for the first CPU device and runs it.

    ``Client.compile_and_load`` and ``LoadedExecutable.execute_sharded`` are private (JAX 0.10 to 0.12).

    Args:
        module: a module.
        batches: lists of NumPy arrays that ``@main`` takes; each is one run.
        level: LLVM's optimisation level; None for XLA's default.

    Returns:
        The results of each run as NumPy arrays.
    """
    device = jax.devices("cpu")[0]
    text = module.operation.get_asm(enable_debug_info=False)
    options = xla_client.CompileOptions()
    if level is not None:
        options.executable_build_options.debug_options.xla_backend_optimization_level = level
    executable = device.client.compile_and_load(text, xla_client.DeviceList((device,)), options)
    ran = (
        executable.execute_sharded([jax.device_put(each, device) for each in inputs]) for inputs in batches
    )
    return [[np.asarray(each[0]) for each in one.disassemble_into_single_device_arrays()] for one in ran]
