"""The schema registry of tests, with the serializers of confluent-kafka."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from milena_broker.testing import AsyncSchemaRegistry, Broker, BrokerError, SchemaRegistry
from tests.support.processes import is_running
from tests.support.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
ORDER = '{"type": "record", "name": "Order", "fields": [{"name": "amount", "type": "double"}]}'


@pytest.fixture(scope="module")
def registry() -> Iterator[SchemaRegistry]:
    with SchemaRegistry() as started:
        yield started


def test_values_have_the_id_of_their_schema(registry: SchemaRegistry) -> None:
    with Broker() as broker, SchemaRegistryClient({"url": registry.url}) as client:
        context = SerializationContext("orders", MessageField.VALUE)
        value = AvroSerializer(client, ORDER)({"amount": 2.5}, context)
        broker.produce("orders", [value])
        (record,) = broker.consume("orders", 1)
        assert AvroDeserializer(client)(record.value, context) == {"amount": 2.5}


def test_reset_deletes_all_subjects(registry: SchemaRegistry) -> None:
    with SchemaRegistryClient({"url": registry.url}) as client:
        client.register_schema("a/b value", Schema(ORDER, "AVRO"))
        registry.reset()
        assert client.get_subjects() == []


async def test_a_registry_is_awaited_and_ends_with_its_block() -> None:
    async with AsyncSchemaRegistry() as registry:
        await registry.reset()
        assert registry.url.startswith("http://127.0.0.1:")
    with pytest.raises(BrokerError, match="the schema registry was not started"):
        _ = registry.url
    with pytest.raises(BrokerError, match="the schema registry is not running"):
        await registry.reset()


PARENT = """
import os, signal
from milena_broker.testing import SchemaRegistry

registry = SchemaRegistry().start()
print(registry._process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_registry_is_gone_with_its_parent() -> None:
    parent = subprocess.run(
        [sys.executable, "-P", "-c", PARENT],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    assert parent.returncode == -signal.SIGKILL
    wait_until(lambda: not is_running(int(parent.stdout)), "the registry ends")
