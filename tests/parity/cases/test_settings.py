"""Selection of pairs: ``[tool.parity]``, modules by name, and the errors for invalid ones."""

import json
import re
import sys
from pathlib import Path

import pytest

from parity.cases.case import Case, Pair
from parity.cases.settings import BUILT_IN, Settings, SettingsError, collect, find_settings, load_pairs

PAIR = """
from parity.cases.case import Case, Pair

def never():
    raise AssertionError("listing must not build")

def cases(settings):
    words = ["forward", *sorted(settings)]
    return [Case(id=f"{NAME}/{w}@single", reference=never, candidate=never, program=w) for w in words]

PAIR = Pair(name=NAME, about="for tests", cases=cases)
"""


def settings(folder, text):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pyproject.toml").write_text(text)
    return folder


def module(folder, name, text=PAIR):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.py").write_text(f"NAME = {name!r}\n{text}")
    return f"{name}:PAIR"


@pytest.fixture(autouse=True)
def clean_imports(undone_imports):
    """Each test imports its modules from scratch."""


# --- finding the file ---


def test_without_a_file_the_builtin_pairs_run(tmp_path):
    assert find_settings(tmp_path) == Settings(pairs=BUILT_IN, root=None)


def test_this_project_runs_the_builtin_pairs():
    assert find_settings(Path(__file__)).pairs == BUILT_IN


def test_the_nearest_file_with_our_table_counts(tmp_path):
    settings(tmp_path, '[tool.parity]\npairs = ["far:PAIR"]\n')
    near = settings(tmp_path / "a", '[tool.parity]\npairs = ["near:PAIR", "other:PAIR"]\n')
    other = settings(tmp_path / "a" / "b", '[tool.ruff]\nline-length = 99\n\n[project]\nname = "ünrelated"\n')
    (other / "pyproject.toml").write_bytes((other / "pyproject.toml").read_text().encode("utf-8"))
    below = other / "c"
    below.mkdir()
    assert find_settings(below) == Settings(pairs=("near:PAIR", "other:PAIR"), root=near)
    assert find_settings(tmp_path).pairs == ("far:PAIR",)


@pytest.mark.parametrize("text", ["", "tool = 3\n", "[project]\nname = 'x'\n", "[tool]\n"])
def test_files_without_our_table_are_passed_over(tmp_path, text):
    assert find_settings(settings(tmp_path, text)) == Settings()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[tool.parity]\npairs = []\n", 'pairs: got [], expected ["module:ATTRIBUTE", ...]'),
        ('[tool.parity]\npairs = "mine:PAIR"\n', 'expected ["module:ATTRIBUTE", ...]'),
        ("[tool.parity]\npairs = [1]\n", "pairs, number 1: got 1, expected a text"),
        ('[tool.parity]\npairs = ["mine:PAIR"]\npair = 1\n', "got pair, expected one of pairs, workers, "),
        ('[tool.parity]\npairs = ["mine:PAIR"]\nworker = 1\n', "did you mean workers?"),
        ('[tool.parity]\npairs = ["a:B"]\nworkers = 0\n', "workers: got 0, expected a number of processes"),
        ('[tool.parity]\npairs = ["a:B"]\ncompile-gib = inf\n', "compile-gib: got inf, expected GiB"),
        ('[tool.parity]\npairs = ["a:B"]\nworkers = true\n', "workers: got True"),
        (
            '[tool.parity]\npairs = ["a:B"]\ncompile-gib = "16"\n',
            "compile-gib: got '16', expected GiB of host memory",
        ),
        (
            '[tool.parity]\npairs = ["a:B"]\ncache = false\n',
            'cache: got False, expected a folder, or "" for none',
        ),
        ('[tool]\nparity = "mine:PAIR"\n', "[tool.parity]: got 'mine:PAIR', expected a table"),
        ('[tool]\nparity = ["mine:PAIR"]\n', "expected a table"),
        ("[tool]\nparity = 3\n", "expected a table"),
    ],
)
def test_a_table_of_another_form_is_refused_with_its_place(tmp_path, text, expected):
    with pytest.raises(SettingsError) as raised:
        find_settings(settings(tmp_path, text))
    message = str(raised.value)
    assert f"{tmp_path}/pyproject.toml [tool.parity]: " in message and expected in message


