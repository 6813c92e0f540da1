"""The records of `__transaction_state`: their keys and values in every version Kafka has written.

Owns: the layouts, and which version is written. Must not know: who writes when, or batches. The format page is
docs/formats/transaction-state.md.

A key is int16 version 0 and the transactional id. A value is an int16 version and fields, or null, which removes the
id. Value version 0 is plain. Version 1 is flexible and has more in tagged fields, for transactions with an epoch of
their own (KIP-890 part 2). It is written for these alone, so that any Kafka reads a log without them.
"""

from struct import Struct as Layout
from struct import pack
from typing import Final

from broker.transactions.machine.states import RESTING, STATES_BY_NUMBER, TransactionState
from broker.transactions.machine.transaction import NO_EPOCH, NO_PRODUCER_ID, VERSION_1, Metadata, Partitions
from protocol.codec import decode, encode
from protocol.errors import Malformed
from protocol.schema import int8, int16, int32, int64, since, stored, string, struct

_VERSION = Layout(">h")
_KEY_START = Layout(">hh")
_VALUE_START, _VALUE_END = Layout(">hqhib"), Layout(">qq")
_COUNT, _LENGTH = Layout(">i"), Layout(">h")
_NO_PARTITIONS: Final = _COUNT.pack(-1)
_KEY_VERSION: Final = 0
_VALUE_VERSIONS: Final = range(2)


@stored(versions=range(1), flexible=None)
class TransactionLogKey:
    """Names a transactional id."""

    transactional_id: string


@struct
class PartitionsSchema:
    """The partitions of one topic that a transaction includes."""

    topic: string
    partition_ids: list[int32]


@stored(versions=_VALUE_VERSIONS, flexible=1)
class TransactionLogValue:
    """A transactional id as it is stored. The partitions are null in Empty, an empty array in the Complete states."""

    producer_id: int64
    producer_epoch: int16
    transaction_timeout_ms: int32
    transaction_status: int8
    transaction_partitions: list[PartitionsSchema] | None
    transaction_last_update_timestamp_ms: int64
    transaction_start_timestamp_ms: int64
    previous_producer_id: int64 = since(1, tag=0, default=NO_PRODUCER_ID)
    next_producer_id: int64 = since(1, tag=1, default=NO_PRODUCER_ID)
    client_transaction_version: int16 = since(1, tag=2, default=0)


def write_key(transactional_id: str) -> bytes:
    """Encode the key of an id's records."""
    name = transactional_id.encode()
    return _KEY_START.pack(_KEY_VERSION, len(name)) + name


def write_value(metadata: Metadata) -> bytes:
    """Encode the metadata of an id. Partitions keep their order; those of one topic are adjacent.

    Version 0 is packed by hand like the key: the codec takes four times as long.
    """
    if metadata.client_version != VERSION_1:
        return _write_flexible_value(metadata)
    state = metadata.state
    return (
        _VALUE_START.pack(0, metadata.producer_id, metadata.producer_epoch, metadata.timeout_ms, state.number)
        + (_NO_PARTITIONS if state is TransactionState.EMPTY else _write_partitions(metadata.partitions))
        + _VALUE_END.pack(metadata.updated_ms, metadata.started_ms)
    )


def _write_flexible_value(metadata: Metadata) -> bytes:
    value = TransactionLogValue(
        producer_id=metadata.producer_id,
        producer_epoch=metadata.producer_epoch,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_status=metadata.state.number,
        transaction_partitions=[
            PartitionsSchema(topic=topic, partition_ids=numbers)
            for topic, numbers in _by_topic(metadata.partitions).items()
        ],
        transaction_last_update_timestamp_ms=metadata.updated_ms,
        transaction_start_timestamp_ms=metadata.started_ms,
        previous_producer_id=metadata.last_producer_id,
        next_producer_id=metadata.next_producer_id,
        client_transaction_version=metadata.client_version,
    )
    return _VERSION.pack(1) + b"".join(encode(value, 1))


def _by_topic(partitions: Partitions) -> dict[str, list[int]]:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)
    return by_topic


def _write_partitions(partitions: Partitions) -> bytes:
    if not partitions:
        return _COUNT.pack(0)
    by_topic = _by_topic(partitions)
    parts = [_COUNT.pack(len(by_topic))]
    for topic, numbers in by_topic.items():
        name = topic.encode()
        parts += _LENGTH.pack(len(name)), name, pack(f">i{len(numbers)}i", len(numbers), *numbers)
    return b"".join(parts)


def read_key(data: bytes) -> str | None:
    """Decode the transactional id; None for a key of a later version, which is of another kind. Raises Malformed."""
    version = _read_version(data, "key")
    if version < 0:
        raise Malformed(f"record key of version {version}")
    if version > _KEY_VERSION:
        return None
    return decode(TransactionLogKey, version, data, _VERSION.size).transactional_id


def read_value(data: bytes) -> Metadata:
    """Decode the metadata of an id. Raises Malformed, also for an unknown version or state."""
    version = _read_version(data, "value")
    if version not in _VALUE_VERSIONS:
        raise Malformed(f"transaction of version {version}, expected one of {list(_VALUE_VERSIONS)}")
    value = decode(TransactionLogValue, version, data, _VERSION.size)
    state = STATES_BY_NUMBER.get(value.transaction_status)
    if state is None or state not in RESTING:
        raise Malformed(f"transaction in state {value.transaction_status}, expected one that is stored (0 to 5)")
    return Metadata(
        state=state,
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        last_producer_id=value.previous_producer_id,
        last_producer_epoch=NO_EPOCH,
        timeout_ms=value.transaction_timeout_ms,
        partitions=_partitions(value),
        started_ms=value.transaction_start_timestamp_ms,
        updated_ms=value.transaction_last_update_timestamp_ms,
        next_producer_id=value.next_producer_id,
        client_version=value.client_transaction_version,
    )


def _partitions(value: TransactionLogValue) -> Partitions:
    return dict.fromkeys(
        (topic.topic, partition) for topic in value.transaction_partitions or () for partition in topic.partition_ids
    )


def _read_version(data: bytes, part: str) -> int:
    if len(data) < _VERSION.size:
        raise Malformed(f"record {part} of {len(data)} bytes, expected at least 2 for its version")
    version: int = _VERSION.unpack_from(data)[0]
    return version
