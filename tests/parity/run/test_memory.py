"""The cache of verdicts under attack: any change that a verdict may depend on must change the key."""

import ctypes
import dataclasses
import json
import os
import shutil
import sqlite3
import sys
import tempfile
import time
from pathlib import Path

import jax
import msgspec
import pytest

from parity.cases.accepted import Waiver
from parity.cases.case import Case
from parity.compare.backends.cache import DiskCache
from parity.run import manifest as manifests
from parity.run.manifest import Manifest, TooManyFilesError, project_of
from parity.run.record import CaseResult
from parity.run.request import CacheMode, Request
from parity.run.verdict_cache import VerdictCache
from parity.verdicts import ChannelResult, Finding, Requirement, Verdict

pytestmark = pytest.mark.slow

CASE = Case(id="toy/forward@single", reference=len, candidate=len, program="f")
TWINS = """
from pathlib import Path
import jax.numpy as jnp, numpy as np
from flax import linen, nnx
import parity

HERE = Path(__file__).parent
{helper}

class Linen(linen.Module):
    @linen.compact
    def __call__(self, x):
        return jnp.tanh(linen.Dense(5, name="dense")(x))

class Nnx(nnx.Module):
    def __init__(self, rngs):
        self.dense = nnx.Linear(6, 5, rngs=rngs)

    def __call__(self, x):
        return jnp.tanh(self.dense(x)) * (1.5 if {wrong} else 1.0)

def inputs(seed):
    return {{"x": np.random.default_rng(seed).normal(size=(4, 6)).astype("float32")}}

def loss(out, batch):
    return out.mean()

PAIR = parity.twins("toy", linen=Linen, nnx=Nnx, inputs=inputs, loss=loss, programs=("forward",))
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project with an example of every kind of input that a case could read, and no installed packages."""
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path.startswith(sys.base_prefix)])
    root = tmp_path / "project"
    (root / "data" / "deep").mkdir(parents=True)
    (root / "model").mkdir()
    (root / ".git").mkdir()
    (root / "pyproject.toml").write_text("[tool.parity]\npairs = ['twins:PAIR']\n")
    (root / "model" / "layer.py").write_text("SCALE = 2.0\nTABLE = {'a': [1]}\n")
    (root / "data" / "rates.txt").write_text("1 2 3")
    (root / "data" / "big.bin").write_bytes(bytes(manifests.LARGE + 1))
    (root / "data" / "link").symlink_to("rates.txt")
    (root / ".gitignore").write_text("/data/\n*.log\n")
    with sqlite3.connect(root / "rates.db") as base:
        base.execute("create table rates (rate real)")
    base.close()
    return root


def _library(folder):
    shutil.copy(ctypes.__file__, folder / "native.so")  # any bytes: a library that ctypes would load


def _sqlite(folder):
    with sqlite3.connect(folder / "rates.db") as base:
        base.execute("insert into rates values (0.5)")
    base.close()


def _append(path):
    with path.open("a") as file:
        file.write("4")


def _replace(path, old, new):
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


def _in_place(path):
    """Changes one byte of a large file and restores its times."""
    status = path.stat()
    with path.open("r+b") as file:
        file.seek(99)
        file.write(b"x")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def _relink(path, target):
    path.unlink()
    path.symlink_to(target)


