"""Avro, with the schemas in a registry (`io.confluent.connect.avro.AvroConverter`) or in a file.

A value of a registry is framed: a zero byte, the id of its schema in four bytes, and the Avro body. The subjects are
`TOPIC-key` and `TOPIC-value`. With `schema.file` values are plain bodies of that schema.

Owns the frame, the settings and the use of fastavro, which is imported when a converter is configured. Must not know
how schemas and values are mapped.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from spark_jobs.connect.base.api import Converter
from spark_jobs.connect.base.data import Schema
from spark_jobs.connect.base.definitions import Definition, Importance, Kind, Setting, at_least, invalid, one_of
from spark_jobs.connect.base.errors import ConfigError, DataError
from spark_jobs.connect.converters.avro_registry import URL, Registry, basic_authorization
from spark_jobs.connect.converters.avro_schema import ANYTHING_NAME, AvroSchemaReader, AvroSchemaWriter
from spark_jobs.connect.converters.avro_values import Convert, bare, compile_reader, compile_writer, of_anything
from spark_jobs.connect.converters.schema_cache import SchemaCache, remember

_FRAME: Final = struct.Struct(">bI")
_MAGIC: Final = 0
_FILE: Final = "schema.file"
_REGISTERS: Final = "auto.register.schemas"
_LATEST: Final = "use.latest.version"
_CACHE_SIZE: Final = "schemas.cache.size"
_TIMEOUT: Final = "http.read.timeout.ms"
_BASIC_SOURCE: Final = "basic.auth.credentials.source"
_BASIC: Final = "basic.auth.user.info"
_OLD_BASIC: Final = "schema.registry.basic.auth.user.info"
_BEARER_SOURCE: Final = "bearer.auth.credentials.source"
_BEARER: Final = "bearer.auth.token"
_STRATEGIES: Final = ("key.subject.name.strategy", "value.subject.name.strategy")
_STRATEGY: Final = "io.confluent.kafka.serializers.subject.TopicNameStrategy"


def _topic_name_strategy(name: str, value: Any) -> None:
    if value.rpartition(".")[2] != _STRATEGY.rpartition(".")[2]:
        raise invalid(name, value, f"Only {_STRATEGY} is supported")


@dataclass(frozen=True, slots=True)
class _Writer:
    """How values of a schema are written."""

    text: str
    encode: Callable[[Any], bytes]


@dataclass(frozen=True, slots=True)
class _Reader:
    """How bodies of an Avro schema are read; the schema is None for values without one."""

    schema: Schema | None
    decode: Callable[[bytes], Any]


class AvroConverter(Converter):
    """Reads and writes Avro; use `configure` first."""

    definition = Definition(
        [
            Setting(
                URL, Kind.LIST, [], Importance.HIGH, "URLs of the schema registry; the first that responds is used."
            ),
            Setting(
                _FILE,
                Kind.STRING,
                None,
                Importance.HIGH,
                f"A file with an Avro schema, in the place of {URL}: values are plain Avro.",
            ),
            Setting(
                _REGISTERS,
                Kind.BOOLEAN,
                True,
                Importance.MEDIUM,
                "Whether schemas that the registry does not have are registered.",
            ),
            Setting(
                _LATEST,
                Kind.BOOLEAN,
                False,
                Importance.LOW,
                f"Whether values are written by the newest schema of the subject; needs {_REGISTERS}=false.",
            ),
            Setting(_CACHE_SIZE, Kind.INT, 1000, Importance.LOW, "How many translated schemas are kept.", at_least(1)),
            Setting(
                _TIMEOUT,
                Kind.INT,
                60_000,
                Importance.LOW,
                "How many milliseconds to wait for a response of the registry.",
                at_least(1),
            ),
            Setting(
                _BASIC_SOURCE,
                Kind.STRING,
                "URL",
                Importance.MEDIUM,
                f"Where the registry's user and password are: URL, or USER_INFO for {_BASIC}.",
                one_of("URL", "USER_INFO"),
            ),
            Setting(_BASIC, Kind.PASSWORD, None, Importance.MEDIUM, "The registry's user:password."),
            Setting(_OLD_BASIC, Kind.PASSWORD, None, Importance.LOW, f"Deprecated: an old name of {_BASIC}."),
            Setting(
                _BEARER_SOURCE,
                Kind.STRING,
                None,
                Importance.MEDIUM,
                f"STATIC_TOKEN sends {_BEARER} to the registry.",
                one_of("STATIC_TOKEN"),
            ),
            Setting(_BEARER, Kind.PASSWORD, None, Importance.MEDIUM, "The registry's token."),
            *(
                Setting(name, Kind.CLASS, _STRATEGY, Importance.LOW, "How subjects are named.", _topic_name_strategy)
                for name in _STRATEGIES
            ),
        ]
    )

    def configure(self, config: Mapping[str, str], *, is_key: bool) -> None:
        settings = self.definition.parse(config)
        self._fastavro = _Fastavro()
        self._suffix = "key" if is_key else "value"
        self._registers: bool = settings[_REGISTERS]
        self._latest: bool = settings[_LATEST]
        if bool(settings[URL]) == (settings[_FILE] is not None):
            raise ConfigError(
                f"AvroConverter needs either {URL} or {_FILE}: {'both are' if settings[URL] else 'none is'} set"
            )
        if self._latest and self._registers:
            raise ConfigError(f"{_LATEST}=true needs {_REGISTERS}=false")
        self._cache_size: int = settings[_CACHE_SIZE]
        self._writers = SchemaCache(self._writer, self._cache_size)
        self._anything = self._writer(None)
        self._readers: dict[tuple[str, int], _Reader] = {}
        self._newest_by_subject: dict[str, tuple[int, Callable[[Any], bytes]]] = {}
        self._foreign_writers = SchemaCache(compile_writer, self._cache_size)
        self._registry = (
            Registry(settings[URL], _authorization(settings), settings[_TIMEOUT]) if settings[URL] else None
        )
        if self._registry is None:
            self._configure_file(settings[_FILE])

    def from_data(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        if value is None and (schema is None or schema.optional):
            return None
        try:
            if self._registry is None:
                return self._file_encode(self._with_writer(schema)(value))
            writer = self._anything if schema is None else self._writers[schema]
            subject = f"{topic}-{self._suffix}"
            if self._latest:
                schema_id, encode = self._newest(subject)
                return _FRAME.pack(_MAGIC, schema_id) + encode(self._with_writer(schema)(value))
            schema_id = self._registry.id(subject, writer.text, registers=self._registers)
            return _FRAME.pack(_MAGIC, schema_id) + writer.encode(value)
        except self._fastavro.misfits as error:
            raise DataError(f"a value for topic {topic} cannot be written as Avro: {_reason(error)}") from error

    def to_data(self, topic: str, stored: bytes | None) -> tuple[Schema | None, Any]:
        if stored is None:
            return None, None
        try:
            if self._registry is None:
                reader, body = self._file_reader, stored
            else:
                reader, body = self._framed(topic, stored, self._registry)
            return reader.schema, reader.decode(body)
        except self._fastavro.misfits as error:
            raise DataError(f"a value of topic {topic} cannot be read as Avro: {_reason(error)}") from error

    def _configure_file(self, path: str) -> None:
        avro = _read_file(path)
        try:
            self._file_reader = self._reader(avro, None)
        except DataError as error:
            raise invalid(_FILE, path, str(error)) from error
        self._file_encode = self._fastavro.encoder(avro)

    def _writer(self, schema: Schema | None) -> _Writer:
        avro = AvroSchemaWriter().write(schema)
        encode = self._fastavro.encoder(avro)
        convert = compile_writer(schema)
        return _Writer(json.dumps(avro, separators=(",", ":")), lambda value: encode(convert(value)))

    def _with_writer(self, schema: Schema | None) -> Convert:
        """Return the function to fastavro's values for an Avro schema that is not made of the record's schema."""
        return _unchanged if schema is None else self._foreign_writers[schema]

    def _newest(self, subject: str) -> tuple[int, Callable[[Any], bytes]]:
        """Return the newest schema of a subject, requested once, as Confluent's serializer does."""
        assert self._registry is not None
        if subject not in self._newest_by_subject:
            found = self._registry.latest(subject)
            self._newest_by_subject[subject] = (found.id, self._fastavro.encoder(_json(found.text)))
        return self._newest_by_subject[subject]

    def _framed(self, topic: str, stored: bytes, registry: Registry) -> tuple[_Reader, bytes]:
        """Return the reader of a framed value, and its body."""
        if len(stored) < _FRAME.size or stored[0] != _MAGIC:
            raise DataError(
                f"a value of topic {topic} begins with {stored[: _FRAME.size]!r}: expected a zero byte and the id of a"
                " schema in four bytes"
            )
        schema_id = _FRAME.unpack_from(stored)[1]
        key = (topic, schema_id)
        reader = self._readers.get(key)
        if reader is None:
            version = registry.version(f"{topic}-{self._suffix}", schema_id)
            reader = self._reader(_json(registry.text(schema_id)), version)
            remember(self._readers, key, reader, self._cache_size)
        return reader, stored[_FRAME.size :]

    def _reader(self, avro: Any, version: int | None) -> _Reader:
        """Return the reader of an Avro schema; `version` is its one in the registry, unless it states another."""
        parsed, named = self._fastavro.parse(avro)
        if isinstance(parsed, dict) and parsed.get("name") == ANYTHING_NAME:
            decode = self._fastavro.decoder(parsed, is_recursive=True)
            return _Reader(None, lambda body: of_anything(decode(body)))
        schema = AvroSchemaReader(named).read(parsed)
        if schema.version is None and version is not None:
            schema = replace(schema, version=version)
        convert = compile_reader(parsed, schema, named)
        decode = self._fastavro.decoder(parsed, is_recursive=False)
        return _Reader(schema, lambda body: convert(decode(body)))


