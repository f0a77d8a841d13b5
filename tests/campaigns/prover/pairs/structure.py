"""Pairs about barriers, shardings, calls, and operands that only one operation with regions or slots reads."""

from campaigns.prover.pairs.text import NEXT, ZERO, S, V, effect, main, pair, while_loop

__all__ = ["BARRIERS", "CALLS", "OPERANDS", "SHARDINGS"]


def _barrier(lines: str, outputs: str = "%b#0, %b#1") -> str:
    return main(f"{lines} return {outputs} : {V}, {V}", results=f"{V}, {V}")


def _mesh(name: str, axes: str, sharding: str) -> str:
    body = f"%c = sdy.sharding_constraint %x <@{name}, {sharding}> : {V} return %c : {V}"
    return f"module {{ sdy.mesh @{name} = <[{axes}]> {main(body).removeprefix('module  {')}"


def _twice(first: str, second: str) -> str:
    body = f"%b = sdy.sharding_constraint %x <@m, {first}> : {V} "
    body += f"%c = sdy.sharding_constraint %b <@m, {second}> : {V} return %c : {V}"
    return f'module {{ sdy.mesh @m = <["a"=2, "b"=2]> {main(body).removeprefix("module  {")}'


def _all_reduce(
    channel: str, groups: str = "[[0, 1], [2, 3]]", flags: str = ", use_global_device_ids"
) -> str:
    return main(f"""%r = "stablehlo.all_reduce"(%x) <{{
      channel_handle = #stablehlo.channel_handle<handle = {channel}, type = 1>,
      replica_groups = dense<{groups}> : tensor<2x2xi64>{flags}}}> ({{
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %s = stablehlo.add %a, %b : tensor<f32> stablehlo.return %s : tensor<f32>
      }}) : ({V}) -> {V} return %r : {V}""")


def _manual(operands: str, parameters: str, inner: str, out: str = '{"a"}') -> str:
    side, local = '<@mesh, [{"a"}]>', "tensor<2xf32>"
    names = [f"{each}: {local}" for each in parameters.split(", ")]
    body = f"""%m = sdy.manual_computation({operands}) in_shardings=[{side}, {side}]
      out_shardings=[<@mesh, [{out}]>] manual_axes={{"a"}} ({", ".join(names)}) {{
        {inner} sdy.return %s : {local} }} : ({V}, {V}) -> {V} return %m : {V}"""
    return f'module {{ sdy.mesh @mesh = <["a"=2, "b"=2]> {main(body).removeprefix("module  {")}'


def _called(call: str, *functions: str) -> str:
    return main(f"{call} return %r : {V}", more=" ".join(functions))


def _function(name: str, operation: str, attributes: str = "") -> str:
    body = f"%q = stablehlo.{operation} %p : {V} return %q : {V}"
    return f"func.func private @{name}(%p: {V} {attributes}) -> {V} {{ {body} }}"


def _composite(name: str) -> str:
    return f'%r = stablehlo.composite "my.op" %x {{decomposition = @{name}}} : ({V}) -> {V}'


_CALL = f"%r = call @f(%x) : ({V}) -> {V}"

_HOST_CALL = f'%r = call @f(%x) {{_xla_compute_type = "host"}} : ({V}) -> {V}'

_NAMED = "has_side_effect = true, called_computations = [@f]"

_BOTH = f"%b:2 = stablehlo.optimization_barrier %x, %y : {V}, {V}"


def _argument(attributes: str, head: str = "") -> str:
    return main(
        f"return %x, %y : {V}, {V}",
        arguments=f"%x: {V} {attributes}, %y: {V}",
        results=f"{V}, {V}",
        head=head,
    )


