"""Pairs about operand order, side effects and constants."""

from campaigns.prover.pairs.text import NEXT, ZERO, Pair, S, V, effect, main, pair, while_loop
from parity.verdicts import Verdict

__all__ = ["CONSTANTS", "EFFECTS", "ORDER"]


def _configured(text: str) -> str:
    return main(effect("one", "%x", attributes=f'backend_config = "{text}"') + f"return %e : {V}")


def _branch(inside: str, output: str) -> str:
    body = f"""{effect("tick", "%x", "%o")}
    %r = "stablehlo.case"(%i) ({{ {inside} stablehlo.return {output} : {V} }},
      {{ stablehlo.return %x : {V} }}) : ({S}) -> {V}
    %s = stablehlo.add %r, %o : {V} return %s : {V}"""
    return main(body, arguments=f"%x: {V}, %i: {S}")


def _case(index: str, first: str, second: str, outputs: str) -> str:
    body = f"""%r:2 = "stablehlo.case"({index}) ({{
      %a = stablehlo.sine %x : {V} %b = stablehlo.cosine %x : {V} stablehlo.return {first} : {V}, {V} }},
      {{ %a = stablehlo.tanh %x : {V} %b = stablehlo.negate %x : {V} stablehlo.return {second} : {V}, {V} }}
      ) : ({S}) -> ({V}, {V}) return {outputs} : {V}, {V}"""
    return main(body, arguments=f"%x: {V}, %i: {S}", results=f"{V}, {V}")


def _constant(text: str, kind: str = "tensor<3xf32>", more: str = "") -> str:
    return main(f"%c = stablehlo.constant {text} : {kind} return %c : {kind}", results=kind) + more


def _resource(name: str, data: str) -> str:
    footer = f'{{-# dialect_resources: {{ builtin: {{ {name}: "0x04000000{data}" }} }} #-}}'
    return f"{_constant(f'dense_resource<{name}>')} {footer}"


def _reduce(body: str) -> str:
    zero = "%zero = stablehlo.constant dense<0.0> : tensor<f32>"
    return main(
        f"""{zero} %r = "stablehlo.reduce"(%x, %zero) <{{dimensions = array<i64: 0>}}> ({{
      ^bb0(%a: tensor<f32>, %b: tensor<f32>): %s = {body} : tensor<f32> stablehlo.return %s : tensor<f32>
      }}) : ({V}, tensor<f32>) -> tensor<f32> return %r : tensor<f32>""",
        results="tensor<f32>",
    )


def _sum_of_roots(order: str) -> str:
    roots = f"%a = stablehlo.sqrt %x : {V} %b = stablehlo.sqrt %y : {V}"
    return main(f"{roots} %r = stablehlo.add {order} : {V} return %r : {V}")


_DIFFERENCE = main(f"%r = stablehlo.subtract %x, %y : {V} return %r : {V}")

_CALLBACK = main(
    effect("xla_ffi_python_cpu_callback", "%x", attributes="mhlo.backend_config = {index = 0 : ui64}")
    + f" return %e : {V}"
)


def _received(handle: str) -> str:
    return main(f"""%t = stablehlo.create_token : !stablehlo.token %r:2 = "stablehlo.recv"(%t) <{{
      channel_handle = #stablehlo.channel_handle<handle = {handle}
      }}> : (!stablehlo.token) -> ({V}, !stablehlo.token) return %r#0 : {V}""")


_FROM_HOST = _received("1, type = 3>, is_host_transfer = true")


def _cast(*types: str) -> str:
    """Two casts there and back."""
    lines = [
        f"%c{at} = stablehlo.convert %x : ({V}) -> {V.replace('f32', kind)} "
        f"%r{at} = stablehlo.convert %c{at} : ({V.replace('f32', kind)}) -> {V}"
        for at, kind in enumerate(types)
    ]
    return main(f"{' '.join(lines)} return %r0, %r1 : {V}, {V}", results=f"{V}, {V}")


_TICK_TOCK = main(f"{effect('tick', '%x')} {effect('tock', '%y', '%f')} return %e : {V}")

_RNG = """%a = stablehlo.constant dense<0.0> : tensor<f32> %b = stablehlo.constant dense<1.0> : tensor<f32>
  %s = stablehlo.constant dense<4> : tensor<1xi64>"""

_DRAW = f"stablehlo.rng %a, %b, %s, distribution = UNIFORM : (tensor<f32>, tensor<f32>, tensor<1xi64>) -> {V}"


def _commuted(operation: str, kind: str, rung: bool | Verdict) -> Pair:
    def text(order: str) -> str:
        body = f"%r = stablehlo.{operation} {order} : {kind} return %r : {kind}"
        return main(body, results=kind, arguments=f"%x: {kind}, %y: {kind}")

    return pair(f"commuted {operation} of {kind}", text("%x, %y"), text("%y, %x"), rung)


_FLOATS = ("f32", "bf16", "f64")
_COMMUTED = (
    *[
        _commuted(name, "tensor<3x2xi32>", True)
        for name in ("add", "multiply", "and", "or", "xor", "minimum")
    ],
    _commuted("maximum", "tensor<ui8>", True),
    _commuted("add", "tensor<4xi1>", True),
    _commuted("multiply", "tensor<4xcomplex<f32>>", Verdict.REORDERED),
    *[_commuted(name, f"tensor<3x{kind}>", True) for name in ("add", "minimum") for kind in _FLOATS],
    _commuted("add", "tensor<3xf8E4M3FN>", Verdict.REORDERED),
    _commuted("subtract", "tensor<4xi32>", False),
)