CHANGES = {
    "a constant": lambda root: _replace(root / "model/layer.py", "2.0", "2.5"),
    "an item of a dict": lambda root: _replace(root / "model/layer.py", "[1]", "[2]"),
    "a comment": lambda root: _replace(root / "model/layer.py", "SCALE", "# why\nSCALE"),
    "an attribute of a dict": lambda root: (root / "model/layer.py").write_text(
        "class Own(dict): pass\nTABLE = Own()\nTABLE.rate = 0.5\n"
    ),
    "an attribute of a float": lambda root: (root / "model/layer.py").write_text(
        "class Own(float): pass\nSCALE = Own(2)\nSCALE.rate = 0.5\n"
    ),
    "exists": lambda root: (root / "flag").touch(),
    "exists, a folder": lambda root: (root / "model" / "flag").mkdir(),
    "exists, where somebody made an environment of the project": lambda root: (
        (root / "pyvenv.cfg").touch(),
        (root / "flag").touch(),
    ),
    "exists, in a folder that git ignores": lambda root: (root / "data" / "flag").touch(),
    "exists, a name that git ignores": lambda root: (root / "some.log").touch(),
    "does not exist any more": lambda root: (root / "data" / "rates.txt").unlink(),
    "listdir, of an empty folder": lambda root: (root / "data" / "deep" / "more").mkdir(),
    "stat, the mode": lambda root: (root / "data" / "rates.txt").chmod(0o755),
    "stat, the size": lambda root: (root / "data" / "rates.txt").write_text("1 2 3 "),
    "readlink": lambda root: _relink(root / "data" / "link", "../data/rates.txt"),
    "readlink, of nothing": lambda root: _relink(root / "data" / "link", "nowhere"),
    "a .py read as text": lambda root: (root / "data" / "plan.py").write_text("text"),
    "find_spec": lambda root: (root / "optional.py").write_text(""),
    "find_spec, of a package": lambda root: (root / "model" / "__init__.py").write_text(""),
    "a module without a source": lambda root: (root / "hidden.pyc").write_bytes(b"code"),
    "sqlite": _sqlite,
    "append": lambda root: _append(root / "data" / "rates.txt"),
    "ctypes": _library,
    "a subprocess": lambda root: (root / "script.sh").write_text("echo 1.5"),
    "a large file, written in place": lambda root: _in_place(root / "data" / "big.bin"),
    "the settings": lambda root: _replace(root / "pyproject.toml", "twins:", "others:"),
    "a dot file": lambda root: (root / ".env").write_text("RATE=1"),
    "a name that is no text": lambda root: Path(os.fsdecode(bytes(root) + b"/na\xefve")).touch(),
    "a fifo": lambda root: os.mkfifo(root / "pipe"),
    "a link to a folder elsewhere": lambda root: (root / "far").symlink_to(root.parent, True),
}


@pytest.mark.parametrize("change", CHANGES)
def test_any_change_in_the_project_is_noticed(project, change):
    before = Manifest.of(project)
    assert before.again().key == before.key and before.changed(before.again()) == []
    CHANGES[change](project)
    after = before.again()
    assert after.key != before.key and before.changed(after)


CACHED = {
    "bytecode": "model/__pycache__/layer.cpython-311.pyc",
    "pytest": ".pytest_cache/v/lastfailed",
    "ruff": "model/.ruff_cache/x",
    "git": ".git/index",
    "hypothesis": ".hypothesis/examples/1",
    "a report": "parity-report/parity.json",
    "an editor": "model/.layer.py.swp",
    "a pattern of folders": "runs/one/two.txt",
    "a pattern of files": "model/notes.log",
    "a pattern of paths": "data/deep/cache.npz",
    "a virtual environment": "env/lib/python3.11/site-packages/toy.py",
    "a pattern of paths, of one part": "docs/index.html",
    "a file that the run writes": "out/report.json",
    "a folder that the run writes": "caches/parity/x.json.gz",
}


@pytest.mark.long
@pytest.mark.parametrize("file", CACHED)
def test_files_written_by_tools_and_the_run_change_nothing(project, file):
    path = project / CACHED[file]
    path.parent.mkdir(parents=True, exist_ok=True)
    written = [project / "out" / "report.json", project / "caches" / "parity"]
    before = Manifest.of(project, ("runs/", "*.log", "/data/deep/*.npz", "/docs/"), written)
    path.write_text("one")
    assert before.changed(before.again()) == []
    path.write_text("other")
    assert before.changed(before.again()) == [] and before.again().key == before.key


@pytest.mark.long
def test_another_folder_or_file_of_the_same_name_is_no_output(project):
    (project / "out").mkdir()
    (project / "model" / "docs").mkdir()
    before = Manifest.of(project, ("/docs/", "log"), [project / "out" / "report.json"])
    for file in ("report.json", "model/docs/index.html", "catalog", "log.txt"):
        (project / file).touch()
    assert set(before.changed(before.again())) >= {
        "report.json",
        "model/docs/index.html",
        "catalog",
        "log.txt",
    }


