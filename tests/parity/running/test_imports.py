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


WAYS = {
    "an asterisk": "from toy_link import *\ndef f():\n    return held.deep.rate()\n",
    "another's name": "from toy_link import held as own\ndef f():\n    return own.deep.rate()\n",
    "another's name, in a function": "def f():\n    from toy_link import held\n    return held.deep.rate()\n",
    "an alias": "import toy_link\nown = toy_link\ndef f():\n    return own.held.deep.rate()\n",
    "a table": "import toy_link\nTABLE = [toy_link]\n",
    "a class": "import toy_link\nclass Own:\n    part = toy_link\n",
    "a default": "import toy_link\ndef f(part=toy_link):\n    return part.held.deep.rate()\n",
    "an argument": "import toy_link\ndef f(part):\n    return part.held.deep\ndef g():\n    return f(toy_link)\n",
    "getattr": "import toy_link\ndef f():\n    return getattr(toy_link, 'held').deep.rate()\n",
    "vars": "import toy_link\ndef f():\n    return vars(toy_link)['held'].deep.rate()\n",
    "__dict__": "import toy_link\ndef f():\n    return toy_link.__dict__['held'].deep.rate()\n",
    "globals": "from toy_parts import other\ndef f():\n    return globals()['other'].deep.rate()\n",
    "__globals__": "from toy_link import rate\ndef f():\n    return rate.__globals__['held'].deep.rate()\n",
    "derived classes": "class Own: pass\ndef f():\n    return Own.__subclasses__()\n",
    "sys as a whole": "import sys\ndef f():\n    return getattr(sys, 'modules')['toy_parts.other.deep']\n",
    "all objects": "import gc\ndef f():\n    return gc.get_objects()\n",
    "a pickle": "import pickle\ndef f(text):\n    return pickle.loads(text)\n",
    "what a module makes when asked": "import toy_parts\ndef f():\n    return toy_parts.made.deep.rate()\n",
}


@pytest.mark.parametrize("way", WAYS)
def test_no_way_to_a_module_is_missed(key, way):
    assert "toy_parts.other.deep" in reached_by(key, WAYS[way])


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
