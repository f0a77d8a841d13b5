"""Planted bugs for the axis ``op``, with the case and the function of each."""

import ast
import contextlib
import dataclasses
import functools
import importlib
import importlib.util
import os
import sys
import tomllib
from pathlib import Path

import models_nnx
from parity.compare.evidence import Evidence
from parity.compare.origin.blame import STRATEGIES
from parity.compare.origin.evaluated import evaluate_case, on_one_device
from parity.compare.origin.operation import describe

MUTANTS = Path(__file__).parents[2] / "mutants"
HERE = Path(__file__).parent
UNSEEN = ("unseen", "fresh")
STOCK_ONLY = ("later",)
STOCK = HERE / "stock.py"
TWINS = Path(models_nnx.__file__).parent
TABLES = ("operations", "llama2", "moe", "families", "mtp", "training", "diloco")
FAMILIES = {"gemma2": "GEMMA2", "gemma3": "GEMMA3", "deepseek3": "DEEPSEEK3", "gpt": "GPT_OSS"}
PAIRS = {
    "training": "trajectories:PAIR",
    "batch": "batch_split:PAIR",
    **{first: f"families:{name}" for first, name in FAMILIES.items()},
}
OF_VALUES = {"values", "gradients", "state"}


def plants():
    """Returns the plants that change values, by table and id.

    Those of ``operations`` were written for the axis. Those of ``unseen`` were written after it, as a test set, and
    those of ``fresh`` after the rules that resulted from ``unseen``, those of ``later`` after those from ``fresh``.
    """
    found = {}
    for table in (*TABLES, *UNSEEN):
        for bug in tomllib.loads((MUTANTS / f"{table}.toml").read_text())["mutant"]:
            if "case" in bug and not bug.get("benign") and OF_VALUES & set(bug.get("channels", OF_VALUES)):
                edits = [{**edit, "file": edit["file"].removeprefix("models_nnx/")} for edit in bug["edits"]]
                found[f"{table}/{bug['id']}"] = {**bug, "edits": edits, "pair": _pair(bug["case"])}
    for table in (*UNSEEN, *STOCK_ONLY):
        for bug in tomllib.loads((HERE / f"{table}.toml").read_text())["bug"]:
            found[f"{table}/{bug['id']}"] = bug
    return found


def _pair(case):
    """Returns `module:NAME` of the case's pair in `parity.matrix`; empty for the default from the id's prefix."""
    return PAIRS.get(case.split("-")[0], "")


def files(bug):
    """Returns ``{file: [(old, new), ...]}``."""
    edits = {}
    for edit in bug["edits"]:
        edits.setdefault(edit["file"], []).append((edit["old"], edit["new"]))
    return edits


def functions(bug):
    """Returns ``(file, function)`` of the functions, or classes, that an edit changes."""
    found = set()
    for edit in bug["edits"]:
        text = (HERE if "stock" in bug else TWINS).joinpath(edit["file"]).read_text()
        same = len(os.path.commonprefix([edit["old"], edit["new"]]))
        line = text.count("\n", 0, text.index(edit["old"]) + same) + 1
        around = [
            node
            for node in ast.walk(ast.parse(text))
            if isinstance(node, (ast.FunctionDef, ast.ClassDef))
            and node.lineno <= line <= (node.end_lineno or line)
        ]
        if around:
            found.add((edit["file"].rpartition("/")[2], max(around, key=lambda node: node.lineno).name))
    return found


@functools.cache
def _real(id, pair):
    """Returns the case unchanged, so that its reference is traced and evaluated once for all plants."""
    module, _, attribute = (pair or f"{id.split('-')[0]}:PAIR").partition(":")
    cases = getattr(importlib.import_module(f"parity.matrix.{module}"), attribute).cases({})
    return next(case for case in cases if case.id == id)


@functools.cache
def _stock(file):
    """Returns the pair in a file of twins of stock layers."""
    spec = importlib.util.spec_from_file_location(f"stock_in_{file.parent.name}", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with contextlib.ExitStack() as known:
        sys.modules[spec.name] = module
        known.callback(sys.modules.pop, spec.name)
        spec.loader.exec_module(module)
    return module.PAIR


def _planted(bug, folder, planting):
    """Returns the case with a plant in its candidate."""
    if "stock" in bug:
        text = STOCK.read_text()
        for old, new in files(bug)["stock.py"]:
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        (folder / "stock.py").write_text(text)
        planted, real = (
            next(case for case in _stock(file).cases({}) if case.program == bug["stock"])
            for file in (folder / "stock.py", STOCK)
        )
    else:
        scratch = planting.copy(folder, files(bug))
        planted, real = planting.case(scratch, bug["case"], bug["pair"]), _real(bug["case"], bug["pair"])
    program = bug.get("program", planted.program)
    return dataclasses.replace(planted, reference=real.reference, program=program, float64_reference=None)


def evaluated(bug, folder, planting, bench):
    """Returns both sides of a planted case, evaluated."""
    case = _planted(bug, folder, planting)
    return evaluate_case(Evidence.of(on_one_device(case), bench))


def is_right(finding, bug):
    """Returns True if ``op`` names the function that holds a plant."""
    named = [frame for frame in finding.facts.get("first", {}).get("blamed", []) if frame]
    return any(
        file.rpartition("/")[2] == name and function in qualname.split(".")
        for file, _, qualname in named
        for name, function in functions(bug)
    )


def earners(found, bug):
    """Returns the names of the strategies without which ``op`` does not name the function that holds a plant."""
    return [
        name
        for name in STRATEGIES
        if not is_right(describe(found, [STRATEGIES[each] for each in STRATEGIES if each != name]), bug)
    ]
