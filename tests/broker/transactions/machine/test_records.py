"""Keys and values of `__transaction_state`: against Kafka's own, in every version and state, and damaged."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from base.topic_partition import TopicPartition
from broker.transactions.machine.records import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
    read_key,
    read_value,
    write_key,
    write_value,
)
from broker.transactions.machine.states import RESTING, TransactionState
from broker.transactions.machine.transaction import NO_PRODUCER_ID, VERSION_2, Metadata
from protocol.codec import encode
from protocol.errors import Malformed
from tests.broker.transactions.golden import RECORDS

METADATA = Metadata(
    state=TransactionState.ONGOING,
    producer_id=1 << 40,
    producer_epoch=7,
    last_producer_id=-1,
    last_producer_epoch=-1,
    timeout_ms=60_000,
    partitions=dict.fromkeys([("t", 3), ("t", 0), ("ü", 1)]),
    started_ms=1_700_000_000_000,
    updated_ms=1_700_000_000_123,
)
VERSION_1 = base64.b64decode(
    "AAEAAAAAAAAABwADAADqYAECAnQCAAAAAQAAAAGLz+VoAAAAAYy+UJAAAwAIAAAAAAAAAAYBCP//////////AgIAAg=="
)


def told_by(transactional_id: str, metadata: Metadata, partitions: str) -> tuple[str, str]:
    """A record as Kafka's dump tool prints it; the order of the partitions is the tool's own."""
    value = (
        f"producerId:{metadata.producer_id},producerEpoch:{metadata.producer_epoch},state={metadata.state.title},"
        f"partitions=[{partitions}],txnLastUpdateTimestamp={metadata.updated_ms},txnTimeoutMs={metadata.timeout_ms}"
    )
    return f"transaction_metadata::transactionalId={transactional_id}", value


def test_records_of_kafka_are_read_as_dumped_and_written_back_unchanged() -> None:
    for record in RECORDS:
        check_against_the_dump(record)


def check_against_the_dump(record: dict[str, Any]) -> None:
    key, value = bytes.fromhex(record["keyHex"]), bytes.fromhex(record["valueHex"])
    transactional_id, metadata = read_key(key), read_value(value)
    assert transactional_id is not None
    partitions = record["decodedValue"].partition("[")[2].partition("]")[0]
    assert sorted(filter(None, partitions.split(","))) == sorted(
        f"{topic}-{index}" for topic, index in metadata.partitions
    )
    assert told_by(transactional_id, metadata, partitions) == (record["decodedKey"], record["decodedValue"])
    assert write_key(transactional_id) == key
    assert write_value(metadata) == value


@pytest.mark.parametrize("state", RESTING, ids=lambda state: state.title)
@pytest.mark.parametrize("has_partitions", [False, True])
def test_written_records_are_read_back(state: TransactionState, has_partitions: bool) -> None:
    partitions = METADATA.partitions if has_partitions and state is not TransactionState.EMPTY else {}
    metadata = METADATA._replace(state=state, partitions=partitions)
    read = read_value(write_value(metadata))
    assert read == metadata
    assert list(read.partitions) == list(partitions)


def test_the_last_epoch_of_a_producer_is_not_stored() -> None:
    read = read_value(write_value(METADATA._replace(last_producer_id=5, last_producer_epoch=6)))
    assert read == METADATA


def test_partitions_of_one_topic_are_adjacent() -> None:
    mixed = METADATA._replace(partitions=dict.fromkeys([("a", 1), ("b", 0), ("a", 0)]))
    assert list(read_value(write_value(mixed)).partitions) == [("a", 1), ("a", 0), ("b", 0)]


def test_a_value_of_version_1_is_read() -> None:
    metadata = read_value(VERSION_1)
    assert metadata == Metadata(
        state=TransactionState.ONGOING,
        producer_id=7,
        producer_epoch=3,
        last_producer_id=6,
        last_producer_epoch=-1,
        timeout_ms=60_000,
        partitions={("t", 1): None},
        started_ms=1_704_000_000_000,
        updated_ms=1_700_000_000_000,
        client_version=VERSION_2,
    )


@pytest.mark.parametrize("state", [each for each in RESTING if each is not TransactionState.EMPTY])
@pytest.mark.parametrize("next_producer_id", [NO_PRODUCER_ID, 9])
def test_transactions_of_version_2_are_written_in_version_1_and_read_back(
    state: TransactionState, next_producer_id: int
) -> None:
    metadata = METADATA._replace(
        state=state, last_producer_id=5, next_producer_id=next_producer_id, client_version=VERSION_2
    )
    value = write_value(metadata)
    assert value[:2] == b"\0\1"
    assert read_value(value) == metadata
    assert write_value(read_value(value)) == value


def test_a_key_of_a_later_version_is_not_decoded() -> None:
    assert read_key(b"\x00\x01whatever") is None


@pytest.mark.parametrize("data", [b"", b"\x00", b"\xff\xff\x00\x01a", b"\x00\x00\x00\x05a", write_key("a") + b"a"])
def test_damaged_keys_are_malformed(data: bytes) -> None:
    with pytest.raises(Malformed):
        read_key(data)


@pytest.mark.parametrize("value", [write_value(METADATA), VERSION_1], ids=["version 0", "version 1"])
def test_damaged_values_are_malformed(value: bytes) -> None:
    for end in range(len(value)):
        with pytest.raises(Malformed):
            read_value(value[:end])
    with pytest.raises(Malformed):
        read_value(value + b"\x00")


@pytest.mark.parametrize("version", [-1, 2, 255])
def test_unknown_versions_are_malformed(version: int) -> None:
    with pytest.raises(Malformed, match="version"):
        read_value(version.to_bytes(2, "big", signed=True) + write_value(METADATA)[2:])


@pytest.mark.parametrize("number", [6, 7, 8, -1])
def test_states_that_are_never_stored_are_malformed(number: int) -> None:
    value = bytearray(write_value(METADATA))
    value[16:17] = number.to_bytes(1, "big", signed=True)
    with pytest.raises(Malformed, match="expected one that is stored"):
        read_value(bytes(value))


@pytest.mark.parametrize("state", sorted(RESTING, key=lambda state: state.number))
@pytest.mark.parametrize("partitions", [[], [("t", 0)], [("täg", 3), ("u", 0), ("täg", 1)]])
def test_handwritten_encoder_equals_the_codec(state: TransactionState, partitions: list[TopicPartition]) -> None:
    metadata = Metadata(state, 2**40, 7, -1, -1, 60_000, dict.fromkeys(partitions), 123, 2**41)
    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)
    value = TransactionLogValue(
        producer_id=2**40,
        producer_epoch=7,
        transaction_timeout_ms=60_000,
        transaction_status=state.number,
        transaction_partitions=None
        if state is TransactionState.EMPTY
        else [PartitionsSchema(topic=topic, partition_ids=numbers) for topic, numbers in by_topic.items()],
        transaction_last_update_timestamp_ms=2**41,
        transaction_start_timestamp_ms=123,
    )
    assert write_value(metadata) == b"\0\0" + b"".join(encode(value, 0))
    assert write_key("täg") == b"\0\0" + b"".join(encode(TransactionLogKey(transactional_id="täg"), 0))
