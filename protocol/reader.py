"""Generate the source of a reader: one straight-line function that decodes one version of one message.

Owns the templates of decoding and the functions that generated code calls outside its fast path. Must not know when
source is compiled or cached (`protocol.codec`). `protocol.writer` is the reverse.

Why generated code is both fast and safe against hostile bytes:

* Adjacent fixed-width fields, and the length or first length byte that follows them, are unpacked by one call.
* `position` only grows, and Python shortens a slice that passes the end. So one comparison with the size at the end
  detects every short slice; reads of single bytes and of fixed-width runs raise by themselves.
* Every list, list element and tagged field takes one from `elements_left`. A message with more of them is rejected
  before they become objects: an element of two bytes becomes an object of a hundred.
* No count makes the reader allocate more objects than the peer has sent bytes for. A list of strings or numbers must
  fit in the bytes left. Reading a struct raises at the end of the buffer, because each has a length, a number or a
  count of tagged fields.
* The only length below zero is -1, which means null and is accepted only where this version allows null.

The locals of generated code are a letter and the nesting depth: `o` struct, `n` length, `a` list, `v` element, `t`
count of tags. Fields appear as attributes only, so no field name can clash with a local.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from struct import calcsize, unpack_from
from struct import error as StructError  # noqa: N812 - it is an exception class
from uuid import UUID, SafeUUID

from protocol.errors import Malformed
from protocol.schema import ZERO_UUID, Field, MessageInfo, Records, Struct
from protocol.source import SHORT_LIST, Source, literal, plan

# Kafka rejects longer strings, whatever the encoding of their length.
STRING_SIZE_MAX = 0x7FFF

# Limit of unknown tagged fields in one section. Kafka has none, and clients send at most a few.
UNKNOWN_TAGS_MAX = 1000

# The default limit, for messages from a server rather than a client.
ELEMENTS_UNLIMITED = 1 << 62


class TooManyElements(Malformed):
    """A message has more list elements and tagged fields than the caller allows."""


_set_uuid_int = vars(UUID)["int"].__set__
_set_uuid_is_safe = vars(UUID)["is_safe"].__set__


def read_uuid(buffer: Records, position: int) -> UUID:
    """Return `UUID(bytes=...)` without its argument checks, which cost twice as much as the rest."""
    value = object.__new__(UUID)
    _set_uuid_int(value, int.from_bytes(buffer[position : position + 16], "big"))
    _set_uuid_is_safe(value, SafeUUID.unknown)
    return value


def read_uvarint(buffer: Records, position: int) -> tuple[int, int]:
    """Return an unsigned varint of at most 31 bits, and the position after it."""
    value = shift = 0
    while True:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 28:
            raise Malformed("a varint of more than 5 bytes")
    if value > 0x7FFFFFFF:
        raise Malformed(f"a varint of {value}, above the largest length")
    return value, position


def read_tag(buffer: Records, position: int, previous: int) -> tuple[int, int, int]:
    """Return a tag, the position of its value, and the end of its value. Tags must rise."""
    tag, position = read_uvarint(buffer, position)
    if tag <= previous:
        raise Malformed(f"tag {tag} after tag {previous}")
    size, position = read_uvarint(buffer, position)
    end = position + size
    if end > len(buffer):
        raise Malformed(f"tag {tag} of {size} bytes, but {len(buffer) - position} are left")
    return tag, position, end


def skip_tags(buffer: Records, position: int, first_byte: int) -> int:
    """Return the position after a section of unknown tagged fields.

    `first_byte` is the first byte of their count, which precedes `position`.
    """
    count, position = tag_count(buffer, position, first_byte)
    if count > UNKNOWN_TAGS_MAX:
        raise Malformed(f"{count} unknown tagged fields, expected at most {UNKNOWN_TAGS_MAX}")
    tag = -1
    for _ in range(count):
        tag, _, position = read_tag(buffer, position, tag)
    return position


def tag_count(buffer: Records, position: int, first_byte: int) -> tuple[int, int]:
    """Return the number of tagged fields in a section and the position of the first, given the count's first byte."""
    return read_uvarint(buffer, position - 1) if first_byte > 0x7F else (first_byte, position)


def null(path: str, length: int) -> None:
    """Return None for the length of a null; raise Malformed for any other negative length."""
    if length != -1:
        raise Malformed(f"{path}: length {length}")


