"""What a case is made of, as text that changes whenever its content does: live objects, sources, this process."""

import ast
import dataclasses
import enum
import functools
import hashlib
import importlib
import os
import platform
import re
import sys
import types
from collections.abc import Iterable, Mapping, Set
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import numpy as np

from parity.backends.cache import digest
from parity.cases.case import Case
from parity.running.imports import ENGINE, INSTALLED, PAIRS, is_project, named_modules, within

__all__ = ["Contents", "UnknownContentError", "content_of_process", "file_digest"]

PASSING = {"PWD", "OLDPWD", "SHLVL", "_", "TERM", "COLUMNS", "LINES", "PYTEST_CURRENT_TEST"}
"""Variables of the environment that change by themselves and say nothing to a program."""
LATE = ("orbax.checkpoint", "scipy.stats")
"""Libraries that the engine imports when a case needs them: here at once, so that an edit of them is noticed."""
ATOMS = (
    type(None),
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    type(...),
    range,
    np.dtype,
    re.Pattern,
    Path,
    slice,
)


Around = dict[str, frozenset[str]]
"""By name of a module, itself and the packages around it, if they are the project's."""


class UnknownContentError(ValueError):
    """An object has no content that can be told from outside: what depends on it cannot be remembered."""


@functools.cache
def _digest_at(path: str, modified: int, size: int) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def file_digest(path: str) -> str:
    """Returns a digest of a file's content, or ``absent``."""
    try:
        status = Path(path).stat()
        return _digest_at(path, status.st_mtime_ns, status.st_size) if Path(path).is_file() else "folder"
    except OSError:
        return "absent"


class Contents:
    """The content of cases; each module is read once, as it is when it is first asked for."""

    def __init__(self):
        self._modules: dict[str, tuple[str, set[str]]] = {}
        self._around: Around = {}

    def of(self, case: Case) -> tuple[str, tuple[str, ...]]:
        """Returns a digest of all that a case is made of, and the modules of the project that it reaches.

        The case's own fields with all they hold; each module of theirs, and all that these import: by source, by
        what is alive in it now, so that a replaced function or an altered table counts.

        Raises:
            UnknownContentError: something in it cannot be told from outside.
        """
        reader = _Reader(self._around)
        parts = [reader.text(getattr(case, field.name)) for field in dataclasses.fields(case)]
        done: dict[str, str] = {}
        waiting = set(reader.modules)
        while waiting:
            name = waiting.pop()
            if name not in self._modules:
                self._modules[name] = _module(name, self._around)
            done[name], reached = self._modules[name]
            waiting |= reached - set(done)
        return digest([*parts, *(f"{name} {text}" for name, text in sorted(done.items()))]), tuple(
            sorted(done)
        )


def _module(name: str, around: Around) -> tuple[str, set[str]]:
    """Returns the content of a module of the project, and the modules that it reaches."""
    module, reader = sys.modules[name], _Reader(around)
    source = Path(str(module.__file__)).read_bytes()
    for imported in named_modules(ast.parse(source), module):
        reader.reach(imported)
    values = {key: value for key, value in vars(module).items() if not key.startswith("__")}
    alive = digest([f"{key} {_held(reader, name, key, value)}" for key, value in sorted(values.items())])
    return f"{hashlib.sha256(source).hexdigest()} {alive}", reader.modules


def _held(reader: "_Reader", name: str, key: str, value: Any) -> str:
    """Returns the content of what a module holds; a module, such as one inside a package, is there to be named."""
    if not isinstance(value, types.ModuleType):
        return reader.text(value)
    if value.__name__ != f"{name}.{key}":
        reader.reach(value.__name__)
    return f"module {value.__name__}"


