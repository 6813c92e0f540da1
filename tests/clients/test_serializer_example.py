"""The example in examples/serializers writes its documented format, and rejects others."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
from confluent_kafka import DeserializingConsumer, SerializingProducer
from confluent_kafka.error import ValueDeserializationError
from confluent_kafka.serialization import SerializationError

from tests.support.broker import BrokerProcess

EXAMPLE = Path(__file__).parents[2] / "examples" / "serializers" / "customer.py"
TIMEOUT_S = 30


def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("customer", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CUSTOMER = example()
FORMATS = {
    "a name": (CUSTOMER.Customer(7, "Ada"), b"\x00\x00\x00\x07\x00\x00\x00\x03Ada"),
    "letters of two bytes": (CUSTOMER.Customer(-1, "é"), b"\xff\xff\xff\xff\x00\x00\x00\x02\xc3\xa9"),
    "an empty name": (CUSTOMER.Customer(0, ""), b"\x00\x00\x00\x00\x00\x00\x00\x00"),
    "no name": (CUSTOMER.Customer(1, None), b"\x00\x00\x00\x01\xff\xff\xff\xff"),
    "a tombstone": (None, None),
}


@pytest.mark.parametrize(("customer", "value"), FORMATS.values(), ids=FORMATS)
def test_a_customer_has_the_documented_bytes(customer: object, value: bytes | None) -> None:
    assert CUSTOMER.serialize(customer) == value
    assert CUSTOMER.deserialize(value) == customer


WRONG = {
    "no head": (b"\x00\x00", "at least 8 bytes, not 2"),
    "a short name": (b"\x00\x00\x00\x07\x00\x00\x00\x05Ada", "customer 7: expected a name of 5 bytes, not 3"),
    "bytes after no name": (b"\x00\x00\x00\x07\xff\xff\xff\xffA", "expected a name of -1 bytes, not 1"),
    "a length below -1": (b"\x00\x00\x00\x07\xff\xff\xff\xfe", "expected a name of -2 bytes, not 0"),
    "no UTF-8": (b"\x00\x00\x00\x07\x00\x00\x00\x01\xff", "customer 7: expected a name in UTF-8"),
}


@pytest.mark.parametrize(("value", "message"), WRONG.values(), ids=WRONG)
def test_other_bytes_are_rejected(value: bytes, message: str) -> None:
    with pytest.raises(SerializationError, match=message):
        CUSTOMER.deserialize(value)


def test_an_id_that_does_not_fit_is_rejected() -> None:
    with pytest.raises(SerializationError, match="expected an id of four bytes, not 2147483648"):
        CUSTOMER.serialize(CUSTOMER.Customer(2**31, "x"))


def test_customers_pass_a_topic(broker: BrokerProcess, topic: str, group: str) -> None:
    servers = {"bootstrap.servers": broker.bootstrap}
    sent = [customer for customer, _ in FORMATS.values()]
    producer = SerializingProducer({**servers, "value.serializer": CUSTOMER.serialize})
    for customer in sent:
        producer.produce(topic, value=customer, partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    plain = SerializingProducer(servers)
    plain.produce(topic, value=b"?", partition=0)
    assert plain.flush(TIMEOUT_S) == 0
    settings = {**servers, "group.id": group, "auto.offset.reset": "earliest"}
    consumer = DeserializingConsumer({**settings, "value.deserializer": CUSTOMER.deserialize})
    consumer.subscribe([topic])
    try:
        assert [consumer.poll(TIMEOUT_S).value() for _ in sent] == sent
        with pytest.raises(ValueDeserializationError, match="at least 8 bytes, not 1"):
            consumer.poll(TIMEOUT_S)
    finally:
        consumer.close()
