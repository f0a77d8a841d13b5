"""Collectives that the compiler combines differently are equal; an extra one, or other operands, are not."""

import pytest

from parity.channels.collectives import compare_collectives
from parity.ir.hlo.collectives import Collective, read_collectives
from parity.ir.location import SourceLocation
from parity.verdicts import Verdict

FOUR, EIGHT = 4 * 1_024, 8 * 1_024


def reduced(*parts, times=1, dtype="f32"):
    return Collective(
        kind="all-reduce",
        dtype=dtype,
        bytes=sum(parts),
        group=4,
        times=times,
        depth=int(times > 1),
        provenance=SourceLocation(),
        parts=tuple(sorted(parts)),
    )


@pytest.mark.parametrize(
    ("reference", "candidate", "verdict"),
    [
        ([reduced(4), reduced(FOUR), reduced(EIGHT)], [reduced(4, FOUR), reduced(EIGHT)], Verdict.EQUAL),
        ([reduced(4, FOUR), reduced(EIGHT)], [reduced(4), reduced(FOUR, EIGHT)], Verdict.EQUAL),
        ([reduced(4, FOUR)], [reduced(4), reduced(FOUR), reduced(FOUR)], Verdict.FAILED),  # one more
        ([reduced(4, FOUR)], [reduced(4), reduced(EIGHT)], Verdict.FAILED),
        ([reduced(4, FOUR)], [reduced(4), reduced(FOUR, times=3)], Verdict.FAILED),  # inside a loop
        ([reduced(4, FOUR)], [reduced(4), reduced(FOUR, dtype="bf16")], Verdict.FAILED),
        ([reduced(4, EIGHT)], [reduced(4), reduced(FOUR), reduced(FOUR)], Verdict.FAILED),  # other arrays
        ([reduced(4, FOUR)], [reduced(4, 4, 8, FOUR)], Verdict.EQUAL),  # with other numbers
        ([reduced(4, FOUR)], [reduced(12, FOUR)], Verdict.FAILED),
        ([reduced(4)], [reduced(4, 4)], Verdict.FAILED),  # numbers alone
    ],
)
def test_only_the_grouping_may_differ(reference, candidate, verdict):
    result = compare_collectives(reference, candidate)
    assert result.verdict is verdict
    assert ("combined differently" in result.detail) == (verdict is Verdict.EQUAL)


def test_the_operands_of_a_combined_collective_are_read():
    text = """HloModule m, num_partitions=4

%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %sum = f32[] add(%x, %y)
}

ENTRY %main (a: f32[8], b: f32[2,3]) -> (f32[8], f32[2,3]) {
  %a = f32[8]{0} parameter(0)
  %b = f32[2,3]{1,0} parameter(1)
  ROOT %r = (f32[8]{0}, f32[2,3]{1,0}) all-reduce(%a, %b), replica_groups={{0,1,2,3}}, to_apply=%add
}
"""
    (one,) = read_collectives(text)
    assert one.parts == (24, 32) and one.bytes == 56
