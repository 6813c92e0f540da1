"""The declarations against independent sources of the same facts, field by field, for every version both know.

Kafka 3.9.1's own jar carries its schema files and knows every version that it lists; that of the newest Java client
knows the newer ones. kafka-python ships schema files too, kio classes made from them, one a version; both follow a
later Kafka that has dropped the oldest versions, and need no download.
"""

import dataclasses
import json
import re
from collections.abc import Mapping
from pathlib import Path
from types import UnionType
from typing import Any, NamedTuple, get_args, get_origin
from zipfile import ZipFile

import pytest
from kafka.protocol.schemas import load_json
from kio.index import load_payload_module
from kio.schema.index import api_key_map, schema_name_map
from kio.static.constants import EntityType

from protocol.api import APIS
from protocol.schema import Field, Struct, message_info
from tests.protocol.random_messages import MESSAGES
from tests.support import apache_kafka
from tests.support.parts import skip_when_unavailable

every_message = pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)


class Line(NamedTuple):
    """What one version of one field looks like."""

    path: str
    type: str
    is_array: bool
    is_nullable: bool
    tag: int | None


def declared(cls: type[Struct], version: int, path: str = "") -> list[Line]:
    """Our declarations of one version, in wire order; tagged fields last."""
    lines = []
    for field in sorted((f for f in cls.__fields__ if f.is_in(version)), key=_tags_last):
        name = f"{path}.{field.name}"
        kind = "struct" if field.wire is None else field.wire.name
        lines.append(Line(name, kind, field.is_array, field.is_nullable_in(version), field.tag))
        if field.struct is not None:
            lines += declared(field.struct, version, name)
    return lines


def _tags_last(field: Field) -> int:
    return -1 if field.tag is None else field.tag


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.replace("KRaft", "Kraft")).lower()


# -- Kafka's own notation, in Kafka's jar and in kafka-python -------------------------------------------------------


def _json_range(text: str | None) -> range:
    match = re.fullmatch(r"(\d+)(\+|-(\d+))?", text or "")
    if match is None:
        return range(0)
    first = int(match[1])
    last = 99 if match[2] == "+" else int(match[3] or first)
    return range(first, last + 1)


def in_json(fields: list[dict[str, Any]], version: int, path: str = "") -> list[Line]:
    lines = []
    present = [f for f in fields if version in _json_range(f["versions"])]
    for field in sorted(present, key=lambda f: int(f.get("tag", -1))):  # a few schemas have it as text
        name = f"{path}.{_snake(field['name'])}"
        is_array = field["type"].startswith("[]")
        is_struct = "fields" in field
        kind = "struct" if is_struct else field["type"].removeprefix("[]").replace("bool", "boolean")
        is_nullable = version in _json_range(field.get("nullableVersions"))
        lines.append(Line(name, kind, is_array, is_nullable, int(field["tag"]) if "tag" in field else None))
        if is_struct:
            lines += in_json(field["fields"], version, name)
    return lines


def _same_fields(cls: type, schema: Mapping[str, Any]) -> list[int]:
    """Compare every version that both know; which these are."""
    info = message_info(cls)
    assert schema["apiKey"] == info.api_key
    flexible = _json_range(schema["flexibleVersions"])
    known = [version for version in info.versions if version in _json_range(schema["validVersions"])]
    for version in known:
        assert declared(cls, version) == in_json(schema["fields"], version), version
        assert info.is_flexible_in(version) == (version in flexible)
    return known


def _schema(cls: type) -> dict[str, Any]:
    try:
        return load_json(cls.__name__)
    except FileNotFoundError:
        return {}


IN_KAFKA_PYTHON = [cls for cls in MESSAGES if _schema(cls)]


@pytest.mark.parametrize("cls", IN_KAFKA_PYTHON, ids=lambda cls: cls.__name__)
def test_fields_are_those_of_kafka_python(cls: type) -> None:
    assert _same_fields(cls, _schema(cls))


def _defaults(fields: tuple[Field, ...], schema: list[dict[str, Any]], path: str) -> list[str]:
    """Every field whose default or ignorable mark is not the one in the schema."""
    differences = []
    by_name = {field.name: field for field in fields}
    for entry in schema:
        field = by_name.get(_snake(entry["name"]))
        if field is None:
            continue
        name = f"{path}.{field.name}"
        if "default" in entry and field.default != _json_default(entry):
            differences.append(f"{name}: default {field.default!r}, not {_json_default(entry)!r}")
        if field.ignorable and not entry.get("ignorable", False):
            differences.append(f"{name}: ignorable")
        if field.struct is not None:
            differences += _defaults(field.struct.__fields__, entry["fields"], name)
    return differences


def _json_default(entry: dict[str, Any]) -> object:
    value = entry["default"]
    if value == "null":
        return None
    if entry["type"] == "bool":
        return str(value).lower() == "true"
    return value if entry["type"] == "string" else int(str(value), 0)