def test_the_resources_of_a_run_are_settings(tmp_path):
    words = 'workers = 3\ncompile-gib = 1.5\ncompile-seconds = 90\ncache = "here"\n'
    found = find_settings(settings(tmp_path, f'[tool.parity]\npairs = ["a:B"]\n{words}')).resources
    assert found == {"workers": 3, "memory": 3 * 2**29, "seconds": 90.0, "cache": tmp_path / "here"}
    none = find_settings(settings(tmp_path, '[tool.parity]\npairs = ["a:B"]\ncache = ""\n')).resources
    assert none == {"cache": None}


@pytest.mark.parametrize(
    "content", [b"[tool.parity\npairs = []", b"\xff\xfe[tool.parity]", b"a = 1\na = 2\n"]
)
def test_a_file_that_is_no_toml_is_refused_with_its_place(tmp_path, content):
    (tmp_path / "pyproject.toml").write_bytes(content)
    with pytest.raises(SettingsError, match=rf"{tmp_path}/pyproject.toml: .*; mend the file"):
        find_settings(tmp_path)


# --- loading pairs ---


@pytest.mark.parametrize("name", ["mine", "mine:", ":PAIR", "", "mine.py:PAIR"])
def test_a_pair_is_named_by_module_and_attribute(name):
    with pytest.raises(SettingsError, match="expected module:ATTRIBUTE"):
        load_pairs(name)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no_such_module:PAIR", "No module named 'no_such_module'"),
        ("json:PAIR", "module 'json' has no attribute 'PAIR'"),
        ("json:dumps", "got function, expected parity.Pair, as parity.twins returns it"),
        ("..relative:PAIR", "TypeError"),
    ],
)
def test_a_pair_that_is_not_there_or_no_pair_is_named(name, words):
    with pytest.raises(SettingsError) as raised:
        load_pairs(name)
    assert f"pair {name!r}: " in str(raised.value) and words in str(raised.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import no_such_thing", "No module named 'no_such_thing'"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("def broken(:", "SyntaxError: invalid syntax"),
        ("raise ValueError('bad width 7')", "ValueError: bad width 7"),
    ],
)
def test_a_module_that_fails_to_import_is_named_with_its_error(tmp_path, monkeypatch, text, words):
    name = module(tmp_path, "failing_pair", text)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SettingsError) as raised:
        load_pairs(name)
    assert f"pair {name!r}: {words}" in str(raised.value)


def test_the_builtin_pairs_load():
    pairs = [pair for name in BUILT_IN for pair in load_pairs(name)]
    assert all(isinstance(pair, Pair) for pair in pairs)
    assert len({pair.name for pair in pairs}) == len(pairs)


# --- collecting cases ---


def ids(cases: list[Case]) -> list[str]:
    return [case.id for case in cases]


def test_pairs_of_the_file_and_further_ones_from_a_folder_below(tmp_path):
    first, second = module(tmp_path, "first_pair"), module(tmp_path / "below", "second_pair")
    settings(tmp_path, f'[tool.parity]\npairs = ["{first}"]\n')
    pairs, cases = collect([second, first], {}, tmp_path / "below")
    assert [pair.name for pair in pairs] == ["first_pair", "second_pair"]
    assert ids(cases) == ["first_pair/forward@single", "second_pair/forward@single"]


def test_without_a_project_the_named_pairs_are_all(tmp_path):
    pairs, cases = collect([module(tmp_path, "lone_pair")], {}, tmp_path)
    assert [pair.name for pair in pairs] == ["lone_pair"] and ids(cases) == ["lone_pair/forward@single"]


