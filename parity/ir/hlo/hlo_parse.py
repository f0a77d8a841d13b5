"""Parser of optimised HLO text. It reads all of the text: an unknown construct is an error with its line."""

import bisect
import json
import re

from parity.ir.hlo.hlo import ASYNC_SUFFIXES, OPCODES, Computation, HloModule, Instruction, Shape, read_shape
from parity.ir.location import Frame

__all__ = ["parse_hlo"]

_COMMENT = re.compile(r"/\*index=\d+\*/")
_HEADER = re.compile(r"HloModule ([^\s,]+)")
_TABLE = re.compile(r"(FileNames|FunctionNames|FileLocations|StackFrames)[ ]*\n")
_ROW = re.compile(r'(\d{1,9}) (?:"((?:[^"\\\n]|\\.)*)"|\{([^{}\n]*)\})[ ]*(?:\n|\Z)')
_PAIR = re.compile(r"(\w+)=(\d{1,9})")
_COMPUTATION = re.compile(r"(ENTRY )?%?([\w.\-]+) (?=\()")
_ARROW = re.compile(r" -> ")
_INSTRUCTION = re.compile(r"[ ]*(ROOT )?%?([\w.\-]+) = ")
_OPCODE = re.compile(r" ([a-z][a-z0-9\-]*)\(")
_ATTRIBUTE = re.compile(r", *([A-Za-z_][\w\-]*)=")
_OPERAND = re.compile(r"%?([\w.\-]+)")
_SPACE = re.compile(r"[ \t\n]*")
_BLANK = re.compile(r"[ \t]*(?:\n|\Z)")
_BRACKET = re.compile(r""""[^"\\]*(?:\\.[^"\\]*)*"|'[^'\n]*'|["'()\[\]{}]""", re.DOTALL)
# The settings of a host callback are an MLIR dictionary, those of all other operations are JSON.
_MLIR = re.compile(r"\{[A-Za-z_][\w.]* = ")
_STOP = re.compile(r"""["'(\[{,\n)\]}]""")
_CLOSES = {"(": ")", "[": "]", "{": "}"}
_JSON = json.JSONDecoder()


def parse_hlo(text: str) -> HloModule:
    """Reads a module of HLO text, as ``compiled.as_text()`` prints it on CPU, GPU and TPU.

    Args:
        text: the whole text of one module.

    Returns:
        The module with every computation and instruction.

    Raises:
        ValueError: the text is malformed, cut off, or uses a construct that is not known; the message names
            line and text.
    """
    return _Parser(_COMMENT.sub("", text)).module()


