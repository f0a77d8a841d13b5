"""What a case reaches of the project's modules: what its sources name, and what these name."""

import importlib
import sys

import pytest

from parity.cases.case import Case
from parity.running.content import Contents
from parity.running.imports import is_project

FILES = {
    "toy_parts": "toy_parts/__init__.py",
    "toy_parts.one": "toy_parts/one.py",
    "toy_parts.other": "toy_parts/other/__init__.py",
    "toy_parts.other.deep": "toy_parts/other/deep.py",
    "toy_link": "toy_link.py",
}
LINK = "from toy_parts import other as held\nimport toy_parts as whole\n"
MODEL = "\ndef build(name):\n    return name\n"
ALL = {"toy_parts", "toy_parts.one", "toy_parts.other", "toy_parts.other.deep"}


@pytest.fixture
def key(tmp_path, monkeypatch):
    """Called with what the model's module says of a package, gives the key of the model's case."""
    for name, module in list(sys.modules.items()):
        if is_project(module):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "toy_parts" / "other").mkdir(parents=True)
    for name, file in FILES.items():
        (tmp_path / file).write_text((LINK if name == "toy_link" else "") + "def rate():\n    return 1\n")

    def forget():
        for name in (*FILES, "toy_model"):
            sys.modules.pop(name, None)
        importlib.invalidate_caches()

    def key(text):
        (tmp_path / "toy_model.py").write_text(text + MODEL)
        forget()
        for name in FILES:  # all are loaded, as other cases load them
            importlib.import_module(name)
        build = importlib.import_module("toy_model").build
        return Contents().of(Case(id="toy", reference=build, candidate=build, program="f"))[0]

    key.folder = tmp_path
    yield key
    forget()


@pytest.mark.parametrize(
    ("text", "reached"),
    [
        ("import toy_parts.one\n", {"toy_parts", "toy_parts.one"}),
        ("from toy_parts import one\n", {"toy_parts", "toy_parts.one"}),
        ("from toy_parts.one import rate\n", {"toy_parts", "toy_parts.one"}),
        ("from toy_parts.one import *\n", {"toy_parts", "toy_parts.one"}),
        ("import toy_parts\ndef f():\n    return toy_parts.other.rate()\n", {"toy_parts", "toy_parts.other"}),
        (
            "import toy_parts as parts\ndef f():\n    return parts.other.deep.rate()\n",
            ALL - {"toy_parts.one"},
        ),
        (
            "def f():\n    from toy_parts import other\n    return other.deep.rate()\n",
            ALL - {"toy_parts.one"},
        ),
        ("import toy_parts\ndef f():\n    return [toy_parts.other]\n", ALL - {"toy_parts.one"}),
        ("import toy_parts\ndef f(name):\n    return getattr(toy_parts, name)\n", ALL),
        ("import toy_parts\nTABLE = {'all': toy_parts}\n", ALL),
        ("import importlib\ndef f(name):\n    return importlib.import_module(name)\n", {*FILES}),
        ("from importlib import import_module as load\n", {*FILES}),
        ("import sys\ndef f(name):\n    return sys.modules[name]\n", {*FILES}),
        ("def f(name):\n    return __import__(name)\n", {*FILES}),
        ("def f(name):\n    return eval(name)\n", {*FILES}),
        ("import toy_link\n", {"toy_link", "toy_parts", "toy_parts.other"}),
        (
            "import toy_link\ndef f():\n    return toy_link.held.deep.rate()\n",
            {*FILES} - {"toy_parts.one"},
        ),
        (
            "import toy_link\ndef f():\n    return toy_link.whole.one.rate()\n",
            {*FILES} - {"toy_parts.other.deep"},
        ),
        ("import toy_link\ndef f(name):\n    return getattr(toy_link.whole, name)\n", {*FILES}),
    ],
)
def test_a_case_reaches_what_its_sources_name(key, text, reached):
    assert reached_by(key, text) == reached


def reached_by(key, text):
    """Returns the modules whose edit changes the key."""
    found = set()
    for name, file in FILES.items():
        path = key.folder / file
        before, was = key(text), path.read_text()
        path.write_text(was.replace("return 1", "return 22"))
        if key(text) != before:
            found.add(name)
        path.write_text(was)
    return found
