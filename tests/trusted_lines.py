"""``python tests/trusted_lines.py``: how many lines of code a wrong `proved` could come from.

Counts the modules that the proof imports, and those that it imports itself through them: the prover with the pairing
of arguments and weights; and its `CALLERS`: they make state and functions of the models, name arguments and results,
infer the weight map and what it leaves alone, place and keep both sides, apply a proof, and give back cached verdicts.
Blank lines, comments and docstrings do not count. Modules that only name and grade differences (``NAMING``), and those
that nothing else imports, are counted separately: a fault there gives a wrong place or a wrong failure.

``--wheel`` prints the sizes of all packages of the engine instead.
"""

import ast
import io
import sys
import tokenize
from pathlib import Path

ROOT = Path(__file__).parents[1]
STARTS = ("parity.prove.proof", "parity.compare.pairing")
OUTSIDE = ("parity.compare.backends", "parity.cases", "parity.compare.", "parity.builds", "parity.ir.hlo")
CALLERS = (
    *(
        f"parity.compare.{name}"
        for name in ("backends.cache", "evidence", "memo", "placement", "session", "side")
    ),
    *(
        f"parity.builds.{name}"
        for name in ("build", "tree", "weights.inference", "weights.map", "weights.transforms")
    ),
    *(f"parity.channels.{name}" for name in ("channel", "program", "results")),
    *(f"parity.run.{name}" for name in ("manifest", "verdict_cache")),
)
NAMING = (
    "parity.ir.location",
    *(f"parity.prove.{name}" for name in ("exchange", "frontier", "grade", "search")),
)
SKIPPED = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
}


def file_of(module):
    """Returns the file of a module of the package; None if it is none."""
    path = ROOT.joinpath(*module.split("."))
    return next((each for each in (path.with_suffix(".py"), path / "__init__.py") if each.is_file()), None)


def imported(path):
    """Returns the modules of the package that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        found.update(name for name in names if name.startswith("parity.") and file_of(name))
    return found


def reached(without=()):
    """Returns the modules that a proof imports, and those that they import, without some."""
    found, work = set(), list(STARTS)
    while work:
        module = work.pop()
        outside = module not in STARTS and module.startswith(OUTSIDE)
        if module not in found and module not in without and not outside:
            found.add(module)
            work += imported(file_of(module))
    return found


def lines(path):
    """Returns how many lines of a file hold code."""
    text = path.read_text()
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    words = set()
    for node in ast.walk(ast.parse(text)):
        body = node.body if isinstance(node, documented) else []
        for one in body:
            if (
                isinstance(one, ast.Expr)
                and isinstance(one.value, ast.Constant)
                and isinstance(one.value.value, str)
            ):
                words.update(range(one.lineno, (one.end_lineno or one.lineno) + 1))
    code = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in SKIPPED and token.type != tokenize.ENDMARKER:
            code.update(range(token.start[0], token.end[0] + 1))
    return len(code - words)


def print_packages():
    """Prints files, lines and lines of code of each entry of ``parity``, and the sum."""
    entries = [path for path in sorted((ROOT / "parity").iterdir()) if path.is_dir() or path.suffix == ".py"]
    rows = []
    for entry in entries:
        files = [entry] if entry.is_file() else sorted(entry.rglob("*.py"))
        if files:
            length = sum(len(path.read_text().splitlines()) for path in files)
            rows.append((f"parity/{entry.name}", len(files), length, sum(map(lines, files))))
    rows.append(("all", *(sum(row[column] for row in rows) for column in (1, 2, 3))))
    print(f"{'entry':24}{'files':>6}{'lines':>8}{'code':>8}")
    for name, *numbers in rows:
        print(
            f"{name:24}"
            + "".join(f"{number:{width},}" for number, width in zip(numbers, (6, 8, 8), strict=True))
        )


def main():
    """Prints a line for each module, and the sums; with ``--wheel`` the sizes of all packages."""
    if sys.argv[1:] == ["--wheel"]:
        print_packages()
        return 0
    decides = reached(NAMING)
    names = reached() - decides
    groups = {
        "only name differences": names,
        "the prover and the pairing": decides,
        "their callers": {*CALLERS} - decides,
    }
    for title, modules in groups.items():
        counts = {module: lines(file_of(module)) for module in sorted(modules)}
        for module, count in counts.items():
            print(f"{count:5} {module}")
        print(f"{sum(counts.values()):5} lines of {len(counts)} modules: {title}")
    whole = sum(lines(file_of(module)) for module in {*decides, *CALLERS})
    print(f"{whole:5} lines that a wrong `proved` could come from")
    return 0


if __name__ == "__main__":
    sys.exit(main())