@pytest.mark.parametrize("cls", IN_KAFKA_PYTHON, ids=lambda cls: cls.__name__)
def test_defaults_and_ignorable_marks_are_those_of_kafka_python(cls: type[Struct]) -> None:
    assert _defaults(cls.__fields__, _schema(cls)["fields"], cls.__name__) == []


@pytest.fixture(scope="module")
def apache_schemas() -> dict[str, dict[str, Any]]:
    """Kafka's schemas by the name of the message."""
    with skip_when_unavailable():
        return _schemas_in(apache_kafka.jars(), apache_kafka.VERSION)


@pytest.fixture(scope="module")
def newer_schemas() -> dict[str, dict[str, Any]]:
    """Those of the newest Java client."""
    version = apache_kafka.CLIENT_VERSIONS[-1]
    with skip_when_unavailable():
        return _schemas_in(apache_kafka.client_jars(version), version)


def _schemas_in(jars: Path, version: str) -> dict[str, dict[str, Any]]:
    with ZipFile(jars / f"kafka-clients-{version}.jar") as files:
        names = [name for name in files.namelist() if re.fullmatch(r"common/message/\w+(Request|Response)\.json", name)]
        schemas = [json.loads(re.sub(r'(?m)^\s*//.*$|\s//[^"\n]*$', "", files.read(name).decode())) for name in names]
    schemas = [schema for schema in schemas if schema["validVersions"] != "none"]
    for schema in schemas:
        _resolve_common_structs(schema["fields"], {s["name"]: s["fields"] for s in schema.get("commonStructs", [])})
    return {schema["name"]: schema for schema in schemas}


def _resolve_common_structs(fields: list[dict[str, Any]], common: dict[str, Any]) -> None:
    for field in fields:
        name = field["type"].removeprefix("[]")
        if name in common:
            field["fields"] = common[name]
        _resolve_common_structs(field.get("fields", []), common)


@every_message
def test_fields_are_those_of_apache_kafka(
    cls: type[Struct], apache_schemas: dict[str, dict[str, Any]], newer_schemas: dict[str, dict[str, Any]]
) -> None:
    api = APIS[message_info(cls).api_key]
    for versions, schemas in ((api.with_zookeeper, apache_schemas), (api.newer, newer_schemas)):
        if versions:
            schema = schemas[cls.__name__]
            assert set(_same_fields(cls, schema)) >= set(versions)
            assert _defaults(cls.__fields__, schema["fields"], cls.__name__) == []


# -- kio: a class a version ---------------------------------------------------------------------------------------

_KIO_TYPES = {"bool": "boolean", "error_code": "int16", "timedelta_i32": "int32", "timedelta_i64": "int64"}


def in_kio(cls: type, version: int, path: str = "") -> list[Line]:
    lines = []
    for field in sorted(dataclasses.fields(cls), key=lambda f: f.metadata.get("tag", -1)):
        hint, is_nullable = _without_none(field.type)
        is_array = get_origin(hint) is tuple
        element = get_args(hint)[0] if is_array else hint
        kind = field.metadata.get("kafka_type", "struct")
        name = f"{path}.{field.name}"
        # kio shows times as timedeltas without their unit, dates as datetimes, and -1 or the zero uuid as None.
        if kind.startswith(("timedelta", "datetime")):
            name = name.removesuffix("_ms") + "_ms"
        is_nullable = is_nullable and not kind.startswith(("uuid", "datetime"))
        kind = _KIO_TYPES.get(kind, "int64" if kind.startswith("datetime") else kind)
        lines.append(Line(name, kind, is_array, is_nullable, field.metadata.get("tag")))
        if kind == "struct":
            lines += in_kio(element, version, name)
    return lines


def _without_none(hint: Any) -> tuple[Any, bool]:
    if get_origin(hint) is UnionType and type(None) in get_args(hint):
        return next(part for part in get_args(hint) if part is not type(None)), True
    return hint, False


def _kio_versions(key: int) -> list[int]:
    known = schema_name_map[api_key_map[key]] if key in api_key_map else {}
    return [version for version in APIS[key].versions if version in known]


@pytest.mark.parametrize("api", [api for api in APIS.values() if _kio_versions(api.key)], ids=lambda api: api.name)
@pytest.mark.parametrize("kind", ["request", "response"])
def test_fields_are_those_of_kio(api: Any, kind: str) -> None:
    cls = getattr(api, kind)
    for version in _kio_versions(api.key):
        module = load_payload_module(api.key, version, EntityType[kind])
        assert declared(cls, version) == in_kio(getattr(module, cls.__name__), version), version


def test_both_sources_declare_most_of_the_versions() -> None:
    """Guards the tests above against comparing nothing. The rest is older than what either source still has."""
    served = {(api.key, version) for api in APIS.values() for version in api.versions}
    kio = {(key, version) for key in APIS for version in _kio_versions(key)}
    kafka_python = {
        (key, version)
        for key, version in served
        for schema in [_schema(APIS[key].request)]
        if schema and version in _json_range(schema["validVersions"])
    }
    assert len(served) == 313
    assert len(served - kio - kafka_python) == 55
