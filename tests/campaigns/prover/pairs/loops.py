"""Pairs about loops."""

from campaigns.prover.pairs.text import NEXT, ONE, ZERO, S, V, main, pair, while_loop

__all__ = ["LOOPS"]


def _count(step: int, *, limit: str = "5") -> str:
    body = f"%s = stablehlo.constant dense<{step}> : {S} %j = stablehlo.add %i, %s : {S}"
    return main(f"{ZERO} {while_loop(body, '%j', '%i = %z', S, limit=limit)} return %l : {S}", results=S)


def _two(first: str, second: str, inits: str, outputs: str, *, test: str = "%i") -> str:
    """A loop that carries a counter and two vectors."""
    body = f"{NEXT} %p = {first} : {V} %q = {second} : {V}"
    loop = while_loop(body, "%j, %p, %q", f"%i = %z, {inits}", f"{S}, {V}, {V}", test=test)
    return main(f"{ZERO} {loop} return {outputs} : {V}, {V}", results=f"{V}, {V}")


_SINE_COSINE = _two("stablehlo.sine %a", "stablehlo.cosine %b", "%a = %x, %b = %x", "%l#1, %l#2")

_COUPLED = _two("stablehlo.sine %b", "stablehlo.sine %a", "%a = %x, %b = %x", "%l#1, %l#2")


def _one_carry(outputs: str) -> str:
    body = f"{NEXT} %p = stablehlo.sine %a : {V}"
    loop = while_loop(body, "%j, %p", "%i = %z, %a = %x", f"{S}, {V}")
    return main(f"{ZERO} {loop} return {outputs} : {V}, {V}", results=f"{V}, {V}")


def _nested(inner: str) -> str:
    """Two counters that both start from zero; the inner body combines them."""
    body = f"%d = {inner} : {S} %e = stablehlo.add %d, %k : {S} %o = stablehlo.constant dense<1> : {S} "
    body += f"%h = stablehlo.add %j, %o : {S}"
    loop = f"""
    %m:2 = stablehlo.while(%j = %z, %k = %c) : {S}, {S}
    cond {{
      %n = stablehlo.constant dense<3> : {S}
      %t = stablehlo.compare LT, %j, %n, SIGNED : ({S}, {S}) -> tensor<i1>
      stablehlo.return %t : tensor<i1>
    }} do {{ {body} stablehlo.return %h, %e : {S}, {S} }}
    {ONE} %g = stablehlo.add %i, %one : {S}"""
    outer = while_loop(loop, "%g, %m#1", "%i = %z, %c = %w", f"{S}, {S}")
    return main(
        f"{ZERO} %w = stablehlo.constant dense<7> : {S} {outer} return %l#1 : {S}",
        results=S,
    )


def _register(output: str) -> str:
    """A shift register of three stages with equal initial values."""
    body = f"{NEXT} %p = stablehlo.sine %c : {V}"
    loop = while_loop(
        body,
        "%j, %p, %a, %b",
        "%i = %z, %a = %x, %b = %x, %c = %x",
        f"{S}, {V}, {V}, {V}",
    )
    return main(f"{ZERO} {loop} return {output} : {V}")


def _register_reversed(output: str) -> str:
    body = f"{NEXT} %p = stablehlo.sine %a : {V}"
    loop = while_loop(
        body,
        "%b, %c, %p, %j",
        "%a = %x, %b = %x, %c = %x, %i = %z",
        f"{V}, {V}, {V}, {S}",
    )
    return main(f"{ZERO} {loop} return {output} : {V}")


def _constant_carry(use: str, inits: str = "%a = %x, %b = %y") -> str:
    body = f"{NEXT} %p = stablehlo.subtract %a, {use} : {V}"
    loop = while_loop(body, "%j, %p, %b", f"%i = %z, {inits}", f"{S}, {V}, {V}")
    return main(f"{ZERO} {loop} return %l#1, %l#2 : {V}, {V}", results=f"{V}, {V}")


_DIFFERENCE = main(f"%r = stablehlo.subtract %x, %y : {V} return %r : {V}")


def _exchange(outputs: str) -> str:
    """Two carries that change places at each step."""
    text = while_loop(NEXT, "%j, %b, %a", "%i = %z, %a = %x, %b = %y", f"{S}, {V}, {V}")
    return main(f"{ZERO} {text} return {outputs} : {V}")


LOOPS = (
    pair("carries that change places", _exchange("%l#1"), _exchange("%x"), False),
    pair("steps of two sizes from one start", _count(1), _count(2), False),
    pair("trip count", _count(1), _count(1, limit="6"), False),
    pair(
        "carries permuted",
        _SINE_COSINE,
        _two("stablehlo.cosine %a", "stablehlo.sine %b", "%a = %x, %b = %x", "%l#2, %l#1"),
        True,
    ),
    pair(
        "updates exchanged between carries that start alike",
        _SINE_COSINE,
        _two("stablehlo.cosine %a", "stablehlo.sine %b", "%a = %x, %b = %x", "%l#1, %l#2"),
        False,
    ),
    pair(
        "one initial value",
        _SINE_COSINE,
        _two("stablehlo.sine %a", "stablehlo.cosine %b", "%a = %y, %b = %x", "%l#1, %l#2"),
        False,
    ),
    pair("a duplicated carry, updates crossed", _one_carry("%l#1, %l#1"), _COUPLED, True),
    pair(
        "result of a loop against its initial value", _one_carry("%l#1, %l#1"), _one_carry("%l#1, %x"), False
    ),
    pair(
        "counters of nested loops confused",
        _nested("stablehlo.subtract %i, %j"),
        _nested("stablehlo.subtract %j, %i"),
        False,
    ),
    pair("one counter for another", _nested("stablehlo.add %i, %j"), _nested("stablehlo.add %j, %j"), False),
    pair("a shift register in another order", _register("%l#2"), _register_reversed("%l#1"), True),
    pair("another stage of a shift register", _register("%l#2"), _register_reversed("%l#0"), False),
    pair("a constant carry captured instead", _constant_carry("%b"), _constant_carry("%y"), True),
    pair("a constant carry's start", _constant_carry("%b"), _constant_carry("%b", "%a = %x, %b = %x"), False),
    pair(
        "a dead loop",
        _DIFFERENCE,
        main(
            f"{ZERO} {while_loop(NEXT, '%j', '%i = %z', S)} %r = stablehlo.subtract %x, %y : {V} return %r : {V}"
        ),
        True,
    ),
)
