"""Makes shared suites, with rewritten asserts, and campaigns importable before any test imports them."""

import functools
import importlib.util
import os
import signal
import sys
from pathlib import Path

import jax
import pytest

from parity.run.run import clear_caches_if_many_mappings

TESTS = Path(__file__).parent

pytest.register_assert_rewrite(*(path.stem for path in (TESTS / "oracles").glob("suite_*.py")))


def import_campaigns() -> None:
    """Imports the package by its place: ``tests`` on the import path would hide the real packages."""
    folder = TESTS / "campaigns"
    spec = importlib.util.spec_from_file_location(folder.name, folder / "__init__.py")
    assert spec and spec.loader
    sys.modules[folder.name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)


import_campaigns()

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Shells start background jobs so, and programs that tests interrupt would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="module", autouse=True)
def compiled_programs_are_let_go():
    """A worker lives for a thousand tests, and would crash in the compiler."""
    yield
    clear_caches_if_many_mappings()


@pytest.fixture
def compiled_as_users_do(monkeypatch):
    """Compiles with the optimisations that the tests leave out to be fast: with them others are the last bits."""
    options: dict[str, int | bool] = {"xla_backend_optimization_level": 3}
    if "--xla_cpu_use_fusion_emitters=false" in os.environ["XLA_FLAGS"]:
        options["xla_cpu_use_fusion_emitters"] = True
    monkeypatch.setattr(jax, "jit", functools.partial(jax.jit, compiler_options=options))