class _Reader:
    """Writes objects as text, each once; notes the modules of the project that they come from."""

    def __init__(self, around: Around):
        self.modules: set[str] = set()
        self._around = around
        self._seen: dict[int, tuple[int, Any]] = {}

    def reach(self, name: str) -> None:
        """Adds a module and the packages around it, if they are the project's."""
        if name not in self._around:
            parts = name.split(".")
            names = (".".join(parts[:count]) for count in range(1, len(parts) + 1))
            self._around[name] = frozenset(one for one in names if is_project(sys.modules.get(one)))
        self.modules |= self._around[name]

    def text(self, value: Any) -> str:
        """Returns the content of an object.

        Args:
            value: the object.

        Raises:
            UnknownContentError: it cannot be told.
        """
        if isinstance(value, ATOMS):
            return f"{type(value).__name__}:{value!r}"
        if isinstance(value, enum.Enum):
            return self._named(value) + f".{value.name}"
        if isinstance(value, types.ModuleType):
            for name in sorted(within(value.__name__)):
                self.reach(name)
            return f"module {value.__name__}"
        if id(value) in self._seen:
            return f"#{self._seen[id(value)][0]}"
        self._seen[id(value)] = len(self._seen), value
        try:
            return self._made(value)
        except UnknownContentError as error:
            if len(error.args) < 6:
                error.args = (*error.args, f"in {type(value).__module__}.{type(value).__qualname__}")
            raise

    def _made(self, value: Any) -> str:
        self.reach(_home(value))
        many = self._many
        if isinstance(value, types.FunctionType):
            return f"{self._named(value)} {self._function(value)}"
        if isinstance(value, type):
            return f"{self._named(value)} {self._class(value)}"
        if isinstance(value, Mapping):
            return f"{self._named(type(value))}{{{many(part for item in value.items() for part in item)}}}"
        if isinstance(value, list | tuple):
            return f"{self._named(type(value))}[{many(value)}]"
        if isinstance(value, Set):
            return f"{self._named(type(value))}[{many(sorted(value, key=repr))}]"
        if isinstance(value, types.MethodType):
            return f"method {many((value.__func__, value.__self__))}"
        if isinstance(value, functools.partial):
            return f"partial {many((value.func, value.args, value.keywords))}"
        if isinstance(value, np.ndarray | np.generic | jax.Array):
            array = np.asarray(value)
            return f"array {array.dtype} {array.shape} {hashlib.sha256(array.tobytes()).hexdigest()}"
        return self._other(value)

    def _other(self, value: Any) -> str:
        if isinstance(value, property):
            return f"property {self._many((value.fget, value.fset, value.fdel))}"
        names = ("__wrapped__", "__func__", "func")
        inner = next((held for name in names if callable(held := getattr(value, name, None))), None)
        if inner is not None and not _own(type(value)):  # what is cached, jitted, a class method
            return f"{self._named(type(value))} of {self.text(inner)}"
        if callable(value) and getattr(value, "__qualname__", None) and not _own(value):
            return f"{_home(value)}.{value.__qualname__}"
        if isinstance(value, types.MemberDescriptorType | types.GetSetDescriptorType):
            return value.__qualname__
        held = {
            **getattr(value, "__dict__", {}),
            **{name: getattr(value, name, None) for name in _slots(value)},
        }
        if held:
            return f"{self._named(type(value))}({self._many(part for item in sorted(held.items()) for part in item)})"
        if type(value).__repr__ is not object.__repr__ and " at 0x" not in repr(value):
            return f"{self._named(type(value))} {value!r}"
        if not _written_in_python(type(value)):
            raise UnknownContentError(f"{value!r}: its content cannot be told")
        return self._named(type(value))  # nothing in it, such as a sentinel

    def _many(self, values: Iterable[Any]) -> str:
        return ",".join(self.text(value) for value in values)

    def _named(self, value: Any) -> str:
        self.reach(_home(value))
        return f"{_home(value)}.{getattr(value, '__qualname__', type(value).__qualname__)}"

    def _function(self, value: types.FunctionType) -> str:
        cells = [_cell(cell) for cell in value.__closure__ or ()]  # such as the rate of an optimizer
        held = (
            self._many((value.__defaults__, value.__kwdefaults__, cells))
            if _own(value)
            else self._many(cells)
        )
        return f"{_code(value.__code__)} {held}"

    def _class(self, value: type) -> str:
        if not _own(value):
            return ""
        skipped = {"__dict__", "__weakref__", "__module__", "__doc__", "__abstractmethods__", "_abc_impl"}
        items = sorted((name, held) for name, held in vars(value).items() if name not in skipped)
        return self._many([value.__bases__, *(part for item in items for part in item)])


