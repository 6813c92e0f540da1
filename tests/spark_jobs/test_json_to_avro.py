"""Values survive the way from JSON to Avro and back, plain and with a registry."""

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from spark_jobs import avro_to_json, country_count, json_to_avro
from spark_jobs.skeleton.errors import JobError
from tests.spark_jobs.conftest import JobRunner, Sent, Topics, last_values, objects, records
from tests.spark_jobs.registry import RunningRegistry
from tests.spark_jobs.test_schema_registry import V1, V2

pytestmark = pytest.mark.spark

CUSTOMERS = [{"id": 1, "email": "a@b"}, {"id": 2, "email": None}]


@pytest.fixture
def schema(tmp_path: Path) -> str:
    path = tmp_path / "customer.avsc"
    path.write_text(json.dumps(V2))
    return str(path)


def values(topics: Topics, topic: str) -> list[Any]:
    return [None if value is None else json.loads(value) for _, value in records(topics.read(topic))]


def test_a_round_trip_through_plain_avro_keeps_values_tombstones_and_partitions(
    schema: str, topics: Topics, job_runner: JobRunner
) -> None:
    source, avro, back, dead = (topics.create(stem, 2) for stem in ("json", "avro", "back", "dead"))
    texts = (b'{"id":"text"}', b"{", b'{"id":1.5}', b'{"id":4294967296}', b'{"id":true}')
    unfit = [Sent(text, b"bad") for text in texts]
    topics.send(source, [*objects(*CUSTOMERS), Sent(None, b"gone", 1), *unfit])
    job_runner.run(
        json_to_avro.JOB, "--input", source, "--output", avro, "--output-schema", schema, "--dead-letter", dead
    )  # fmt: skip
    assert [message.value() for message in topics.read(dead)] == list(texts)
    flags = ["--input", avro, "--output", back, "--schema", schema, "--checkpoint", str(job_runner.folder / "back")]
    job_runner.run(avro_to_json.JOB, *flags)
    assert values(topics, back) == [*CUSTOMERS, None]
    assert [message.partition() for message in topics.read(back)] == [0, 0, 1]


def test_values_with_a_registry_are_read_by_confluents_clients(
    schema: str,
    topics: Topics,
    job_runner: JobRunner,
    registry: RunningRegistry,
    registry_client: SchemaRegistryClient,
) -> None:
    source, avro = topics.create("json", 1), topics.create("avro", 1)
    topics.send(source, objects(*CUSTOMERS))
    flags = ["--input", source, "--output", avro, "--output-schema", schema, "--output-registry", registry.url]
    job_runner.run(json_to_avro.JOB, *flags)
    assert registry_client.get_subjects() == [f"{avro}-value"]
    context = SerializationContext(avro, MessageField.VALUE)
    assert [AvroDeserializer(registry_client)(message.value(), context) for message in topics.read(avro)] == CUSTOMERS


def test_each_record_is_read_with_the_schema_that_it_was_written_with(
    schema: str,
    topics: Topics,
    job_runner: JobRunner,
    registry: RunningRegistry,
    registry_client: SchemaRegistryClient,
    tmp_path: Path,
) -> None:
    avro, back, dead = topics.create("avro", 1), topics.create("back", 1), topics.create("dead", 1)
    context = SerializationContext(avro, MessageField.VALUE)
    written = [
        AvroSerializer(registry_client, json.dumps(each))(value, context)
        for each, value in ((V1, {"id": 1, "faxNumber": "7"}), (V2, {"id": 2, "email": "a@b"}))
    ]
    broken = [b"\x01" + written[0][1:], b"\x00\x00\x00\x00\x63", b"\x00", b""]
    topics.send(avro, [Sent(value) for value in [*written, *broken]])
    flags = ["--input", avro, "--value-format", "avro-registry", "--schema-registry", registry.url]
    job_runner.run(avro_to_json.JOB, *flags, "--output", back, "--dead-letter", dead)
    assert values(topics, back) == [{"id": 1, "faxNumber": "7"}, {"id": 2, "email": "a@b"}]
    assert len(topics.read(dead)) == len(broken)
    newer = topics.create("newer", 1)
    connect = tmp_path / "connect.json"
    connect.write_text('{"type":"struct","optional":false}')
    more = ["--schema", schema, "--on-error", "skip", "--envelope", str(connect), "--checkpoint", str(tmp_path / "n")]
    job_runner.run(avro_to_json.JOB, *flags, "--output", newer, *more)
    envelope = {"schema": {"type": "struct", "optional": False}}
    assert values(topics, newer) == [
        {**envelope, "payload": {"id": 1, "email": None}},
        {**envelope, "payload": {"id": 2, "email": "a@b"}},
    ]


def test_any_job_reads_objects_in_connects_envelope_and_in_avro(
    topics: Topics, job_runner: JobRunner, tmp_path: Path
) -> None:
    country = {"type": "record", "name": "C", "fields": [{"name": "country", "type": "string"}]}
    (tmp_path / "country.avsc").write_text(json.dumps(country))
    enveloped, avro = topics.create("enveloped", 1), topics.create("avro", 1)
    topics.send(enveloped, objects({"schema": {"type": "struct"}, "payload": {"country": "DE"}}))
    topics.send(avro, [Sent(b"\x04DE")])
    for source, flags in (
        (enveloped, ["--value-format", "json-envelope"]),
        (avro, ["--value-format", "avro", "--schema", str(tmp_path / "country.avsc")]),
    ):
        target, checkpoint = topics.create("countries", 1), str(tmp_path / source)
        job_runner.run(country_count.JOB, "--input", source, "--output", target, "--checkpoint", checkpoint, *flags)
        assert last_values(topics.read(target)) == {"DE": '{"country":"DE","customers":1}'}


def test_schemas_that_cannot_be_used_are_refused_before_the_start(
    schema: str, topics: Topics, job_runner: JobRunner, registry: RunningRegistry, tmp_path: Path
) -> None:
    (tmp_path / "broken.avsc").write_text('{"type":"what"}')
    flags = ["--input", topics.create("json"), "--output", topics.create("avro")]
    for name, message in (
        ("none.avsc", "--output-schema: .*none.avsc does not exist"),
        ("broken.avsc", "is not an Avro"),
    ):
        with pytest.raises(JobError, match=message):
            job_runner.run(json_to_avro.JOB, *flags, "--output-schema", str(tmp_path / name))
    for url in (f"{registry.url}/nowhere", "http://127.0.0.1:9"):
        with pytest.raises(JobError, match=r"schema registry: .* (responds 404|does not respond)"):
            job_runner.run(json_to_avro.JOB, *flags, "--output-schema", schema, "--output-registry", url)
