"""Digest of a compiled program that ignores names and the order in which its instructions are listed."""

import hashlib
import re
from collections.abc import Iterator
from typing import Any

import jax

from parity.ir.hlo.hlo import CALLS, Computation, HloModule, Instruction
from parity.ir.hlo.hlo_parse import parse_hlo
from parity.ir.jax_internals import compiled_program

BEFORE = "control-predecessors"
_NAME = re.compile(r"%([\w.\-]+)")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
_UNTOLD = re.compile(
    r" (?:rng|rng-get-and-update-state|infeed|outfeed|send|recv)(?:-start|-done)?\(|\{\.\.\.\}| b\("
)
"""External inputs and effects, constants that are not written out, and buffers."""


def anonymous_digest(text: str) -> str | None:
    """Returns a digest of a compiled program that does not depend on names or on the order of the listing.

    Two programs with equal digests have the same instructions on the same operands, with the same attributes, layouts
    and settings. Therefore all later stages of compilation get the same input.

    It is None if the text does not determine the whole program, or cannot be parsed.

    Args:
        text: one module of optimised HLO, all constants in full, names marked by ``%``, without metadata.
    """
    if "callback" in text or _UNTOLD.search(_QUOTED.sub('""', text)):
        return None
    try:
        module = parse_hlo(text)
    except ValueError:
        return None
    if not all(_is_told(instruction) for _, instruction in module.instructions()):
        return None
    lines = [f"{key}={value}" for key, value in sorted(module.attributes.items())]
    return hashlib.sha256("\n".join([*lines, *_lines(module)]).encode()).hexdigest()


def compiled_digest(compiled: Any) -> str | None:
    """Returns the digest of a ``jax.stages.Compiled``, or the stored one of a program compiled elsewhere."""
    if isinstance(compiled, jax.stages.Compiled):
        return anonymous_digest(compiled_program(compiled.runtime_executable()))
    return compiled.anonymous


def _is_told(instruction: Instruction) -> bool:
    """True if all sizes are known and no name is in an unknown place."""
    named = any("%" in _QUOTED.sub('""', one) for one in _plain(instruction))
    return not named and not any(leaf.dynamic for leaf in instruction.shape.leaves)


def _plain(instruction: Instruction) -> list[str]:
    """Returns the attributes of an instruction without metadata, calls and control predecessors."""
    rest = sorted(instruction.attributes.items())
    return [f"{key}={value}" for key, value in rest if key not in (*CALLS, BEFORE, "metadata")]


def _lines(module: HloModule) -> Iterator[str]:
    numbers = {module.entry: 0}
    waiting = [module.entry]
    for name in waiting:  # grows
        body = module.computations[name]
        yield f"computation {numbers[name]} {sorted(body.attributes.items())}"
        places: dict[str, int] = {}
        for one in _walk(body):
            for _, called in one.called():
                if called not in numbers:
                    numbers[called] = len(numbers)
                    waiting.append(called)
            calls = [f"{key}={numbers[called]}" for key, called in one.called()]
            operands = [places[operand] for operand in one.operands]
            before = sorted(places[other] for other in _before(one))
            places[one.name] = len(places)
            layouts = [leaf.layout for leaf in one.shape.leaves]
            yield f"{one.opcode}{operands}{before} {one.shape}{layouts} {one.literal} {calls} {_plain(one)}"
        yield f"result {places[body.root]}"


def _walk(body: Computation) -> Iterator[Instruction]:
    """Yields the instructions behind the result, operands first, then all others as listed."""
    done: set[str] = set()
    for start in (body.root, *(one.name for one in body.instructions)):
        stack = [start]
        while stack:
            one = body.by_name[stack[-1]]
            ahead = [name for name in (*one.operands, *_before(one)) if name not in done]
            if one.name in done or not ahead:
                stack.pop()
                if one.name not in done:
                    done.add(one.name)
                    yield one
            else:
                stack += reversed(ahead)


def _before(one: Instruction) -> list[str]:
    return _NAME.findall(one.attributes.get(BEFORE, ""))
