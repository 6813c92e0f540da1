"""JSON, with the schema of each value beside it or without (`org.apache.kafka.connect.json.JsonConverter`).

    {"schema":{"type":"string","optional":false},"payload":"foo"}

The bytes are those of Kafka's converter. A schema is translated once; a message that begins with the same bytes as an
earlier one is known to have the same schema, so only its payload is parsed.

Owns the envelope and the settings. Must not know where values come from.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, NoReturn

from spark_jobs.connect.base.api import Converter
from spark_jobs.connect.base.data import Schema
from spark_jobs.connect.base.definitions import Definition, Importance, Kind, Setting, at_least, one_of_ignoring_case
from spark_jobs.connect.base.errors import DataError
from spark_jobs.connect.converters.json_decoding import INT64_LIMIT, Decode, compile_decoder
from spark_jobs.connect.converters.json_encoding import Encode, EncodingOptions, compile_encoder
from spark_jobs.connect.converters.json_schema import read_schema, schema_text
from spark_jobs.connect.converters.json_text import plain
from spark_jobs.connect.converters.schema_cache import SchemaCache, remember

SCHEMAS_ENABLE: Final = "schemas.enable"
_OLD_SCHEMAS_ENABLE: Final = "schema.enable"
_CACHE_SIZE: Final = "schemas.cache.size"
_DECIMAL_FORMAT: Final = "decimal.format"
_REPLACE_NULL: Final = "replace.null.with.default"

_NO_ENVELOPE: Final = (
    'JsonConverter with schemas.enable requires "schema" and "payload" fields and may not contain additional fields.'
    " If you are trying to deserialize plain JSON data, set schemas.enable=false in your converter configuration."
)
_SCHEMA_START: Final = b'{"schema":'
_PAYLOAD_START: Final = b',"payload":'
_NUMBER_LENGTH_MAX: Final = 1000
"""The longest number that Jackson reads; an exponent may be as large, so that no number fills the memory."""


def _int64(text: str) -> int:
    number = int(text) if len(text) <= 20 else INT64_LIMIT
    if not -INT64_LIMIT <= number < INT64_LIMIT:
        raise DataError(f"the number {text:.40} is too large for INT64")
    return number


def _double(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise DataError(f"the number {text:.40} is too large for FLOAT64")
    return number


def _decimal(text: str) -> Decimal:
    if len(text) > _NUMBER_LENGTH_MAX or abs((number := Decimal(text)).adjusted()) > _NUMBER_LENGTH_MAX:
        raise DataError(f"the number {text:.40} is too large: expected at most {_NUMBER_LENGTH_MAX} digits")
    return number


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


_plain_decoder: Final = json.JSONDecoder(parse_int=_int64, parse_float=_double, parse_constant=_no_constant)
_exact_decoder: Final = json.JSONDecoder(parse_float=_decimal, parse_constant=_no_constant)


@dataclass(frozen=True, slots=True)
class _Writer:
    """How values of a schema are written: what precedes the payload in an envelope, and the payload's encoder."""

    start: str
    encode: Encode


@dataclass(frozen=True, slots=True)
class _Reader:
    """How payloads of a schema are read."""

    schema: Schema | None
    decode: Decode


