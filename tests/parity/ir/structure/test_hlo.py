"""The HLO reader: the programs that it reads and refuses; any other input raises no unexpected error."""

import functools

import jax
import jax.numpy as jnp
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parity.channels.memory import read_donation
from parity.ir.hlo.collectives import read_collectives
from parity.ir.hlo.cycles import read_cycles
from parity.ir.hlo.hlo_parse import parse_hlo, read_shape
from parity.ir.hlo.optimised import optimised_loops

SMALL = """HloModule small, input_output_alias={ {0}: (1, {}, may-alias) }, num_partitions=8

FileNames
1 "/a b/model.py"

FunctionNames
1 "layer.<locals>.body"

FileLocations
1 {file_name_id=1 function_name_id=1 line=12 end_line=12 column=1 end_column=9}

StackFrames
1 {file_location_id=1 parent_frame_id=1}

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = f32[] add(%a, %b)
}

%body (p: (s32[], f32[4,8], /*index=2*/f32[5,8,8])) -> (s32[], f32[4,8], f32[5,8,8]) {
  %p = (s32[]{:T(128)}, f32[4,8]{1,0:T(8,128)S(1)}, /*index=2*/f32[5,8,8]{2,1,0:T(8,128)(2,1)}) parameter(0)
  %i = s32[]{:T(128)} get-tuple-element(%p), index=0
  %one = s32[] constant(2)
  %next = s32[] add(%i, %one)
  %x = f32[4,8]{1,0} get-tuple-element(%p), index=1
  %w = f32[5,8,8]{2,1,0} get-tuple-element(%p), index=2
  %sum = f32[4,8]{1,0} all-reduce(%x), channel_id=1, replica_groups=mesh['axis_0'=4,'axis_1'=2] {'axis_0'}, to_apply=%add, metadata={op_name="jit(f)/transpose(jvp())/while/body/psum" stack_frame_id=1}, backend_config={"window_config":{"estimated_cycles":"100"}}
  ROOT %t = (s32[], f32[4,8]{1,0}, f32[5,8,8]{2,1,0}) tuple(%next, %sum, %w)
}

%condition (p.1: (s32[], f32[4,8], f32[5,8,8])) -> pred[] {
  %p.1 = (s32[], f32[4,8]{1,0}, f32[5,8,8]{2,1,0}) parameter(0)
  %i.1 = s32[] get-tuple-element(%p.1), index=0
  %limit = s32[] constant(9)
  ROOT %lt = pred[] compare(%i.1, %limit), direction=LT
}, execution_thread="main"

ENTRY %main (x.1: f32[4,8], w.1: f32[5,8,8]) -> f32[4,8] {
  %x.1 = f32[4,8]{1,0} parameter(0)
  %w.1 = f32[5,8,8]{2,1,0} parameter(1)
  %zero = s32[] constant(0)
  %start = (s32[], f32[4,8]{1,0}, f32[5,8,8]{2,1,0}) tuple(%zero, %x.1, %w.1)
  %loop = (s32[], f32[4,8]{1,0}, f32[5,8,8]{2,1,0}) while(%start), condition=%condition, body=%body, metadata={op_name="jit(f)/transpose(jvp())/while" stack_frame_id=1}
  ROOT %y = f32[4,8]{1,0} get-tuple-element(%loop), index=1
}
"""  # noqa: E501


def test_a_module_reads_whole():
    module = parse_hlo(SMALL)
    assert list(module.computations) == ["add", "body", "condition", "main"]
    assert module.computations["condition"].attributes == {"execution_thread": '"main"'}
    body = module.computations["body"]
    parameter = body.by_name["p"]
    assert parameter.shape.bytes == 4 + 4 * 8 * 4 + 5 * 8 * 8 * 4
    assert [leaf.layout for leaf in parameter.shape.leaves][1:] == [
        "{1,0:T(8,128)S(1)}",
        "{2,1,0:T(8,128)(2,1)}",
    ]
    assert body.by_name[body.root].operands == ("next", "sum", "w")
    assert body.by_name["sum"].called() == (("to_apply", "add"),)
    assert SMALL.splitlines()[body.by_name["sum"].line - 1].lstrip().startswith("%sum")
    place = module.provenance(body.by_name["sum"])
    assert (place.frame.function, place.frame.file, place.frame.line) == (
        "layer.<locals>.body",
        "/a b/model.py",
        12,
    )