class _Parser:
    def __init__(self, text: str):
        self.text = text
        self.place = 0
        self.breaks = [match.start() for match in re.finditer("\n", text)]
        self.computations: dict[str, Computation] = {}
        self.entry = ""

    def module(self) -> HloModule:
        self._skip_space()
        match = _HEADER.match(self.text, self.place)
        if not match:
            raise self._error("expected 'HloModule NAME' at the start")
        self.place = match.end()
        attributes = self._attributes()
        frames = self._frames()
        while self._skip_space() < len(self.text):
            self._computation()
        if not self.entry:
            raise self._error("no ENTRY computation: the text is cut off or not a module")
        return HloModule(
            attributes=attributes, computations=self.computations, entry=self.entry, frames=frames
        )

    def _frames(self) -> dict[int, Frame]:
        """Reads the source tables: files, functions, places and stack frames by number."""
        tables: dict[str, dict[int, str]] = {}
        while (match := _TABLE.match(self.text, self._skip_space())) is not None:
            self.place = match.end()
            rows = tables.setdefault(match.group(1), {})
            while (row := _ROW.match(self.text, self.place)) is not None:
                rows[int(row.group(1))] = row.group(2) if row.group(2) is not None else row.group(3) or ""
                self.place = row.end()
            if not _BLANK.match(self.text, self.place):
                raise self._error(f"unknown row in {match.group(1)}")
        files, functions = tables.get("FileNames", {}), tables.get("FunctionNames", {})
        places, frames = {}, {}
        for number, row in tables.get("FileLocations", {}).items():
            fields = {key: int(value) for key, value in _PAIR.findall(row)}
            function = functions.get(fields.get("function_name_id", 0), "")
            places[number] = Frame(
                files.get(fields.get("file_name_id", 0), ""), fields.get("line", 0), function
            )
        for number, row in tables.get("StackFrames", {}).items():
            place = places.get(int(dict(_PAIR.findall(row)).get("file_location_id", 0)))
            if place is not None:
                frames[number] = place
        return frames

    def _computation(self) -> None:
        match = _COMPUTATION.match(self.text, self.place)
        if not match:
            raise self._error("expected a computation")
        name = match.group(2)
        self.place = self._closing(match.end())
        if not _ARROW.match(self.text, self.place):
            raise self._error(f"expected ' -> ' after the parameters of {name}")
        self._shape(self.place + 4)
        self._expect(" {\n")
        instructions, root = self._instructions(name)
        attributes = self._attributes()
        self.computations[name] = Computation(
            name=name, instructions=instructions, root=root, attributes=attributes
        )
        self.entry = name if match.group(1) else self.entry

    def _instructions(self, computation: str) -> tuple[tuple[Instruction, ...], str]:
        found: dict[str, Instruction] = {}
        root = ""
        while not self.text.startswith("}", self.place):
            if _BLANK.match(self.text, self.place):
                raise self._error(f"computation {computation} is cut off")
            instruction, is_root = self._instruction(found)
            root = instruction.name if is_root else root
            found[instruction.name] = instruction
        self.place += 1
        if not root:
            raise self._error(f"computation {computation} has no ROOT")
        return tuple(found.values()), root

    def _instruction(self, known: dict[str, Instruction]) -> tuple[Instruction, bool]:
        start = self.place
        match = _INSTRUCTION.match(self.text, start)
        if not match:
            raise self._error("expected an instruction")
        shape = self._shape(match.end())
        opcode = self._opcode()
        inside = self.place
        self.place = self._closing(inside - 1)
        body = self.text[inside : self.place - 1]
        is_literal = opcode in ("constant", "parameter")
        operands = () if is_literal else self._operands(body, known, start)
        attributes = self._attributes()
        instruction = Instruction(
            name=match.group(2),
            shape=shape,
            opcode=opcode,
            operands=operands,
            literal=body.strip() if is_literal else "",
            attributes=attributes,
            line=self._line(start),
        )
        for _, name in instruction.called():
            if name not in self.computations:
                raise self._error(f"computation {name} is called before it is defined", start)
        return instruction, bool(match.group(1))

    def _opcode(self) -> str:
        match = _OPCODE.match(self.text, self.place)
        if not match:
            raise self._error("expected an opcode and '(' after the shape")
        opcode = match.group(1)
        base = opcode
        for suffix in ASYNC_SUFFIXES:
            base = base.removesuffix(suffix)
        if base not in OPCODES:
            raise self._error(f"unknown opcode {opcode!r}")
        self.place = match.end()
        return opcode

    def _operands(self, body: str, known: dict[str, Instruction], start: int) -> tuple[str, ...]:
        found, place = [], 0
        while (place := _SPACE.match(body, place).end()) < len(body):  # pyright: ignore[reportOptionalMemberAccess]
            if found:
                if body[place] != ",":
                    raise self._error(
                        f"expected ',' between operands, got {body[place : place + 20]!r}", start
                    )
                place = _SPACE.match(body, place + 1).end()  # pyright: ignore[reportOptionalMemberAccess]
            match = _OPERAND.match(body, place)
            is_name = match is not None and (match.end() == len(body) or body[match.end()] in ", \n")
            if not is_name:
                try:
                    _, place = read_shape(body, place)
                except ValueError as error:
                    raise self._error(f"in the operands: {error}", start) from None
                match = _OPERAND.match(body, _SPACE.match(body, place).end())  # pyright: ignore[reportOptionalMemberAccess]
            if match is None or match.group(1) not in known:
                got = match.group(1) if match else body[place : place + 20]
                raise self._error(f"operand {got!r} is not defined before", start)
            found.append(match.group(1))
            place = match.end()
        return tuple(found)

    def _attributes(self) -> dict[str, str]:
        """Reads ``, key=value`` pairs up to the end of the line."""
        found: dict[str, str] = {}
        while (match := _ATTRIBUTE.match(self.text, self.place)) is not None:
            self.place = match.end()
            found[match.group(1)] = self._value(match.group(1))
        end = _BLANK.match(self.text, self.place)
        if not end:
            raise self._error("expected ', key=value' or the end of the line")
        self.place = end.end()
        return found

    def _value(self, key: str) -> str:
        start = self.place
        if key == "backend_config" and self.text.startswith("{", start) and not _MLIR.match(self.text, start):
            try:
                _, self.place = _JSON.raw_decode(self.text, start)
            except (ValueError, RecursionError):
                raise self._error("backend_config is not JSON") from None
            return self.text[start : self.place]
        while (match := _STOP.search(self.text, self.place)) is not None:
            self.place = match.start()
            if match.group() in ",\n":
                break
            if match.group() in ")]}":
                raise self._error(f"unexpected {match.group()!r} in the value of {key}")
            self.place = self._closing(self.place)
        else:
            self.place = len(self.text)
        if self.place == start:
            raise self._error(f"attribute {key} has no value")
        return self.text[start : self.place].rstrip()

    def _closing(self, start: int) -> int:
        """Returns the position after the bracket or quote that closes the one at ``start``."""
        open_ = []
        for match in _BRACKET.finditer(self.text, start):
            token = match.group()
            if token in ('"', "'"):
                raise self._error(f"a quote {token} is not closed", match.start())
            if token in _CLOSES:
                open_.append(_CLOSES[token])
            elif token in ")]}" and (not open_ or open_.pop() != token):
                raise self._error(f"unexpected {token!r}", match.start())
            if not open_:
                return match.end()
        raise self._error(f"{self.text[start]!r} is not closed", start)

    def _shape(self, start: int) -> Shape:
        try:
            shape, self.place = read_shape(self.text, start)
        except ValueError as error:
            raise self._error(str(error), start) from None
        return shape

    def _expect(self, words: str) -> None:
        if not self.text.startswith(words, self.place):
            raise self._error(f"expected {words!r}")
        self.place += len(words)

    def _skip_space(self) -> int:
        match = _SPACE.match(self.text, self.place)
        self.place = match.end() if match else self.place
        return self.place

    def _line(self, place: int) -> int:
        return bisect.bisect_left(self.breaks, place) + 1

    def _error(self, problem: str, place: int | None = None) -> ValueError:
        place = self.place if place is None else place
        line = self._line(place)
        begin = self.breaks[line - 2] + 1 if line > 1 else 0
        end = self.breaks[line - 1] if line <= len(self.breaks) else len(self.text)
        return ValueError(f"HLO line {line}: {problem}: {self.text[begin:end][:160]!r}")