BARRIERS = (
    pair(
        "barrier slots permuted",
        _barrier(_BOTH),
        _barrier(f"%b:2 = stablehlo.optimization_barrier %y, %x : {V}, {V}", "%b#1, %b#0"),
        True,
    ),
    pair(
        "barrier group divided",
        _barrier(_BOTH),
        _barrier(
            f"%b = stablehlo.optimization_barrier %x : {V} %c = stablehlo.optimization_barrier %y : {V}",
            "%b, %c",
        ),
        False,
    ),
    pair("barrier left out", _barrier(_BOTH), _barrier("", "%x, %y"), False),
    pair("barrier slots exchanged", _barrier(_BOTH), _barrier(_BOTH, "%b#1, %b#0"), False),
    pair(
        "a dead barrier slot",
        _barrier(_BOTH),
        _barrier(
            f"%s = stablehlo.sine %x : {V} %b:3 = stablehlo.optimization_barrier %x, %s, %y : {V}, {V}, {V}",
            "%b#0, %b#2",
        ),
        True,
    ),
)

_ONCE = _mesh("m", '"a"=2, "b"=2', '[{"a"}]')

SHARDINGS = (
    pair("mesh name", _mesh("m", '"a"=2', '[{"a"}]'), _mesh("other", '"a"=2', '[{"a"}]'), True),
    pair("mesh shape", _mesh("m", '"a"=2, "b"=2', '[{"a"}]'), _mesh("m", '"a"=2, "b"=4', '[{"a"}]'), False),
    pair("constraint", _mesh("m", '"a"=2, "b"=2', '[{"a"}]'), _mesh("m", '"a"=2, "b"=2', '[{"b"}]'), False),
    pair(
        "open and closed dimensions", _mesh("m", '"a"=2', '[{"a"}]'), _mesh("m", '"a"=2', '[{"a", ?}]'), False
    ),
    pair(
        "one constraint and the same again",
        _mesh("m", '"a"=2, "b"=2', '[{"a"}]'),
        _twice('[{"a"}]', '[{"a"}]'),
        True,
    ),
    pair(
        "one constraint after another",
        _mesh("m", '"a"=2, "b"=2', '[{"a"}]'),
        _twice('[{"b"}]', '[{"a"}]'),
        False,
    ),
    pair(
        "one open constraint and the same again",
        _mesh("m", '"a"=2, "b"=2', '[{"a", ?}]'),
        _twice('[{"a", ?}]', '[{"a", ?}]'),
        False,
    ),
    pair("identity of a channel", _all_reduce("1"), _all_reduce("7"), True),
    pair("replicas for partitions", _all_reduce("1", flags=""), _all_reduce("0", flags=""), False),
    pair("replica groups", _all_reduce("1"), _all_reduce("1", "[[0, 2], [1, 3]]"), False),
    pair(
        "manual computation, operands permuted",
        _manual("%x, %y", "%a, %b", "%s = stablehlo.subtract %a, %b : tensor<2xf32>"),
        _manual("%y, %x", "%b, %a", "%s = stablehlo.subtract %a, %b : tensor<2xf32>"),
        True,
    ),
    pair(
        "manual computation, operands exchanged",
        _manual("%x, %y", "%a, %b", "%s = stablehlo.subtract %a, %b : tensor<2xf32>"),
        _manual("%y, %x", "%a, %b", "%s = stablehlo.subtract %a, %b : tensor<2xf32>"),
        False,
    ),
    pair("sharding of an argument", _argument(""), _argument('{mhlo.sharding = "{replicated}"}'), False),
    pair("donation", _argument(""), _argument("{jax.buffer_donor = true}"), False),
    pair(
        "which result a donated argument becomes",
        _argument("{tf.aliasing_output = 0 : i32}"),
        _argument("{tf.aliasing_output = 1 : i32}"),
        True,
    ),
    pair(
        "number of partitions",
        _argument("", "attributes {mhlo.num_partitions = 1 : i32}"),
        _argument("", "attributes {mhlo.num_partitions = 2 : i32}"),
        False,
    ),
    pair(
        "a sharding group dropped",
        main(f"sdy.sharding_group %x group_id=0 : {V} return %x : {V}"),
        main(f"return %x : {V}"),
        False,
    ),
)

_TICK = f"func.func private @f(%p: {V}) -> {V} {{ {effect('tick', '%p', '%q')} return %q : {V} }}"

