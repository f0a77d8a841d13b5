"""Attributes and types as text that has the same meaning in both modules."""

import hashlib
import itertools
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from parity.ir.jax_internals import ir
from parity.ir.mlir import (
    UnreadAttribute,
    attribute_items,
    dense_array,
    replace_symbols,
    split_list,
    symbol_of,
)
from parity.ir.stablehlo.operations import Group, facts, has_effect
from parity.ir.stablehlo.program import SLOTTED, Form, Kind

# Only integers and booleans commute bit for bit.
_EXACT = re.compile(r"tensor<(?:[\dx?]*x)?(?:i|si|ui)\d+>")
_KINDS = {
    "stablehlo.while": Kind.WHILE,
    "stablehlo.case": Kind.BRANCH,
    "stablehlo.if": Kind.BRANCH,
    "stablehlo.optimization_barrier": Kind.BARRIER,
    "sdy.manual_computation": Kind.MANUAL,
    "func.call": Kind.CALL,
}
_NAMED_SHARDING = re.compile(r"#sdy\.sharding<(@[^,]+),")
_BRACES = re.compile(r"\{([^{}]*)\}")
_SHARDINGS = frozenset({"mhlo.sharding", "sdy.sharding"})
_SHARDING_OPS = frozenset({"sdy.sharding_constraint", "sdy.reshard"})
_SHARDING_TARGETS = frozenset({'"Sharding"'})
_MEMORY = '"annotate_device_placement"'
"""Declared as a side effect only to keep the compiler from moving it; it returns its operand."""
_CHANNEL = re.compile(r"(#stablehlo\.channel_handle<handle = )0*[1-9]\d*(, type = \d+>)")
_MAX_TEXT = 200
_EMPTY = "{axes = []}"
_unique = itertools.count()


class OpSignatures:
    """Converts the attributes of one module's operations to words.

    Words of both sides are equal exactly if MLIR prints equal texts after these replacements: a mesh symbol by the
    mesh, a function symbol by its position (its body becomes a region of the operation), the identity of a positive
    channel of a collective by ``+``, a dense constant by a hash of its bytes. Text that cannot be resolved (another
    symbol, a resource) equals no other text.

    Args:
        ignore_shardings: True to drop sharding annotations.
    """

    def __init__(self, module: ir.Module, ignore_shardings: bool):
        self._ignore = ignore_shardings
        self._texts: dict[Any, str] = {}
        self._forms: dict[tuple, Form] = {}
        self._private = f"known only to side {next(_unique)}"
        self._meshes: dict[str, str] = {}
        self._others: list[str] = []
        self.functions: dict[str, Any] = {}
        self.meshes: dict[str, str] = {}
        for op in module.body.operations:
            self._define(op.operation)

    def _define(self, operation: Any) -> None:
        items = dict(attribute_items(operation))
        if operation.name == "func.func":
            self.functions[symbol_of(str(items["sym_name"]))] = operation
        elif operation.name == "sdy.mesh":
            name = symbol_of(str(items.pop("sym_name")))
            rest = sorted((key, str(value)) for key, value in items.items() if key != "sym_visibility")
            self._meshes[name] = f"{operation.name}{rest}"
            self.meshes[name] = str(items["mesh"])
        else:
            self._others.append(operation.get_asm(enable_debug_info=False))

    def definitions(self) -> dict[str, str]:
        """Returns the module's definitions other than functions: the set of its meshes, and all unknown operations.

        A mesh without axes is left out; an operation that names it has it in its word.
        """
        meshes = sorted(mesh for mesh in set(self._meshes.values()) if _EMPTY not in mesh)
        found = {} if self._ignore or not meshes else {"meshes": str(meshes)}
        return {**found, "definitions": str(self._others)} if self._others else found

    def closed_text(self, kind: Any) -> str:
        """Returns a type, or an attribute without a region for the functions that it names, as text."""
        symbols: list[str] = []
        text = self._text(kind, symbols)
        return f"{text} {self._private}" if symbols else text

    def attributes(self, items: list[tuple[str, Any]], drop: frozenset[str]) -> dict[str, str]:
        """Returns attributes as text, without the dropped names and, if shardings are ignored, without shardings."""
        return {
            name: self.closed_text(value)
            for name, value in items
            if name not in drop and not (self._ignore and name in _SHARDINGS)
        }

    def array(self, value: Any) -> str:
        """Returns the dtype, shape and a digest of an array; unique text if its values are unavailable, or for None."""
        if value is None or not getattr(value, "is_fully_addressable", True):
            return self._private
        if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
            return f"{value.dtype} {self.array(jax.random.key_data(value))}"
        data = np.asarray(value)
        return _digest_text(data.tobytes(), f"{data.dtype}{list(data.shape)}")

    def form(self, operation: Any, operands: int) -> Form:
        """Returns the form of an MLIR operation with this number of operands."""
        name, items, types = operation.name, attribute_items(operation), operation.results.types
        key = (name, operands, *items, *types)
        form = self._forms.get(key)
        if form is None:
            form = self._forms[key] = self._build(operation, name, items, types)
        return form

    def _build(self, operation: Any, name: str, items: list[tuple[str, Any]], results: list[Any]) -> Form:
        symbols: list[str] = []
        texts = {
            key: self._text(value, symbols)
            for key, value in items
            if not (self._ignore and key in _SHARDINGS) and not (name == "func.call" and key == "callee")
        }
        if facts(name).group is Group.COLLECTIVE and "channel_handle" in texts:
            texts["channel_handle"] = _CHANNEL.sub(r"\1+\2", texts["channel_handle"])
        if _is_host_callback(name, texts):
            texts["host function"] = self._private
        kind = self._kind(name, operation, texts, symbols)
        types = [self.closed_text(kind) for kind in results]
        head = bare = f"{name} {sorted(texts.items())}"
        ins, outs = ("",) * len(operation.operands), tuple(types)
        if kind in SLOTTED:
            ins, outs, shared = _slots(kind, operation, texts, types)
            bare = f"{name} {sorted(shared.items())}"
        return Form(
            name=name,
            kind=kind,
            word=f"{head} -> {types}",
            bare=bare,
            slots_in=ins,
            slots_out=outs,
            symbols=tuple(symbols),
            effect=has_effect(
                name,
                len(types),
                declared=texts.get("has_side_effect") == "true" and texts.get("call_target_name") != _MEMORY,
            ),
            attributed=bool(texts),
            attributes=dict(items),
            types=tuple(results),
        )

    def _kind(self, name: str, operation: Any, texts: dict[str, str], symbols: list[str]) -> int:
        if self._ignore and (name in _SHARDING_OPS or texts.get("call_target_name") in _SHARDING_TARGETS):
            return Kind.SKIP
        if name == "sdy.sharding_constraint" and "?" not in texts["sharding"]:
            return Kind.CONSTRAINT
        if facts(name).commutes and len(operation.operands) == 2:
            exact = _EXACT.fullmatch(self.closed_text(operation.results[0].type))
            return Kind.COMMUTE if exact else Kind.REORDER
        if name in _KINDS:
            return _KINDS[name]
        return Kind.REGION if len(operation.regions) or symbols else Kind.PLAIN

    def _text(self, attribute: Any, symbols: list[str]) -> str:
        text = self._texts.get(attribute)
        if text is None:
            found: list[str] = []
            if isinstance(attribute, ir.DenseElementsAttr):
                text = _dense_text(attribute)
            elif isinstance(attribute, UnreadAttribute) and len(attribute.text) > _MAX_TEXT:
                text = _digest_text(attribute.text.encode(), "an attribute as text")
            else:
                text = self._resolve(self._without_single_axes(str(attribute)), found, len(symbols))
                text = f"{text} {self._private}" if "dense_resource<" in text else text
            if found:
                symbols += found
            else:
                self._texts[attribute] = text
        return text

    def _without_single_axes(self, text: str) -> str:
        """Returns a sharding without the axes of size one, which split nothing; any other text unchanged."""
        mesh = _NAMED_SHARDING.match(text)
        sizes = mesh_axes(self.meshes.get(symbol_of(mesh[1]), "")) if mesh else ()
        single = {axis for axis, size in sizes if size == 1}
        if not single or ":(" in text:  # parts of axes
            return text

        def kept(braces: re.Match) -> str:
            return (
                "{" + ", ".join(part for part in braces[1].split(", ") if part.strip('"') not in single) + "}"
            )

        return _BRACES.sub(kept, text)

    def _resolve(self, text: str, symbols: list[str], before: int = 0) -> str:
        def replace(reference: str) -> str:
            name = symbol_of(reference)
            if name in self._meshes:
                return self._meshes[name]
            if name in self.functions:
                symbols.append(name)
                return f"@function {before + len(symbols)}"
            return f"{reference} {self._private}"

        return replace_symbols(text, replace)