class _Fastavro:
    """The library, imported when the first one is made."""

    def __init__(self) -> None:
        """Raises ConfigError if the library is missing."""
        try:
            import fastavro
            from fastavro import _read_py
        except ImportError as error:
            raise ConfigError("AvroConverter needs the package fastavro: pip install fastavro") from error
        self._library: ModuleType = fastavro
        self._safe_reader: Any = _read_py.schemaless_reader
        self.misfits: tuple[type[Exception], ...] = (
            ValueError,
            TypeError,
            KeyError,
            EOFError,
            IndexError,
            AttributeError,
            ArithmeticError,
            RecursionError,
            struct.error,
            fastavro.schema.SchemaParseException,
            fastavro.read.SchemaResolutionError,
        )
        """What the library raises for values that do not fit, and for bytes that are not of a schema."""

    def parse(self, avro: Any) -> tuple[Any, Mapping[str, Any]]:
        """Return a parsed schema and its named types by their full names. Raises DataError."""
        named: dict[str, Any] = {}
        try:
            parsed = self._library.parse_schema(avro, named_schemas=named)
        except self.misfits as error:
            raise DataError(f"{str(avro)[:200]} is not an Avro schema: {_reason(error)}") from error
        return _without_marks(parsed), {name: _without_marks(each) for name, each in named.items()}

    def encoder(self, avro: Any) -> Callable[[Any], bytes]:
        """Return the function from values to bodies of an Avro schema. Raises DataError."""
        schema = self._library.parse_schema(bare(self.parse(avro)[0]))
        write = self._library.schemaless_writer

        def encode(value: Any) -> bytes:
            body = io.BytesIO()
            write(body, schema, value)
            return body.getvalue()

        return encode

    def decoder(self, parsed: Any, *, is_recursive: bool) -> Callable[[bytes], Any]:
        """Return the function from bodies to values. The compiled reader of the library would overflow the stack, and
        end the process, at a deeply nested value of a recursive schema; the one in Python raises RecursionError."""
        schema = self._library.parse_schema(bare(parsed))
        read = self._safe_reader if is_recursive else self._library.schemaless_reader

        def decode(body: bytes) -> Any:
            source = io.BytesIO(body)
            found = read(source, schema, None, return_named_type=True)
            if source.read(1):
                raise ValueError("bytes follow the value")
            return found

        return decode


def _without_marks(parsed: Any) -> Any:
    """Return a parsed schema without what the library notes in it."""
    if not isinstance(parsed, dict):
        return parsed
    return {key: value for key, value in parsed.items() if not key.startswith("__")}


def _unchanged(value: Any) -> Any:
    return value


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{text:.100} is not an Avro schema: {error}") from error


def _read_file(path: str) -> Any:
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise invalid(_FILE, path, f"Expected a file with an Avro schema: {error}") from error


def _authorization(settings: Mapping[str, Any]) -> str | None:
    """Return the header of requests to the registry; None for credentials in the URL. Raises ConfigError."""
    if settings[_BEARER_SOURCE] is not None:
        if not settings[_BEARER]:
            raise ConfigError(f"{_BEARER_SOURCE}={settings[_BEARER_SOURCE]} needs {_BEARER}")
        return f"Bearer {settings[_BEARER]}"
    if settings[_BASIC_SOURCE] == "URL":
        return None
    user_info = settings[_BASIC] or settings[_OLD_BASIC]
    if not user_info:
        raise ConfigError(f"{_BASIC_SOURCE}=USER_INFO needs {_BASIC}")
    return basic_authorization(user_info)


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
