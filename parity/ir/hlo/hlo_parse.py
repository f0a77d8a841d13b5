"""Reader of optimised HLO text. It reads all of it, line by line: an unknown construct is an error with its line."""

import functools
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping

from parity.ir.hlo.hlo import ELEMENT_BITS, Computation, HloModule, Instruction, Shape
from parity.ir.location import Frame

_OPCODES = """
abs acos acosh add add-dependency after-all all-gather all-reduce all-to-all and asin asinh async atan
atan2 atanh batch-norm-grad batch-norm-inference batch-norm-training bitcast bitcast-convert
block-scaled-dot broadcast call cbrt ceil cholesky clamp collective-broadcast collective-permute compare
complex concatenate conditional constant convert convolution copy cosh cosine count-leading-zeros
custom-call divide domain dot dynamic-reshape dynamic-slice dynamic-update-slice erf exponential
exponential-minus-one fft floor fusion gather get-dimension-size get-tuple-element imag infeed iota
is-finite log log-plus-one logistic map maximum minimum multiply negate not opt-barrier
optimization-barrier or outfeed pad parameter partition-id popcnt power ragged-all-to-all ragged-dot real
recv reduce reduce-precision reduce-scatter reduce-window remainder replica-id reshape reverse rng
rng-bit-generator rng-get-and-update-state round-nearest-afz round-nearest-even rsqrt scaled-dot scan
scatter select select-and-scatter send set-dimension-size shift-left shift-right-arithmetic
shift-right-logical sign sine sinh slice sort sqrt stochastic-convert subtract tan tanh topk transpose
triangular-solve tuple while xor
"""
OPCODES = frozenset(_OPCODES.split())

_COMMENT = re.compile(r"/\*index=\d+\*/")
_BRACKET = re.compile(r""""[^"\\]*(?:\\.[^"\\]*)*"|'[^']*'|["'()\[\]{}]""")
_CLOSES = {"(": ")", "[": "]", "{": "}"}
_COMMA = re.compile(",")
_HEADER = re.compile(r"HloModule [^\s,]+")
_TABLES = ("FileNames", "FunctionNames", "FileLocations", "StackFrames")
_ROW = re.compile(r'(\d{1,9}) (?:"((?:[^"\\]|\\.)*)"|\{([^{}]*)\}) *')
_PAIR = re.compile(r"(\w+)=(\d{1,9})")
_COMPUTATION = re.compile(r"(ENTRY )?%?([\w.\-]+) \(.*\) -> .+ \{")
_INSTRUCTION = re.compile(
    r" *(ROOT )?%?([\w.\-]+) = (.+?) ([a-z][a-z0-9\-]+?)(?:-(start|update|done))?\((.*)\)"
)
_ATTRIBUTE = re.compile(r" *([A-Za-z_][\w\-]*)=(.*\S) *")
_SIZE = r"(?:(?:<=)?\d+|\?)"
_GROUP = r"\((?:[^()]|\([^()]*\))*\)"
_ARRAY = re.compile(
    rf"([a-z][a-z0-9]*)\[((?:{_SIZE}(?:,{_SIZE})*)?)\](\{{[\d,]*(?::(?:[A-Z#*]*{_GROUP})*)?\}})?"
)


def parse_hlo(text: str) -> HloModule:
    """Returns a module of HLO text, as ``compiled.as_text()`` prints it on CPU, GPU and TPU.

    Raises:
        ValueError: the text is malformed, cut off, or uses a construct that is not known; the message names
            line and text.
    """
    lines = _Lines(_COMMENT.sub("", text))
    try:
        return _module(lines)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"HLO line {lines.number}: {error}: {lines.line[:160]!r}") from None


class _Lines(Iterator[str]):
    """The lines of a text; ``line`` is the last one that was read, ``number`` its number."""

    def __init__(self, text: str):
        self.number, self.line = 0, ""
        self._rest = iter(text.split("\n"))

    def __next__(self) -> str:
        self.line = next(self._rest)
        self.number += 1
        return self.line


def _module(lines: _Lines) -> HloModule:
    filled = filter(str.strip, lines)
    header, *attributes = _pieces(next(filled, ""))
    if not _HEADER.fullmatch(header):
        raise ValueError("expected 'HloModule NAME' at the start")
    tables: dict[str, dict[int, str]] = {name: {} for name in _TABLES}
    computations: dict[str, Computation] = {}
    entry = ""
    for line in filled:
        if (table := line.strip()) in _TABLES:
            tables[table].update(_rows(table, lines))
            continue
        match = _COMPUTATION.fullmatch(line)
        if not match:
            raise ValueError("expected a computation")
        name = match[2]
        computations[name] = _computation(name, lines, computations)
        entry = name if match[1] else entry
    if not entry:
        raise ValueError("no ENTRY computation: the text is cut off or not a module")
    return HloModule(
        attributes=_attributes(attributes), computations=computations, entry=entry, frames=_frames(tables)
    )