def test_one_name_may_register_several_pairs(tmp_path):
    text = f"{PAIR}\nOTHER = PAIR.__class__(name='o', about='', cases=lambda settings: [])\nALL = [PAIR, OTHER]\n"
    module(tmp_path, "several_pair", text)
    assert [pair.name for pair in collect(["several_pair:ALL"], {}, tmp_path)[0]] == ["several_pair", "o"]


def test_overrides_reach_every_pair(tmp_path):
    settings(tmp_path, f'[tool.parity]\npairs = ["{module(tmp_path, "third_pair")}"]\n')
    assert ids(collect((), {"embed": "96"}, tmp_path)[1]) == [
        "third_pair/forward@single",
        "third_pair/embed@single",
    ]


def test_the_name_of_a_pair_is_printed_once(tmp_path):
    """`parity.twins` names the pair itself."""
    text = f"{PAIR}\ndef refuse(settings):\n    raise ValueError(f'pair {{NAME}}: it has no config')\n"
    module(tmp_path, "named_pair", f"{text}PAIR = Pair(name=NAME, about='', cases=refuse)\n")
    settings(tmp_path, '[tool.parity]\npairs = ["named_pair:PAIR"]\n')
    with pytest.raises(SettingsError, match=r"^pair named_pair: it has no config"):
        collect((), {"embed": "96"}, tmp_path)


def test_two_cases_of_one_id_are_refused(tmp_path):
    text = f"{PAIR}\nOTHER = PAIR.__class__(name='other', about='', cases=cases)\n"
    module(tmp_path, "double_pair", text)
    settings(tmp_path, '[tool.parity]\npairs = ["double_pair:PAIR", "double_pair:OTHER"]\n')
    with pytest.raises(SettingsError, match=r"cases \['double_pair/forward@single'\]: expected distinct ids"):
        collect((), {}, tmp_path)


def test_pairs_without_cases_are_refused(tmp_path):
    """An empty comparison must not look like parity."""
    module(tmp_path, "empty_pair", f"{PAIR}\nPAIR = Pair(name=NAME, about='', cases=lambda settings: [])\n")
    settings(tmp_path, '[tool.parity]\npairs = ["empty_pair:PAIR"]\n')
    with pytest.raises(SettingsError, match="pairs empty_pair: no cases"):
        collect((), {}, tmp_path)


def test_a_broken_override_is_the_config_s_own_error(tmp_path):
    with pytest.raises(ValueError, match="embed"):
        collect((), {"embed": "49"}, tmp_path)


def test_a_pair_that_refuses_an_override_matters_only_if_it_is_selected(tmp_path):
    refusing = f"{PAIR}\ndef refuse(settings):\n    if settings:\n        raise ValueError('no embed here')\n"
    refusing += "    return [dataclasses.replace(case, smoke=True) for case in cases(settings)]\n"
    refusing = "import dataclasses\n" + refusing + "PAIR = dataclasses.replace(PAIR, cases=refuse)\n"
    names = [module(tmp_path, "taking_pair"), module(tmp_path, "refusing_pair", refusing)]
    settings(tmp_path, f"[tool.parity]\npairs = {json.dumps(names)}\n")
    taken = ["taking_pair/forward@single", "taking_pair/embed@single"]
    assert ids(collect((), {"embed": "96"}, tmp_path, select=["taking_pair"])[1]) == taken
    for select in ([], ["refusing_pair"], ["*/forward*"], ["taking_pair", "smoke"]):
        with pytest.raises(SettingsError, match="pair refusing_pair: no embed here"):
            collect((), {"embed": "96"}, tmp_path, select=select)
    settings(tmp_path, f"[tool.parity]\npairs = {json.dumps(names[1:])}\n")
    assert ids(collect((), {"embed": "96"}, tmp_path, select=["else"])[1]) == ["refusing_pair/forward@single"]


