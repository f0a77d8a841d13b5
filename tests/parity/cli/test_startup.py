"""A command imports only modules that it needs; modules are compared, because background load changes seconds."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

TWINS = Path(__file__).parents[3] / "docs" / "examples"
HEAVY = ("scipy.stats", "orbax", "matplotlib", "ray", "tensorstore")
ENGINE = ("bisect", "channels", "compare.evidence", "gate", "mutants", "prove", "report", "run", "ir.hlo")
LAZY = (
    "jinja2",
    "parity.compare.backends.aot",
    "parity.bisect",
    "parity.prove.exact",
    "parity.gate",
    "parity.mutants",
)

COMMAND = """
import json, sys
sys.argv = ["parity", *sys.argv[1:]]
from parity.cli import main
try:
    main()
except SystemExit as ended:
    print("\\n" + json.dumps([ended.code, sorted(sys.modules)]))
"""


def loaded(script, *words, cwd=None):
    """Returns the JSON that a script prints last: its exit code and the modules that it imported."""
    line = [sys.executable, "-c", script, *words]
    ended = subprocess.run(line, cwd=cwd, capture_output=True, text=True, check=True)
    return json.loads(ended.stdout.splitlines()[-1])


def present(modules, names):
    return [name for name in names if any(one == name or one.startswith(f"{name}.") for one in modules)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "absent"),
    [
        (["--help"], ("jax", "flax", "numpy", "parity.cases", *HEAVY)),
        (["run", "--help"], ("jax", "flax", "parity.cases", *HEAVY)),
        (["list"], (*HEAVY, *LAZY, *(f"parity.{room}" for room in ENGINE))),
        (["list", "mlp"], (*HEAVY, *LAZY, *(f"parity.{room}" for room in ENGINE))),
        (["list", "--channels"], (*HEAVY, *LAZY)),
        (["run", "mlp/train_step", "--json", "r.json"], (*HEAVY, *LAZY)),
        (["prove", "mlp/forward"], (*HEAVY, *LAZY)),
    ],
    ids=" ".join,
)
def test_a_command_imports_what_it_needs(tmp_path, words, absent):
    (tmp_path / "foreign_mlp.py").write_text((TWINS / "foreign_mlp.py").read_text())
    (tmp_path / "pyproject.toml").write_text('[tool.parity]\npairs = ["foreign_mlp:PAIR"]\n')
    code, modules = loaded(COMMAND, *words, cwd=tmp_path)
    assert not code and present(modules, absent) == []


@pytest.mark.parametrize("module", ["parity.run.parallel", "parity.compare.backends.worker", "parity.plugin"])
def test_a_worker_or_a_test_imports_what_it_needs(module):
    _, modules = loaded(f"import json, sys, {module}\nprint(json.dumps([0, sorted(sys.modules)]))")
    assert present(modules, (*HEAVY, *LAZY)) == []


@pytest.mark.long
def test_the_builtin_pairs_import_no_engine():
    script = "import json, sys\nfrom parity.cases.settings import BUILT_IN, load_pairs\n"
    script += "[load_pairs(name) for name in BUILT_IN]\nprint(json.dumps([0, sorted(sys.modules)]))"
    _, modules = loaded(script)
    assert present(modules, (*HEAVY, *LAZY, "parity.channels", "parity.compare", "parity.prove")) == []
