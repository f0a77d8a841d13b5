"""The pair `sharded` holds on every mesh: the same program and the same numbers for any placement of the state."""

import os

import pytest

from parity.matrix.sharded import MESHES, PAIR, ZERO1_MESHES
from parity.run.request import Request
from parity.run.run import case_runner

PROOF = ("program", "tree", "sharding")
CASES = {case.id.removeprefix("sharded-"): case for case in PAIR.cases({})}
TWINS = [id for id, case in CASES.items() if "-against-" not in id]
QUICK = [
    "scan/train_step@fsdp2.fsdp_transpose2.tensor2.data1-explicit",
    "unroll/train_step@data2.fsdp2.context2.expert1-auto",
    "scan/train_step@data4.expert2.fsdp1-explicit",
    "unroll/train_step@fsdp4.tensor2.fsdp_transpose1-explicit",
    "scan/train_step@fsdp8.context1-auto",
    "scan-zero1/train_step@data8.tensor1-explicit",
    "unroll-zero1/train_step@data2.fsdp2.tensor2-auto",
]
ISSUE = (
    {"data": 8},
    {"fsdp": 8},
    {"fsdp": 4, "tensor": 2},
    {"fsdp": 2, "fsdp_transpose": 2, "tensor": 2},
    {"data": 2, "fsdp": 2, "context": 2},
    {"data": 4, "expert": 2},
)


def verdicts(id, channels, **options):
    result = case_runner(Request(channels=channels, **options))(CASES[id])
    assert result.verdict == "passed", result.sentence()
    return {name: str(channel.verdict) for name, channel in result.channels.items()}


def test_every_mesh_of_the_issue_is_there_with_an_axis_of_size_one_in_both_modes_and_variants():
    found = [(CASES[id].mesh, id.split("/")[0]) for id in TWINS]
    assert len(TWINS) == len(set(TWINS)) == 2 * 2 * (len(MESHES) + len(ZERO1_MESHES))
    for sizes in ISSUE:
        for mode in ("auto", "explicit"):
            variants = {
                name
                for mesh, name in found
                if {axis: size for axis, size in mesh.axes if size > 1} == sizes
                and any(size == 1 for _, size in mesh.axes)
                and mesh.mode == mode
            }
            assert {"scan", "unroll"} <= variants, (sizes, mode)


def test_every_twin_requires_one_program():
    assert {CASES[id].accept.require for id in TWINS} == {"reordered"}
    assert not any(CASES[id].accept.not_applicable for id in TWINS)


@pytest.mark.long
@pytest.mark.parametrize("id", QUICK)
def test_the_twins_are_proved(id):
    """One case of each kind; `make parity` has them all."""
    assert verdicts(id, PROOF) == {"program": "proved", "tree": "equal", "sharding": "equal"}


@pytest.mark.long
@pytest.mark.parametrize("id", ["scan-zero1/train_step@data2.fsdp2.context2.expert1-explicit"])
def test_the_twins_are_bitwise_and_compile_to_the_same_places(id):
    found = verdicts(id, ("values", "state", "sharding", "memory"), paranoid=True)
    assert found == {"values": "bitwise", "state": "bitwise", "sharding": "equal", "memory": "equal"}


@pytest.mark.long
@pytest.mark.parametrize(
    ("id", "rungs", "sharding"),
    [
        ("single-against-mesh-linen/train_step@data2.fsdp2.context2.expert1-explicit", {"floor"}, "skipped"),
        (
            "auto-against-mesh-linen/train_step@fsdp2.fsdp_transpose2.tensor2.data1-explicit",
            {"bitwise"},
            "equal",
        ),
    ],
)
def test_other_places_give_the_same_numbers(id, rungs, sharding, compiled_as_users_do, monkeypatch):
    """With LLVM's level in the flags, the backend keeps these options of the compiler, and so the last bits."""
    monkeypatch.setenv("XLA_FLAGS", f"{os.environ['XLA_FLAGS']} --xla_backend_optimization_level=3")
    found = verdicts(id, ("values", "state", "sharding"), paranoid=True)
    assert {found["values"], found["state"]} <= {"bitwise", *rungs}
    assert found["sharding"] == sharding
