"""Collectives that HLO writes in several instructions count once."""

from parity.ir.hlo.collectives import read_collectives
from parity.ir.hlo.cycles import read_cycles

ADD = """
%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = f32[] add(%a, %b)
}

"""
ASYNC = """HloModule asynchronous, num_partitions=4

%wrapped (p: f32[8]) -> f32[2] {
  %p = f32[8]{0} parameter(0)
  ROOT %r = f32[2]{0} reduce-scatter(%p), replica_groups={{0,1,2,3}}, dimensions={0}, to_apply=%add
}

%other (q: f32[8]) -> f32[8] {
  %q = f32[8]{0} parameter(0)
  ROOT %n = f32[8]{0} negate(%q), backend_config={"window_config":{"estimated_cycles":"1000"}}
}, execution_thread="sparsecore"

%fused (f: f32[8]) -> f32[8] {
  %f = f32[8]{0} parameter(0)
  ROOT %m = f32[8]{0} negate(%f), backend_config={"window_config":{"estimated_cycles":"500"}}
}

ENTRY %main (x: f32[8]) -> f32[2] {
  %x = f32[8]{0} parameter(0)
  %s = ((f32[8]{0}), f32[2]{0}, u32[]) async-start(%x), calls=%wrapped
  %u = ((f32[8]{0}), f32[2]{0}, u32[]) async-update(%s), calls=%wrapped
  %g = (f32[8]{0}, f32[32]{0}) all-gather-start(%x), replica_groups={{0,1,2,3}}, dimensions={0}
  %gd = f32[32]{0} all-gather-done(%g)
  %c = f32[8]{0} call(%x), to_apply=%other
  %z = f32[8]{0} fusion(%x), kind=kLoop, calls=%fused, backend_config={"window_config":{"estimated_cycles":"7"}}
  ROOT %d = f32[2]{0} async-done(%u), calls=%wrapped
}
"""


def test_asynchronous_collectives_count_once():
    text = ASYNC.replace("%wrapped (p", ADD + "%wrapped (p")
    found = sorted((one.kind, one.bytes, one.group) for one in read_collectives(text))
    assert found == [("all-gather", 128, 4), ("reduce-scatter", 32, 4)]


def test_cycles_leave_out_fused_operations_and_other_cores():
    cycles = read_cycles(ASYNC.replace("%wrapped (p", ADD + "%wrapped (p"))
    assert (cycles.total, cycles.in_loops) == (7, 0)


FUSED = """HloModule fused

%all-reduce-scatter.1 (p: f32[8]) -> f32[4] {
  %p = f32[8]{0} parameter(0)
  %r = f32[8]{0} all-reduce(%p), channel_id=3, replica_groups={{0,1}}, to_apply=%add
  %o = s32[] constant(0)
  ROOT %t = f32[4]{0} dynamic-slice(%r, %o), dynamic_slice_sizes={4}
}

ENTRY %main (x: f32[8]) -> f32[4] {
  %x = f32[8]{0} parameter(0)
  ROOT %f = f32[4]{0} fusion(%x), kind=kCustom, calls=%all-reduce-scatter.1
}
"""


def test_a_fused_all_reduce_and_slice_is_a_reduce_scatter():
    (one,) = read_collectives(FUSED.replace("%all-reduce-scatter.1 (", ADD + "%all-reduce-scatter.1 (", 1))
    assert (one.kind, one.bytes, one.group, one.times) == ("reduce-scatter", 32, 2, 1)
