"""A serializer and a deserializer of a binary format of your own, for confluent-kafka.

A customer is an id in four bytes, the length of the name in four bytes, both with the highest byte first, and the name
in UTF-8. The length -1 stands for a customer without a name. The broker never inspects it.

    producer = SerializingProducer({"bootstrap.servers": "localhost:9092", "value.serializer": serialize})
    producer.produce("customers", key="7", value=Customer(7, "Ada"))

    consumer = DeserializingConsumer({..., "value.deserializer": deserialize})
    customer = consumer.poll().value()

Needs confluent-kafka.
"""

import struct
from typing import NamedTuple

from confluent_kafka.serialization import SerializationContext, SerializationError

HEAD = struct.Struct(">ii")
NO_NAME = -1


class Customer(NamedTuple):
    id: int
    name: str | None


def serialize(customer: Customer | None, _context: SerializationContext | None = None) -> bytes | None:
    """Return the value of a record; None stays None, a tombstone. Raises SerializationError."""
    if customer is None:
        return None
    name = b"" if customer.name is None else customer.name.encode()
    try:
        return HEAD.pack(customer.id, NO_NAME if customer.name is None else len(name)) + name
    except struct.error as error:
        raise SerializationError(f"expected an id of four bytes, not {customer.id!r}") from error


def deserialize(value: bytes | None, _context: SerializationContext | None = None) -> Customer | None:
    """Return the customer in the value of a record. Raises SerializationError."""
    if value is None:
        return None
    if len(value) < HEAD.size:
        raise SerializationError(f"expected a customer of at least {HEAD.size} bytes, not {len(value)}")
    number, length = HEAD.unpack_from(value)
    name = value[HEAD.size :]
    if length < NO_NAME or len(name) != max(length, 0):
        raise SerializationError(f"customer {number}: expected a name of {length} bytes, not {len(name)}")
    try:
        return Customer(number, None if length == NO_NAME else name.decode())
    except UnicodeDecodeError as error:
        raise SerializationError(f"customer {number}: expected a name in UTF-8: {error}") from error
