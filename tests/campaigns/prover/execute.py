"""Runs modules on the CPU, to check that programs that the prover equates give the same bits."""

from typing import Any

import numpy as np

from campaigns.prover.edits import copy_module, walk
from parity.ir.jax_internals import ir, is_main

__all__ = ["EXTREMES", "random_inputs", "same_bits", "same_numbers", "single_device", "wild_inputs"]

EXTREMES = ("tame", "decades", "special")
"""Kinds of data: near one; over all magnitudes, denormals included; with NaNs, infinities and signed zeros."""

_SPECIAL = (
    0x7FC00000,
    0x7FC12345,
    0xFFC00001,
    0x7F800000,
    0xFF800000,
    0,
    0x80000000,
    1,
    0x80000001,
    0x3F800000,
)


def single_device(module: Any) -> Any | None:
    """Returns a copy without sharding annotations, or None if the module needs several devices."""
    names = {op.name for op in walk(module)}
    if "sdy.manual_computation" in names:
        return None
    with module.context, ir.Location.unknown():
        copy = copy_module(module)
        for op in walk(copy):
            if op.name == "sdy.sharding_constraint":
                op.results[0].replace_all_uses_with(op.operands[0])
            elif op.name == "func.func":
                for name in ("arg_attrs", "res_attrs"):
                    if name in op.attributes:
                        del op.attributes[name]
        for op in walk(copy):
            if op.name in ("sdy.sharding_constraint", "sdy.mesh"):
                op.erase()
        copy.operation.attributes["mhlo.num_partitions"] = ir.Attribute.parse("1 : i32")
        return copy


def random_inputs(module: Any, seed: int) -> list[np.ndarray]:
    """Returns random inputs of the types of ``@main``: positive floats, small integers, random bits."""
    rng = np.random.default_rng(seed)
    main = next(op for op in module.body.operations if is_main(op))
    inputs = []
    for argument in main.regions[0].blocks[0].arguments:
        kind = ir.RankedTensorType(argument.type)
        shape, element = tuple(kind.shape), str(kind.element_type)
        if element == "f32":
            inputs.append(rng.uniform(0.05, 1.0, size=shape).astype(np.float32))
        elif element == "ui32":
            inputs.append(rng.integers(0, 2**32, size=shape, dtype=np.uint32))
        elif element == "i32":
            inputs.append(rng.integers(0, 6, size=shape).astype(np.int32))
        else:
            raise ValueError(f"argument of @main: got element type {element}, expected f32, ui32 or i32")
    return inputs


def wild_inputs(module: Any, kind: str, seed: int) -> list[np.ndarray]:
    """Returns inputs of the types of ``@main``, f32 and i32, that are made to distinguish programs.

    Args:
        module: the module.
        kind: one of `EXTREMES`.
        seed: decides the numbers.
    """
    rng = np.random.default_rng(seed)
    main = next(op for op in module.body.operations if is_main(op))
    inputs = []
    for argument in main.regions[0].blocks[0].arguments:
        kinds = ir.RankedTensorType(argument.type)
        shape = tuple(kinds.shape)
        if str(kinds.element_type) == "i32":
            inputs.append(rng.integers(-(2**31), 2**31, size=shape).astype(np.int32))
            continue
        numbers = rng.standard_normal(shape)
        # Values in a row spread through a product: only some rows have stress values, and no square matrix does.
        some = (rng.random(shape) < 0.3) & (rng.random((*shape[:-1], 1)) < 0.4) & (shape[-2:-1] != shape[-1:])
        if kind == "decades":
            numbers = np.where(some, numbers * 10.0 ** rng.integers(-44, 12, size=shape), numbers)
        numbers = numbers.astype(np.float32)
        if kind == "special":
            numbers.view(np.uint32)[some] = rng.choice(np.array(_SPECIAL, np.uint32), size=int(some.sum()))
        inputs.append(numbers)
    return inputs


def same_bits(left: list[np.ndarray], right: list[np.ndarray]) -> bool:
    """Returns True if two lists of results are equal bit for bit."""
    pairs = zip(left, right, strict=True)
    return all(a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes() for a, b in pairs)


def same_numbers(left: list[np.ndarray], right: list[np.ndarray]) -> bool:
    """Returns True if two lists of results are equal bit for bit, except for the choice of NaN."""
    for a, b in zip(left, right, strict=True):
        if a.shape != b.shape or a.dtype != b.dtype:
            return False
        both = np.isnan(a) & np.isnan(b) if a.dtype.kind == "f" else np.zeros(a.shape, bool)
        if not same_bits([np.where(both, np.zeros_like(a), a)], [np.where(both, np.zeros_like(b), b)]):
            return False
    return True