def mesh_axes(text: str) -> tuple[tuple[str, int], ...]:
    """Returns names and sizes of the axes of a mesh, which MLIR prints as this text."""
    return tuple((axis, int(size)) for axis, size in re.findall(r'"([^"]+)"\s*=\s*(\d+)', text))


def _slots(
    kind: int, operation: Any, texts: dict[str, str], types_out: list[str]
) -> tuple[tuple[str, ...], tuple[str, ...], dict[str, str]]:
    """Splits attributes that hold one entry per operand or result into the slots of a slotted kind; the rest is shared.

    Other attributes may refer to slots by position. If there are any, slots keep their positions.
    """
    shared = dict(texts)
    ins, outs = [""] * len(operation.operands), list(types_out)
    if kind == Kind.MANUAL:
        ins = _per_slot(shared, "in_shardings", ins)  # with the operand's type it gives the parameter's
        outs = _per_slot(shared, "out_shardings", outs)
    if set(shared) - {"manual_axes"}:
        ins, outs = ([f"{place} {slot}" for place, slot in enumerate(slots)] for slots in (ins, outs))
    return tuple(ins), tuple(outs), shared


def _per_slot(shared: dict[str, str], name: str, slots: list[str]) -> list[str]:
    """Moves an attribute's entries to the slots if it has one entry for each; else leaves it shared."""
    entries = split_list(shared.get(name, ""))
    if len(entries) != len(slots):
        return slots
    del shared[name]
    return [f"{slot} {entry}" for slot, entry in zip(slots, entries, strict=True)]


def _is_host_callback(name: str, texts: dict[str, str]) -> bool:
    """True if the operation calls a Python function that the module names only by an index or a channel."""
    if name in ("stablehlo.send", "stablehlo.recv"):
        return texts.get("is_host_transfer") == "true"
    return name == "stablehlo.custom_call" and "callback" in texts.get("call_target_name", "")


def _dense_text(attribute: Any) -> str:
    if attribute.is_splat:
        return str(attribute)
    array = dense_array(attribute)
    if array is None:
        return _digest_text(str(attribute).encode(), f"{attribute.type} as text")
    return _digest_text(array.tobytes(), str(attribute.type))


def _digest_text(data: bytes, kind: str) -> str:
    return f"dense<#{hashlib.blake2b(data, digest_size=20).hexdigest()}> : {kind}"