def _rows(table: str, lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yields the rows of a source table by number."""
    for line in itertools.takewhile(str.strip, lines):
        if not (row := _ROW.fullmatch(line)):
            raise ValueError(f"unknown row in {table}")
        yield int(row[1]), row[2] if row[2] is not None else row[3]


def _frames(tables: Mapping[str, Mapping[int, str]]) -> dict[int, Frame]:
    """Returns the innermost line of each stack frame."""
    files, functions, *rest = (tables[name] for name in _TABLES)
    places, frames = (
        {number: {key: int(value) for key, value in _PAIR.findall(row)} for number, row in table.items()}
        for table in rest
    )
    found = {
        number: Frame(
            files.get(place.get("file_name_id", 0), ""),
            place.get("line", 0),
            functions.get(place.get("function_name_id", 0), ""),
        )
        for number, place in places.items()
    }
    innermost = {number: found.get(frame.get("file_location_id", 0)) for number, frame in frames.items()}
    return {number: frame for number, frame in innermost.items() if frame}


def _computation(name: str, lines: _Lines, computations: Mapping[str, Computation]) -> Computation:
    """Reads a computation up to its closing brace; it calls only ``computations``."""
    found: dict[str, Instruction] = {}
    root = ""
    for line in lines:
        if line.startswith("}"):
            if not root:
                raise ValueError(f"computation {name} has no ROOT")
            attributes = _attributes(_pieces(f"end{line[1:]}")[1:])
            return Computation(
                name=name, instructions=tuple(found.values()), root=root, attributes=attributes
            )
        one, is_root = _instruction(line, lines.number, found)
        for _, called in one.called():
            if called not in computations:
                raise ValueError(f"computation {called} is called before it is defined")
        found[one.name] = one
        root = one.name if is_root else root
    raise ValueError(f"computation {name} is cut off")


def _instruction(line: str, number: int, known: Mapping[str, Instruction]) -> tuple[Instruction, bool]:
    """Returns the instruction on a line, and True if it is the root."""
    operation, *attributes = _pieces(line)
    if not (match := _INSTRUCTION.fullmatch(operation)):
        raise ValueError("expected an instruction")
    root, name, shape, base, phase, inside = match.groups()
    if base not in OPCODES:
        raise ValueError(f"unknown opcode {base!r}")
    is_literal = base in ("constant", "parameter")
    one = Instruction(
        name=name,
        shape=read_shape(shape),
        base=base,
        phase=phase or "",
        operands=() if is_literal or not inside.strip() else tuple(_operands(inside, known)),
        literal=inside.strip() if is_literal else "",
        attributes=_attributes(attributes),
        line=number,
    )
    return one, bool(root)


def _operands(text: str, known: Mapping[str, Instruction]) -> Iterator[str]:
    """Yields the names of operands, which some texts write behind their shapes."""
    for piece in _pieces(text):
        shape, _, name = piece.strip().rpartition(" ")
        if shape:
            read_shape(shape)
        if (name := name.removeprefix("%")) not in known:
            raise ValueError(f"operand {name!r} is not defined before")
        yield name


def _attributes(pieces: Iterable[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for piece in pieces:
        if not (match := _ATTRIBUTE.fullmatch(piece)):
            raise ValueError(f"expected ', key=value' or the end of the line, got {piece[:40]!r}")
        found[match[1]] = match[2]
    return found


@functools.lru_cache(maxsize=4_096)
def read_shape(text: str) -> Shape:
    """Returns the shape that a text writes, such as ``f32[2,3]{1,0}`` or a tuple of shapes."""
    text = text.strip()
    if text.startswith(("(", "b(")) and text.endswith(")"):
        start, _, inside = text[:-1].partition("(")
        if start:  # a buffer
            return read_shape(inside)
        return Shape("tuple", parts=tuple(map(read_shape, _pieces(inside) if inside else ())))
    if not (match := _ARRAY.fullmatch(text)):
        raise ValueError(f"expected a shape, got {text[:40]!r}")
    element, sizes, layout = match.groups()
    if element not in ELEMENT_BITS:
        raise ValueError(f"unknown element type {element!r}")
    found = (-1 if size == "?" else int(size.removeprefix("<=")) for size in filter(None, sizes.split(",")))
    return Shape(element, tuple(found), layout or "", dynamic="<" in sizes or "?" in sizes)


def _pieces(text: str) -> list[str]:
    """Returns the parts of a text between its commas, except those in brackets and quotes."""
    if not _BRACKET.search(text):
        return text.split(",")
    open_: list[str] = []
    cuts, outside = [-1], 0
    for match in _BRACKET.finditer(text):
        token = match.group()
        if not open_:
            cuts += (comma.start() for comma in _COMMA.finditer(text, outside, match.start()))
        if token in _CLOSES:
            open_.append(_CLOSES[token])
        elif token in ")]}" and (not open_ or open_.pop() != token):
            raise ValueError(f"unexpected {token!r}")
        elif token in "\"'":
            raise ValueError(f"a quote {token} is not closed")
        outside = match.end()
    if open_:
        raise ValueError(f"expected {open_[-1]!r}: a bracket is not closed")
    cuts += (comma.start() for comma in _COMMA.finditer(text, outside))
    return [text[start + 1 : end] for start, end in itertools.pairwise([*cuts, len(text)])]
