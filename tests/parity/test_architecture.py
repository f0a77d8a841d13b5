"""The architecture as rules: public names are documented, private ones in one file; lint-imports checks imports."""

import ast
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).parents[2]
PACKAGES = ("models_linen", "models_nnx", "parity")

FILES = sorted(path for package in PACKAGES for path in (REPO / package).rglob("*.py"))
TESTS = sorted((REPO / "tests").rglob("*.py"))
MODULES = [".".join(path.relative_to(REPO).with_suffix("").parts).removesuffix(".__init__") for path in FILES]
MODULES.remove("parity.__main__")


def test_the_packages_are_found():
    assert {"parity.run.run", "parity.matrix.llama2", "models_nnx.shared.ops", "models_linen.model"} <= set(
        MODULES
    )


def public_names(module):
    """Returns the names in ``__all__``; without it, the functions and classes of the module without an underscore."""
    own = [
        name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__
    ]
    return getattr(module, "__all__", [name for name in own if not name.startswith("_")])


def undocumented(name):
    """Returns the public names of a module, and the methods of public classes, without a docstring."""
    module = importlib.import_module(name)
    missing = [] if module.__doc__ else ["the module"]
    for public in public_names(module):
        value = getattr(module, public)
        constant = public.isupper()
        if not constant and callable(value) and not (value.__doc__ or "").strip():
            missing.append(public)
        dataclass_made = inspect.isclass(value) and (value.__doc__ or "").startswith(f"{public}(")
        if dataclass_made:
            missing.append(f"{public}: only what dataclasses writes")
    return missing


@pytest.mark.parametrize("name", MODULES)
def test_every_public_name_has_a_docstring(name):
    assert undocumented(name) == []


def test_public_names_exist_and_are_unique():
    for name in MODULES:
        module = importlib.import_module(name)
        public = list(getattr(module, "__all__", ()))
        assert len(set(public)) == len(public), name
        assert [word for word in public if not hasattr(module, word)] == [], name


# --- private names ---

PRIVATE = re.compile(r"^(jax|jaxlib|flax|optax)(\.|$)")


def private_names(path):
    """Returns the names that a file uses from the private parts of JAX, jaxlib, Flax and Optax."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute):
            names = [name for name in [ast.unparse(node)] if re.fullmatch(r"[\w.]+", name)]
        else:
            continue
        private = [
            name
            for name in names
            if PRIVATE.match(name)
            and (re.search(r"\._(?!_)", name) or name.startswith(("jaxlib", "jax.interpreters", "jax._src")))
        ]
        found += [f"{path.relative_to(REPO)}:{node.lineno} {name}" for name in private]
    return found


@pytest.mark.slow
def test_private_names_of_the_frameworks_are_in_one_file():
    files = [path for path in FILES if path != REPO / "parity" / "ir" / "jax_internals.py"]
    assert [name for path in files for name in private_names(path)] == []
    assert private_names(REPO / "parity" / "ir" / "jax_internals.py"), (
        "the rule finds nothing where there is something"
    )


def test_private_attributes_of_lowered_and_compiled_programs_are_in_one_file():
    """Attributes of a framework's object have no import to check: lowered._lowering, dtype._impl, ..."""
    known = re.compile(r"\.(_lowering|_impl|_hlo|_src|_executable|_cached_lowering)\b")
    outside = [path for path in FILES if path.name != "jax_internals.py" and known.search(path.read_text())]
    assert outside == []


# --- imports, tested in a fresh process ---


def python(code, **rest):
    return subprocess.run(
        [sys.executable, "-c", code], cwd=REPO, capture_output=True, text=True, timeout=120, **rest
    )


@pytest.mark.slow
def test_the_package_and_the_doors_do_not_import_jax():
    """A command or a test session can still choose devices."""
    code = (
        "import sys, parity, parity.compare.backends.environment, parity.cli, parity.plugin; "
        "print(sorted(name for name in sys.modules if name.partition('.')[0] in ('jax', 'flax', 'numpy')))"
    )
    ended = python(code)
    assert (ended.stdout.strip(), ended.stderr) == ("[]", "")


@pytest.mark.slow
def test_without_the_twin_that_retires_all_but_its_builder_imports():
    code = f"""
import importlib, sys

class Gone:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "models_linen":
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Gone())
failed = []
for name in {[name for name in MODULES if not name.startswith("models_linen")]!r}:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        failed.append(name)
print(*failed)
"""
    ended = python(code)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split() == ["parity.matrix.linen"]


def test_the_twins_hold_files_and_classes_of_the_same_names():
    """For reading in parallel: each name of one twin exists in the other, except those that the framework requires."""
    nnx_alone = {"rngs.py", "dropout.py"}  # keys by path; in Linen the framework draws them
    linen = {path.name for path in (REPO / "models_linen").glob("*.py")}
    nnx = {path.name for path in (REPO / "models_nnx").glob("*.py")}
    assert linen <= nnx
    for name in sorted(linen - nnx_alone - {"__init__.py"}):
        public = [
            importlib.import_module(f"{package}.{name.removesuffix('.py')}").__all__
            for package in ("models_linen", "models_nnx")
        ]
        assert set(public[0]) <= set(public[1]), name
