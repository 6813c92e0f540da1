"""The registry serves confluent-kafka's serializers, and refuses schemas that are incompatible."""

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from spark_jobs.schema_registry import Registry
from tests.spark_jobs.registry import RunningRegistry

V1 = {
    "type": "record",
    "name": "Customer",
    "fields": [{"name": "id", "type": "int"}, {"name": "faxNumber", "type": "string"}],
}
V2 = {
    "type": "record",
    "name": "Customer",
    "fields": [{"name": "id", "type": "int"}, {"name": "email", "type": ["null", "string"], "default": None}],
}
V3 = {"type": "record", "name": "Customer", "fields": [{"name": "id", "type": "string"}]}
CONTEXT = SerializationContext("customers", MessageField.VALUE)


def text(schema: Any) -> Schema:
    return Schema(json.dumps(schema), "AVRO")


def test_old_and_new_readers_read_both_versions(registry_client: SchemaRegistryClient) -> None:
    values = ({"id": 1, "faxNumber": "7"}, {"id": 2, "email": "a@b"})
    framed = [
        AvroSerializer(registry_client, json.dumps(schema))(value, CONTEXT)
        for schema, value in zip((V1, V2), values, strict=True)
    ]
    assert [frame[0] for frame in framed] == [0, 0]
    new = AvroDeserializer(registry_client, json.dumps(V2))
    assert [new(frame, CONTEXT) for frame in framed] == [{"id": 1, "email": None}, {"id": 2, "email": "a@b"}]
    old = {**V1, "fields": [V1["fields"][0], {"name": "faxNumber", "type": "string", "default": "none"}]}
    reader = AvroDeserializer(registry_client, json.dumps(old))
    assert [reader(frame, CONTEXT)["faxNumber"] for frame in framed] == ["7", "none"]


def test_json_schemas_are_served(registry_client: SchemaRegistryClient) -> None:
    schema = json.dumps({"type": "object", "title": "C", "properties": {"id": {"type": "integer"}}})
    frame = JSONSerializer(schema, registry_client)({"id": 3}, CONTEXT)
    assert JSONDeserializer(schema, schema_registry_client=registry_client)(frame, CONTEXT) == {"id": 3}


def test_equal_schemas_share_an_id_and_versions_are_numbered(registry_client: SchemaRegistryClient) -> None:
    first = registry_client.register_schema("a-value", text(V1))
    assert registry_client.register_schema("a-value", text(V1)) == first
    assert registry_client.register_schema("b-value", text(V1)) == first
    second = registry_client.register_schema("a-value", text(V2))
    assert second != first
    assert registry_client.get_subjects() == ["a-value", "b-value"]
    assert registry_client.get_versions("a-value") == [1, 2]
    assert registry_client.get_latest_version("a-value").schema_id == second
    assert registry_client.get_version("a-value", 1).schema.schema_str == json.dumps(V1)
    assert registry_client.lookup_schema("a-value", text(V2)).version == 2
    assert registry_client.delete_subject("a-value") == [1, 2]
    assert registry_client.get_subjects() == ["b-value"]


def test_an_incompatible_schema_is_refused_unless_the_level_allows_it(registry_client: SchemaRegistryClient) -> None:
    registry_client.register_schema("a-value", text(V1))
    assert not registry_client.test_compatibility("a-value", text(V3))
    with pytest.raises(SchemaRegistryError, match="field id: int cannot be read as string") as refused:
        registry_client.register_schema("a-value", text(V3))
    assert refused.value.http_status_code == 409
    registry_client.set_compatibility("a-value", "NONE")
    assert registry_client.get_compatibility("a-value") == "NONE"
    assert registry_client.register_schema("a-value", text(V3))


ERRORS = {
    "subject": (lambda client: client.get_versions("none"), 404, 40401),
    "version": (lambda client: client.get_version("a-value", 9), 404, 40402),
    "schema": (lambda client: client.lookup_schema("a-value", text(V2)), 404, 40403),
    "invalid": (lambda client: client.register_schema("a-value", Schema("{", "AVRO")), 422, 42201),
    "level": (lambda client: client.set_compatibility("a-value", "MUCH"), 422, 42203),
}


@pytest.mark.parametrize(("call", "status", "code"), ERRORS.values(), ids=ERRORS)
def test_errors_have_confluents_codes(call: Any, status: int, code: int, registry_client: SchemaRegistryClient) -> None:
    registry_client.register_schema("a-value", text(V1))
    with pytest.raises(SchemaRegistryError) as refused:
        call(registry_client)
    assert (refused.value.http_status_code, refused.value.error_code) == (status, code)


def test_schemas_survive_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "schemas.json"
    with RunningRegistry(file) as running, SchemaRegistryClient({"url": running.url}) as client:
        client.register_schema("a-value", text(V1))
    with RunningRegistry(file) as running, SchemaRegistryClient({"url": running.url}) as client:
        assert client.get_latest_version("a-value").version == 1


def test_transitive_levels_compare_with_all_versions() -> None:
    registry = Registry()
    registry.set_level(None, "NONE")
    versions = [{"type": "record", "name": "R", "fields": [{"name": "f", "type": kind}]} for kind in ("string", "int")]
    for version in versions:
        registry.register("s", "AVRO", json.dumps(version))
    wider = json.dumps({"type": "record", "name": "R", "fields": [{"name": "f", "type": "long"}]})
    counts = {}
    for level in (
        "NONE",
        "BACKWARD",
        "FORWARD",
        "FULL",
        "BACKWARD_TRANSITIVE",
        "FORWARD_TRANSITIVE",
        "FULL_TRANSITIVE",
    ):
        registry.set_level("s", level)
        counts[level] = len(registry.incompatibilities("s", "AVRO", wider))
    assert counts == {
        "NONE": 0,
        "BACKWARD": 0,
        "FORWARD": 1,
        "FULL": 1,
        "BACKWARD_TRANSITIVE": 1,
        "FORWARD_TRANSITIVE": 2,
        "FULL_TRANSITIVE": 3,
    }