def _own(value: Any) -> bool:
    return is_project(sys.modules.get(_home(value)))


def _home(value: Any) -> str:
    home = getattr(value, "__module__", None) or getattr(type(value), "__module__", "")
    return home if isinstance(home, str) else ""


def _written_in_python(value: type) -> bool:
    return str(getattr(sys.modules.get(value.__module__), "__file__", "")).endswith(".py")


def _slots(value: Any) -> list[str]:
    slots = (getattr(one, "__slots__", ()) for one in type(value).__mro__)
    return [name for held in slots for name in ((held,) if isinstance(held, str) else held)]


def _cell(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return "empty cell"


def _code(code: types.CodeType) -> str:
    """Returns the instructions and constants of a function, those of the functions inside it included."""
    constants = [_constant(one) for one in code.co_consts]
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    return digest([code.co_code, repr(names), code.co_filename, *constants])


def _constant(value: Any) -> str:
    if isinstance(value, types.CodeType):
        return _code(value)
    if isinstance(value, tuple):
        return f"({','.join(map(_constant, value))})"
    if isinstance(value, frozenset):  # whose order is another in each process
        return f"{{{','.join(sorted(map(_constant, value)))}}}"
    return f"{type(value).__name__}:{value!r}"


# --- the process ---


def content_of_process() -> str:
    """Returns a digest of what every case depends on: engine, packages, environment, machine, JAX's settings.

    Raises:
        UnknownContentError: code of the project has been put in place of a library's.
    """
    for name in LATE:
        importlib.import_module(name)
    engine = sorted(path for path in ENGINE.rglob("*.py") if not path.is_relative_to(PAIRS))
    packages = sorted(f"{one.metadata['Name']} {one.version}" for one in metadata.distributions())
    environment = sorted(f"{name}={text}" for name, text in os.environ.items() if name not in PASSING)
    machine = (
        platform.platform(),
        platform.machine(),
        sys.version,
        sys.executable,
        str(sys.flags),
        _processor(),
    )
    parts: list[Any] = [
        packages,
        environment,
        machine,
        sys.path,
        str(Path.cwd()),
        sorted(jax.config.values.items()),
    ]
    return digest(
        [*map(repr, parts), _live_libraries(), *_libraries(), *(path.read_bytes() for path in engine)]
    )


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return "; ".join(sorted({line for line in lines if line.startswith(("model name", "flags"))}))


def _libraries() -> list[str]:
    """Returns sizes and times of the installed files that are loaded: who edits a library asks anew."""
    files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    installed = sorted(file for file in files if file and file.startswith(INSTALLED))
    found = []
    for file in installed:
        status = Path(file).stat()
        found.append(f"{file} {status.st_size} {status.st_mtime_ns}")
    return found


def _live_libraries() -> str:
    """Returns which function each name of each loaded library and of the engine stands for.

    Raises:
        UnknownContentError: one is the project's, put in place of the library's.
    """
    own = {module.__file__ for module in list(sys.modules.values()) if is_project(module)}
    found = []  # classes by their own name: JAX leaves loop variables behind, over sets of classes
    for name, module in sorted(sys.modules.items()):
        if not isinstance(module, types.ModuleType) or is_project(module):
            continue
        for key, value in list(vars(module).items()):
            own_class = isinstance(value, type) and (value.__module__, value.__name__) == (name, key)
            held = vars(value) if own_class else {"": value}
            for inner, one in held.items():
                if isinstance(one, type) or not callable(one):
                    continue
                code = getattr(getattr(one, "__wrapped__", one), "__code__", None)
                if not isinstance(code, types.CodeType):
                    continue
                if code.co_filename in own:
                    raise UnknownContentError(f"{name}.{key}: replaced by {code.co_qualname}")
                found.append(
                    f"{name}.{key}.{inner} {code.co_filename}:{code.co_firstlineno} {code.co_qualname}"
                )
    return digest(sorted(found))  # SciPy fills a module from a set, in another order each time
