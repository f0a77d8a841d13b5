"""Runs modules on the CPU, to check that what the prover calls the same gives the same bits."""

from typing import Any

import numpy as np

from parity.jax_internals import ir, is_main
from parity.prove.campaign.edits import copy_module, walk

__all__ = ["random_inputs", "same_bits", "single_device"]


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


def same_bits(left: list[np.ndarray], right: list[np.ndarray]) -> bool:
    """Says whether two lists of results are equal bit for bit."""
    pairs = zip(left, right, strict=True)
    return all(a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes() for a, b in pairs)