def test_its_structure_is_read():
    (loop,) = optimised_loops(SMALL).loops
    assert (loop.trips, loop.carries, loop.carry_bytes) == (5, 3, 4 + 128 + 1280)
    (one,) = read_collectives(SMALL)
    assert (one.kind, one.bytes, one.group, one.times, one.depth) == ("all-reduce", 128, 4, 5, 1)
    assert one.provenance.backward
    assert read_cycles(SMALL).total == 500
    assert list(map(str, read_donation(SMALL))) == ["f32[5,8,8]"]


@pytest.mark.parametrize(
    ("old", "new", "trips"),
    [
        ("constant(9)", "constant(10)", 5),
        ("constant(9)", "constant(11)", 6),
        ("direction=LT", "direction=LE", 5),
        ("direction=LT", "direction=GT", 0),
        ("compare(%i.1, %limit), direction=LT", "compare(%limit, %i.1), direction=GT", 5),
        ("constant(0)", "constant(-3)", 6),
        ("constant(2)", "constant(-2)", None),
        ("add(%i, %one)", "multiply(%i, %one)", None),
        ("tuple(%zero, %x.1", "tuple(%x.1, %x.1", None),
        (
            "condition=%condition, ",
            'condition=%condition, backend_config={"known_trip_count":{"n":"77"}}, ',
            77,
        ),
    ],
)
def test_trip_counts_follow_start_step_limit_and_direction(old, new, trips):
    assert old in SMALL
    (loop,) = optimised_loops(SMALL.replace(old, new)).loops
    assert loop.trips == trips


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (" all-reduce(", " all-regather(", "unknown opcode 'all-regather'"),
        ("f32[] add", "f33[] add", "unknown element type 'f33'"),
        ("{1,0:T(8,128)S(1)}", "{1,0:T(8,128)S[1]}", "layout|expected"),
        ("add(%a, %b)", "add(%a, %c)", "operand 'c' is not defined before"),
        ("to_apply=%add", "to_apply=%sub", "computation sub is called before it is defined"),
        ("ROOT %s", "%s", "computation add has no ROOT"),
        ("ENTRY %main", "%main", "no ENTRY"),
        ('"estimated_cycles":"100"', '"estimated_cycles":100"', "a quote"),
        ("direction=LT\n", "direction\n", "expected ', key=value'"),
        ('op_name="jit(f)/transpose(jvp())/while"', 'op_name="jit(f)', "quote|not closed"),
        ("1 {file_location_id", "one {file_location_id", "unknown row in StackFrames"),
        ("HloModule small", "HloMod small", "expected 'HloModule NAME'"),
    ],
)
def test_an_unknown_name_is_an_error_with_its_line(old, new, problem):
    assert old in SMALL
    with pytest.raises(ValueError, match=rf"HLO line \d+: .*({problem})"):
        parse_hlo(SMALL.replace(old, new, 1))


def test_settings_that_are_not_json_are_an_error_when_they_are_read():
    with pytest.raises(ValueError, match=r"HLO line \d+: backend_config of sum is not JSON"):
        read_cycles(SMALL.replace('"estimated_cycles":"100"', '"estimated_cycles"="100"'))


def test_the_error_names_the_line():
    line = next(number for number, text in enumerate(SMALL.splitlines(), 1) if "%limit =" in text)
    with pytest.raises(ValueError, match=rf"HLO line {line}: .*%limit"):
        parse_hlo(SMALL.replace("constant(9)", "constunt(9)"))


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("f32[2,3]{1,0}", 24),
        ("bf16[8,128]{1,0:T(8,128)(2,1)S(1)}", 2048),
        ("s4[3]{0:T(128)E(4)}", 2),
        ("pred[]", 1),
        ("f32[<=5,2]", 40),
        ("(f32[2], (u8[3], token[]))", 11),
        ("()", 0),
        ("c128[2]", 32),
        ("f8e4m3fn[7]{0:T(256)(4,1)SC(0:3)}", 7),
        ("f32[4]{0:T(*,128)}", 16),
    ],
)
def test_shapes(text, size):
    assert read_shape(text).bytes == size