ORDER = (
    pair(
        "commuted addition of computed values",
        _sum_of_roots("%a, %b"),
        _sum_of_roots("%b, %a"),
        Verdict.REORDERED,
    ),
    *_COMMUTED,
    pair(
        "exchanged operands of a subtraction", _DIFFERENCE, _DIFFERENCE.replace("%x, %y :", "%y, %x :"), False
    ),
    pair(
        "exchanged arguments",
        _DIFFERENCE,
        _DIFFERENCE.replace("%x, %y :", "%y, %x :"),
        True,
        arguments=(1, 0),
    ),
    pair(
        "reassociated addition",
        main(f"%a = stablehlo.add %x, %y : {V} %r = stablehlo.add %a, %x : {V} return %r : {V}"),
        main(f"%a = stablehlo.add %x, %x : {V} %r = stablehlo.add %a, %y : {V} return %r : {V}"),
        False,
    ),
    pair(
        "reduction body commuted",
        _reduce("stablehlo.add %a, %b"),
        _reduce("stablehlo.add %b, %a"),
        Verdict.REORDERED,
    ),
    pair("reduction body", _reduce("stablehlo.add %a, %b"), _reduce("stablehlo.maximum %a, %b"), False),
    pair(
        "reduction body of one parameter",
        _reduce("stablehlo.add %a, %b"),
        _reduce("stablehlo.add %b, %b"),
        False,
    ),
    pair(
        "branch results permuted",
        _case("%i", "%a, %b", "%a, %b", "%r#0, %r#1"),
        _case("%i", "%b, %a", "%b, %a", "%r#1, %r#0"),
        True,
    ),
    pair(
        "results of one branch exchanged",
        _case("%i", "%a, %b", "%a, %b", "%r#0, %r#1"),
        _case("%i", "%a, %b", "%b, %a", "%r#0, %r#1"),
        False,
    ),
)

EFFECTS = (
    pair(
        "side effects in the same order",
        _TICK_TOCK,
        _TICK_TOCK,
        True,
    ),
    pair(
        "side effects in another order",
        main(f"{effect('tick', '%x')} {effect('tock', '%y', '%f')} return %e : {V}"),
        main(f"{effect('tock', '%y', '%f')} {effect('tick', '%x')} return %e : {V}"),
        False,
    ),
    pair(
        "a side effect dropped",
        main(f"{effect('tick', '%x')} return %x : {V}"),
        main(f"return %x : {V}"),
        False,
    ),
    pair(
        "a side effect inside a loop dropped",
        main(f"{ZERO} {while_loop(NEXT + effect('tick', '%x'), '%j', '%i = %z', S)} return %x : {V}"),
        main(f"return %x : {V}"),
        False,
    ),
    pair(
        "a side effect done twice",
        main(f"{effect('tick', '%x')} return %e : {V}"),
        main(f"{effect('tick', '%x', '%d')} {effect('tick', '%x')} return %e : {V}"),
        False,
    ),
    pair(
        "a value of this side effect for a value of that",
        main(f"{effect('tick', '%x')} {effect('tick', '%x', '%f')} return %e : {V}"),
        main(f"{effect('tick', '%x')} {effect('tick', '%x', '%f')} return %f : {V}"),
        False,
    ),
    pair(
        "a side effect in a branch for one outside",
        _branch(effect("tick", "%x"), "%e").replace("f32", "i32"),
        _branch(effect("tick", "%x"), "%o").replace("f32", "i32"),
        False,
    ),
    pair(
        "random draws repeated",
        main(f"{_RNG} %d = {_DRAW} %r = stablehlo.add %d, %d : {V} return %r : {V}"),
        main(f"{_RNG} %d = {_DRAW} %e = {_DRAW} %r = stablehlo.add %d, %e : {V} return %r : {V}"),
        False,
    ),
    pair(
        "a dead pure library call",
        main(f"return %x : {V}"),
        main(f"{effect('pure', '%x', attributes='')} return %x : {V}"),
        True,
    ),
    pair(
        "library call target",
        main(f"{effect('one', '%x', attributes='')} return %e : {V}"),
        main(f"{effect('two', '%x', attributes='')} return %e : {V}"),
        False,
    ),
    pair(
        "library call configuration",
        _configured("a"),
        _configured("b"),
        False,
    ),
    pair("host callbacks of one index", _CALLBACK, _CALLBACK, False),
    pair("numbers that the host sends", _FROM_HOST, _FROM_HOST, False),
    pair("the channel of a transfer", _received("1, type = 1>"), _received("2, type = 1>"), False),
    pair("one type of two results", _cast("f16", "bf16"), _cast("f16", "f16"), False),
)

CONSTANTS = (
    pair("splat and list", _constant("dense<1.0>"), _constant("dense<[1.0, 1.0, 1.0]>"), True),
    pair("one element", _constant("dense<[1.0, 2.0, 3.0]>"), _constant("dense<[1.0, 2.0, 4.0]>"), False),
    pair("sign of zero", _constant("dense<0.0>"), _constant("dense<-0.0>"), False),
    pair("payload of a NaN", _constant("dense<0x7FC00000>"), _constant("dense<0x7FC00001>"), False),
    pair(
        "one bf16 element",
        _constant("dense<[1.0, 2.0, 3.0]>", "tensor<3xbf16>"),
        _constant("dense<[1.0, 4.0, 3.0]>", "tensor<3xbf16>"),
        False,
    ),
    pair(
        "element type", _constant("dense<1>", "tensor<3xi32>"), _constant("dense<1>", "tensor<3xui32>"), False
    ),
    pair(
        "resources of one name",
        _resource("one", "0000803F0000004000004040"),
        _resource("one", "0000803F0000004000008040"),
        False,
    ),
)
