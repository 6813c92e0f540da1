"""How a coordinator writes to and reads back its partitions of an internal topic.

Owns: the port to the topic, the append that happens in the very step that decided on it, the replay of a partition in
slices, and how far a broker can be with a partition. Must not know: what records mean, or which coordinator it is.
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
"""No batch is larger than a segment of an internal topic, opened or not (their default segment size)."""
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
        """Resolves once all in-sync replicas have `batch`, which is patched in place; None if they have it already.

        Batches reach the log in the order of the calls. Raises KafkaError, at once or when awaited.
        """

    def read(self, partition: int, offset: int, max_bytes: int) -> Awaitable[Buffer]:
        """Whole batches from `offset` on, at least one unless the log ends there. Raises KafkaError."""

    def start_offset(self, partition: int) -> int:
        """The first offset of the log. Raises KafkaError when this broker does not lead the partition."""

    def end_offset(self, partition: int) -> int:
        """The offset after the last record. Raises KafkaError when this broker does not lead the partition."""

    def partition_count(self) -> int | None:
        """How many partitions the topic has; None while it does not exist."""


def append_now(
    log: CoordinatorLog, partition: int, batch: bytes, timeout_ms: int, finish: Callable[[ErrorCode], None]
) -> None:
    """Append in this very step; `finish` gets the outcome exactly once, perhaps before this returns.

    A callback and not a coroutine: who waits for the answer may be cancelled, what follows from the append may not.
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
    """Have `finish` called with the outcome of an append that not all in-sync replicas had at once."""
    appending = asyncio.ensure_future(awaited)
    if appending.done():
        finish(_outcome(appending))
    else:
        appending.add_done_callback(lambda done: finish(_outcome(done)))


async def replay(
    log: CoordinatorLog, partition: int, buffer_size: int, take: Callable[[BatchHeader, Record], None]
) -> None:
    """Give every record to `take`, up to the end that the log has now, with turns for others in between.

    Raises KafkaError, and Malformed for a log that cannot be read or what `take` raises.
    """
    position, end = log.start_offset(partition), log.end_offset(partition)
    count = 0
    while position < end:
        buffer = await log.read(partition, position, buffer_size)
        before = position
        for at, header in batches(buffer):
            for record in records(buffer, at, size_max=OPENED_BATCH_SIZE_MAX):
                take(header, record)
                count += 1
                if count % REPLAY_SLICE_RECORDS == 0:
                    await asyncio.sleep(0)
            position = header.next_offset
        if not buffer:  # the cleaner may have left nothing between here and the end
            break
        if position == before:
            raise Malformed(f"no whole batch at offset {position}")


def _outcome(appending: asyncio.Future[None]) -> ErrorCode:
    """The code of a finished append. Anything but a KafkaError is a bug of ours, which the log shows."""
    if appending.cancelled():
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    error = appending.exception()
    if error is None:
        return ErrorCode.NONE
    if isinstance(error, KafkaError):
        return error.code
    logger.error("Append of a coordinator failed unexpectedly", exc_info=error)
    return ErrorCode.UNKNOWN_SERVER_ERROR
