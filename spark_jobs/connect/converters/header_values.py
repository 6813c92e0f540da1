"""Values of headers (`org.apache.kafka.connect.storage.SimpleHeaderConverter`), and converters of records for headers.

Owns what is particular to headers. Must not know the syntax of values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spark_jobs.connect.base.api import Converter, HeaderConverter
from spark_jobs.connect.base.data import BYTES, Schema
from spark_jobs.connect.converters.value_parser import parse, text_of


class SimpleHeaderConverter(HeaderConverter):
    """Writes values as texts, and guesses their types when it reads them."""

    def from_header(self, topic: str, name: str, schema: Schema | None, value: Any) -> bytes | None:
        return None if value is None else text_of(schema, value).encode("utf-8", "replace")

    def to_header(self, topic: str, name: str, stored: bytes | None) -> tuple[Schema | None, Any]:
        """Return the value of a text; bytes that are no text in UTF-8 stay bytes."""
        if stored is None:
            return None, None
        try:
            return parse(stored.decode())
        except UnicodeDecodeError:
            return BYTES, stored


class ConvertedHeaders(HeaderConverter):
    """Makes a converter of records one of headers."""

    def __init__(self, converter: Converter) -> None:
        self._converter = converter

    def configure(self, config: Mapping[str, str]) -> None:
        self._converter.configure(config, is_key=False)

    def from_header(self, topic: str, name: str, schema: Schema | None, value: Any) -> bytes | None:
        return self._converter.from_data(topic, schema, value)

    def to_header(self, topic: str, name: str, stored: bytes | None) -> tuple[Schema | None, Any]:
        return self._converter.to_data(topic, stored)
