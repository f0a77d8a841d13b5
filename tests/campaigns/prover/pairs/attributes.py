"""Pairs about the content of attributes: of single slots, by symbols, in definitions, in constants of all types."""

from collections.abc import Callable

from campaigns.prover.pairs.text import NEXT, ZERO, Pair, S, V, main, pair, while_loop

__all__ = ["SLOTS", "SYMBOLS", "TYPES"]


def _annotated(attribute: str, order: str, *, head: str = "") -> str:
    """A loop over a sine and a cosine, carries in the order ``ab`` or ``ba``, with an attribute."""
    updates = {
        "a": f"%p = stablehlo.sine %a : {V}",
        "b": f"%q = stablehlo.cosine %b : {V}",
    }
    inits, yields = {"a": "%a = %x", "b": "%b = %y"}, {"a": "%p", "b": "%q"}
    body = f"{NEXT} {' '.join(updates[each] for each in 'ab')}"
    carries = ", ".join(inits[each] for each in order)
    loop = while_loop(
        body, f"%j, {', '.join(yields[each] for each in order)}", f"%i = %z, {carries}", f"{S}, {V}, {V}"
    )
    loop = loop.replace("cond {", f"attributes {{{attribute}}} cond {{") if attribute else loop
    places = {each: f"%l#{place + 1}" for place, each in enumerate(order)}
    return main(
        f"{ZERO} {loop} return {places['a']}, {places['b']} : {V}, {V}", results=f"{V}, {V}", head=head
    )


def _barrier(attribute: str, order: str) -> str:
    values = {"a": "%x", "b": "%y"}
    operands = ", ".join(values[each] for each in order)
    places = {each: f"%b#{place}" for place, each in enumerate(order)}
    return main(
        f"%b:2 = stablehlo.optimization_barrier {{{attribute}}} {operands} : {V}, {V} "
        f"return {places['a']}, {places['b']} : {V}, {V}",
        results=f"{V}, {V}",
    )


def _branch(attribute: str, order: str, kind: str = "case") -> str:
    outputs = ", ".join({"a": "%x", "b": "%y"}[each] for each in order)
    places = {each: f"%r#{place}" for place, each in enumerate(order)}
    block = f"{{ stablehlo.return {outputs} : {V}, {V} }}"
    index = "tensor<i32>" if kind == "case" else "tensor<i1>"
    return main(
        f'%r:2 = "stablehlo.{kind}"(%i) ({block}, {block}) {{{attribute}}} : ({index}) -> ({V}, {V}) '
        f"return {places['a']}, {places['b']} : {V}, {V}",
        arguments=f"%i: {index}, %x: {V}, %y: {V}",
        results=f"{V}, {V}",
    )


def _manual(attribute: str, order: str) -> str:
    side, local = '<@mesh, [{"a"}]>', "tensor<2xf32>"
    values = {"a": ("%x", "%p"), "b": ("%y", "%q")}
    operands = ", ".join(values[each][0] for each in order)
    names = ", ".join(f"{values[each][1]}: {local}" for each in order)
    body = f"""%m = "sdy.manual_computation"({operands}) <{{in_shardings = #sdy.sharding_per_value<[{side}, {side}]>,
      out_shardings = #sdy.sharding_per_value<[{side}]>, manual_axes = #sdy<manual_axes{{"a"}}>}}> ({{
      ^bb0({names}): %s = stablehlo.subtract %p, %q : {local} sdy.return %s : {local}
      }}) {{{attribute}}} : ({V}, {V}) -> {V} return %m : {V}"""
    return f'module {{ sdy.mesh @mesh = <["a"=2, "b"=2]> {main(body).removeprefix("module  {")}'


_NUMBERS = "my.slots = [1, 2, 3]"
_TUPLE = 'mhlo.sharding = "{{replicated}, {devices=[2]0,1}, {replicated}}"'
_TWO = "my.slots = [1, 2]"


def _slots(name: str, build: Callable[[str, str], str], attribute: str) -> tuple[Pair, ...]:
    """An attribute of unknown meaning pins the slots; without one they may be permuted."""
    return (
        pair(
            f"{name}: slots permuted, an attribute left behind",
            build(attribute, "ab"),
            build(attribute, "ba"),
            False,
        ),
        pair(
            f"{name}: slots as they were, with an attribute",
            build(attribute, "ab"),
            build(attribute, "ab"),
            True,
        ),
        pair(f"{name}: the attribute of one side", build(attribute, "ab"), build("", "ab"), False),
        pair(f"{name}: slots permuted", build("", "ab"), build("", "ba"), True),
    )


