"""Our bytes against those of kafka-python's codec, which is written independently, for every version both know."""

from random import Random
from typing import Any

import pytest
from kafka.protocol.api_message import ApiMessage

from protocol.codec import decode, encode
from protocol.schema import Struct
from tests.protocol.random_messages import MESSAGES, random_message, versions_of

# Messages that kafka-python does not show as they travel.
DIFFERENT = {
    "ApiVersionsResponse": "a response with an error is read as version 0",
    "DeleteTopicsRequest": "topics are rewritten as names before they are encoded",
    "DescribeClusterResponse": "authorized operations are a set",
    "DescribeGroupsResponse": "authorized operations are a set",
    "MetadataResponse": "authorized operations are a set",
}

THEIRS: dict[str, Any] = {cls.__name__: cls for cls in ApiMessage.__subclasses__() if cls.__name__ not in DIFFERENT}
IN_BOTH = [cls for cls in MESSAGES if cls.__name__ in THEIRS]


def _theirs(message: Struct, data_class: Any, version: int) -> Any:
    """The same message as an object of kafka-python."""
    values = {}
    for field in message.__fields__:
        value = getattr(message, field.name)
        if not field.is_in(version) or (field.tag is not None and value == field.default):
            continue
        if field.struct is not None and value is not None:
            element = data_class.fields[field.name].data_class
            value = (
                [_theirs(v, element, version) for v in value] if field.is_array else _theirs(value, element, version)
            )
        values[field.name] = value
    return data_class(version=version, **values)


@pytest.mark.parametrize("cls", IN_BOTH, ids=lambda cls: cls.__name__)
def test_kafka_python_writes_the_same_bytes_and_reads_milenas(cls: type) -> None:
    theirs = THEIRS[cls.__name__]
    for version in versions_of(cls):
        for seed in range(6):
            message = random_message(cls, version, Random(seed))
            data = b"".join(encode(message, version))
            assert _theirs(message, theirs, version).encode() == data, (version, seed)
            assert theirs.decode(data, version).encode() == data, (version, seed)
            assert decode(cls, version, data) == message, (version, seed)


def test_kafka_python_declares_most_messages() -> None:
    """Guards the test above against comparing nothing."""
    assert len(IN_BOTH) == 97
