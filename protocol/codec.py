"""Encoding and decoding of messages: the compiled reader and writer of every (message, version) pair.

Owns when a pair is compiled (on first use) and the cache of what was. Must not know how the source comes about
(`protocol.reader`, `protocol.writer`) or what the messages mean.

Nothing but `Malformed` escapes from decoding, whatever the bytes. Encoding trusts its objects, which are our own.

Bytes after the end of a request are ignored, as Kafka does: librdkafka 2 sends some after Metadata and SCRAM requests.
A response must end where its frame ends.
"""

from functools import partial
from typing import Protocol, TypeVar, cast

from protocol.compiler import compile_function
from protocol.reader import ELEMENTS_UNLIMITED, reader_source
from protocol.scanner import scanner_source
from protocol.schema import Encoded, MessageInfo, Records, Struct, message_info
from protocol.source import Source
from protocol.writer import writer_source

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Decoder(Protocol[T_co]):
    """The compiled reader of one version of a message.

    Decodes from `position` to the end of `buffer`, which is `bytes`, a `bytearray` or a `memoryview` of bytes. Record
    sets are views into the buffer, writable if it is. Raises Malformed, and of it TooManyElements when the message has
    more lists, list elements and tagged fields than `elements_left`.
    """

    def __call__(self, buffer: Records, position: int = 0, elements_left: int = ELEMENTS_UNLIMITED, /) -> T_co: ...


class Encoder(Protocol):
    """The compiled writer of one version of a message.

    Appends at least one buffer to an empty list. Large bytes and record sets go in by reference and must not change
    until the buffers are sent; what stands between two of them is one buffer, or several if it is much. Raises
    TooManyElements, with `out` empty, when the message has more lists and list elements than `elements_left`.
    """

    def __call__(self, message: object, out: list[Records], elements_left: int = ELEMENTS_UNLIMITED, /) -> None: ...


# Compiled functions by (class, version). Not state: what is in here follows from the declarations alone.
_decoders: dict[tuple[type, int], Decoder[object]] = {}
_scanners: dict[tuple[type, type, int], Decoder[object]] = {}
_encoders: dict[tuple[type, int], Encoder] = {}
_element_encoders: dict[tuple[type, int], Encoder] = {}


def decode(cls: type[T], version: int, buffer: Records, position: int = 0) -> T:
    """The message of type `cls` that fills `buffer` from `position` on. See `Decoder`."""
    return decoder(cls, version)(buffer, position)


def encode(message: object, version: int) -> list[Records]:
    """The buffers of a message, in order. See `Encoder`.

    A request field that `version` lacks and must not lose raises KafkaError(UNSUPPORTED_VERSION).
    """
    out: list[Records] = []
    encoder(type(message), version)(message, out)
    return out


def encode_element(message: type, element: object, version: int) -> Encoded:
    """An element of a list of `message` that takes encoded ones, as it stands in that version of it."""
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
    """The reader of `cls` in `version`, compiled on first use. ValueError when the class has no such version."""
    found = _decoders.get((cls, version))
    if found is None:
        source = _source(reader_source, cls, version)
        found = compile_function("read", source.text(), f"reader of {cls.__name__} v{version}", source.names)
        _decoders[cls, version] = found
    return cast(Decoder[T], found)


def scanner(cls: type, scanned: type[T], version: int) -> Decoder[T]:
    """The scanner of the request `cls` in `version` that returns a `scanned` (`protocol.scanner`), compiled on first
    use. It reads memoryviews. ValueError when the class has no such version."""
    found = _scanners.get((cls, scanned, version))
    if found is None:
        source = _source(partial(scanner_source, scanned=scanned), cls, version)
        found = compile_function("read", source.text(), f"scanner of {cls.__name__} v{version}", source.names)
        _scanners[cls, scanned, version] = found
    return cast(Decoder[T], found)


def encoder(cls: type, version: int) -> Encoder:
    """The writer of `cls` in `version`, compiled on first use. ValueError when the class has no such version."""
    found = _encoders.get((cls, version))
    if found is None:
        source = _source(writer_source, cls, version)
        found = compile_function("write", source.text(), f"writer of {cls.__name__} v{version}", source.names)
        _encoders[cls, version] = found
    return found


def source_text(cls: type, version: int) -> tuple[str, str]:
    """What is compiled for one version of a message: the reader's and the writer's source."""
    return _source(reader_source, cls, version).text(), _source(writer_source, cls, version).text()


class _SourceWriter(Protocol):
    def __call__(self, cls: type[Struct], info: MessageInfo, version: int, /) -> Source: ...


def _source(write: _SourceWriter, cls: type, version: int) -> Source:
    info = message_info(cls)
    if version not in info.versions:
        raise ValueError(f"{cls.__name__} has no version {version}, only {info.versions.start} to {info.versions[-1]}")
    return write(cls, info, version)
