"""Appends of a coordinator to its partitions of an internal topic.

Owns: the port to the topic, appends in the step that decided on them, and the errors of failed appends. Must not know:
what records mean, or which coordinator it serves.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Protocol

from protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger("kafka.coordinator")

Buffer = bytes | bytearray | memoryview

BATCH_SIZE_MAX: Final = 524_288
"""Size of records, in bytes, at which a batch is closed: half the default of message.max.bytes."""
RECORD_OVERHEAD_MAX: Final = 15
"""Bytes of a record beside its key and value: its length, attributes, two deltas, two lengths, number of headers."""

APPEND_ERRORS: Mapping[ErrorCode, ErrorCode] = MappingProxyType(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
        ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    }
)
"""The error in the response of every coordinator when an append fails with the error on the left.

Each coordinator adds its own; an error without an entry is returned unchanged.
"""


class StoredRecords(Protocol):
    """One copy of the partitions of one internal topic."""

    def read(self, partition: int, offset: int, max_bytes: int) -> Awaitable[Buffer]:
        """Read whole batches from `offset` on, at least one unless the log ends there. Raises KafkaError."""

    def start_offset(self, partition: int) -> int:
        """Return the first offset of the log. Raises KafkaError if this broker does not lead the partition."""

    def end_offset(self, partition: int) -> int:
        """Return the offset after the last record. Raises KafkaError if this broker does not lead the partition."""


class CoordinatorLog(StoredRecords, Protocol):
    """The partitions of one internal topic."""

    def append(
        self, partition: int, batch: bytearray, timeout_ms: int, *, needs_isr: bool = True
    ) -> Awaitable[None] | None:
        """Append `batch`, which is changed in place. Return None if all in-sync replicas have it already.

        Otherwise the awaitable ends once they have it, at most `timeout_ms` later, and once it is synced, if
        `flush.messages` demands that. The log has the batches in the order of the calls, and the awaitables end in this
        order; but without `needs_isr` one ends once this broker has the batch, however few replicas are in sync. Raises
        KafkaError, synchronously or when awaited.
        """

    def read_follower(self, partition: int, follower: int, offset: int, max_bytes: int) -> Awaitable[Buffer]:
        """As `read`, from the copy of an in-sync follower, and only below its high watermark. Raises KafkaError."""

    def in_sync_followers(self, partition: int) -> Sequence[int]:
        """Return the ids of the other brokers with an in-sync replica. Raises KafkaError."""

    def segment_path(self, partition: int, offset: int) -> str:
        """Return the path of the log segment that may hold an offset, for messages."""

    def committed(self, partition: int, end_offset: int) -> Awaitable[None]:
        """Wait until all in-sync replicas have the log up to `end_offset`.

        Raises KafkaError if this broker does not lead the partition, or stops leading it before then.
        """

    def partition_count(self) -> int | None:
        """Return the partition count of the topic; None while it does not exist."""


def append_now(
    log: CoordinatorLog,
    partition: int,
    batch: bytes,
    timeout_ms: int,
    finish: Callable[[ErrorCode], None],
    *,
    needs_isr: bool = True,
) -> None:
    """Append a batch in this step. `finish` is called with the outcome exactly once, possibly before this returns.

    It is a callback and not a coroutine: a request that waits may be cancelled, what follows from the append may not.
    """
    try:
        awaited = log.append(partition, bytearray(batch), timeout_ms, needs_isr=needs_isr)
    except KafkaError as error:
        finish(error.code)
        return
    if awaited is None:
        finish(ErrorCode.NONE)
    else:
        when_appended(awaited, finish)


def when_appended(awaited: Awaitable[None], finish: Callable[[ErrorCode], None]) -> None:
    """Call `finish` with the outcome of an append for which `CoordinatorLog.append` returned an awaitable."""
    appending = asyncio.ensure_future(awaited)
    if appending.done():
        finish(_outcome(appending))
    else:
        appending.add_done_callback(lambda done: finish(_outcome(done)))


def _outcome(appending: asyncio.Future[None]) -> ErrorCode:
    """Return the code of a finished append. Any exception but KafkaError is a bug of this broker, and is logged."""
    if appending.cancelled():
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    error = appending.exception()
    if error is None:
        return ErrorCode.NONE
    if isinstance(error, KafkaError):
        return error.code
    logger.error("An append of a coordinator failed unexpectedly", exc_info=error)
    return ErrorCode.UNKNOWN_SERVER_ERROR
