"""A source as a tree with the text of every node, and patches of that text."""

import ast
import dataclasses
import functools
import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import TypeVar

__all__ = ["FUNCTIONS", "SCOPES", "Patch", "Source", "patched", "wrapped"]

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
SCOPES = (*FUNCTIONS, ast.Lambda, ast.ClassDef, *COMPREHENSIONS)
ATOMS = (
    ast.Name,
    ast.Constant,
    ast.Attribute,
    ast.Call,
    ast.Subscript,
    ast.List,
    ast.Dict,
    ast.Set,
    ast.ListComp,
    ast.DictComp,
)
Node = TypeVar("Node", bound=ast.AST)


@dataclasses.dataclass(frozen=True, order=True)
class Patch:
    """Other text in place of the bytes from ``start`` to ``end``."""

    start: int
    end: int
    new: str


def patched(data: bytes, patches: Sequence[Patch]) -> str:
    """Returns the text with all patches; no two of them overlap."""
    for one in sorted(patches, reverse=True):
        data = data[: one.start] + one.new.encode() + data[one.end :]
    return data.decode()


class Source:
    """A file of a project.

    Args:
        text: text of the file.
        file: below the project's root; its stem is the name by which others import it.
        elsewhere: the texts of the project's other files; names that they use are not renamed.
        pure: dotted prefixes of the project's functions that have no effect and draw nothing, such as ``mine.ops.``.
    """

    def __init__(
        self, text: str, file: str = "it.py", elsewhere: Sequence[str] = (), pure: Sequence[str] = ()
    ):
        self.text, self.data, self.file, self.pure = text, text.encode(), file, tuple(pure)
        self.tree = ast.parse(text)
        self._elsewhere = elsewhere
        self._starts = [0]
        for line in self.data.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._parents = {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}

    # --- text ---

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Returns the byte offsets at which a node begins and ends, without decorators."""
        begin, end = self._starts[node.lineno - 1], self._starts[node.end_lineno - 1]  # type: ignore[attr-defined]
        return begin + node.col_offset, end + node.end_col_offset  # type: ignore[attr-defined]

    def of(self, node: ast.AST) -> str:
        """Returns the text of a node."""
        start, end = self.span(node)
        return self.data[start:end].decode()

    def atom(self, node: ast.AST) -> str:
        """Returns the text of an expression, in brackets if an operator next to it could split it."""
        text = self.of(node)
        return text if isinstance(node, ATOMS) and "\n" not in text else f"({text})"

    def replace(self, node: ast.AST, new: str) -> Patch:
        """Returns the patch that puts a text in place of a node."""
        return Patch(*self.span(node), new)

    def line_start(self, node: ast.AST) -> int:
        """Returns the offset at which the first line of a node begins, its decorators included."""
        first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", ()))])  # type: ignore[attr-defined]
        return self._starts[first - 1]

    def line_end(self, node: ast.AST) -> int:
        """Returns the offset at which the line after a node begins."""
        return self._starts[node.end_lineno]  # type: ignore[attr-defined]

    @functools.cached_property
    def imports_start(self) -> int | None:
        """The offset of the first import, at which another can be inserted; None if there is no import."""
        imports = [
            one for one in self.tree.body if isinstance(one, ast.Import | ast.ImportFrom) and self.alone(one)
        ]
        plain = [one for one in imports if getattr(one, "module", "") != "__future__"]
        return self.line_start(plain[0]) if plain else None

    def lines_of(self, patch: Patch) -> range:
        """Returns the numbers of the lines that a patch touches."""
        first = self.data[: patch.start].count(b"\n")
        return range(first + 1, first + 2 + self.data[patch.start : patch.end].rstrip().count(b"\n"))

    def indent(self, node: ast.stmt) -> str:
        """Returns the spaces before a statement that shares its lines with no other."""
        return " " * node.col_offset

    def alone(self, node: ast.stmt) -> bool:
        """True if a statement shares no line with other text, comments included."""
        start, end = self.span(node)
        return (
            not self.data[self.line_start(node) : start].strip()
            and not self.data[end : self.line_end(node)].strip()
        )

    def find(self, word: str, start: int) -> int:
        """Returns the first offset of a word at or after an offset."""
        found = re.compile(rb"(?<!\w)" + word.encode() + rb"(?!\w)").search(self.data, start)
        assert found, (self.file, word, start)
        return found.start()

    # --- tree ---

    def nodes(self, *kinds: type[Node], under: ast.AST | None = None) -> Iterator[Node]:
        """Yields the nodes of some kinds in the order of the text; those in f-strings have no place."""
        waiting = [under or self.tree]
        while waiting:
            node = waiting.pop()
            if isinstance(node, kinds):
                yield node
            if not isinstance(node, ast.JoinedStr):
                waiting += reversed(list(ast.iter_child_nodes(node)))

    def parent(self, node: ast.AST) -> ast.AST | None:
        """Returns the parent of a node; None for the root."""
        return self._parents.get(node)

    def around(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yields the ancestors of a node, innermost first."""
        while (node := self._parents.get(node)) is not None:  # type: ignore[assignment]
            yield node

    def function(self, node: ast.AST) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        """Returns the innermost function around a node; None outside functions."""
        return next((one for one in self.around(node) if isinstance(one, FUNCTIONS)), None)

    def statement(self, node: ast.AST) -> ast.stmt:
        """Returns the innermost statement that contains a node, or the node if it is a statement."""
        return next(one for one in (node, *self.around(node)) if isinstance(one, ast.stmt))

    def blocks(self) -> Iterator[list[ast.stmt]]:
        """Yields the blocks of statements in functions."""
        for node in self.nodes(ast.stmt, ast.ExceptHandler):
            if not (isinstance(node, FUNCTIONS) or self.function(node)) or isinstance(node, ast.ClassDef):
                continue
            for name in ("body", "orelse", "finalbody"):
                if isinstance(block := getattr(node, name, None), list) and block:
                    yield block

    def computed(self, node: ast.AST) -> bool:
        """True if an expression is computed when a function runs: not in a signature, a pattern or an annotation."""
        inner = node
        for outer in self.around(node):
            if isinstance(outer, ast.arguments | ast.JoinedStr | ast.match_case):
                return False
            if isinstance(outer, ast.AnnAssign) and inner is outer.annotation:
                return False
            if isinstance(outer, FUNCTIONS):
                return inner in outer.body
            if isinstance(outer, ast.ClassDef):
                return False
            inner = outer
        return False

    def own(self, function: ast.AST) -> Iterator[ast.AST]:
        """Yields the nodes of a function's own scope: not those inside functions, classes, comprehensions in it."""
        waiting = list(ast.iter_child_nodes(function))
        while waiting:
            node = waiting.pop(0)
            yield node
            if not isinstance(node, SCOPES):
                waiting += ast.iter_child_nodes(node)

    # --- names ---

    @functools.cached_property
    def names(self) -> dict[str, list[ast.Name]]:
        """All uses of each name in the file."""
        found: dict[str, list[ast.Name]] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Name):
                found.setdefault(node.id, []).append(node)
        return found

    @functools.cached_property
    def parameters(self) -> frozenset[str]:
        """The names of all parameters of functions in the file."""
        return frozenset(node.arg for node in ast.walk(self.tree) if isinstance(node, ast.arg))

    @functools.cached_property
    def bound(self) -> frozenset[str]:
        """The names that anything but an import binds: assignments, parameters, definitions."""
        nodes = list(ast.walk(self.tree))
        found = {
            name
            for name, uses in self.names.items()
            if not all(isinstance(one.ctx, ast.Load) for one in uses)
        }
        return frozenset(
            found
            | self.parameters
            | {node.name for node in nodes if isinstance(node, (*FUNCTIONS, ast.ClassDef))}
        )

    @functools.cached_property
    def definitions(self) -> dict[str, list[ast.AST]]:
        """The functions and classes of the file by name."""
        found: dict[str, list[ast.AST]] = {}
        for node in self.nodes(*FUNCTIONS, ast.ClassDef):
            found.setdefault(node.name, []).append(node)
        return found

    @functools.cached_property
    def words(self) -> frozenset[str]:
        """All words of the text."""
        return frozenset(re.findall(r"\w+", self.text))

    @functools.cached_property
    def named_elsewhere(self) -> frozenset[str]:
        """Names in the other files that may refer to this file: attributes, imports, words in strings."""
        return frozenset().union(*(_named(text)[0] for text in self._elsewhere))

    @functools.cached_property
    def taken_elsewhere(self) -> frozenset[str]:
        """Names that other files import from a module with this file's name."""
        path = PurePosixPath(self.file)
        stem = path.parent.name if path.stem == "__init__" else path.stem
        found = (pair for text in self._elsewhere for pair in _named(text)[1])
        return frozenset(name for module, name in found if module.rpartition(".")[2] == stem)

    @functools.cached_property
    def words_in_strings(self) -> frozenset[str]:
        """Words of string constants and f-strings; docstrings are excluded."""
        constants = [node for node in ast.walk(self.tree) if isinstance(node, ast.Constant)]
        plain = [
            node
            for node in constants
            if isinstance(node.value, str) and not isinstance(self.parent(node), ast.Expr)
        ]
        texts = [str(node.value) for node in plain]
        texts += [
            one.id
            for node in ast.walk(self.tree)
            if isinstance(node, ast.JoinedStr)
            for one in ast.walk(node)
            if isinstance(one, ast.Name)
        ]
        return frozenset(word for text in texts for word in re.findall(r"\w+", text))

    def fresh(self, name: str) -> str:
        """Returns a name like ``name`` that does not occur in the file."""
        while name in self.words:
            name += "_"
        return name

    @functools.cached_property
    def imports(self) -> dict[str, str]:
        """The dotted names that the imported names refer to."""
        found = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                found |= {
                    one.asname or one.name.split(".")[0]: one.name if one.asname else one.name.split(".")[0]
                    for one in node.names
                }
            elif isinstance(node, ast.ImportFrom) and not node.level:
                found |= {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}
        return found

    def dotted(self, node: ast.AST) -> str:
        """Returns the full dotted name of an expression such as ``jnp.sum``; empty if it has none."""
        if isinstance(node, ast.Name):
            return self.imports.get(node.id, node.id)
        if isinstance(node, ast.Attribute) and (base := self.dotted(node.value)):
            return f"{base}.{node.attr}"
        return ""

    def name_of(self, dotted: str) -> str:
        """Returns the name that the file gives an imported module, such as ``jnp``; empty if it does not import it."""
        return next((name for name, full in self.imports.items() if full == dotted), "")


@functools.cache
def _named(text: str) -> tuple[frozenset[str], frozenset[tuple[str, str]]]:
    """Returns the foreign names that a file uses, and its imports as ``(module, name)``."""
    nodes = list(ast.walk(ast.parse(text)))
    imports = {
        (node.module or "", one.name)
        for node in nodes
        if isinstance(node, ast.ImportFrom)
        for one in node.names
    }
    names = {name for _, name in imports} | {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    texts = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    names |= {word for one in texts for word in re.findall(r"\w+", one)}
    return frozenset(names), frozenset(imports)


def wrapped(text: str) -> str:
    """Returns a text in brackets, unless it is an identifier."""
    return text if text.isidentifier() else f"({text})"
