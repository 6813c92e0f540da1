"""Opens Protobuf values of Confluent's wire format by the text of their `.proto` schema.

Owns as much of the schema language as names fields: messages, enums, maps and repeated fields. Pure. It needs no
compiler and no library; fields that the schema does not explain keep their numbers.

A value after its schema id is a list of message indexes, zigzag varints, then the message. `0` alone is the first.
"""

from __future__ import annotations

import re
import struct
from dataclasses import field
from typing import Any, Final

from base.dataclass import dataclass
from protocol.protobuf import Value, fields, varint

DEPTH_MAX: Final = 32
FIELDS_MAX: Final = 10_000

# What is not closed ends with the text, and nothing is tried twice: the time is proportional to the length.
_TOKEN = re.compile(
    r"""//[^\n]*+|/\*.*?(?:\*/|\Z)|"(?:[^"\\]|\\.)*+"?|'(?:[^'\\]|\\.)*+'?|[\w.]+|[{}=;<>,\[\]()-]""", re.DOTALL
)
_SIGNED = frozenset({"sint32", "sint64"})
_PLAIN = frozenset({"int32", "int64"})
_TEXT = frozenset({"string"})


@dataclass(slots=True)
class _Field:
    name: str
    type_name: str
    is_repeated: bool
    map_types: tuple[str, str] | None = None


@dataclass(slots=True)
class Message:
    """A message of a schema, or the whole file with its messages."""

    name: str
    fields: dict[int, _Field] = field(default_factory=dict)
    messages: list[Message] = field(default_factory=list)
    enums: dict[str, dict[int, str]] = field(default_factory=dict)


def fields_of(data: bytes, root: Message) -> dict[str, Any]:
    """Return the fields of a value by name; `root` is the file. Raises ValueError for bytes that are no such value."""
    count, position = varint(data, 0)
    indexes = [0]
    if count := _zigzag(count):
        indexes = []
        for _ in range(min(count, DEPTH_MAX)):
            index, position = varint(data, position)
            indexes.append(_zigzag(index))
    message, scopes = root, [root]
    for index in indexes:
        message = message.messages[index]
        scopes.append(message)
    return _Reader().message(memoryview(data)[position:], message, scopes, 0)


class _Reader:
    def __init__(self) -> None:
        self._left = FIELDS_MAX

    def message(self, data: memoryview, message: Message | None, scopes: list[Message], depth: int) -> dict[str, Any]:
        if depth > DEPTH_MAX:
            raise ValueError("messages are nested too deeply")
        found: dict[str, Any] = {}
        for number, _, raw in fields(data):
            self._left -= 1
            if self._left < 0:
                raise ValueError("too many fields")
            known = None if message is None else message.fields.get(number)
            name = str(number) if known is None else known.name
            if known is not None and known.map_types is not None and isinstance(raw, memoryview):
                entry = Message(
                    "", {1: _Field("key", known.map_types[0], False), 2: _Field("value", known.map_types[1], False)}
                )
                pair = self.message(raw, entry, scopes, depth + 1)
                found.setdefault(name, {})[str(pair.get("key", ""))] = pair.get("value")
                continue
            values = self._values(raw, known, scopes, depth)
            if known is not None and known.is_repeated:
                found.setdefault(name, []).extend(values)
            else:
                found[name] = values[-1] if values else None
        return found

    def _values(self, raw: Value, known: _Field | None, scopes: list[Message], depth: int) -> list[Any]:
        type_name = "" if known is None else known.type_name
        if isinstance(raw, memoryview):
            inner = _find(type_name, scopes)
            if isinstance(inner, tuple):
                return [self.message(raw, inner[0], inner[1], depth + 1)]
            if type_name in _TEXT:
                return [bytes(raw).decode(errors="replace")]
            if type_name == "bytes" or known is None:
                return [bytes(raw).hex()]
            return self._packed(raw, type_name, scopes)
        if isinstance(raw, bytes):
            return [_fixed(raw, type_name)]
        return [_number(raw, type_name, scopes)]

    def _packed(self, raw: memoryview, type_name: str, scopes: list[Message]) -> list[Any]:
        size = {"double": 8, "fixed64": 8, "sfixed64": 8, "float": 4, "fixed32": 4, "sfixed32": 4}.get(type_name)
        if size is not None:
            return [_fixed(bytes(raw[at : at + size]), type_name) for at in range(0, len(raw), size)]
        values, position = [], 0
        while position < len(raw):
            value, position = varint(raw, position)
            values.append(_number(value, type_name, scopes))
        return values


