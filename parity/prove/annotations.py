"""Sharding annotations of a module by source line: meshes, shardings of arguments and results, constraints."""

import collections
import re
from collections.abc import Iterator
from typing import Any

from parity.ir.location import operation_source
from parity.ir.mlir import attribute_items, dictionary_items
from parity.ir.stablehlo.functions import Functions

__all__ = ["annotations"]

_SHARDING = ("sdy.sharding", "mhlo.sharding", "sharding")
_NAMED = re.compile(r"#sdy\.sharding<(.*)>$", re.DOTALL)


def annotations(program: Any) -> collections.Counter[tuple[str, str]]:
    """Returns the number of each sharding annotation of a lowered program: ``(place, sharding)``.

    Args:
        program: a ``jax.stages.Lowered``, an MLIR module, or its functions.
    """
    functions = Functions.of(program)
    with functions.module.context:
        return collections.Counter(_said(functions))


def _said(functions: Functions) -> Iterator[tuple[str, str]]:
    for text in functions.signatures.meshes.values():
        yield "mesh", text.removeprefix("#sdy.mesh")
    items = dict(attribute_items(functions["main"].operation))
    for what in ("arg_attrs", "res_attrs"):
        yield from _sides(what, items.get(what))
    for name in functions.signatures.functions:
        for op in functions[name].body.walk():
            for key, value in op.form.attributes.items():
                if key in _SHARDING:
                    yield f"{op.name} {_place(op.source)}", _text(value)


def _sides(what: str, attributes: Any) -> Iterator[tuple[str, str]]:
    for position, each in enumerate(attributes or ()):
        for name, text in dictionary_items(each):
            if name in _SHARDING:
                yield f"{'argument' if what == 'arg_attrs' else 'result'} {position}", _text(text)


def _text(attribute: Any) -> str:
    text = str(attribute)
    found = _NAMED.match(text)
    return found[1] if found else text


def _place(operation: Any) -> str:
    frames = operation_source(operation).frames
    return frames[0].place if frames else "unknown place"
