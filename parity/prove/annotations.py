"""Where a module says that values lie: meshes, shardings of arguments and results, constraints, by source line."""

import collections
import re
from collections.abc import Iterator
from typing import Any

from parity.ir.jax_internals import ir, is_main, stablehlo_module
from parity.ir.location import operation_source
from parity.ir.mlir import attribute_items, dictionary_items

__all__ = ["annotations"]

_SHARDING = ("sdy.sharding", "mhlo.sharding", "sharding")
_NAMED = re.compile(r"#sdy\.sharding<(.*)>$", re.DOTALL)


def annotations(program: Any) -> collections.Counter[tuple[str, str]]:
    """Returns how often a lowered program says of which place that values lie how: ``(place, sharding)``.

    Args:
        program: a ``jax.stages.Lowered`` or an MLIR module.
    """
    module = stablehlo_module(program)
    with module.context:
        return collections.Counter(_said(module))


def _said(module: ir.Module) -> Iterator[tuple[str, str]]:
    for op in module.body.operations:
        operation: Any = op.operation
        if operation.name == "sdy.mesh":
            yield "mesh", str(operation.attributes["mesh"]).removeprefix("#sdy.mesh")
            continue
        if is_main(op):
            items = dict(attribute_items(operation))
            for what in ("arg_attrs", "res_attrs"):
                yield from _sides(what, items.get(what))
        yield from _inside(operation)


def _sides(what: str, attributes: Any) -> Iterator[tuple[str, str]]:
    for position, each in enumerate(attributes or ()):
        for name, text in dictionary_items(each):
            if name in _SHARDING:
                yield f"{'argument' if what == 'arg_attrs' else 'result'} {position}", _text(text)


def _inside(operation: Any) -> Iterator[tuple[str, str]]:
    for region in operation.regions:
        for block in region.blocks:
            for op in block.operations:
                inner = op.operation
                for name, text in attribute_items(inner):
                    if name in _SHARDING:
                        yield f"{inner.name} {_place(inner)}", _text(text)
                yield from _inside(inner)


def _text(attribute: Any) -> str:
    text = str(attribute)
    found = _NAMED.match(text)
    return found[1] if found else text


def _place(operation: Any) -> str:
    frames = operation_source(operation).frames
    return frames[0].place if frames else "unknown place"
