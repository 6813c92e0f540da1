"""The records of `__transaction_state`: their keys and values in every version Kafka has written.

Owns: the layouts, and which version is written. Must not know: who writes when, or batches. The format page is
docs/formats/transaction-state.md.

A key is int16 version 0 and the transactional id. A value is an int16 version and fields, or null for "forget this id".
Value version 0 is plain and is what is written; version 1 is flexible and carries more in tagged fields, which belong
to transactions with an epoch each (KIP-890 part 2). It is read, so that a log written with that feature on loads.
"""

from struct import Struct as Layout
from struct import pack
from typing import Final

from broker.transactions.states import RESTING, STATES_BY_NUMBER, TransactionState
from broker.transactions.transaction import NO_EPOCH, NO_PRODUCER_ID, Metadata, Partitions
from protocol.codec import decode
from protocol.errors import Malformed
from protocol.schema import int8, int16, int32, int64, since, stored, string, struct

_VERSION = Layout(">h")
_KEY_START = Layout(">hh")
_VALUE_START, _VALUE_END = Layout(">hqhib"), Layout(">qq")
_COUNT, _LENGTH = Layout(">i"), Layout(">h")
_NO_PARTITIONS: Final = _COUNT.pack(-1)
_KEY_VERSION: Final = 0
_VALUE_VERSIONS: Final = range(2)
_WRITTEN_VALUE_VERSION: Final = 0


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
    """A transactional id as it is stored. Empty has no partitions at all (null), a complete transaction none."""

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
    name = transactional_id.encode()
    return _KEY_START.pack(_KEY_VERSION, len(name)) + name


def write_value(metadata: Metadata) -> bytes:
    """What is to be stored of an id. Partitions keep their order, those of one topic stand together.

    Written by hand like the key: every step of every transaction writes them, and the codec takes four times as long.
    """
    state = metadata.state
    return (
        _VALUE_START.pack(
            _WRITTEN_VALUE_VERSION, metadata.producer_id, metadata.producer_epoch, metadata.timeout_ms, state.number
        )
        + (_NO_PARTITIONS if state is TransactionState.EMPTY else _write_partitions(metadata.partitions))
        + _VALUE_END.pack(metadata.updated_ms, metadata.started_ms)
    )


def _write_partitions(partitions: Partitions) -> bytes:
    if not partitions:
        return _COUNT.pack(0)
    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)
    parts = [_COUNT.pack(len(by_topic))]
    for topic, numbers in by_topic.items():
        name = topic.encode()
        parts += _LENGTH.pack(len(name)), name, pack(f">i{len(numbers)}i", len(numbers), *numbers)
    return b"".join(parts)


def read_key(data: bytes) -> str | None:
    """The transactional id; None for a key of a later version, which is about something else. Raises Malformed."""
    version = _read_version(data, "key")
    if version < 0:
        raise Malformed(f"record key of version {version}")
    if version > _KEY_VERSION:
        return None
    return decode(TransactionLogKey, version, data, _VERSION.size).transactional_id


def read_value(data: bytes) -> Metadata:
    """An id as it was stored. Raises Malformed, also for a version or a state that is not known."""
    version = _read_version(data, "value")
    if version not in _VALUE_VERSIONS:
        raise Malformed(f"transaction of version {version}, but only {_VALUE_VERSIONS} are known")
    value = decode(TransactionLogValue, version, data, _VERSION.size)
    state = STATES_BY_NUMBER.get(value.transaction_status)
    if state is None or state not in RESTING:
        raise Malformed(f"transaction in state {value.transaction_status}, which is never stored")
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
    )


def _partitions(value: TransactionLogValue) -> Partitions:
    return dict.fromkeys(
        (topic.topic, partition) for topic in value.transaction_partitions or () for partition in topic.partition_ids
    )


def _read_version(data: bytes, part: str) -> int:
    if len(data) < _VERSION.size:
        raise Malformed(f"record {part} of {len(data)} bytes, without a version")
    version: int = _VERSION.unpack_from(data)[0]
    return version