CALLS = (
    pair(
        "a function with a side effect called twice",
        _called(_CALL, _TICK),
        _called(f"%s = call @f(%x) : ({V}) -> {V} {_CALL}", _TICK),
        False,
    ),
    pair(
        "a call and its body",
        main(f"%r = stablehlo.sine %x : {V} return %r : {V}"),
        _called(_CALL, _function("f", "sine")),
        True,
    ),
    pair(
        "another callee",
        _called(_CALL, _function("f", "sine")),
        _called(_CALL, _function("f", "cosine")),
        False,
    ),
    pair(
        "a call that says more",
        _called(_CALL, _function("f", "sine")),
        _called(_HOST_CALL, _function("f", "sine")),
        False,
    ),
    pair(
        "another callee of a call with an attribute",
        _called(_HOST_CALL, _function("f", "sine")),
        _called(_HOST_CALL, _function("f", "cosine")),
        False,
    ),
    pair(
        "a dead side effect that names a function without one",
        _called(f"{effect('tick', '%x', attributes=_NAMED)} {_CALL}", _function("f", "sine")),
        _called(_CALL, _function("f", "sine")),
        False,
    ),
    pair(
        "a return with an attribute",
        main(f"return %x : {V}"),
        main(f'"func.return"(%x) {{note = 1 : i32}} : ({V}) -> ()'),
        False,
    ),
    pair(
        "a function that says more",
        _called(_CALL, _function("f", "sine")),
        _called(_CALL, _function("f", "sine", '{mhlo.layout_mode = "{0}"}')),
        False,
    ),
    pair(
        "name of a decomposition",
        _called(_composite("f"), _function("f", "sine")),
        _called(_composite("g"), _function("g", "sine")),
        True,
    ),
    pair(
        "body of a decomposition",
        _called(_composite("f"), _function("f", "sine")),
        _called(_composite("f"), _function("f", "cosine")),
        False,
    ),
    pair(
        "result wiring",
        main(f"return %x, %y : {V}, {V}", results=f"{V}, {V}"),
        main(f"return %y, %x : {V}, {V}", results=f"{V}, {V}"),
        False,
    ),
)


def _behind(body: str, operation: str, result: str = "%r") -> str:
    """A body whose operand ``%s`` an operation computes; nothing else reads it."""
    made = f"%u = stablehlo.constant dense<1> : {S} %s = stablehlo.{operation} %w, %u : {S} "
    made += f"%f = stablehlo.convert %s : ({S}) -> tensor<f32> "
    made += f"%v = stablehlo.broadcast_in_dim %f, dims = [] : (tensor<f32>) -> {V}"
    return main(f"{made} {body} return {result} : {V}", arguments=f"%w: {S}, %x: {V}, %y: {V}")


def _shard(operation: str) -> str:
    inner = "%s = stablehlo.negate %a : tensor<2xf32>"
    made = f"%v = stablehlo.{operation} %x, %y : {V} %m = sdy.manual"
    return _manual("%v, %y", "%a, %b", inner).replace("%m = sdy.manual", made, 1)


_CHOICE = f'%r = "stablehlo.case"(%s) ({{ stablehlo.return %x : {V} }}, {{ stablehlo.return %y : {V} }}) : ({S}) -> {V}'

_FROM = while_loop(f"{NEXT} %p = stablehlo.sine %a : {V}", "%j, %p", "%i = %z, %a = %v", f"{S}, {V}")

_UNTIL = while_loop(
    f"{NEXT} %p = stablehlo.sine %a : {V}", "%j, %p", "%i = %z, %a = %x", f"{S}, {V}"
).replace("LT, %i, %n", "LT, %i, %s")

OPERANDS = tuple(
    pair(name, build("add"), build("subtract"), False)
    for name, build in (
        ("operand of a barrier", lambda op: _behind(f"%r = stablehlo.optimization_barrier %v : {V}", op)),
        ("operand of a manual computation", _shard),
        ("index of a branch", lambda op: _behind(_CHOICE, op)),
        ("start of a carry", lambda op: _behind(f"{ZERO} {_FROM}", op, "%l#1")),
        ("limit of a loop", lambda op: _behind(f"{ZERO} {_UNTIL}", op, "%l#1")),
    )
)
