"""Formats of values: JSON, JSON in Connect's envelope, and Avro by a schema file or by a schema registry.

A job sees JSON text, whatever the format of its topic: `value_text` decodes, `encode` does the reverse. Avro is
decoded by fastavro in Spark's Python workers, because each record of a topic may have another writer's schema. The
registry's framing is a zero byte, the id of the schema in four bytes, and the Avro body; ids are requested from
`--schema-registry` once per worker. With `--schema` as well, it is the reader's schema: fields that the writer did not
know get their defaults, and fields that the reader does not know are dropped.

Owns the formats. The brokers never inspect a value.
"""

import io
import json
import struct
from functools import lru_cache
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import fastavro
from fastavro import _read_py
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as f

from spark_jobs.skeleton.errors import JobError
from spark_jobs.skeleton.folders import Folder
from spark_jobs.skeleton.formats.avro_json import MISFIT, from_json, to_json
from spark_jobs.skeleton.parameters import JobParameters

_FRAME = struct.Struct(">bI")  # the magic byte 0 and the id of the schema
_CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
_HTTP_TIMEOUT_S = 10
_UNREADABLE = (
    ValueError,
    TypeError,
    EOFError,
    IndexError,
    ArithmeticError,  # times and decimals that Python cannot represent
    RecursionError,
    struct.error,
    fastavro.read.SchemaResolutionError,
)
"""What `decode` raises for bytes that are not of the schema, or have a schema that is not Avro's."""
_UNKNOWN_SCHEMA = 40403
"""The registry's code for a schema that it does not have."""


class UnknownSchemaError(JobError):
    """The registry responded that it does not have what was requested."""


def value_text(parameters: JobParameters) -> Column:
    """Return the value of a record of a Kafka source as JSON text; null if it cannot be decoded."""
    value = f.col("value")
    text = f.try_validate_utf8(value.cast("string"))  # Python's workers would fail at other bytes
    match parameters.value_format:
        case "json-envelope":
            return f.get_json_object(text, "$.payload")
        case "avro":
            return _decoder(_schema_of(parameters), None)(value)
        case "avro-registry":
            reader = None if parameters.schema is None else _schema_of(parameters)
            return _decoder(reader, parameters.schema_registry)(value)
        case _:
            return text


def is_json_object(text: str | None) -> bool:
    """Whether a text is a JSON object to Python's decoder. Spark accepts more, such as single quotes."""
    try:
        found = json.loads(text or "")
        json.dumps(found, allow_nan=False)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict)


def encode(text: Column, schema: str, registry: str | None, subject: str) -> Column:
    """Return JSON text as Avro; null if it does not fit `schema`.

    With a registry the schema is registered under `subject`, and the value has the registry's framing.
    """
    frame = b"" if registry is None else _FRAME.pack(0, register(registry, subject, schema))

    def encode_one(value: str | None) -> bytes | None:
        body = io.BytesIO()
        try:
            fastavro.schemaless_writer(body, _parsed(schema), from_json(value or "", schema))
        except MISFIT:
            return None
        return frame + body.getvalue()

    return f.udf(encode_one, "binary")(text)


def envelope(text: Column, schema: str) -> Column:
    """Return JSON text in Connect's envelope: the schema (Connect's JSON of it) and the payload."""
    return f.concat(f.lit(f'{{"schema":{schema},"payload":'), f.coalesce(text, f.lit("null")), f.lit("}"))


def read_schema(uri: str, flag: str = "--schema") -> str:
    """Return the text of a file with an Avro schema. Raises JobError."""
    text = read_text(flag, uri)
    try:
        _parsed(text)
    except ValueError as error:
        raise JobError(f"{flag}: {uri} is not an Avro schema: {error}") from error
    return text


def read_text(flag: str, uri: str) -> str:
    """Return the text of a file of any file system. Raises JobError, which names the flag."""
    folder, slash, name = uri.rpartition("/")
    source = Folder(SparkSession.active(), f"{folder}/" if slash else ".")
    if not source.has(name):
        raise JobError(f"{flag}: {uri} does not exist")
    try:
        return source.read_text(name)
    except UnicodeDecodeError as error:
        raise JobError(f"{flag}: {uri} is not a text in UTF-8: {error.reason}") from error


