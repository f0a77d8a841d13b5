"""The wheel: its content in a user's environment, and that our pairs are found when requested."""

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

REPO = Path(__file__).parents[2]
PARTS = ("parity", "models_linen", "models_nnx", "pyproject.toml", "setup.py", "README.md", "LICENSE")


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    """A folder with the files that the wheel installs."""
    folder = tmp_path_factory.mktemp("wheel")
    for part in PARTS:
        source, copy = REPO / part, folder / "source" / part
        copy.parent.mkdir(exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, copy)
    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--quiet", "-w", str(folder), "."]
    made = subprocess.run(pip, cwd=folder / "source", capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


@pytest.mark.long
def test_the_wheel_holds_one_package_and_all_of_it(unpacked):
    names = {path.name for path in unpacked.iterdir() if not path.name.endswith(".dist-info")}
    assert names == {"parity"}
    installed = {path.relative_to(unpacked).as_posix() for path in unpacked.rglob("*") if path.is_file()}
    for top, home in (("parity", "parity"), *((name, f"parity/_twins/{name}") for name in PARTS[1:3])):
        wanted = {
            f"{home}/{path.relative_to(REPO / top).as_posix()}"
            for path in (REPO / top).rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        }
        assert not wanted - installed


@pytest.mark.long
def test_the_twins_are_importable_only_once_our_pairs_are_selected(unpacked):
    program = """
import importlib.util, sys
import parity, parity.cli
assert importlib.util.find_spec("models_nnx") is importlib.util.find_spec("models_linen") is None
import parity.matrix.llama2
print(sys.modules["models_nnx"].__file__)
"""
    variables = {**os.environ, "PYTHONPATH": str(unpacked), "JAX_PLATFORMS": "cpu"}
    found = subprocess.run(
        [sys.executable, "-S", "-c", _without_checkout(program)],
        cwd=unpacked,
        env=variables,
        capture_output=True,
        text=True,
    )
    assert found.returncode == 0, found.stderr
    assert Path(found.stdout.strip()) == unpacked / "parity" / "_twins" / "models_nnx" / "__init__.py"


def _without_checkout(program):
    """Puts the installed packages on the path without the hooks by which an editable install finds this checkout."""
    return f"import sys; sys.path.append({sysconfig.get_path('purelib')!r})\n{program}"