@pytest.mark.parametrize(
    ("groups", "size"),
    [
        ("{{0,1,2},{3,4,5}}", 3),
        ("[2,4]<=[8]", 4),
        ("[2,4]<=[4,2]T(1,0)", 4),
        ("{}", 8),
        ("mesh['a'=4,'b'=2] {'a','b'}", 8),
        ("mesh['a'=4,'b'=2] {'a':(2)2}", 2),
        ("mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)) {'b'}", 4),
    ],
)
def test_replica_groups(groups, size):
    text = SMALL.replace("mesh['axis_0'=4,'axis_1'=2] {'axis_0'}", groups)
    assert [one.group for one in read_collectives(text)] == [size]


def test_unknown_replica_groups_are_an_error():
    with pytest.raises(ValueError, match="unknown replica_groups of sum"):
        read_collectives(SMALL.replace("mesh['axis_0'=4,'axis_1'=2] {'axis_0'}", "V3(4)"))


@pytest.mark.parametrize(
    "alias", ["{ {0}: (7, {}, may-alias) }", "{ {0}: (1, {4}, may-alias) }", "{ {0} (1, {}) }", "{ 3 }"]
)
def test_a_wrong_alias_is_an_error(alias):
    with pytest.raises(ValueError, match="input_output_alias"):
        read_donation(SMALL.replace("{ {0}: (1, {}, may-alias) }", alias))


def test_one_collective_spread_over_fusions_counts_once():
    (one,) = read_collectives(PIECES)
    assert (one.kind, one.bytes, one.times) == ("all-gather", 8 * 16 * 2, 1)


PIECES = """HloModule pieces, num_partitions=2

%start (p: bf16[8,8]) -> (bf16[8,8], bf16[8,16]) {
  %p = bf16[8,8]{1,0:T(8,128)(2,1)} parameter(0)
  %g = bf16[8,16]{1,0:T(8,128)(2,1)} all-gather(%p), channel_id=7, replica_groups=[1,2]<=[2], dimensions={1}
  ROOT %s = (bf16[8,8]{1,0}, bf16[8,16]{1,0}) custom-call(%g), custom_call_target="AsyncCollectiveStart"
}

%middle (p.1: bf16[8,8]) -> bf16[8,16] {
  %p.1 = bf16[8,8]{1,0} parameter(0)
  ROOT %g.1 = bf16[8,16]{1,0} all-gather(%p.1), channel_id=7, replica_groups=[1,2]<=[2], dimensions={1}
}

%done (p.2: bf16[8,8], q.2: bf16[8,16]) -> bf16[8,16] {
  %p.2 = bf16[8,8]{1,0} parameter(0)
  %q.2 = bf16[8,16]{1,0} parameter(1)
  %g.2 = bf16[8,16]{1,0} all-gather(%p.2), channel_id=7, replica_groups=[1,2]<=[2], dimensions={1}
  ROOT %d = bf16[8,16]{1,0} custom-call(%q.2, %g.2), custom_call_target="AsyncCollectiveDone"
}

ENTRY %main (x: bf16[8,8]) -> bf16[8,16] {
  %x = bf16[8,8]{1,0} parameter(0)
  %a = (bf16[8,8]{1,0}, bf16[8,16]{1,0}) fusion(%x), kind=kCustom, calls=%start
  %a0 = bf16[8,8]{1,0} get-tuple-element(%a), index=0
  %b = bf16[8,16]{1,0} fusion(%a0), kind=kOutput, calls=%middle
  ROOT %c = bf16[8,16]{1,0} fusion(%a0, %b), kind=kCustom, calls=%done
}
"""


def test_a_limit_carried_unchanged_is_a_constant():
    text = SMALL
    for old, new in (
        ("(s32[], f32[4,8], /*index=2*/f32[5,8,8])", "(s32[], f32[4,8], f32[5,8,8], s32[])"),
        ("(s32[], f32[4,8], f32[5,8,8])", "(s32[], f32[4,8], f32[5,8,8], s32[])"),
        ("{2,1,0:T(8,128)(2,1)}) parameter", "{2,1,0:T(8,128)(2,1)}, s32[]) parameter"),
        ("f32[5,8,8]{2,1,0}) ", "f32[5,8,8]{2,1,0}, s32[]) "),
        ("tuple(%next, %sum, %w)", "tuple(%next, %sum, %w, %n)"),
        ("  %one =", "  %n = s32[] get-tuple-element(%p), index=3\n  %one ="),
        ("s32[] constant(9)", "s32[] get-tuple-element(%p.1), index=3"),
        ("tuple(%zero, %x.1, %w.1)", "tuple(%zero, %x.1, %w.1, %nine)"),
        ("  %zero =", "  %nine = s32[] constant(9)\n  %zero ="),
    ):
        assert old in text
        text = text.replace(old, new)
    assert [loop.trips for loop in optimised_loops(text).loops] == [5]
    changed = text.replace("tuple(%next, %sum, %w, %n)", "tuple(%next, %sum, %w, %next)")
    assert [loop.trips for loop in optimised_loops(changed).loops] == [None]