def register(registry: str, subject: str, schema: str) -> int:
    """Register a schema and return its id. Raises JobError with the registry's reason."""
    response = _request(f"{registry}/subjects/{subject}/versions", {"schema": schema})
    return int(response["id"])


def decode(frame: bytes, reader: str | None, registry: str | None) -> Any:
    """Return the object of an Avro value; raises ValueError or another error of the decoder."""
    writer = reader
    if registry is not None:
        magic, schema_id = _FRAME.unpack_from(frame)
        if magic != 0:
            raise ValueError(f"the magic byte is {magic}, expected 0")
        writer = schema_by_id(registry, schema_id)
    assert writer is not None
    body = io.BytesIO(frame if registry is None else frame[_FRAME.size :])
    found = _decode_of(writer)(body, _parsed(writer), _parsed(reader) if reader else None)
    if body.read(1):
        raise ValueError("bytes follow the value")
    return found


@lru_cache(maxsize=1000)
def schema_by_id(registry: str, schema_id: int) -> str:
    """Return a schema of the registry; the same id never changes its schema.

    Raises ValueError if there is no such id, and JobError if the registry does not respond.
    """
    url = f"{registry}/schemas/ids/{schema_id}"
    try:
        return str(_request(url)["schema"])
    except UnknownSchemaError as error:
        raise ValueError(str(error)) from error
    except (TypeError, KeyError) as error:
        raise JobError(f"schema registry: {url} does not respond with a schema") from error


def to_text(value: bytes | None, reader: str | None, registry: str | None) -> str | None:
    """Return an Avro value as JSON text; None for no value, and for bytes that are not of the schema.

    Raises JobError if the registry does not respond.
    """
    if value is None:
        return None
    try:
        return json.dumps(decode(bytes(value), reader, registry), default=to_json, allow_nan=False)
    except _UNREADABLE:
        return None  # the job's rule refuses the record


def _decoder(reader: str | None, registry: str | None) -> Any:
    return f.udf(lambda value: to_text(value, reader, registry), "string")


def _schema_of(parameters: JobParameters) -> str:
    assert parameters.schema is not None
    return read_schema(parameters.schema)


@lru_cache(maxsize=1000)
def _parsed(schema: str) -> Any:
    """Return a schema for fastavro. Raises ValueError if the text is not an Avro schema."""
    try:
        return fastavro.parse_schema(json.loads(schema))
    except (TypeError, KeyError, AttributeError, RecursionError, fastavro.schema.SchemaParseException) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


@lru_cache(maxsize=1000)
def _decode_of(schema: str) -> Any:
    """Return fastavro's function for values of a schema.

    A value of a recursive schema may be nested so deeply that the compiled one would overflow the stack and end the
    process; the one in Python raises RecursionError.
    """
    return _read_py.schemaless_reader if _is_recursive(_parsed(schema)) else fastavro.schemaless_reader


def _is_recursive(schema: Any, within: frozenset[str] = frozenset()) -> bool:
    """Whether a part of a parsed schema contains itself, or one of the records `within`."""
    match schema:
        case str():
            return schema in within
        case list():
            return any(_is_recursive(each, within) for each in schema)
        case {"type": "record" | "error", "name": name, "fields": fields}:
            return any(_is_recursive(each["type"], within | {name}) for each in fields)
        case {"type": "array", "items": inner} | {"type": "map", "values": inner} | {"type": dict() | list() as inner}:
            return _is_recursive(inner, within)
    return False


def _request(url: str, body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    try:
        with urlopen(Request(url, data, {"Content-Type": _CONTENT_TYPE}), timeout=_HTTP_TIMEOUT_S) as response:
            return json.load(response)
    except HTTPError as error:
        reason = error.read().decode(errors="replace")
        kind = UnknownSchemaError if _error_code(reason) == _UNKNOWN_SCHEMA else JobError
        raise kind(f"schema registry: {url} responds {error.code}: {reason}") from error
    except URLError as error:
        raise JobError(f"schema registry: {url} does not respond: {error.reason}") from error
    except (OSError, HTTPException) as error:
        raise JobError(f"schema registry: {url} does not respond: {error!r}") from error
    except ValueError as error:
        raise JobError(f"schema registry: {url} is no URL, or does not respond with JSON: {error}") from error


def _error_code(response: str) -> object:
    try:
        return json.loads(response)["error_code"]
    except (ValueError, TypeError, KeyError):
        return None