def _fixed(raw: bytes, type_name: str) -> float | int:
    names = {8: {"double": "<d", "sfixed64": "<q"}, 4: {"float": "<f", "sfixed32": "<i"}}
    layout = names[len(raw)].get(type_name, "<Q" if len(raw) == 8 else "<I")
    (value,) = struct.unpack(layout, raw)
    return value  # type: ignore[no-any-return]


def _number(value: int, type_name: str, scopes: list[Message]) -> object:
    if type_name in _SIGNED:
        return _zigzag(value)
    if type_name in _PLAIN:
        return value - (1 << 64) if value >= 1 << 63 else value
    if type_name == "bool":
        return bool(value)
    for scope in reversed(scopes):
        names = scope.enums.get(type_name.rpartition(".")[2])
        if names is not None:
            return names.get(value, value)
    return value


def _find(type_name: str, scopes: list[Message]) -> tuple[Message, list[Message]] | None:
    """Return the message that a type names, from the innermost scope outwards, and its own scopes."""
    path = type_name.strip(".").split(".")
    for depth in range(len(scopes), 0, -1):
        for start in range(len(path)):  # the first parts may be the package
            found, inner = scopes[depth - 1], scopes[:depth]
            for part in path[start:]:
                nested = next((each for each in found.messages if each.name == part), None)
                if nested is None:
                    break
                found, inner = nested, [*inner, nested]
            else:
                return found, inner
    return None


def _zigzag(value: int) -> int:
    return (value >> 1) ^ -(value & 1)


def parse(schema: str) -> Message:
    """Return the schema as a message that contains those of the file. Raises ValueError or IndexError for others."""
    tokens = [each for each in _TOKEN.findall(schema) if not each.startswith(("//", "/*"))]
    root = Message("")
    _read_body(tokens, 0, root, 0)
    return root


def _read_body(tokens: list[str], position: int, into: Message, depth: int) -> int:
    if depth > DEPTH_MAX:
        raise ValueError("messages are nested too deeply")
    while position < len(tokens):
        token = tokens[position]
        if token == "}":
            return position + 1
        if token == "message":
            inner = Message(tokens[position + 1])
            into.messages.append(inner)
            position = _read_body(tokens, position + 3, inner, depth + 1)
        elif token == "oneof":
            position = _read_body(tokens, position + 3, into, depth + 1)
        elif token == "enum":
            position = _read_enum(tokens, position, into)
        else:
            position = _read_statement(tokens, position, into)
    return position


def _read_enum(tokens: list[str], position: int, into: Message) -> int:
    names: dict[int, str] = {}
    into.enums[tokens[position + 1]] = names
    end = tokens.index("}", position)
    for at in range(position + 3, end - 2):
        if tokens[at + 1] == "=" and tokens[at + 2].isdecimal():
            names[int(tokens[at + 2])] = tokens[at]
    return end + 1


def _read_statement(tokens: list[str], position: int, into: Message) -> int:
    """Read up to the semicolon, or over a block that names no field."""
    end = position
    while end < len(tokens) and tokens[end] not in (";", "{"):
        end += 1
    statement = tokens[position:end]
    if end < len(tokens) and tokens[end] == "{":
        depth = 0
        while end < len(tokens):
            depth += {"{": 1, "}": -1}.get(tokens[end], 0)
            end += 1
            if not depth:
                break
        return end
    if "=" in statement and statement[0] not in ("syntax", "option", "edition"):
        at = statement.index("=")
        if at >= 2 and at + 1 < len(statement) and statement[at + 1].isdecimal():
            number, name = int(statement[at + 1]), statement[at - 1]
            if statement[0] == "map":
                into.fields[number] = _Field(name, "", False, (statement[2], statement[4]))
            else:
                into.fields[number] = _Field(name, statement[at - 2], statement[0] == "repeated")
    return end + 1
