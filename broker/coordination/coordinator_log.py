"""Appends of a coordinator to its partitions of an internal topic, and their replay.

Owns: the port to the topic, appends in the step that decided on them, the replay of a partition in slices, and the
errors of failed appends. Must not know: what records mean, or which coordinator it serves.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Final, Protocol

from protocol.errors import ErrorCode, KafkaError, Malformed
from protocol.records.batch import BatchHeader, Record, batches, records

logger = logging.getLogger("kafka.coordinator")

Buffer = bytes | bytearray | memoryview

REPLAY_SLICE_RECORDS: Final = 500
"""Records replayed before other requests get their turn: a few milliseconds."""
OPENED_BATCH_SIZE_MAX: Final = 104_857_600
"""Limit in bytes for a decompressed batch: the default segment size of an internal topic."""
TOMBSTONE_BATCH_SIZE_MAX: Final = 524_288
"""Size of the keys, in bytes, at which a batch of tombstones is closed: half the default of message.max.bytes."""

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


class CoordinatorLog(Protocol):
    """The partitions of one internal topic."""

    def append(self, partition: int, batch: bytearray, timeout_ms: int) -> Awaitable[None] | None:
        """Append `batch`, which is changed in place. Return None if all in-sync replicas have it already.

        Otherwise the awaitable ends once they have it, at most `timeout_ms` later. The log has the batches in the order
        of the calls. Raises KafkaError, synchronously or when awaited.
        """

    def read(self, partition: int, offset: int, max_bytes: int) -> Awaitable[Buffer]:
        """Read whole batches from `offset` on, at least one unless the log ends there. Raises KafkaError."""

    def start_offset(self, partition: int) -> int:
        """Return the first offset of the log. Raises KafkaError if this broker does not lead the partition."""

    def end_offset(self, partition: int) -> int:
        """Return the offset after the last record. Raises KafkaError if this broker does not lead the partition."""

    def committed(self, partition: int, end_offset: int) -> Awaitable[None]:
        """Wait until all in-sync replicas have the log up to `end_offset`.

        Raises KafkaError if this broker does not lead the partition, or stops to lead it before.
        """

    def partition_count(self) -> int | None:
        """Return the partition count of the topic; None while it does not exist."""


def append_now(
    log: CoordinatorLog, partition: int, batch: bytes, timeout_ms: int, finish: Callable[[ErrorCode], None]
) -> None:
    """Append a batch in this step. `finish` is called with the outcome exactly once, possibly before this returns.

    It is a callback and not a coroutine: a request that waits may be cancelled, what follows from the append may not.
    """
    try:
        awaited = log.append(partition, bytearray(batch), timeout_ms)
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


async def replay(
    log: CoordinatorLog, partition: int, buffer_size: int, apply: Callable[[BatchHeader, Record], None]
) -> int:
    """Call `apply` with every record up to the current end of the log, with turns for other requests in between.

    `buffer_size` is the size of a read in bytes. Returns the end of the log at the call.

    Raises KafkaError, Malformed if the log cannot be decoded, and what `apply` raises.
    """
    position, end = log.start_offset(partition), log.end_offset(partition)
    count = 0
    while position < end:
        buffer = await log.read(partition, position, buffer_size)
        before = position
        for at, header in batches(buffer):
            for record in records(buffer, at, size_max=OPENED_BATCH_SIZE_MAX):
                apply(header, record)
                count += 1
                if count % REPLAY_SLICE_RECORDS == 0:
                    await asyncio.sleep(0)
            position = header.next_offset
        if not buffer:  # the cleaner may have removed everything from here to the end
            break
        if position == before:
            raise Malformed(f"no whole batch at offset {position}, expected one before the log end offset {end}")
    return end


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
