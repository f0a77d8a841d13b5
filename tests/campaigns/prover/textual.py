"""Modules written as text: operations that JAX does not emit, or rarely."""

from campaigns.prover.pairs.text import S, V

__all__ = ["TEXTS"]

_TYPES = {
    "complex<f32>": "(1.5, 2.0), (-3.0, 4.25)",
    "complex<f64>": "(1.5, 2.0), (-3.0, 4.25)",
    "i1": "true, false",
    "i2": "1, -2",
    "i4": "3, -5",
    "i8": "3, -5",
    "i16": "3, -5",
    "i32": "3, -5",
    "i64": "3, -5",
    "ui2": "1, 2",
    "ui4": "3, 5",
    "ui8": "3, 5",
    "ui16": "3, 5",
    "ui32": "3, 5",
    "ui64": "3, 5",
    "f4E2M1FN": "1.5, 2.0",
    "f6E2M3FN": "1.5, 2.0",
    "f6E3M2FN": "1.5, 2.0",
    "f8E3M4": "1.5, 0x70",
    "f8E4M3": "1.5, 0x7D",
    "f8E4M3FN": "1.5, 0x7F",
    "f8E4M3FNUZ": "1.5, 0x80",
    "f8E4M3B11FNUZ": "1.5, 0x80",
    "f8E5M2": "1.5, 0x7D",
    "f8E5M2FNUZ": "1.5, 0x80",
    "f8E8M0FNU": "2.0, 4.0",
    "bf16": "1.5, 0x7FC0",
    "f16": "1.5, 0x7E00",
    "f32": "1.5, 0x7FC00000",
    "f64": "1.5, 0x7FF8000000000000",
}


def _types() -> str:
    lines, names, kinds = [], [], []
    for number, (element, values) in enumerate(_TYPES.items()):
        first = values.rpartition("), (")[0] + ")" if "(" in values else values.split(", ")[0]
        for letter, text, kind in (
            ("a", f"[{values}]", f"tensor<2x{element}>"),
            ("b", first, f"tensor<3x{element}>"),
        ):
            lines.append(f"%{letter}{number} = stablehlo.constant dense<{text}> : {kind}")
            names.append(f"%{letter}{number}")
            kinds.append(kind)
    results = ", ".join(kinds)
    return (
        f"module {{ func.func public @main(%x: {V}) -> ({V}, {results}) {{ {' '.join(lines)} "
        f"return %x, {', '.join(names)} : {V}, {results} }} }}"
    )


_NAMES = ("@f", '@"f "', r'@"a\22b"', r'@"a\\22b"', '@"größe"', '@"f.1"', "@f.1_", '@"@f"')
_BODIES = ("sine", "cosine", "tanh", "negate", "abs", "exponential", "sqrt", "logistic")


def _symbols() -> str:
    functions = [
        f"func.func private {name}(%p: {V}) -> {V} {{ %q = stablehlo.{body} %p : {V} return %q : {V} }}"
        for name, body in zip(_NAMES, _BODIES, strict=True)
    ]
    lines, last = [], "%x"
    for number, name in enumerate(_NAMES):
        other = _NAMES[(number + 3) % len(_NAMES)]
        lines.append(
            f'%a{number} = stablehlo.composite "my.op" {last} {{decomposition = {name}, '
            f"composite_attributes = {{deep = [{{inner = {other}}}]}}}} : ({V}) -> {V}"
        )
        lines.append(f"%b{number} = func.call {name}(%a{number}) : ({V}) -> {V}")
        lines.append(
            f"%c{number} = stablehlo.custom_call @t(%b{number}) "
            f"{{called_computations = [{other}, {name}]}} : ({V}) -> {V}"
        )
        mesh = ("@m", r'@"m\22"', '@"mäsh"')[number % 3]
        lines.append(f'%d{number} = sdy.sharding_constraint %c{number} <{mesh}, [{{"a"}}]> : {V}')
        last = f"%d{number}"
    meshes = [
        f'sdy.mesh {name} = <["a"={size}, "b"=2]>'
        for name, size in (("@m", 2), (r'@"m\22"', 4), ('@"mäsh"', 8))
    ]
    body = f"func.func public @main(%x: {V}) -> ({V}) {{ {' '.join(lines)} return {last} : {V} }}"
    return f"module {{ {' '.join(meshes)} {body} {' '.join(functions)} }}"


def _call(target: str, operand: str, result: str, kind: str) -> str:
    return f"{result} = stablehlo.custom_call @{target}({operand}) {{has_side_effect = true}} : ({kind}) -> {kind}"


_LOOP = f"""
  %l:4 = "stablehlo.while"(%z, %x, %y, %x) ({{
    ^bb0(%i: {S}, %a: {V}, %b: {V}, %c: {V}):
      {_call("look", "%i", "%e", S)}
      {_call("peek", "%a", "%f", V)}
      %n = stablehlo.constant dense<5> : {S}
      %m = stablehlo.add %e, %i : {S}
      %t = stablehlo.compare LT, %m, %n, SIGNED : ({S}, {S}) -> tensor<i1>
      stablehlo.return %t : tensor<i1>
  }}, {{
    ^bb0(%i: {S}, %a: {V}, %b: {V}, %c: {V}):
      {_call("tick", "%b", "%e", V)}
      {_call("tock", "%a", "%f", V)}
      %o = stablehlo.constant dense<1> : {S}
      %j = stablehlo.add %i, %o : {S}
      %s = stablehlo.subtract %e, %c : {V}
      stablehlo.return %j, %s, %f, %a : {S}, {V}, {V}, {V}
  }}) {{%s}} : ({S}, {V}, {V}, {V}) -> ({S}, {V}, {V}, {V})"""


def _slots(loop: str, pair: str) -> str:
    """A loop with side effects in its condition, a barrier, a case and an if, with or without notes for each slot."""
    branch = "{{ %v = stablehlo.{0} %x : {1} stablehlo.return %v, %y : {1}, {1} }}"
    sine, cosine = branch.format("sine", V), branch.format("cosine", V)
    return f"""module {{ func.func public @main(%x: {V}, %y: {V}, %k: {S}, %u: tensor<i1>) -> ({", ".join([V] * 8)}) {{
      %z = stablehlo.constant dense<0> : {S} {_LOOP.replace("%s}", loop + "}")}
      %b:2 = stablehlo.optimization_barrier {{{pair}}} %x, %y : {V}, {V}
      %r:2 = "stablehlo.case"(%k) ({sine}, {cosine}) {{{pair}}} : ({S}) -> ({V}, {V})
      %w:2 = "stablehlo.if"(%u) ({cosine}, {sine}) {{{pair}}} : (tensor<i1>) -> ({V}, {V})
      {_call("last", "%x", "%q", V)}
      return %l#1, %l#2, %b#0, %b#1, %r#0, %r#1, %w#0, %w#1 : {", ".join([V] * 8)} }} }}"""


TEXTS = {
    "types": _types(),
    "symbols": _symbols(),
    "effects": _slots("", ""),
    "annotated": _slots(
        'my.slots = [1, 2, 3, 4], mhlo.sharding = "{{replicated}, {devices=[2]0,1}, {replicated}, {manual}}"',
        'my.slots = [["a"], ["b"]], my.pair = {in = [5, 6]}',
    ),
}
