"""Pairs of small modules as text, and the functions that build them."""

import dataclasses

from parity.verdicts import Verdict

__all__ = ["NEXT", "ONE", "ZERO", "Pair", "S", "V", "effect", "main", "pair", "while_loop"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pair:
    """Two modules as text.

    Args:
        name: subject of the pair.
        reference: the text of one module.
        candidate: the text of the other.
        rung: the verdict that the prover must return: proved, reordered or unproved.
        arguments: order of the candidate's arguments; empty for the reference's.
    """

    name: str
    reference: str
    candidate: str
    rung: Verdict
    arguments: tuple[int, ...] = ()


V = "tensor<4xf32>"

S = "tensor<i32>"


def main(
    body: str,
    *,
    arguments: str = f"%x: {V}, %y: {V}",
    results: str = V,
    more: str = "",
    head: str = "",
) -> str:
    """Returns a module with this body of ``@main``, further functions and module attributes."""
    return f"module {head} {{ func.func public @main({arguments}) -> ({results}) {{ {body} }} {more} }}"


def while_loop(
    update: str, yields: str, inits: str, types: str, *, test: str = "%i", limit: str = "5"
) -> str:
    """A loop whose body and condition name the carries as on the left of ``inits``."""
    return f"""
    %l:{len(types.split(","))} = stablehlo.while({inits}) : {types}
    cond {{
      %n = stablehlo.constant dense<{limit}> : {S}
      %t = stablehlo.compare LT, {test}, %n, SIGNED : ({S}, {S}) -> tensor<i1>
      stablehlo.return %t : tensor<i1>
    }} do {{ {update}
      stablehlo.return {yields} : {types}
    }}"""


ZERO = f"%z = stablehlo.constant dense<0> : {S}"

ONE = f"%one = stablehlo.constant dense<1> : {S}"

NEXT = f"{ONE} %j = stablehlo.add %i, %one : {S}"


def effect(target: str, operand: str, result: str = "%e", attributes: str = "has_side_effect = true") -> str:
    """Returns a library call, by default with a side effect."""
    return f"{result} = stablehlo.custom_call @{target}({operand}) {{{attributes}}} : ({V}) -> {V}"


def pair(
    name: str, reference: str, candidate: str, same: bool | Verdict, arguments: tuple[int, ...] = ()
) -> Pair:
    """Returns a pair; ``same`` is the rung, or whether it is proved."""
    rung = same if isinstance(same, Verdict) else Verdict.PROVED if same else Verdict.UNPROVED
    return Pair(name=name, reference=reference, candidate=candidate, rung=rung, arguments=arguments)
