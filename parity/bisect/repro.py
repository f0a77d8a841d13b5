"""A folder that reproduces a failure on another machine with only this package installed."""

import dataclasses
import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from parity.bisect.axis import Question, Signature, Status
from parity.cases.case import Case, select
from parity.cases.settings import collect, find_settings, load_pairs
from parity.compare.backends.environment import describe_environment
from parity.ir.functions import is_users

SCHEMA = 1
CODE = "code"
SCRIPT = '''"""Shows the failure that repro.json describes: exits with 1 if it is there, 0 if not, 3 otherwise.

Needs the package linen-nnx-parity, but not your project. Data files that the code reads are not in this folder.
"""

import sys
from pathlib import Path

from parity.compare.backends.environment import prepare

prepare("{backend}")

from parity.bisect.repro import replay  # after the backend is chosen  # noqa: E402

sys.exit(replay(Path(__file__).resolve().parent))
'''


def write_repro(
    folder: Path, case: Case, signature: Signature, pairs: Sequence[str], settings: Mapping[str, str]
) -> None:
    """Writes a folder with the project's code for a case, and a script that runs it.

    Args:
        folder: must be new or empty.
        pairs: further pairs in addition to the project's, ``module:ATTRIBUTE``.
    """
    check_free(folder)
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    (partial / CODE).mkdir(parents=True)
    pair = _pair_of(case, pairs)
    loaded = [name for name, one in sys.modules.items() if is_users(getattr(one, "__file__", None) or "<")]
    for name in sorted(loaded):
        if name.partition(".")[0] not in {"parity", "conftest", "__main__"}:
            _copy(name, partial / CODE)
    (partial / CODE / "pyproject.toml").write_text(f"[tool.parity]\npairs = [{json.dumps(pair)}]\n")
    record = {
        "schema": SCHEMA,
        "case": case.id,
        "backend": case.placement.backend,
        "settings": dict(settings),
        "signature": dataclasses.asdict(signature),
        "environment": describe_environment(),
    }
    (partial / "repro.json").write_text(json.dumps(record, indent=2, default=str) + "\n")
    (partial / "repro.py").write_text(SCRIPT.format(backend=case.placement.backend))
    if folder.exists():
        folder.rmdir()
    partial.replace(folder)


def check_free(folder: Path) -> None:
    """Raises ValueError unless a repro can be written to a folder."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(
            f"--repro {folder}: got something that is there, expected a new folder or an empty one"
        )


def _pair_of(case: Case, pairs: Sequence[str]) -> str:
    names = dict.fromkeys((*pairs, *find_settings(Path.cwd()).pairs))
    for name in names:
        if any(one.id == case.id for pair in load_pairs(name) for one in pair.cases({})):
            return name
    raise ValueError(f"repro of {case.id}: none of the pairs {', '.join(names)} has this case")


def _copy(name: str, folder: Path) -> None:
    source = Path(str(sys.modules[name].__file__))
    package = source.name == "__init__.py"
    target = folder.joinpath(*name.split("."))
    target = target / "__init__.py" if package else target.with_suffix(".py")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def replay(folder: Path) -> int:
    """Runs the case of a repro folder, prints whether the same failure occurs, and returns the exit code."""
    record = json.loads((folder / "repro.json").read_text())
    if record["schema"] != SCHEMA:
        raise ValueError(
            f"{folder}: got schema {record['schema']}, expected {SCHEMA}; use the version that wrote it"
        )
    code = folder / CODE
    sys.path.insert(0, str(code))
    cases = collect((), record["settings"], code, select=(record["case"],))[1]
    (case,) = select(cases, (record["case"],))
    signature = Signature(**record["signature"])
    case = case.with_placement(backend=record["backend"])
    status = Question(case=case, signature=signature).status(case)
    words = {Status.FAILS: "the same failure", Status.PASSES: "passes"}.get(status, "fails otherwise")
    print(f"{record['case']}: {words}: {signature}")
    return {Status.FAILS: 1, Status.PASSES: 0}.get(status, 3)