def _called(reference: str, target: str) -> str:
    return main(
        f"%r:2 = stablehlo.custom_call @f({reference}) {{{target}}} : ({V}, {V}) -> ({V}, {V}) "
        f"return %r#0, %r#1 : {V}, {V}",
        results=f"{V}, {V}",
    )


SLOTS = (
    *_slots("while", _annotated, _NUMBERS),
    *_slots("while, a tuple of shardings", _annotated, _TUPLE),
    *_slots("barrier", _barrier, _TWO),
    *_slots("case", _branch, _TWO),
    *_slots("if", lambda attribute, order: _branch(attribute, order, "if"), _TWO),
    *_slots("manual computation", _manual, _TWO),
    pair(
        "library call: layouts exchanged",
        _called("%x, %y", 'mhlo.sharding = "{{replicated}, {devices=[2]0,1}}"'),
        _called("%x, %y", 'mhlo.sharding = "{{devices=[2]0,1}, {replicated}}"'),
        False,
    ),
    pair(
        "a constant carry that an attribute speaks of",
        _annotated(_NUMBERS, "ab"),
        _annotated(_NUMBERS.replace("3", "4"), "ab"),
        False,
    ),
)


def _function(name: str, operation: str) -> str:
    return (
        f"func.func private @{name}(%p: {V}) -> {V} {{ %q = stablehlo.{operation} %p : {V} return %q : {V} }}"
    )


def _composite(reference: str, *functions: str, more: str = "") -> str:
    call = f'%r = stablehlo.composite "my.op" %x {{decomposition = {reference}{more}}} : ({V}) -> {V}'
    return main(f"{call} return %r : {V}", more=" ".join(functions))


def _calls(references: str, *functions: str) -> str:
    call = f"%r = stablehlo.custom_call @t(%x) {{called_computations = [{references}]}} : ({V}) -> {V}"
    return main(f"{call} return %r : {V}", more=" ".join(functions))


def _direct(name: str, operation: str) -> str:
    body = f"%r = func.call @{name}(%x) : ({V}) -> {V} return %r : {V}"
    return main(body, more=_function(name, operation))


def _constrained(name: str, size: int) -> str:
    body = f'%c = sdy.sharding_constraint %x <@{name}, [{{"a"}}]> : {V} return %c : {V}'
    return f'module {{ sdy.mesh @{name} = <["a"={size}]> {main(body).removeprefix("module  {")}'


def _defined(definition: str) -> str:
    return f"module {{ {definition} {main(f'return %x : {V}').removeprefix('module  {')}"


_ESCAPED = (r'"a\22b"', '"größe"', r'"x\0Ay"', '"two words"', r'"back\\slash"')


def _escaped(name: str) -> tuple[Pair, ...]:
    return (
        pair(f"a call of @{name}", _direct(name, "sine"), _direct("f", "sine"), True),
        pair(f"a call of @{name}, another body", _direct(name, "sine"), _direct(name, "cosine"), False),
        pair(
            f"a decomposition @{name}",
            _composite(f"@{name}", _function(name, "sine")),
            _composite("@f", _function("f", "sine")),
            True,
        ),
        pair(
            f"a decomposition @{name}, another body",
            _composite(f"@{name}", _function(name, "sine")),
            _composite(f"@{name}", _function(name, "cosine")),
            False,
        ),
        pair(f"a mesh @{name}", _constrained(name, 2), _constrained("m", 2), True),
        pair(f"a mesh @{name}, another size", _constrained(name, 2), _constrained(name, 4), False),
    )


_NESTED = ", composite_attributes = {deep = [{inner = @f}]}"


def _inner(operation: str) -> str:
    return f"module @f {{ {_function('f', operation)} }}"