def test_of_a_pair_whose_cases_differ_only_the_selected_ones_must_have_an_override(tmp_path):
    varying = f"""{PAIR}
import dataclasses

def vary(case, takes):
    def varied(settings):
        if not takes:
            raise ValueError('no experts here')
        return dataclasses.replace(case, id='varied', program=settings['moe'])
    return dataclasses.replace(case, id=f'{{NAME}}-{{takes}}/forward@single').with_explore(with_settings=varied)

def some(settings):
    if settings:
        raise ValueError('no experts in one of them')
    return [vary(cases({{}})[0], takes) for takes in (True, False)]

PAIR = dataclasses.replace(PAIR, cases=some)
"""
    settings(tmp_path, f"[tool.parity]\npairs = {json.dumps([module(tmp_path, 'varying_pair', varying)])}\n")
    (case,) = collect((), {"moe": "dropless"}, tmp_path, select=["varying_pair-True"])[1]
    assert (case.id, case.program) == ("varying_pair-True/forward@single", "dropless")
    for select, says in (
        (["varying_pair"], "case varying_pair-False/forward@single: no experts here"),
        ([], "pair varying_pair: no experts in one of them"),
    ):
        with pytest.raises(SettingsError, match=says):
            collect((), {"moe": "dropless"}, tmp_path, select=select)


def test_the_project_folder_comes_after_pythonpath_and_before_installed_packages(tmp_path, monkeypatch):
    """A scratch copy named by PYTHONPATH wins over the project, and the project over an installed package."""
    chosen, project = tmp_path / "chosen", tmp_path / "project"
    for folder in (chosen, project):
        module(folder, "shadowed_pair", PAIR.replace("for tests", folder.name))
    settings(project, '[tool.parity]\npairs = ["shadowed_pair:PAIR", "json:PAIR"]\n')
    module(project, "json")
    monkeypatch.setenv("PYTHONPATH", str(chosen))
    monkeypatch.setattr(sys, "path", [str(chosen), *sys.path])
    monkeypatch.delitem(sys.modules, "json")
    pairs, _ = collect((), {}, project)
    assert [pair.about for pair in pairs] == ["chosen", "for tests"]
    assert sys.path.index(str(chosen)) < sys.path.index(str(project))
    assert Path(sys.modules["json"].__file__).parent == project


READS = """
def later(settings):
    return int(settings.get("depth", 2))

def reads(settings):
    return [Case(id=f"{NAME}/{settings.get('width', '8')}@single", reference=never, candidate=never, program="p")]

def holds(settings):
    make = functools.partial(later, settings)
    return [Case(id=f"{NAME}/p@single", reference=make, candidate=make, program="p")]

def copies(settings):
    return reads({"width": "8", **settings})
"""


@pytest.mark.parametrize(
    ("function", "given", "words"),
    [
        ("reads", {"width": "4"}, ""),
        ("reads", {"widht": "4"}, "got widht, expected one of width; did you mean width?"),
        ("reads", {"width": "4", "depth": "1"}, "got depth, expected one of width"),
        ("holds", {"depth": "4"}, ""),
        ("copies", {"widht": "4"}, ""),
        ("lambda settings: reads({})", {"width": "4"}, "got width, but it takes no settings"),
    ],
)
def test_a_setting_that_a_pair_does_not_read_is_an_error(tmp_path, function, given, words):
    text = f"import functools\n{PAIR}\n{READS}\nPAIR = Pair(name=NAME, about='', cases={function})\n"
    settings(tmp_path, f'[tool.parity]\npairs = ["{module(tmp_path, "reads_pair", text)}"]\n')
    if words:
        with pytest.raises(SettingsError, match=re.escape(words)):
            collect(overrides=given, start=tmp_path)
    else:
        assert collect(overrides=given, start=tmp_path)[1]


def test_a_pair_without_published_sizes_does_not_refuse_a_setting_of_another(tmp_path):
    sized = f"{PAIR}\n{READS}\nPAIR = Pair(name=NAME, about='', cases=reads, full_size=lambda s, devices: reads(s))\n"
    names = [module(tmp_path, "small_pair"), module(tmp_path, "sized_pair", f"import functools\n{sized}")]
    settings(tmp_path, f"[tool.parity]\npairs = {json.dumps(names)}\n")
    assert ids(collect(overrides={"width": "4"}, start=tmp_path, devices=8)[1]) == ["sized_pair/4@single"]
