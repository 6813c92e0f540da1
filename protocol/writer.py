"""Generate the source of a writer: one straight-line function that encodes one version of one message.

Owns the templates of encoding and the functions that generated code calls outside its fast path. Must not know when
source is compiled or cached (`protocol.codec`). `protocol.reader` is the reverse.

Generated code collects small pieces and joins them. It joins at most a few thousand at a time, because each piece takes
several times the memory of its bytes. Bytes and record sets of `BY_REFERENCE_SIZE_MIN` or more are appended by
reference, between joined pieces. Adjacent fixed-width fields, the length that follows them (in versions with
fixed-width lengths) and empty tag sections are packed by one call.

Every list and every list element takes one from `elements_left`, so that a caller on the event loop learns early that a
message is large: `TooManyElements` is raised, and `out` is empty.

Objects come from the broker's own code and are not checked: a value of the wrong type or range raises whatever `struct`
or Python raises.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from struct import pack
from typing import NoReturn

from protocol.errors import ErrorCode, KafkaError
from protocol.reader import ELEMENTS_UNLIMITED, STRING_SIZE_MAX, refuse_count
from protocol.schema import ZERO_UUID, Encoded, Field, MessageInfo, Struct
from protocol.source import SHORT_LIST, Source, literal, plan

# Below this size, copying the bytes into the joined piece is cheaper than another buffer for the kernel to gather.
BY_REFERENCE_SIZE_MIN = 1024
# Pieces that are collected before they are joined.
PIECES_MAX = 4096


def uvarint(value: int) -> bytes:
    """Encode an unsigned varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


# The length prefixes of one byte, by value.
SHORT_LENGTHS = tuple(uvarint(value) for value in range(128))


def long_string_length(length: int) -> bytes:
    """Return the compact prefix (size + 1) of a string of 127 bytes or more.

    Raises:
        ValueError: the string is longer than the protocol allows.
    """
    if length > STRING_SIZE_MAX + 1:
        raise ValueError(f"a string has {length - 1} bytes, expected at most {STRING_SIZE_MAX}")
    return uvarint(length)


def refuse_loss(name: str, version: int, value: object) -> NoReturn:
    raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{name} is {value!r}, which version {version} cannot carry")


RUNTIME = {
    "Encoded": Encoded,
    "SHORT_LENGTHS": SHORT_LENGTHS,
    "ZERO_UUID": ZERO_UUID,
    "join": b"".join,
    "long_string_length": long_string_length,
    "pack": pack,
    "refuse_count": refuse_count,
    "refuse_loss": refuse_loss,
    "uvarint": uvarint,
}


def writer_source(cls: type[Struct], info: MessageInfo, version: int) -> Source:
    """Return the source of a function that appends the buffers of one version of a message to the list `out`.

    Its signature is `write(message, out, elements_left=ELEMENTS_UNLIMITED)`.
    """
    return _Writer(cls, info, version).source


