"""Groups of devices in every form that compilers write, and those that cross an axis."""

import pytest
from crossings import crossings

AXES = (("replica", 2), ("fsdp", 4))
HLO = """HloModule m, num_partitions=8

%add (a: f32[], b: f32[]) -> f32[] {{
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}}

%stay (x: f32[4]) -> f32[4] {{
  ROOT %x = f32[4]{{0}} parameter(0)
}}

%meet (y: f32[4]) -> f32[4] {{
  %y = f32[4]{{0}} parameter(0)
  ROOT %inside = f32[4]{{0}} all-reduce(%y), channel_id=2, replica_groups={groups}, to_apply=%add
}}

ENTRY %main (p: pred[], z: f32[4]) -> f32[4] {{
  %p = pred[] parameter(0)
  %z = f32[4]{{0}} parameter(1)
  %always = f32[4]{{0}} all-reduce(%z), channel_id=1, replica_groups={groups}, to_apply=%add
  ROOT %chosen = f32[4]{{0}} conditional(%p, %always, %always), true_computation=%meet, false_computation=%stay
}}
"""
WITHIN = ("{{0,1,2,3},{4,5,6,7}}", "[2,4]<=[8]", "mesh['a'=2,'b'=4] {'b'}", "mesh['a'=8] {'a':(2)4}")
ACROSS = (
    "{{0,4},{1,5},{2,6},{3,7}}",
    "[4,2]<=[2,4]T(1,0)",
    "mesh['a'=2,'b'=4] {'a'}",
    "mesh['a'=8] {'a':(1)2}",
    "mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)) {'b'}",
    "{}",
)


@pytest.mark.parametrize("groups", WITHIN)
def test_groups_within_an_axis(groups):
    assert crossings(HLO.format(groups=groups), AXES, "replica") == ()


@pytest.mark.parametrize("groups", ACROSS)
def test_groups_across_an_axis_and_whether_they_always_run(groups):
    found = crossings(HLO.format(groups=groups), AXES, "replica")
    assert {(one.name, one.kind, one.conditional) for one in found} == {
        ("inside", "all-reduce", True),
        ("always", "all-reduce", False),
    }


def test_unknown_groups_are_an_error():
    with pytest.raises(ValueError, match="unknown groups of"):
        crossings(HLO.format(groups="mesh['a'=8] {'a':(1)2,'a':(4)2}"), AXES, "replica")