def refuse_null(path: str, length: int) -> Malformed:
    return Malformed(f"{path}: null, which this version does not allow" if length == -1 else f"{path}: length {length}")


def refuse_size(path: str, size: int) -> Malformed:
    return Malformed(f"{path}: {size} is more than the bytes left can hold, or than is allowed")


def refuse_bytes(label: str, places: Sequence[str], error: Exception) -> Malformed:
    """Return the error for an exception of generated code; the line that raised it identifies the field."""
    line = 0 if error.__traceback__ is None else error.__traceback__.tb_lineno
    field = places[line] or label
    if isinstance(error, UnicodeDecodeError):
        return Malformed(f"{label}: {field} is not UTF-8: byte 0x{error.object[error.start]:02x} at {error.start}")
    return Malformed(f"{label}: bytes are missing from {field} on")


def refuse_list(path: str, count: int, element_size: int, size_left: int, elements_left: int) -> Malformed:
    """Return the error for a list of more elements than are allowed, or than the bytes left can hold."""
    return refuse_size(path, count) if count * element_size > size_left else refuse_count(path, elements_left)


def refuse_count(path: str, elements_left: int) -> TooManyElements:
    return TooManyElements(f"{path}: {-elements_left} elements more than are allowed")


def refuse_end(label: str, position: int, size: int) -> Malformed:
    return Malformed(f"{label}: " + (f"{size - position} bytes too many" if position < size else "bytes are missing"))


SLICES = {
    "string": 'str(buffer[position:{end}], "utf-8")',
    "bytes": "bytes(buffer[position:{end}])",
    "records": "memoryview(buffer)[position:{end}]",
}
"""The expressions for a value from `position` on. `{end}` stands for one that moves `position` to the end."""

RUNTIME = {
    "Malformed": Malformed,
    "StructError": StructError,
    "ZERO_UUID": ZERO_UUID,
    "new": object.__new__,
    "null": null,
    "read_tag": read_tag,
    "read_uuid": read_uuid,
    "read_uvarint": read_uvarint,
    "refuse_bytes": refuse_bytes,
    "refuse_count": refuse_count,
    "refuse_end": refuse_end,
    "refuse_list": refuse_list,
    "refuse_null": refuse_null,
    "refuse_size": refuse_size,
    "skip_tags": skip_tags,
    "tag_count": tag_count,
    "unpack_from": unpack_from,
}


def reader_source(cls: type[Struct], info: MessageInfo, version: int) -> Source:
    """Return a function for one version: `read(buffer, position=0, elements_left=ELEMENTS_UNLIMITED)`."""
    return Reader(cls, info, version).source


def size_min(cls: type[Struct], version: int, is_flexible: bool) -> int:
    """Return the smallest number of bytes that an encoded `cls` has."""
    sizes = (_field_size_min(field, version, is_flexible) for field in plan(cls, version).untagged)
    return sum(sizes) + is_flexible


def _field_size_min(field: Field, version: int, is_flexible: bool) -> int:
    if field.is_array:
        return 1 if is_flexible else 4
    if field.is_nullable_in(version) and field.struct is not None:
        return 1
    return _element_size_min(field, version, is_flexible)


def _element_size_min(field: Field, version: int, is_flexible: bool) -> int:
    if field.wire is None:
        assert field.struct is not None
        return size_min(field.struct, version, is_flexible)
    if field.wire.letter:
        return calcsize(field.wire.letter)
    if field.wire.name == "uuid":
        return 16
    if is_flexible:
        return 1
    return 2 if field.wire.name == "string" else 4