class _Writer:
    def __init__(self, cls: type[Struct], info: MessageInfo, version: int) -> None:
        self.version = version
        self.is_flexible = info.is_flexible_in(version)
        self.refuses_loss = info.is_request
        self.source = Source(dict(RUNTIME))
        self.append = "append"
        self.path = cls.__name__
        with self.source.block(f"def write(o0, out, elements_left={ELEMENTS_UNLIMITED}):"):
            self.source.add("parts = []", "append = parts.append")
            self.struct(cls, 0)
            with self.source.block("if parts or not out:"):
                self.source.add("out.append(join(parts))")

    def struct(self, cls: type[Struct], depth: int) -> None:
        """Write the struct in the local `o<depth>`."""
        value = f"o{depth}"
        fields = plan(cls, self.version)
        if self.refuses_loss:
            for field in fields.absent:
                self.refuse_loss(field, f"{value}.{field.name}", f"{cls.__name__}.{field.name}")
        for field in fields.untagged:
            self.field(field, f"{value}.{field.name}", depth + 1)
        if self.is_flexible:
            self.tags(fields.tagged, value, depth)
        self.flush()

    def refuse_loss(self, field: Field, value: str, name: str) -> None:
        if not field.ignorable:
            with self.source.block(f"if {_differs(field, value)}:"):
                self.source.add(f"refuse_loss({name!r}, {self.version}, {value})")

    def tags(self, fields: list[Field], value: str, depth: int) -> None:
        if not fields:
            self.put("", "x")
            return
        self.flush()
        conditions = [_differs(field, f"{value}.{field.name}") for field in fields]
        tags = f"tags{depth}"
        with self.source.block(f"if {' or '.join(conditions)}:"):
            self.source.add(f"{tags} = []")
            for field, condition in zip(fields, conditions, strict=True):
                with self.source.block(f"if {condition}:"):
                    self.tag(field, f"{value}.{field.name}", depth, tags)
            self.source.add(f"{self.append}(uvarint(len({tags})))", f"{self.append}(join({tags}))")
        with self.source.block("else:"):
            self.source.add(f'{self.append}(b"\\0")')

    def tag(self, field: Field, value: str, depth: int, tags: str) -> None:
        """Write a tag, its size and its value. The value is collected separately because its size precedes it."""
        outer, self.append = self.append, f"append{depth}"
        self.source.add(f"parts{depth} = []", f"{self.append} = parts{depth}.append")
        self.field(field, value, depth + 1)
        self.flush()
        self.append = outer
        self.source.add(f"v{depth} = join(parts{depth})")
        self.source.add(f"{tags}.append(uvarint({field.tag}) + uvarint(len(v{depth})) + v{depth})")

    def field(self, field: Field, value: str, depth: int) -> None:
        is_nullable = field.is_nullable_in(self.version)
        if field.is_array:
            items = f"a{depth}"
            self.source.add(f"{items} = {value}")
            with self.unless_null(items, "i", is_nullable):
                self.length(items, "i", depth)
                self.array(field, items, depth)
        elif field.struct is None:
            self.primitive(field, value, depth, is_nullable)
        else:
            self.flush()
            self.source.add(f"o{depth} = {value}")
            with self.unless_null(f"o{depth}", "b", is_nullable):
                if is_nullable:
                    self.put("1", "b")
                self.struct(field.struct, depth)

    def primitive(self, field: Field, value: str, depth: int, is_nullable: bool) -> None:
        """Write a field or list element that is neither struct nor list."""
        assert field.wire is not None
        name, local = field.wire.name, f"v{depth}"
        if field.wire.letter:
            self.put(value, field.wire.letter)
        elif name == "uuid":
            self.flush()
            self.source.add(f"{self.append}({value}.bytes)")
        else:
            self.source.add(f"{local} = {value}")
            with self.unless_null(local, "h" if name == "string" else "i", is_nullable):
                if name == "string":
                    self.source.add(f"{local} = {local}.encode()")
                    self.length(local, "h", depth)
                    self.source.add(f"{self.append}({local})")
                else:
                    self.length(local, "i", depth)
                    self.blob(local)

    def blob(self, local: str) -> None:
        """Write bytes or records: large ones end the joined piece and become a buffer of their own."""
        if self.append != "append":
            self.source.add(f"{self.append}({local})")
            return
        with self.source.block(f"if len({local}) < {BY_REFERENCE_SIZE_MIN}:"):
            self.source.add(f"append({local})")
        with self.source.block("else:"):
            self.source.add("out.append(join(parts))", "parts.clear()", f"out.append({local})")

    def array(self, field: Field, items: str, depth: int) -> None:
        self.source.add(f"elements_left -= len({items}) + 1")
        with self.source.block("if elements_left < 0:"):
            self.source.add("out.clear()", f"raise refuse_count({self.path + '.' + field.name!r}, elements_left)")
        if field.wire is not None and field.wire.letter:
            self.numbers(field.wire.letter, items)
        elif field.struct is not None:
            with self.source.block(f"for o{depth} in {items}:"):
                if field.takes_encoded:
                    with self.source.block(f"if type(o{depth}) is Encoded:"):
                        self.source.add(f"{self.append}(o{depth})", "continue")
                self.struct(field.struct, depth)
                self.join_pieces()
        else:
            with self.source.block(f"for v{depth} in {items}:"):
                self.primitive(field, f"v{depth}", depth + 1, is_nullable=False)
                self.flush()

    def join_pieces(self) -> None:
        """Join the pieces if there are many. The value of a tag is collected separately and is never large."""
        if self.append == "append":
            with self.source.block(f"if len(parts) > {PIECES_MAX}:"):
                self.source.add("out.append(join(parts))", "parts.clear()")

    def numbers(self, letter: str, items: str) -> None:
        short = f"{self.source.layouts('pack', letter)}[len({items})](*{items})"
        long = f'pack(f">{{len({items})}}{letter}", *{items})'
        self.source.add(f"{self.append}({short} if len({items}) <= {SHORT_LIST} else {long})")

    @contextmanager
    def unless_null(self, local: str, letter: str, is_nullable: bool) -> Iterator[None]:
        """Write null if the local is None; the lines added inside run if there is a value."""
        if not is_nullable:
            yield
            return
        self.flush()
        null = b"\0" if self.is_flexible and letter != "b" else pack(f">{letter}", -1)
        with self.source.block(f"if {local} is None:"):
            self.source.add(f"{self.append}({null!r})")
        with self.source.block("else:"):
            yield
            self.flush()

    def length(self, local: str, letter: str, depth: int) -> None:
        """Write the length of the local's value."""
        if not self.is_flexible:
            self.put(f"len({local})", letter)
            self.flush()
            return
        self.flush()
        n = f"n{depth}"
        long = "long_string_length" if letter == "h" else "uvarint"
        self.source.add(f"{n} = len({local}) + 1")
        self.source.add(f"{self.append}(SHORT_LENGTHS[{n}] if {n} < 128 else {long}({n}))")

    def put(self, value: str, letter: str) -> None:
        self.source.run.append((value, letter))

    def flush(self) -> None:
        """Emit the packing of the pending run of fixed-width values."""
        run, self.source.run = self.source.run, []
        if not run:
            return
        letters = "".join(letter for _, letter in run)
        if not letters.strip("x"):
            self.source.add(f"{self.append}({bytes(len(letters))!r})")
            return
        values = ", ".join(value for value, _ in run if value)
        self.source.add(f"{self.append}({self.source.layout('pack', letters)}({values}))")


def _differs(field: Field, value: str) -> str:
    """Return the condition that a value differs from the field's default."""
    if field.default is None:
        return f"{value} is not None"
    return value if field.default == [] else f"{value} != {literal(field.default)}"
