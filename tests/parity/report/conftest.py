"""A report with every verdict, odd texts and all tables, as plain data."""

import copy

import pytest

ODD = 'a <b> & "c" </script><!-- % : , \x1b[31m \x00 ]]> | `x` *y*\n::error::z'


def finding(**fields):
    text = {
        "where": "leaf",
        "reference": "1.5",
        "candidate": "2.5",
        "distance": "",
        "cause": "",
        "next_step": "",
    }
    return {**text, "labels": ["reference", "candidate"], "traceback": "", **fields}


def channel(verdict="equal", detail="", findings=(), **fields):
    return {"verdict": verdict, "detail": detail, "findings": list(findings), **fields}


def case(id, verdict="passed", channels=None, **fields):
    return {
        "id": id,
        "reference": "linen toy",
        "candidate": "nnx toy",
        "program": "forward",
        "mesh": "single",
        "backend": "cpu",
        "verdict": verdict,
        "channels": channels or {"program": channel("proved", "the same"), "values": channel("proved")},
        "seconds": {"trace": 0.5, "compile": 1.25},
        **fields,
    }


def report(*cases, **fields):
    names = ("passed", "failed", "vacuous", "error", "open", "unproved", "skipped")
    return {
        "schema": 1,
        "environment": {
            "python": "3.11",
            "packages": {"jax": "0.10"},
            "flags": {},
            "devices": [],
            "commit": "abc",
        },
        "cases": list(cases),
        "summary": {name: sum(one["verdict"] == name for one in cases) for name in names},
        "numbers_only": 0,
        "seconds": 7.5,
        **fields,
    }


FAILED = {
    "program": channel(
        "unproved",
        "not shown",
        [
            finding(
                where="stablehlo.add",
                reference="at shared/ops.py:29 in norm, called at old/norms.py:21 in N",
                candidate="at shared/ops.py:29 in norm, called at new/norms.py:25 in N",
            )
        ],
    ),
    "values": channel(
        "failed",
        "1 of 2 leaves differ",
        [finding(where="logits[3]", distance=ODD, cause="an epsilon", next_step="look")],
        tables={
            "leaves": [{"leaf": "logits", "relative": 0.01, "floors": None, "rung": "failed", "note": ODD}]
        },
    ),
    "loops": channel(
        tables={
            "loops": [
                {"side": side, "stage": "lowered", "path": "0", "depth": 0, "trips": trips, "carries": 3}
                | {"carry_bytes": 64, "source": "model.py:3 f"}
                for side, trips in (("reference", 4), ("candidate", 5))
            ]
        }
    ),
    "memory": channel(tables={"memory": [{"quantity": "temp", "reference": 100, "candidate": 130}]}),
}
ERROR = {"tree": channel("error", "KeyError", [finding(traceback=f"Traceback\n {ODD}")])}


HOSTILE = (
    "<script>window.pwned = 1</script>/'grad\"&`${1}`{{ 1 }}@single",
    "\u202e\u05e9\u05dc\u05d5\u05dd-模型-\u2028é\U0001f600/forward@fsdp4.tensor2-auto",
    f"{'very-long-' * 30}/train_step@fsdp4.tensor2-auto",
)


def layer(number, differ=2, floors=20.0, rung="failed", **fields):
    row = {"series": "params", "stack": "layers", "number": number, "leaves": 3, "differ": differ}
    return {**row, "floors": floors, "rung": rung, "leaf": f"params/layers_{number}/{ODD}", **fields}


LAYERS = [
    layer(0, 0, None, None, leaf=""),
    layer(1, 1, 0.5, "floor"),
    layer(2),
    layer(3, 3, None),
    layer(None, 1, 900.0, stack="head"),
]
SPECS = [
    {"roles": "params", "leaves": leaves, "leaf": ODD, "shape": "8x4", "bytes": 64}
    | {"reference": cut, "reference_axes": names, "candidate": other, "candidate_axes": names}
    for leaves, cut, other, names in (
        (4, "fsdp,tensor", "fsdp,tensor", "embed,mlp"),
        (1, "fsdp+tensor,", "tensor,fsdp", "embed,<i>"),
        (9, "", "", ""),
        (2, "no_such_axis", "fsdp", "embed"),
    )
]
BISECT = {
    "schema": 1,
    "case": "x",
    "signature": None,
    "ambiguous": False,
    "sentence": f"values failed at loss: {ODD}",
    "axes": [
        {"axis": "op", "found": True, "sentence": ODD, "head": ["operation"], "rows": [[ODD]]}
        | {"facts": {}, "finding": None},
        {"axis": "module", "found": True, "sentence": "the first", "head": ["module"], "rows": [["a"]]}
        | {"facts": {"modules": [["a", 0.0, None], [ODD, 3.0, 12.5], ["c", "inf", 900.0]]}, "finding": None},
    ],
}


def rich_report(count=0):
    """Returns a report with every picture, hostile names, and ``count`` cases more."""
    tables = {**FAILED["values"]["tables"], "layers": LAYERS}
    mesh = {"mesh": "fsdp4.tensor2-auto"}
    failed = {**FAILED, "gradients": channel("failed", ODD, [finding(where=ODD)] * 20, tables=tables)}
    bars = [{"quantity": "temp", "reference": 5, "candidate": None}]
    drawn = {
        "sharding": channel(tables={"specs": SPECS}),
        "collectives": channel(tables={"collectives": bars}),
        "tree": channel(tables={"map": [{"role": "params", "reference": ODD, "candidate": ODD}]}),
    }
    return report(
        case(HOSTILE[0], "failed", failed),
        case(HOSTILE[1], "failed", {**failed, **drawn}, bisect=BISECT, **mesh),
        case(HOSTILE[2], channels=drawn, **mesh),
        case("toy/forward@nonsense mesh", channels=drawn, mesh="nonsense mesh"),
        case("toy-c/grad@single", "error", ERROR),
        *(case(f"toy{number}-{'ab'[number % 2]}/forward@single") for number in range(count)),
        waivers=[],
    )


@pytest.fixture
def rich():
    """A report with every picture and hostile names."""
    return copy.deepcopy(rich_report())


@pytest.fixture
def whole():
    """A report of six cases, one of each outcome."""
    return copy.deepcopy(
        report(
            case("toy-a/forward@single"),
            case("toy-b/forward@data8-auto", "failed", FAILED, mesh="data8-auto"),
            case("toy-c/grad@single", "error", ERROR),
            case("toy-d/grad@single", "vacuous", {"values": channel("vacuous", "a check that cannot fail")}),
            case("toy-e/grad@single", "skipped", {"values": channel("skipped", "needs four devices")}),
            case("toy-f/grad@single", "unproved", {"program": channel("unproved", "differs")}),
        )
    )


@pytest.fixture(scope="session")
def make():
    """The builders ``make.case``, ``make.channel``, ``make.finding``, ``make.report``."""

    class Make:
        pass

    Make.case, Make.channel = staticmethod(case), staticmethod(channel)
    Make.finding, Make.report = staticmethod(finding), staticmethod(report)
    Make.odd = ODD
    return Make