SYMBOLS = (
    *[each for name in _ESCAPED for each in _escaped(name)],
    pair(
        "two functions called by a list of symbols, exchanged",
        _calls("@f, @g", _function("f", "sine"), _function("g", "cosine")),
        _calls("@g, @f", _function("f", "sine"), _function("g", "cosine")),
        False,
    ),
    pair(
        "the same list under other names",
        _calls("@f, @g", _function("f", "sine"), _function("g", "cosine")),
        _calls("@g, @f", _function("g", "sine"), _function("f", "cosine")),
        True,
    ),
    pair(
        "a symbol deep inside of an attribute",
        _composite("@f", _function("f", "sine"), more=_NESTED),
        _composite("@g", _function("g", "sine"), more=_NESTED.replace("@f", "@g")),
        True,
    ),
    pair(
        "text that looks like a symbol",
        _composite("@f", _function("f", "sine"), more=', composite_attributes = {deep = "@f"}'),
        _composite("@g", _function("g", "sine"), more=', composite_attributes = {deep = "@g"}'),
        False,
    ),
    pair(
        "a symbol that nothing defines",
        main(f"%r = stablehlo.custom_call @t(%x) {{my.ref = @nowhere}} : ({V}) -> {V} return %r : {V}"),
        main(f"%r = stablehlo.custom_call @t(%x) {{my.ref = @nowhere}} : ({V}) -> {V} return %r : {V}"),
        False,
    ),
    pair(
        "a symbol inside of another",
        _composite("@f", _function("f", "sine"), more=", my.ref = @f::@g"),
        _composite("@f", _function("f", "sine"), more=", my.ref = @f::@g"),
        False,
    ),
    pair(
        "a mesh that nothing names",
        _defined('sdy.mesh @m = <["a"=2]>'),
        _defined('sdy.mesh @m = <["a"=4]>'),
        False,
    ),
    pair("its name", _defined('sdy.mesh @m = <["a"=2]>'), _defined('sdy.mesh @other = <["a"=2]>'), True),
    pair("a definition that is no function", _defined(_inner("sine")), _defined(_inner("cosine")), False),
    pair("a definition of one side", _defined(_inner("sine")), _defined(""), False),
    pair("the same definition", _defined(_inner("sine")), _defined(_inner("sine")), True),
)


def _constant(kind: str, text: str) -> str:
    return main(f"%r = stablehlo.constant dense<{text}> : {kind} return %r : {kind}", results=kind)


def _constants(element: str, one: str, other: str) -> tuple[Pair, ...]:
    """Constants of one value and of several; a difference of one element."""
    several, vector = f"[{one}, {other}, {one}]", f"tensor<3x{element}>"
    return (
        pair(f"a constant {element}", _constant(vector, one), _constant(vector, one), True),
        pair(f"a constant {element}: another value", _constant(vector, one), _constant(vector, other), False),
        pair(f"constants {element}", _constant(vector, several), _constant(vector, several), True),
        pair(
            f"constants {element}: one element",
            _constant(vector, several),
            _constant(vector, f"[{one}, {other}, {other}]"),
            False,
        ),
    )


_LONG = ", ".join(f"({k}.0, 1.0)" for k in range(150))

TYPES = (
    *_constants("complex<f32>", "(1.0, 2.0)", "(1.0, -2.0)"),
    *_constants("complex<f64>", "(1.0, 2.0)", "(1.5, 2.0)"),
    *_constants("complex<f32>", "(0.0, 0x7FC00000)", "(0.0, 0x7FC00001)"),
    *_constants("i1", "true", "false"),
    *_constants("i2", "1", "-2"),
    *_constants("i4", "7", "-8"),
    *_constants("ui2", "1", "3"),
    *_constants("ui4", "9", "15"),
    *_constants("i64", "1", "9223372036854775807"),
    *_constants("f16", "0x7E00", "0x7E01"),
    *_constants("bf16", "0x7FC0", "0xFFC0"),
    *_constants("f32", "0x00000001", "0x80000001"),
    *_constants("f32", "0.0", "-0.0"),
    *_constants("f64", "0.1", "0.10000000000000002"),
    *_constants("f8E4M3FN", "0x7F", "0xFF"),
    *_constants("f8E5M2", "0x7D", "0x7E"),
    *_constants("f8E4M3B11FNUZ", "0x01", "0x02"),
    *_constants("f8E5M2FNUZ", "0x01", "0x02"),
    *_constants("f8E4M3FNUZ", "0x01", "0x02"),
    *_constants("f8E8M0FNU", "1.0", "2.0"),
    *_constants("f4E2M1FN", "1.0", "1.5"),
    pair(
        "a long complex constant",
        _constant("tensor<150xcomplex<f32>>", f"[{_LONG}]"),
        _constant("tensor<150xcomplex<f32>>", f"[{_LONG.replace('(77.0, 1.0)', '(77.0, -1.0)')}]"),
        False,
    ),
)