class Reader:
    """The generator of one reader. `protocol.scanner` overrides what happens to the values."""

    slices = SLICES

    def __init__(self, cls: type[Struct], info: MessageInfo, version: int) -> None:
        self.version = version
        self.is_flexible = info.is_flexible_in(version)
        self.source = Source(dict(RUNTIME))
        self.run_place = ""  # of the first value of the pending run
        label = f"{cls.__name__} v{version}"
        with self.source.block(f"def read(buffer, position=0, elements_left={ELEMENTS_UNLIMITED}):"):
            with self.source.block("try:"):
                self.source.add("size = len(buffer)")
                self.message(cls)
            with self.source.block("except (IndexError, StructError, UnicodeDecodeError) as error:"):
                self.source.add(f"raise refuse_bytes({label!r}, places, error) from error")
            with self.source.block(f"if position {'>' if info.is_request else '!='} size:"):
                self.source.add(f"raise refuse_end({label!r}, position, size)")
            self.source.add("return o0")
        self.source.names["places"] = self.source.places

    def message(self, cls: type[Struct]) -> None:
        """Read the whole message into the local `o0`."""
        self.struct(cls, 0, cls.__name__)

    def struct(self, cls: type[Struct], depth: int, path: str) -> None:
        """Read a struct into the local `o<depth>`."""
        target = f"o{depth}"
        self.source.names[cls.__name__] = cls
        self.source.add(f"{target} = new({cls.__name__})")
        self.fields(cls, f"{target}.", depth, path)

    def fields(self, cls: type[Struct], prefix: str, depth: int, path: str) -> None:
        """Read the fields of a struct into targets named `prefix` plus the name of the field."""
        fields = plan(cls, self.version)
        for field in fields.untagged:
            self.field(field, prefix + field.name, depth + 1, f"{path}.{field.name}")
        self.source.place = path
        if self.is_flexible:
            self.take(f"t{depth}", "B")
        self.flush()
        self.source.add(*(f"{prefix}{field.name} = {literal(field.default)}" for field in fields.absent))
        if self.is_flexible:
            self.tags(fields.tagged, prefix, depth, path)

    def tags(self, fields: list[Field], prefix: str, depth: int, path: str) -> None:
        self.source.add(*(f"{prefix}{field.name} = {literal(field.default)}" for field in fields))
        with self.source.block(f"if t{depth}:"):
            if not fields:
                self.count(f"tag_count(buffer, position, t{depth})[0]", path)
                self.source.add(f"position = skip_tags(buffer, position, t{depth})")
                return
            self.source.add(f"t{depth}, position = tag_count(buffer, position, t{depth})")
            self.count(f"t{depth}", path)
            self.source.add(f"tag{depth} = -1")
            with self.source.block(f"for _ in range(t{depth}):"):
                self.source.add(f"tag{depth}, position, end{depth} = read_tag(buffer, position, tag{depth})")
                for number, field in enumerate(fields):
                    with self.source.block(f"{'elif' if number else 'if'} tag{depth} == {field.tag}:"):
                        self.field(field, prefix + field.name, depth + 1, f"{path}.{field.name}")
                        self.flush()
                        with self.source.block(f"if position != end{depth}:"):
                            self.source.add(f"raise refuse_end({path + '.' + field.name!r}, position, end{depth})")
                self.source.add(f"position = end{depth}")

    def field(self, field: Field, target: str, depth: int, path: str) -> None:
        self.source.place = path
        is_nullable = field.is_nullable_in(self.version)
        if field.is_array:
            with self.length("i", target, depth, path, is_nullable):
                self.array(field, target, depth, path)
        elif field.struct is None:
            self.primitive(field, target, depth, path, is_nullable)
        elif is_nullable:
            self.take(f"n{depth}", "b")
            self.flush()
            with self.source.block(f"if n{depth} != 1:"):
                self.source.add(f"{target} = null({path!r}, n{depth})")
            with self.source.block("else:"):
                self.struct(field.struct, depth, path)
                self.source.add(f"{target} = o{depth}")
        else:
            self.flush()
            self.struct(field.struct, depth, path)
            self.source.add(f"{target} = o{depth}")

    def primitive(self, field: Field, target: str, depth: int, path: str, is_nullable: bool) -> None:
        """Read a field or list element that is neither struct nor list."""
        assert field.wire is not None
        name = field.wire.name
        if field.wire.letter:
            self.take(target, field.wire.letter)
        elif name == "uuid":
            self.flush()
            self.source.add(f"{target} = read_uuid(buffer, position)", "position += 16")
        else:
            with self.length("h" if name == "string" else "i", target, depth, path, is_nullable):
                end = f"(position := position + {self.counted(depth)})"
                self.source.add(f"{target} = {self.slices[name].format(end=end)}")

    def array(self, field: Field, target: str, depth: int, path: str) -> None:
        count, items = f"n{depth}", f"a{depth}"
        element_size = _element_size_min(field, self.version, self.is_flexible)
        # Flexible lengths are one more than the count.
        self.source.add(f"elements_left -= {count if self.is_flexible else f'{count} + 1'}")
        if self.is_flexible:
            self.source.add(f"{count} -= 1")
        with self.source.block("if elements_left < 0:"):
            self.source.add(f"raise refuse_list({path!r}, {count}, {element_size}, size - position, elements_left)")
        if field.struct is None:
            with self.source.block(f"if {count} * {element_size} > size - position:"):
                self.source.add(f"raise refuse_size({path!r}, {count})")
        if field.wire is not None and field.wire.letter:
            self.numbers(field.wire.letter, target, count)
            return
        if field.struct is not None:
            self.structs(field.struct, target, depth, path)
            return
        self.source.add(f"{items} = {target} = []")
        with self.source.block(f"for _ in range({count}):"):
            self.primitive(field, f"v{depth}", depth + 1, path, is_nullable=False)
            self.flush()
            self.source.add(f"{items}.append(v{depth})")

    def structs(self, cls: type[Struct], target: str, depth: int, path: str) -> None:
        """Read `n<depth>` structs into a list."""
        self.source.add(f"a{depth} = {target} = []")
        with self.source.block(f"for _ in range(n{depth}):"):
            self.struct(cls, depth, path)
            self.source.add(f"a{depth}.append(o{depth})")

    def count(self, count: str, path: str) -> None:
        """Subtract `count` from `elements_left`; raise TooManyElements below zero."""
        self.source.add(f"elements_left -= {count}")
        with self.source.block("if elements_left < 0:"):
            self.source.add(f"raise refuse_count({path!r}, elements_left)")

    def numbers(self, letter: str, target: str, count: str) -> None:
        short = f"{self.source.layouts('unpack_from', letter)}[{count}](buffer, position)"
        long = f'unpack_from(f">{{{count}}}{letter}", buffer, position)'
        self.source.add(f"{target} = list({short} if {count} <= {SHORT_LIST} else {long})")
        self.source.add(f"position += {count} * {calcsize(letter)}")

    @contextmanager
    def length(self, letter: str, target: str, depth: int, path: str, is_nullable: bool) -> Iterator[None]:
        """Read a length into `n<depth>`, and null into the target; the lines added inside run if there is a value.

        In flexible versions it is one more than the size, or 0 for null.
        """
        n = f"n{depth}"
        self.take(n, "B" if self.is_flexible else letter)
        self.flush()
        if self.is_flexible:
            with self.source.block(f"if {n} > 127:"):
                # Most lengths that need more than one byte need two.
                with self.source.block("if buffer[position] < 128:"):
                    self.source.add(f"{n} += (buffer[position] << 7) - 128", "position += 1")
                with self.source.block("else:"):
                    self.source.add(f"{n}, position = read_uvarint(buffer, position - 1)")
                if letter == "h":
                    with self.source.block(f"if {n} > {STRING_SIZE_MAX + 1}:"):
                        self.source.add(f"raise refuse_size({path!r}, {n})")
            is_null, length = f"not {n}", "-1"
        else:
            is_null, length = f"{n} < 0", n
        with self.source.block(f"if {is_null}:"):
            null = "None" if self.is_flexible else f"null({path!r}, {length})"
            self.source.add(f"{target} = {null}" if is_nullable else f"raise refuse_null({path!r}, {length})")
        with self.source.block("else:") if is_nullable else nullcontext():
            yield

    def counted(self, depth: int) -> str:
        """Return the expression of the size whose length is in `n<depth>`: flexible lengths are one more."""
        return f"n{depth} - 1" if self.is_flexible else f"n{depth}"

    def take(self, target: str, letter: str) -> None:
        if not self.source.run:
            self.run_place = self.source.place
        self.source.run.append((target, letter))

    def flush(self) -> None:
        """Emit the read of the pending run of fixed-width values."""
        run, self.source.run = self.source.run, []
        if not run:
            return
        place, self.source.place = self.source.place, self.run_place
        letters = "".join(letter for _, letter in run)
        targets = ", ".join(target for target, _ in run)
        if letters == "B":
            self.source.add(f"{targets} = buffer[position]")
        else:
            comma = "," if len(run) == 1 else ""
            self.source.add(f"{targets}{comma} = {self.source.layout('unpack_from', letters)}(buffer, position)")
        self.source.add(f"position += {calcsize('>' + letters)}")
        self.source.place = place