def test_a_counter_may_go_down_by_subtraction():
    text = SMALL.replace("add(%i, %one)", "subtract(%i, %one)").replace("constant(0)", "constant(20)")
    assert [loop.trips for loop in optimised_loops(text.replace("direction=LT", "direction=GT")).loops] == [6]


def test_asynchronous_loops_count_once():
    start = SMALL.index("ENTRY")
    inner = SMALL[start:].replace("ENTRY %main", "%called")
    outer = """
ENTRY %main (x.2: f32[4,8], w.2: f32[5,8,8]) -> f32[4,8] {
  %x.2 = f32[4,8]{1,0} parameter(0)
  %w.2 = f32[5,8,8]{2,1,0} parameter(1)
  %s = ((f32[4,8], f32[5,8,8]), f32[4,8]) async-start(%x.2, %w.2), calls=%called
  ROOT %d = f32[4,8]{1,0} async-done(%s), calls=%called
}
"""
    assert optimised_loops(SMALL[:start] + inner + outer).count == 1


@functools.cache
def real_text() -> str:
    def model(w, x):
        return jnp.tanh(jax.lax.scan(lambda c, one: (jnp.tanh(c @ one), c.sum()), x, w)[0]).sum()

    return jax.jit(jax.grad(model)).lower(jnp.ones((3, 4, 4)), jnp.ones((2, 4))).compile().as_text()


def read_everything(text: str) -> None:
    module = parse_hlo(text)
    optimised_loops(module)
    read_collectives(module)
    read_donation(module)
    read_cycles(module)


@pytest.mark.long
@pytest.mark.parametrize("source", ["small", "real"])
def test_every_truncation_is_an_error(source):
    text = SMALL if source == "small" else real_text()
    read_everything(text)
    last = text.rstrip().rindex("}")
    for end in range(0, last, 1 if source == "small" else 13):
        with pytest.raises(ValueError, match="HLO line"):
            read_everything(text[:end])


FRAGMENTS = (
    "(",
    ")",
    "{",
    "}",
    '"',
    "'",
    ",",
    " = ",
    "%",
    "\n",
    "->",
    "ROOT ",
    "[",
    "]",
    "/*",
    "999999999999",
    "\x00",
    "é",
)


@pytest.mark.long
@given(data=st.data(), source=st.sampled_from(["small", "real"]))
@settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=True,
    database=None,
)
def test_random_edits_parse_or_raise_value_error(data, source):
    text = SMALL if source == "small" else real_text()
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = min(len(text), start + data.draw(st.integers(0, 30)))
        piece = data.draw(
            st.one_of(st.sampled_from(FRAGMENTS), st.text(max_size=6), st.just(text[end : end + 40]))
        )
        text = text[:start] + piece + text[end:]
    try:
        read_everything(text)
    except ValueError as error:
        assert type(error) is ValueError
        assert str(error)


@given(lines=st.permutations(range(len(SMALL.splitlines()))))
@settings(max_examples=50, deadline=None, derandomize=True, database=None)
def test_shuffled_lines_parse_or_raise_value_error(lines):
    rows = SMALL.splitlines()
    try:
        read_everything("\n".join(rows[index] for index in lines))
    except ValueError as error:
        assert type(error) is ValueError


def test_names_may_hold_quotes_brackets_and_line_breaks():
    def named(x):
        with jax.named_scope('a "b" {(\nc'):
            return jnp.sin(x) @ x

    module = parse_hlo(jax.jit(named).lower(jnp.ones((3, 3))).compile().as_text())
    assert any('a "b" {(' in one.metadata().get("op_name", "") for _, one in module.instructions())


def test_deep_nesting_is_an_error_not_a_crash():
    for text in ("(" * 100_000, "{" * 100_000, '{"a":' * 100_000):
        with pytest.raises(ValueError, match="HLO line"):
            parse_hlo(SMALL.replace("f32[] add(", text, 1))
        with pytest.raises(ValueError, match="HLO line"):
            parse_hlo(SMALL.replace('{"window_config"', text, 1))
