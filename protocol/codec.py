"""Encode and decode messages with the compiled reader and writer of each (message, version) pair.

Owns when a pair is compiled (on first use) and the cache of compiled functions. Must not know how the source is
generated (`protocol.reader`, `protocol.writer`, `protocol.scanner`) or what the messages mean.

Invariant: decoding raises `Malformed` and nothing else, whatever the bytes. Encoding does not check its objects, which
are the broker's own.

Bytes after the end of a request are ignored, as in Kafka: librdkafka 2 appends some to Metadata and SCRAM requests. A
response must end where its frame ends.

Each cache below maps a class and a version to one compiled function:

    declaration (protocol.schema) -> source text (reader, scanner, writer) -> function (base.compiler) -> cache
"""

from functools import partial
from typing import Protocol, TypeVar, cast

from base.compiler import compile_function
from protocol.reader import ELEMENTS_UNLIMITED, reader_source
from protocol.scanner import scanner_source
from protocol.schema import Encoded, MessageInfo, Records, Struct, message_info
from protocol.source import Source
from protocol.writer import writer_source

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Decoder(Protocol[T_co]):
    """The compiled reader of one version of a message.

    Decodes `buffer` (`bytes`, a `bytearray` or a `memoryview` of bytes) from `position` to its end. Record sets are
    views into the buffer, writable if the buffer is.

    Raises:
        TooManyElements: the message has more lists, list elements and tagged fields than `elements_left`.
        Malformed: the bytes are not a message of this version.
    """

    def __call__(self, buffer: Records, position: int = 0, elements_left: int = ELEMENTS_UNLIMITED, /) -> T_co: ...


class Encoder(Protocol):
    """The compiled writer of one version of a message.

    Appends at least one buffer to the empty list `out`. Large bytes and record sets are appended by reference and must
    not change until they are sent; the bytes between two of them are joined into one buffer, or several if there are
    many.

    Raises:
        TooManyElements: the message has more lists and list elements than `elements_left`; `out` is empty.
    """

    def __call__(self, message: object, out: list[Records], elements_left: int = ELEMENTS_UNLIMITED, /) -> None: ...


# Compiled functions by (class, version). A cache, not state: its content follows from the declarations alone.
_decoders: dict[tuple[type, int], Decoder[object]] = {}
_scanners: dict[tuple[type, type, int], Decoder[object]] = {}
_encoders: dict[tuple[type, int], Encoder] = {}
_element_encoders: dict[tuple[type, int], Encoder] = {}


def decode(cls: type[T], version: int, buffer: Records, position: int = 0) -> T:
    """Decode the message of type `cls` that fills `buffer` from `position` on. See `Decoder`."""
    return decoder(cls, version)(buffer, position)


def encode(message: object, version: int) -> list[Records]:
    """Return the buffers of a message, in order. See `Encoder`.

    Raises:
        KafkaError: UNSUPPORTED_VERSION if a request field has a value that `version` would lose silently.
    """
    out: list[Records] = []
    encoder(type(message), version)(message, out)
    return out


def encode_element(message: type, element: object, version: int) -> Encoded:
    """Encode an element of a list of `message` for reuse in messages of the same version (see `Encoded`)."""
    cls = type(element)
    found = _element_encoders.get((cls, version))
    if found is None:
        source = writer_source(cast(type[Struct], cls), message_info(message), version)
        found = compile_function("write", source.text(), f"writer of {cls.__name__} v{version}", source.names)
        _element_encoders[cls, version] = found
    out: list[Records] = []
    found(element, out)
    return Encoded(b"".join(out))


def decoder(cls: type[T], version: int) -> Decoder[T]:
    """Return the reader of `cls` in `version`, compiled on first use.

    Raises:
        ValueError: the class has no such version.
    """
    found = _decoders.get((cls, version))
    if found is None:
        source = _source(reader_source, cls, version)
        found = compile_function("read", source.text(), f"reader of {cls.__name__} v{version}", source.names)
        _decoders[cls, version] = found
    return cast(Decoder[T], found)


def scanner(cls: type, scanned: type[T], version: int) -> Decoder[T]:
    """Return the scanner of the request `cls` in `version` that builds a `scanned` (`protocol.scanner`).

    It is compiled on first use and accepts memoryviews only.

    Raises:
        ValueError: the class has no such version.
    """
    found = _scanners.get((cls, scanned, version))
    if found is None:
        source = _source(partial(scanner_source, scanned=scanned), cls, version)
        found = compile_function("read", source.text(), f"scanner of {cls.__name__} v{version}", source.names)
        _scanners[cls, scanned, version] = found
    return cast(Decoder[T], found)


def encoder(cls: type, version: int) -> Encoder:
    """Return the writer of `cls` in `version`, compiled on first use.

    Raises:
        ValueError: the class has no such version.
    """
    found = _encoders.get((cls, version))
    if found is None:
        source = _source(writer_source, cls, version)
        found = compile_function("write", source.text(), f"writer of {cls.__name__} v{version}", source.names)
        _encoders[cls, version] = found
    return found


def source_text(cls: type, version: int) -> tuple[str, str]:
    """Return the source of the reader and of the writer for one version of a message."""
    return _source(reader_source, cls, version).text(), _source(writer_source, cls, version).text()


class _SourceWriter(Protocol):
    def __call__(self, cls: type[Struct], info: MessageInfo, version: int, /) -> Source: ...


def _source(write: _SourceWriter, cls: type, version: int) -> Source:
    info = message_info(cls)
    if version not in info.versions:
        raise ValueError(f"{cls.__name__} has no version {version}, only {info.versions.start} to {info.versions[-1]}")
    return write(cls, info, version)
