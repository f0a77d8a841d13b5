"""Comparison up to sharding: proves both sides equal without annotations, and lists the annotations that differ."""

import collections
import dataclasses
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from parity.compare.evidence import Evidence
from parity.compare.exactness import walk
from parity.compare.side import STATE, Side
from parity.ir.location import operation_source
from parity.ir.mlir import attribute_items, dictionary_items
from parity.prove import Proof, prove

NOTHING = "nothing"


class ShardingDifference(NamedTuple):
    """A place whose sharding annotations differ; `NOTHING` means no annotation."""

    place: str
    reference: str
    candidate: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModuloSharding:
    """The result of comparing both sides up to sharding annotations; it does not claim equal bits.

    Args:
        proof: without annotations.
        differing: for each place that differs, the annotations that a side has alone or more often, as text.
    """

    proof: Proof
    differing: tuple[ShardingDifference, ...] = ()

    @property
    def verdict(self) -> str:
        """A separate rung: ``same up to sharding``, ``same values up to sharding`` by rules, or ``differs``."""
        if not (self.proof.proved or self.proof.reordered):
            return "differs"
        return "same up to sharding" if self.proof.same_program else "same values up to sharding"


def prove_modulo_sharding(evidence: Evidence) -> ModuloSharding:
    """Compares both sides of a case without their sharding annotations, and lists those that differ."""
    return ModuloSharding(proof=_unannotated_proof(evidence), differing=_otherwise(evidence.sides))


def _unannotated_proof(evidence: Evidence) -> Proof:
    sides, pairing = evidence.sides, evidence.pairing
    if not evidence.weights.is_identity:
        return walk(sides, evidence.weights, evidence.case)
    assert pairing is not None
    if pairing.unmatched and evidence.operation_proof:
        return evidence.operation_proof
    return prove(
        *(side.lowered for side in sides),
        arguments=pairing.arguments,
        results=pairing.results,
        alone=pairing.alone,
        ignore_shardings=True,
    )


def _otherwise(sides: tuple[Side, Side]) -> tuple[ShardingDifference, ...]:
    """Returns the places whose annotations differ: the mesh, arguments and results by name, operations by line."""
    left, right = (collections.Counter(_annotated(side)) for side in sides)
    alone = [_by_place(left - right), _by_place(right - left)]
    places = dict.fromkeys((*alone[0], *alone[1]))
    return tuple(
        ShardingDifference(place, *(found.get(place, NOTHING) for found in alone)) for place in places
    )


def _by_place(counts: collections.Counter[tuple[str, str]]) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    for (place, text), times in counts.items():
        found.setdefault(place, []).append(f"{text} {times} times" if times > 1 else text)
    return {place: "; ".join(texts) for place, texts in found.items()}


_SHARDING = ("sdy.sharding", "mhlo.sharding", "sharding")
_NAMED = re.compile(r"#sdy\.sharding<(.*)>$", re.DOTALL)


def _annotated(side: Side) -> Iterator[tuple[str, str]]:
    """Yields place and sharding of each annotation of the lowered program."""
    functions = side.functions
    with functions.module.context:
        for text in functions.signatures.meshes.values():
            yield "mesh", text.removeprefix("#sdy.mesh")
        given = {
            at: path if of == STATE else f"{of} {path}" for at, (of, path) in side.read_arguments.items()
        }
        returned = {at: " ".join(name) for at, name in enumerate(side.results)}
        of_main = dict(attribute_items(functions["main"].operation))
        for kind, key, names in (("argument", "arg_attrs", given), ("result", "res_attrs", returned)):
            for at, each in enumerate(of_main.get(key) or ()):
                for text in _shardings(dictionary_items(each)):
                    yield f"{kind} {names.get(at, at)}", text
        for name in functions.signatures.functions:
            for op in functions[name].body.walk():
                for text in _shardings(op.form.attributes.items()):
                    frames = operation_source(op.source).frames
                    yield f"{op.name} {frames[0].place if frames else 'unknown place'}", text


def _shardings(attributes: Iterable[tuple[str, Any]]) -> Iterator[str]:
    for name, attribute in attributes:
        if name in _SHARDING:
            yield _NAMED.sub(r"\1", str(attribute))
