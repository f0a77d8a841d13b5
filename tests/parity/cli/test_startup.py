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

COMMANDS = """
import json, sys
from parity.cli import main
for line in sys.argv[1:]:
    sys.argv = ["parity", *line.split()]
    try:
        main()
    except SystemExit as ended:
        assert not ended.code, line
print("\\n" + json.dumps(sorted(sys.modules)))
"""


def loaded(script, *words, cwd=None):
    """Returns the modules that a script imported, which it prints last as JSON."""
    line = [sys.executable, "-c", script, *words]
    ended = subprocess.run(line, cwd=cwd, capture_output=True, text=True, check=True)
    return json.loads(ended.stdout.splitlines()[-1])


def present(modules, names):
    return [name for name in names if any(one == name or one.startswith(f"{name}.") for one in modules)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("commands", "absent"),
    [
        (("--help",), ("jax", "flax", "numpy", "parity.cases", *HEAVY)),
        (("run --help",), ("jax", "flax", "parity.cases", *HEAVY)),
        (("list", "list mlp"), (*HEAVY, *LAZY, *(f"parity.{room}" for room in ENGINE))),
        (("list --channels", "run mlp/train_step --json r.json", "prove mlp/forward"), (*HEAVY, *LAZY)),
    ],
    ids=", ".join,
)
def test_commands_import_what_they_need(tmp_path, commands, absent):
    """All together import no less than each alone, and one process is quicker."""
    (tmp_path / "foreign_mlp.py").write_text((TWINS / "foreign_mlp.py").read_text())
    (tmp_path / "pyproject.toml").write_text('[tool.parity]\npairs = ["foreign_mlp:PAIR"]\n')
    assert present(loaded(COMMANDS, *commands, cwd=tmp_path), absent) == []


def test_workers_and_tests_import_what_they_need():
    modules = loaded(
        "import json, sys, parity.run.parallel, parity.compare.backends.worker, parity.plugin\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    assert present(modules, (*HEAVY, *LAZY)) == []


@pytest.mark.long
def test_the_builtin_pairs_import_no_engine():
    script = "import json, sys\nfrom parity.cases.settings import BUILT_IN, load_pairs\n"
    script += "[load_pairs(name) for name in BUILT_IN]\nprint(json.dumps(sorted(sys.modules)))"
    modules = loaded(script)
    assert present(modules, (*HEAVY, *LAZY, "parity.channels", "parity.compare", "parity.prove")) == []