def test_the_project_is_its_checkout_or_the_folder(project, monkeypatch):
    assert project_of(project / "data" / "deep") == project
    shutil.rmtree(project / ".git")
    assert project_of(project / "data") == project / "data"
    (project.parent / ".git").mkdir()
    assert project_of(project) == project.parent
    monkeypatch.setenv("HOME", str(project.parent))
    assert project_of(project) == project  # a home folder under git is no project


def test_too_many_files_are_refused_with_a_remedy(project, monkeypatch):
    monkeypatch.setattr(manifests, "MOST_FILES", 4)
    with pytest.raises(TooManyFilesError, match=r"more than 4 files below .*cache-ignores = \[\"data\"\]"):
        Manifest.of(project)


# --- packages, environment, settings ---


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder of installed packages, one of them a link to its sources."""
    folder = tmp_path / "lib" / "site-packages"
    for name, files in {"one-1.0": ("one/a.py", "one/b.py"), "two-2.0": ("two.py",)}.items():
        for file in files:
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_text("RATE = 1\n")
        info = folder / f"{name}.dist-info"
        info.mkdir()
        time.sleep(0.02)
        (info / "RECORD").write_text("".join(f"{file},sha256=x,9\n" for file in files))
    (tmp_path / "sources").mkdir()
    (tmp_path / "sources" / "linked.py").write_text("RATE = 1\n")
    (folder / "linked-1.0.dist-info").mkdir()
    (folder / "linked-1.0.dist-info" / "RECORD").write_text("linked.pth,,\n")
    origin = {"url": (tmp_path / "sources").as_uri(), "dir_info": {"editable": True}}
    (folder / "linked-1.0.dist-info" / "direct_url.json").write_text(json.dumps(origin))
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "helper.py").write_text("RATE = 1\n")
    (tmp_path / "more.zip").write_bytes(b"code")
    entries = (tmp_path / "plain", folder, tmp_path / "more.zip")
    # `syspath_prepend` would restore the entries that `project` leaves after its list: the next test had no packages.
    monkeypatch.setattr(sys, "path", [*map(str, entries), *sys.path])
    return tmp_path


PACKAGES = {
    "edited in place": lambda root: (root / "lib/site-packages/one/b.py").write_text("RATE = 2\n"),
    "another version": lambda root: (root / "lib/site-packages/two-2.0.dist-info").rename(
        root / "lib/site-packages/two-3.0.dist-info"
    ),
    "the same version with other files": lambda root: (
        root / "lib/site-packages/two-2.0.dist-info/RECORD"
    ).write_text("two.py,sha256=y,9\n"),
    "one package more": lambda root: (root / "lib/site-packages/more").mkdir(),
    "a module that no list has": lambda root: (root / "lib/site-packages/more.py").write_text(""),
    "a file that changes the import path": lambda root: (root / "lib/site-packages/more.pth").write_text(
        "/x"
    ),
    "the sources of a linked one": lambda root: (root / "sources/linked.py").write_text("RATE = 2\n"),
    "a zip on PYTHONPATH": lambda root: (root / "more.zip").write_bytes(b"other"),
    "a folder on PYTHONPATH": lambda root: (root / "plain/helper.py").write_text("RATE = 2\n"),
    "a data file on PYTHONPATH": lambda root: (root / "plain/rates.txt").write_text("2"),
}


@pytest.mark.long
@pytest.mark.parametrize("change", PACKAGES)
def test_packages_and_importable_modules(project, site, change):
    before = Manifest.of(project)
    PACKAGES[change](site)
    assert before.again().key != before.key
    cached = site / "lib/site-packages/one/__pycache__"
    before = Manifest.of(project)
    cached.mkdir()
    (cached / "a.pyc").write_bytes(b"code")
    assert before.again().key == before.key


@pytest.mark.parametrize(
    "name", ["JAX_DEFAULT_MATMUL_PRECISION", "XLA_FLAGS", "LIBTPU_INIT_ARGS", "MY_MODEL_WIDTH", "PYTHONPATH"]
)
def test_a_variable_of_the_environment(project, monkeypatch, name):
    before = Manifest.of(project)
    monkeypatch.setenv(name, os.environ.get(name, "") + " --other" + os.fsdecode(b"\xef"))
    assert before.changed(before.again()) == [f"variable {name}"]
    assert "--other" not in str(before.again().entries)  # secrets are not stored


@pytest.mark.parametrize("name", ["COLUMNS", "PWD", "CI_RUN_ID"])
def test_a_variable_that_does_not_matter(project, monkeypatch, name):
    before = Manifest.of(project, ("$CI_*",))
    monkeypatch.setenv(name, "77")
    assert before.changed(before.again()) == []


def test_settings_of_jax_the_working_folder_and_the_import_path(project, monkeypatch):
    before = Manifest.of(project)
    with jax.default_matmul_precision("float32"):
        pass  # settings in a block are part of the code
    old = jax.config.jax_default_matmul_precision
    jax.config.update("jax_default_matmul_precision", "float32")
    assert before.changed(before.again()) == ["settings of JAX"]
    jax.config.update("jax_default_matmul_precision", old)
    monkeypatch.chdir(project / "data")
    assert "working folder" in before.changed(before.again())
    monkeypatch.setattr(sys, "path", [*sys.path, str(project / "data")])
    assert "interpreter and import path" in before.changed(before.again())


@pytest.mark.parametrize(
    "options",
    [
        {"backend": "aot:v5e:2x4"},
        {"settings": (("scale", "2"),)},
        {"full_size": True},
        {"channels": ("values",)},
        {"paranoid": True},
        {"prove_exact": True},
        {"required": Requirement((Verdict.BITWISE,))},
        {"pairs": ("other:PAIR",)},
        {"context": "-m parity"},
    ],
)
def test_options_that_a_verdict_depends_on(project, options):
    state = Manifest.of(project)
    plain, other = VerdictCache(state, Request().options), VerdictCache(state, Request(**options).options)
    assert plain.key(CASE) != other.key(CASE)
    same = Request(workers=2, written=(Path("x.json"),), fail_fast=True, select=("toy",)).options
    assert VerdictCache(state, same).key(CASE) == plain.key(CASE)


def test_another_case_and_a_waiver_that_expires(project):
    memory = VerdictCache(Manifest.of(project), "")
    waiver = Waiver(reason="known", expires="2999-01-01")
    waived = CASE.with_accept(waivers=(waiver,))
    expired = CASE.with_accept(waivers=(msgspec.structs.replace(waiver, expires="2001-01-01"),))
    keys = {memory.key(case) for case in (CASE, dataclasses.replace(CASE, id="b"), waived, expired)}
    assert len(keys) == 4


# --- keeping and recalling ---


@pytest.fixture
def kept(project, tmp_path):
    channel = ChannelResult(name="values", verdict=Verdict.PROVED, detail="equal", measures={"ulp": 0.5})
    result = CaseResult.of(CASE, {"values": channel}, {"trace": 1.0}, ("left", "right"))
    memory = VerdictCache(Manifest.of(project), "", DiskCache(folder=tmp_path / "verdicts"))
    memory.look_up([CASE], CacheMode.REFRESH)  # opens no file of the cache
    return memory, dataclasses.replace(result, read={})


def store(memory, result):
    memory.keep(result)
    return memory.store()


def test_what_passed_comes_back_as_cached(kept):
    memory, result = kept
    assert memory.recall(CASE) is None
    assert store(memory, result) == []
    assert memory.recall(CASE) == dataclasses.replace(result, seconds={}, remembered=True, read=None)


@pytest.mark.parametrize("verdict", ["failed", "error", "vacuous", "open", "skipped", "unproved"])
def test_only_passed_cases_are_kept(kept, verdict):
    memory, result = kept
    store(memory, dataclasses.replace(result, verdict=verdict))
    assert memory.recall(CASE) is None


def test_passed_cases_come_back_with_findings_and_notes(kept):
    memory, result = kept
    moment = Finding(where="w.mu", reference="1", candidate="2", labels=("a", "b"))
    finding = Finding(where="w", reference="1", candidate="2", distance="3 ulp", follows=(moment,))
    covered = dataclasses.replace(
        result.channels["values"],
        findings=(finding,),
        notes=(moment,),
        tables={"leaves": [{"leaf": "w", "ulp": 3}]},
    )
    result = dataclasses.replace(result, channels={"values": covered})
    store(memory, result)
    recalled = memory.recall(CASE)
    assert recalled is not None and recalled.channels == {"values": covered}


def test_unwatched_results_are_not_kept(kept):
    memory, result = kept
    store(memory, dataclasses.replace(result, read=None))
    assert memory.recall(CASE) is None


@pytest.mark.parametrize("back", [False, True])
def test_an_edit_during_the_run_keeps_nothing_even_if_it_is_undone(kept, project, back):
    memory, result = kept
    path = project / "model" / "layer.py"
    text = path.read_text()
    path.write_text("SCALE = 3.0\n")
    if back:
        path.write_text(text)
    assert store(memory, result) == ["model/layer.py"]
    assert store(memory, result) == ["model/layer.py"]  # later cases may depend on it, too
    assert memory.recall(CASE) is None


def test_a_broken_entry_is_none(kept, tmp_path):
    memory, result = kept
    store(memory, result)
    for entry in (tmp_path / "verdicts").iterdir():
        entry.write_bytes(entry.read_bytes()[:-9])
    assert memory.recall(CASE) is None


def test_changes_since_the_last_run_are_named(project, monkeypatch):
    VerdictCache(Manifest.of(project), "").since_last()
    assert VerdictCache(Manifest.of(project), "").since_last() == []
    (project / "model" / "layer.py").write_text("SCALE = 3.0\n")
    monkeypatch.setenv("MY_MODEL_WIDTH", "3")
    assert VerdictCache(Manifest.of(project), "").since_last() == [
        "model/layer.py",
        "variable MY_MODEL_WIDTH",
    ]


# --- files outside the project ---


OUTSIDE = {
    "open": (lambda path: path.read_text(), lambda path: path.write_text("other")),
    "os.open": (lambda path: os.close(os.open(path, os.O_RDONLY)), lambda path: path.write_text("other")),
    "open, gone": (lambda path: path.read_text(), lambda path: path.unlink()),
    "listdir": (lambda path: os.listdir(path.parent), lambda path: (path.parent / "more").touch()),
    "scandir": (lambda path: list(os.scandir(path.parent)), lambda path: path.rename(path.with_name("b"))),
    "glob": (lambda path: list(path.parent.glob("*.txt")), lambda path: (path.parent / "c.txt").touch()),
    "sqlite": (lambda path: sqlite3.connect(path).close(), lambda path: path.write_text("other")),
    "another name": (
        lambda path: (path.parent / ".." / path.parent.name / path.name).read_text(),
        lambda path: path.write_text("other"),
    ),
}


@pytest.mark.parametrize("way", OUTSIDE)
def test_a_file_outside_that_was_opened_or_listed(kept, tmp_path, way):
    memory, result = kept
    look, change = OUTSIDE[way]
    path = tmp_path / "far" / "data.txt"
    path.parent.mkdir()
    path.write_text("1 2 3")
    manifests.watch()
    look(path)
    read = manifests.opened(memory.manifest.folders)
    assert any(each.startswith(str(path.parent)) for each in read)
    assert not any(each.startswith(str(memory.manifest.project)) for each in read)
    store(memory, dataclasses.replace(result, read=read))
    assert memory.recall(CASE) is not None
    change(path)
    assert memory.recall(CASE) is None


@pytest.mark.parametrize("folder", [".tox/site-packages", "parity-report", ".hypothesis"])
def test_a_file_in_a_folder_that_the_manifest_leaves_out_is_noticed_if_it_is_opened(kept, folder):
    memory, result = kept
    path = memory.manifest.project / folder / "helper.py"
    path.parent.mkdir(parents=True)
    path.write_text("RATE = 1")
    manifests.watch()
    path.read_text()
    read = manifests.opened(memory.manifest.folders)
    assert str(path) in read
    assert store(memory, dataclasses.replace(result, read=read)) == []
    assert memory.recall(CASE) is not None
    path.write_text("RATE = 2")
    assert memory.recall(CASE) is None


def test_a_run_that_makes_too_many_files_ends_as_any_other(kept, monkeypatch):
    memory, result = kept
    monkeypatch.setattr(manifests, "MOST_FILES", 1)
    assert "more than 1 files" in store(memory, result)[0]


def test_temporary_files_of_the_run_itself_do_not_count(kept, tmp_path):
    memory, _ = kept
    manifests.watch()
    folder = tmp_path / "temporary"
    folder.mkdir()
    with tempfile.TemporaryFile(dir=folder), tempfile.NamedTemporaryFile(dir=folder) as named:
        Path(named.name).with_suffix(".out").write_text("made")
    assert not any(each.startswith(str(folder)) for each in manifests.opened(memory.manifest.folders))


def test_a_file_outside_that_was_missed_and_now_is_there(kept, tmp_path):
    memory, result = kept
    absent = tmp_path / "absent.txt"
    manifests.watch()
    with pytest.raises(FileNotFoundError):
        absent.read_text()
    store(memory, dataclasses.replace(result, read=manifests.opened(memory.manifest.folders)))
    assert memory.recall(CASE) is not None
    absent.write_text("now")
    assert memory.recall(CASE) is None


# --- the command ---


@pytest.fixture
def runs(shell, tmp_path):
    """``runs(helper, wrong)`` runs a pair whose NNX side scales by 1.5 if an expression is true."""
    root = tmp_path / "toy"
    root.mkdir()
    ignored = [
        "runs",
        "/docs/",
        "/tests/",
        "/build/",
        "/dist/",
        "*.egg-info",
    ]  # other tests may write into our folders
    (root / "pyproject.toml").write_text(
        f'[tool.parity]\npairs = ["toy_twins:PAIR"]\ncache-ignores = {ignored}\n'
    )

    def write(wrong, helper=""):
        (root / "toy_twins.py").write_text(TWINS.format(helper=helper, wrong=wrong))

    def run(*options):
        return shell("run", "--cached", *options, cwd=root, XDG_CACHE_HOME=str(tmp_path / "cache"))

    run.root, run.write = root, write
    return run


WRONG = {
    "exists": ('(HERE / "flag").exists()', "", lambda root: (root / "flag").touch()),
    "stat of a folder's link": (
        '(HERE / "state").stat().st_size > 3',
        "",
        lambda root: (root / "state").write_text("12345"),
    ),
    "find_spec": (
        'find_spec("extension") is not None',
        "from importlib.util import find_spec",
        lambda root: (root / "extension.py").touch(),
    ),
    "a subprocess": (
        'b"yes" in subprocess.run(["cat", HERE / "answer"], capture_output=True).stdout',
        "import subprocess",
        lambda root: (root / "answer").write_text("yes"),
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("way", WRONG)
def test_a_pair_that_becomes_wrong_without_an_edit_is_compared_again(runs, way):
    wrong, helper, change = WRONG[way]
    (runs.root / "state").write_text("1")
    runs.write(wrong, helper)
    assert runs("--workers", "1").code == 0
    (runs.root / "runs").mkdir()  # an ignored folder
    ended = runs("--json", "report.json")
    assert ended.code == 0 and "(1 cached)" in ended.out and "cache:" not in ended.out, ended.out
    change(runs.root)
    ended = runs("--workers", "2")
    assert ended.code == 1 and "values failed" in ended.out, ended.out + ended.err
    assert "cache: cases are compared again; changed since the last run: " in ended.out


@pytest.mark.long
def test_files_that_a_run_makes_in_the_project_are_named(runs):
    runs.write("False", '(HERE / "made").touch()')
    ended = runs()
    assert ended.code == 0 and "cache: no result is kept; changed during this run: made" in ended.out
    assert "cached)" not in runs().out


@pytest.mark.long
@pytest.mark.parametrize("folder", [".", "inner"])
def test_the_installed_command_reuses_verdicts(runs, shell, folder):
    """It has no working folder on the import path: finding the pairs puts the project's folder there."""
    runs.write("False")
    (runs.root / "inner").mkdir()

    def run():
        cache = str(runs.root.parent / "cache")
        return shell("run", "--cached", cwd=runs.root / folder, PYTHONSAFEPATH="1", XDG_CACHE_HOME=cache)

    first, again = run(), run()
    assert first.code == 0 and "cache:" not in first.out, first.out + first.err
    assert again.code == 0 and "cached)" in again.out, again.out