class JsonConverter(Converter):
    """Reads and writes JSON; use `configure` first."""

    definition = Definition(
        [
            Setting(
                SCHEMAS_ENABLE,
                Kind.BOOLEAN,
                True,
                Importance.HIGH,
                "Whether each value has its schema beside it: an object with the keys schema and payload.",
                group="Schemas",
                order=0,
                width="MEDIUM",
                display_name="Enable Schemas",
            ),
            Setting(
                _CACHE_SIZE,
                Kind.INT,
                1000,
                Importance.HIGH,
                "How many translated schemas a converter keeps.",
                at_least(0),
                group="Schemas",
                order=1,
                width="MEDIUM",
                display_name="Schema Cache Size",
            ),
            Setting(
                _DECIMAL_FORMAT,
                Kind.STRING,
                "BASE64",
                Importance.LOW,
                "How decimals are written: BASE64 (the bytes of the unscaled number) or NUMERIC (a JSON number)."
                " Both are read.",
                one_of_ignoring_case("BASE64", "NUMERIC"),
                group="Serialization",
                order=0,
                width="MEDIUM",
                display_name="Decimal Format",
            ),
            Setting(
                _REPLACE_NULL,
                Kind.BOOLEAN,
                True,
                Importance.LOW,
                "Whether null in a field that has a default is written and read as the default.",
                group="Serialization",
                order=1,
                width="MEDIUM",
                display_name="Replace null with default",
            ),
        ]
    )

    def configure(self, config: Mapping[str, str], *, is_key: bool) -> None:
        """Take the settings; `schema.enable` is an old name of `schemas.enable`."""
        given = dict(config)
        if _OLD_SCHEMAS_ENABLE in given:
            given.setdefault(SCHEMAS_ENABLE, given[_OLD_SCHEMAS_ENABLE])
        settings = self.definition.parse(given)
        self._has_schemas: bool = settings[SCHEMAS_ENABLE]
        self._replaces_null: bool = settings[_REPLACE_NULL]
        self._options = EncodingOptions(settings[_DECIMAL_FORMAT].upper() == "NUMERIC", self._replaces_null)
        self._cache_size: int = settings[_CACHE_SIZE]
        self._writers = SchemaCache(self._writer, self._cache_size)
        self._readers: dict[str, _Reader] = {}
        self._readers_by_start: dict[bytes, _Reader] = {}

    def from_data(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        if schema is None and value is None:
            return None
        try:
            writer = _WITHOUT_SCHEMA if schema is None else self._writers[schema]
            text = writer.encode(value)
            return (f"{writer.start}{text}}}" if self._has_schemas else text).encode()
        except RecursionError:
            raise DataError(f"a value for topic {topic} is nested too deeply for JSON") from None
        except ValueError as error:
            raise DataError(f"a value for topic {topic} cannot be written as JSON: {error}") from error

    def to_data(self, topic: str, stored: bytes | None) -> tuple[Schema | None, Any]:
        if stored is None:
            return None, None
        try:
            return self._read_envelope(stored) if self._has_schemas else (None, self._read_plain(stored))
        except RecursionError:
            raise DataError(f"a value of topic {topic} is nested too deeply for JSON") from None
        except ValueError as error:
            raise DataError(
                f"Converting byte[] to Kafka Connect data failed due to serialization error: {stored[:100]!r} of topic"
                f" {topic} is not JSON: {error}"
            ) from error

    def _writer(self, schema: Schema) -> _Writer:
        start = f'{{"schema":{schema_text(schema, self._options)},"payload":' if self._has_schemas else ""
        return _Writer(start, compile_encoder(schema, self._options))

    def _read_plain(self, stored: bytes) -> Any:
        text = _text(stored)
        return _plain_decoder.raw_decode(text)[0] if text else None

    def _read_envelope(self, stored: bytes) -> tuple[Schema | None, Any]:
        start = _envelope_start(stored)
        reader = self._readers_by_start.get(start)
        if reader is not None and (payload := _sole_payload(stored[len(start) :])) is not None:
            return reader.schema, reader.decode(payload[0])
        text = _text(stored)
        found = _exact_decoder.raw_decode(text)[0] if text else None
        if not isinstance(found, dict) or found.keys() != {"schema", "payload"}:
            raise DataError(_NO_ENVELOPE)
        reader = self._reader(found["schema"], start)
        return reader.schema, reader.decode(found["payload"])

    def _reader(self, found: Any, start: bytes) -> _Reader:
        """Return the reader of a decoded schema, and remember it for messages that begin with the same bytes."""
        key = json.dumps(found, default=repr)
        reader = self._readers.get(key)
        if reader is None:
            schema = read_schema(found, replaces_null=self._replaces_null)
            reader = _Reader(schema, compile_decoder(schema, replaces_null=self._replaces_null))
            remember(self._readers, key, reader, self._cache_size)
        if start and _is_whole_schema(start, found):
            remember(self._readers_by_start, start, reader, self._cache_size)
        return reader


_WITHOUT_SCHEMA: Final = _Writer('{"schema":null,"payload":', plain)


def _text(stored: bytes) -> str:
    return stored.decode("utf-8-sig").lstrip(" \t\r\n")


def _envelope_start(stored: bytes) -> bytes:
    """Return the bytes up to the first thing that may be the payload; none if it is not in the usual form."""
    if not stored.startswith(_SCHEMA_START):
        return b""
    at = stored.find(b"}" + _PAYLOAD_START)
    return stored[: at + 1 + len(_PAYLOAD_START)] if at >= 0 else b""


def _is_whole_schema(start: bytes, found: Any) -> bool:
    """Whether the bytes before the payload hold all of the schema, and not only a part with a similar text."""
    try:
        text = start[len(_SCHEMA_START) : -len(_PAYLOAD_START)].decode()
        return bool(_exact_decoder.decode(text) == found)
    except ValueError:
        return False


def _sole_payload(rest: bytes) -> tuple[Any] | None:
    """Return the payload of an envelope behind its schema; None if that is not all that follows."""
    try:
        text = rest.decode()
        payload, end = _exact_decoder.raw_decode(text)
    except ValueError:
        return None
    return (payload,) if text[end:] == "}" else None
