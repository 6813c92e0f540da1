"""Converters of texts, bytes and single numbers, in the formats of Kafka's serializers.

Owns these formats. Must not know schemas of structures.
"""

from __future__ import annotations

import codecs
import struct
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from spark_jobs.connect.base.api import Converter
from spark_jobs.connect.base.data import OPTIONAL_BYTES, OPTIONAL_STRING, Schema, Type
from spark_jobs.connect.base.definitions import Definition, Importance, Kind, Setting, invalid
from spark_jobs.connect.base.errors import DataError
from spark_jobs.connect.converters.java_text import to_string

_ENCODING: Final = "converter.encoding"


def _known_encoding(name: str, value: str) -> None:
    try:
        is_text = codecs.lookup(value)._is_text_encoding
    except LookupError:
        is_text = False
    if not is_text:
        raise invalid(name, value, "Expected the name of an encoding of text, such as UTF-8")


class StringConverter(Converter):
    """Writes any value as Java's `toString` prints it, and reads all as text."""

    definition = Definition(
        [
            Setting(
                _ENCODING,
                Kind.STRING,
                "UTF-8",
                Importance.HIGH,
                "The name of the encoding of texts.",
                _known_encoding,
            )
        ]
    )

    def configure(self, config: Mapping[str, str], *, is_key: bool) -> None:
        self._encoding: str = self.definition.parse(config)[_ENCODING]

    def from_data(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        """Return a text. Characters that the encoding lacks become `?`, as in Java."""
        if value is None:
            return None
        return (value if type(value) is str else to_string(value, schema)).encode(self._encoding, "replace")

    def to_data(self, topic: str, stored: bytes | None) -> tuple[Schema | None, Any]:
        """Return a text. Bytes that are not in the encoding become U+FFFD, as in Java."""
        return OPTIONAL_STRING, None if stored is None else stored.decode(self._encoding, "replace")


class ByteArrayConverter(Converter):
    """Passes bytes on."""

    def from_data(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        if schema is not None and schema.type is not Type.BYTES:
            raise DataError(f"Invalid schema type for ByteArrayConverter: {schema.type.name}, expected BYTES")
        if value is not None and not isinstance(value, bytes):
            raise DataError(f"ByteArrayConverter is not compatible with objects of type {type(value).__name__}")
        return value

    def to_data(self, topic: str, stored: bytes | None) -> tuple[Schema | None, Any]:
        return OPTIONAL_BYTES, stored


class _FixedConverter(Converter):
    """Writes values of one type in a fixed number of bytes."""

    form: ClassVar[struct.Struct]
    schema: ClassVar[Schema]
    kinds: ClassVar[tuple[type, ...]]

    def from_data(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        if value is None:
            return None
        name = type(self).__name__
        if schema is not None and schema.type is not self.schema.type:
            raise DataError(f"Invalid schema type for {name}: {schema.type.name}, expected {self.schema.type.name}")
        if type(value) not in self.kinds:
            raise DataError(f"{name} cannot write {value!r:.100} of type {type(value).__name__}")
        try:
            return self.form.pack(value)
        except (struct.error, OverflowError) as error:
            raise DataError(f"{name} cannot write {value!r:.100}: {error}") from error

    def to_data(self, topic: str, stored: bytes | None) -> tuple[Schema | None, Any]:
        if stored is None:
            return self.schema, None
        if len(stored) != self.form.size:
            raise DataError(
                f"{type(self).__name__} read {len(stored)} bytes of topic {topic}: expected {self.form.size}"
            )
        return self.schema, self.form.unpack(stored)[0]


class ShortConverter(_FixedConverter):
    form = struct.Struct(">h")
    schema = Schema(Type.INT16, optional=True)
    kinds = (int,)


class IntegerConverter(_FixedConverter):
    form = struct.Struct(">i")
    schema = Schema(Type.INT32, optional=True)
    kinds = (int,)


class LongConverter(_FixedConverter):
    form = struct.Struct(">q")
    schema = Schema(Type.INT64, optional=True)
    kinds = (int,)


class FloatConverter(_FixedConverter):
    form = struct.Struct(">f")
    schema = Schema(Type.FLOAT32, optional=True)
    kinds = (float, int)


class DoubleConverter(_FixedConverter):
    form = struct.Struct(">d")
    schema = Schema(Type.FLOAT64, optional=True)
    kinds = (float, int)


class BooleanConverter(_FixedConverter):
    form = struct.Struct(">B")
    schema = Schema(Type.BOOLEAN, optional=True)
    kinds = (bool,)

    def to_data(self, topic: str, stored: bytes | None) -> tuple[Schema | None, Any]:
        schema, number = super().to_data(topic, stored)
        if number not in (0, 1, None):
            raise DataError(f"BooleanConverter read the byte {number:#04x} of topic {topic}: expected 0x00 or 0x01")
        return schema, None if number is None else number == 1
