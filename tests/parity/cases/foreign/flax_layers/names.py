"""Public names of Flax that the sweep must have, and those that it leaves out, with reasons."""

import inspect

from flax import linen, nnx

__all__ = ["LEFT_OUT", "SAME", "layers"]

SAME = {"Linear": "Dense", "LinearGeneral": "DenseGeneral"}
"""Linen's names of layers that NNX renames."""

LEFT_OUT = {
    # one flavour has it
    "ConvLSTMCell": "Linen alone",
    "ConvLocal": "Linen alone",
    "MGUCell": "Linen alone",
    "Fp8DirectDotGeneralOp": "Linen alone",
    "Fp8DotGeneral": "Linen alone",
    "Fp8DotGeneralOp": "Linen alone",
    "Fp8Einsum": "Linen alone",
    "NANOOFp8DotGeneralOp": "Linen alone",
    "SelfAttention": "Linen alone, and deprecated",
    "LoRA": "NNX alone; pairs/lora.py has it against a Linen module of one's own",
    "LoRALinear": "NNX alone; pairs/lora.py has it against a Linen module of one's own",
    "RoPE": "NNX alone",
    # no layer
    "Module": "the base of all",
    "Dict": "holds modules, as a dict does in Linen",
    "List": "holds modules, as a list does in Linen: pairs/cnn.py",
    "RNNCellBase": "the base of all cells",
    "custom_vjp": "other arguments in each flavour: a function of one's own, which says what it does",
    "get_partition_spec": "reads specs, computes nothing",
    "logical_axis_rules": "says which rules hold, computes nothing",
    "tabulate": "prints a table",
}


def layers() -> set[str]:
    """Returns the public names of modules of either flavour, and of functions that both flavours have."""
    modules = {
        name
        for flavour in (linen, nnx)
        for name, held in _public(flavour)
        if inspect.isclass(held) and issubclass(held, flavour.Module)
    }
    functions = [
        {name for name, held in _public(flavour) if callable(held) and not inspect.isclass(held)}
        for flavour in (linen, nnx)
    ]
    return modules | (functions[0] & functions[1])


def _public(flavour):
    return [(name, held) for name, held in vars(flavour).items() if not name.startswith("_")]
