"""Replay of one partition of a coordinator's topic: every whole record in order, and a report of what is damaged.

Owns: the checks of stored batches, the way past damage, the use of an in-sync follower's copy, and the log messages
about damage. Must not know: what records mean (`Contents`), or when a partition is loaded.

The log serves stored batches unchecked, so each batch is checked here. Damage to one batch must not keep the ids of all
others from being served:

1. If bytes of this broker's copy are damaged, the log is read again, and up to the end of the damage from an in-sync
   follower. From its beginning, because the follower's log may have been cleaned: it lacks tombstones and what they
   removed.
2. If no follower has a whole copy, the damaged batches are skipped. `Contents.skip` decides what may be served then.
3. A batch whose checksum is right holds what was written, on all replicas. Records that cannot be decoded are skipped.

A batch that was skipped matters no longer once the log has a later record of the same id.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from broker.coordination.coordinator_log import Buffer, CoordinatorLog, StoredRecords
from protocol.errors import ErrorCode, KafkaError, Malformed
from protocol.records.batch import (
    HEADER_SIZE,
    MAGIC,
    MAGIC_POSITION,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
    Record,
    crc_is_valid,
    read_header,
    records,
)
from protocol.records.legacy import LEGACY_MAGICS, message_crc_is_valid, message_records, read_message_header
from storage.disk.shortages import TryLaterError

logger = logging.getLogger("kafka.coordinator")

REPLAY_SLICE_RECORDS: Final = 500
"""Records replayed before other requests get their turn: a few milliseconds."""
OPENED_BATCH_SIZE_MAX: Final = 104_857_600
"""Limit in bytes for a decompressed batch: the default segment size of an internal topic."""
FOLLOWER_ATTEMPTS_MAX: Final = 3
FOLLOWER_PAUSE_S: Final = 1
"""The pause before all in-sync followers are read again: one may have been starting."""
LINES_MAX: Final = 50
"""Damaged places, and lost ids, of one partition that are logged."""

_HEADER_OF_OLD_MESSAGE: Final = BatchHeader(
    base_offset=0,
    batch_length=0,
    partition_leader_epoch=NO_LEADER_EPOCH,
    magic=0,
    crc=0,
    attributes=0,
    last_offset_delta=0,
    base_timestamp=NO_TIMESTAMP,
    max_timestamp=NO_TIMESTAMP,
    producer_id=NO_PRODUCER_ID,
    producer_epoch=NO_PRODUCER_EPOCH,
    base_sequence=NO_SEQUENCE,
    records_count=0,
)


class Damage(NamedTuple):
    """Batches or a record that were skipped."""

    offset: int
    next_offset: int
    """The offset after the damage."""
    reason: str
    keys: Sequence[bytes | None] | None
    """The keys of the skipped records; None if they cannot be read."""
    is_as_written: bool
    """Whether the checksum is right, so that every replica has the same bytes. If not, the keys may be wrong too."""


class _Unchecked(NamedTuple):
    """The records of a batch whose checksum is wrong."""

    keys: Sequence[bytes | None]
    next_offset: int
    """The offset after the last record."""


class Contents(Protocol):
    """What one kind of coordinator reads from its log."""

    def replay(self, batch: BatchHeader, record: Record) -> None:
        """Apply the next record of the log. Raises Malformed, and changes nothing, if it cannot be decoded."""

    def skip(self, damage: Damage) -> None:
        """Note that records between those replayed before and after could not be read."""

    def lost(self) -> Sequence[str]:
        """Return a line for each id whose latest state may have been in the skipped records."""


C = TypeVar("C", bound=Contents)


async def replay(
    log: CoordinatorLog, partition: int, buffer_size: int, begin: Callable[[], C], topic: str
) -> tuple[C, int]:
    """Replay the log up to its present end, with turns for other requests in between.

    `buffer_size` is the size of a read in bytes; `begin()` returns empty contents. Returns the contents and the end of
    the log at the call. Damage is logged. Raises KafkaError if the log cannot be read for another reason.
    """
    end = log.end_offset(partition)
    contents = begin()
    damages = await replay_copy(log, partition, buffer_size, contents)
    if any(not damage.is_as_written for damage in damages):
        whole = await _from_followers(log, partition, buffer_size, begin, end, damages, topic)
        if whole is not None:
            return whole, end
    _report(log, partition, topic, damages, contents.lost())
    return contents, end


async def replay_copy(log: StoredRecords, partition: int, buffer_size: int, contents: Contents) -> Sequence[Damage]:
    """Replay one copy of the log up to its present end into `contents`; return what was skipped. Raises KafkaError."""
    reading = _Pass(log, partition, buffer_size, contents, log.end_offset(partition))
    await reading.run()
    return reading.damages


async def _from_followers(
    log: CoordinatorLog,
    partition: int,
    buffer_size: int,
    begin: Callable[[], C],
    end: int,
    damages: Sequence[Damage],
    topic: str,
) -> C | None:
    """Return the contents, read from an in-sync follower up to the end of the damage; None if none has a whole copy."""
    damage_end = max(damage.next_offset for damage in damages if not damage.is_as_written)
    for attempt in range(FOLLOWER_ATTEMPTS_MAX):
        followers = log.in_sync_followers(partition)
        if attempt and followers:
            await asyncio.sleep(FOLLOWER_PAUSE_S)
        for follower in followers:
            reading = _Pass(log, partition, buffer_size, begin(), end)
            reading.read_from_follower(partial(log.read_follower, partition, follower), damage_end)
            try:
                await reading.run()
            except TryLaterError:
                raise
            except KafkaError as error:
                logger.warning(
                    "%s-%d has damaged records and cannot be read from broker %d: %s", topic, partition, follower, error
                )
                continue
            if all(damage.is_as_written for damage in reading.damages):
                logger.error(
                    "%s-%d is damaged in this broker's copy and was read from broker %d up to offset %d. To repair it, "
                    "stop this broker, remove the folder of the partition and start again: the broker copies it. %s",
                    topic,
                    partition,
                    follower,
                    damage_end,
                    _shown(log, partition, damages),
                )
                _report(log, partition, topic, reading.damages, reading.contents.lost())
                return reading.contents
    return None


def _report(log: CoordinatorLog, partition: int, topic: str, damages: Sequence[Damage], lost: Sequence[str]) -> None:
    if not damages:
        return
    logger.error(
        "%s-%d has records that cannot be read; all others are served. %s",
        topic,
        partition,
        _shown(log, partition, damages),
    )
    for line in lost[:LINES_MAX]:
        logger.error("%s-%d: %s", topic, partition, line)
    if (others := len(lost) - LINES_MAX) > 0:
        logger.error("%s-%d: %d more ids are concerned", topic, partition, others)


def _shown(log: CoordinatorLog, partition: int, damages: Sequence[Damage]) -> str:
    lines = [
        f"Offsets {damage.offset} to {damage.next_offset - 1} in {log.segment_path(partition, damage.offset)}: "
        f"{damage.reason}{'' if damage.keys else ', whose ids cannot be read'}"
        for damage in damages[:LINES_MAX]
    ]
    if (others := len(damages) - LINES_MAX) > 0:
        lines.append(f"{others} more places")
    return "; ".join(lines)


class _Pass(Generic[C]):
    """One replay from the start of the log to `end`."""

    def __init__(
        self,
        log: StoredRecords,
        partition: int,
        buffer_size: int,
        contents: C,
        end: int,
    ) -> None:
        self._log = log
        self._partition = partition
        self._buffer_size = buffer_size
        self._end = end
        self._read_follower: Callable[[int, int], Awaitable[Buffer]] | None = None
        self._follower_end = 0
        self._count = 0
        self.contents = contents
        self.damages: list[Damage] = []

    def read_from_follower(self, read: Callable[[int, int], Awaitable[Buffer]], end: int) -> None:
        """Read offsets below `end` with `read(offset, max_bytes)`."""
        self._read_follower, self._follower_end = read, end

    async def run(self) -> None:
        """Apply every whole record, and note what was skipped. Raises KafkaError."""
        position = self._log.start_offset(self._partition)
        while position < self._end:
            if self._read_follower is not None and position < self._follower_end:
                buffer = await self._read_follower(position, self._buffer_size)
                following = await self._apply(buffer, position, self._follower_end) if buffer else position
                # Nothing: the follower's cleaner has removed everything up to the end of the damage.
                position = following if following > position else self._follower_end
                continue
            try:
                buffer = await self._log.read(self._partition, position, self._buffer_size)
            except KafkaError as error:
                start = self._log.start_offset(self._partition)
                if error.code == ErrorCode.OFFSET_OUT_OF_RANGE and start > position:
                    position = start  # retention has removed records during the replay
                    continue
                if error.code != ErrorCode.CORRUPT_MESSAGE:
                    raise
                position = await self._skip(position, str(error.message), None)
                continue
            if not buffer:  # the cleaner may have removed everything from here to the end
                return
            position = await self._apply(buffer, position, self._end)

    async def _apply(self, buffer: Buffer, position: int, end: int) -> int:
        """Apply the batches of a buffer that begin below `end`; return the offset from which to read on."""
        at = 0
        while position < end:
            header = _whole_header(buffer, at)
            if isinstance(header, str):
                if at and len(buffer) - at < HEADER_SIZE:
                    return position  # the read has cut the last batch
                return await self._skip(position, header, None)
            if header.size > len(buffer) - at:
                if at:
                    return position
                return await self._skip(position, f"no whole batch of {header.size} bytes", None)
            if end <= header.base_offset < self._log.end_offset(self._partition):
                return end  # it was appended after the call, and what was before it has been cleaned
            if _is_as_written(buffer, at, header) and header.base_offset < end:
                await self._apply_batch(buffer, at, header)
                position = max(position, header.next_offset)
                at += header.size
                continue
            reason = f"a batch of offset {header.base_offset} with a wrong checksum or offset"
            found = _unchecked_records(buffer, at, header)
            following = _following(buffer, at + header.size, position)
            if following is None:
                return await self._skip(position, reason, found)
            keys = None if found is None else found.keys
            self._note(Damage(position, following, reason, keys, is_as_written=False))
            position = following
            at += header.size
        return position

    async def _apply_batch(self, buffer: Buffer, at: int, header: BatchHeader) -> None:
        """Apply a batch whose checksum is right."""
        applied = header.base_offset - 1
        try:
            for record in _records(buffer, at, header):
                try:
                    self.contents.replay(header, record)
                except Malformed as error:
                    keys = (record.key,)
                    self._note(Damage(record.offset, record.offset + 1, str(error), keys, is_as_written=True))
                applied = record.offset
                self._count += 1
                if self._count % REPLAY_SLICE_RECORDS == 0:
                    await asyncio.sleep(0)
        except Malformed as error:
            self._note(Damage(applied + 1, header.next_offset, str(error), None, is_as_written=True))

    async def _skip(self, position: int, reason: str, skipped: _Unchecked | None) -> int:
        """Skip from the batch at `position` to the next one that can be read; return its offset, at most `end`.

        `skipped` has the records of the batch, if it can be parsed.
        """
        if position < self._follower_end:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"offset {position}: {reason}")
        following = await self._find_whole_batch(position)
        # Behind a damaged header, more batches than the first may have been skipped.
        keys = skipped.keys if skipped is not None and following <= skipped.next_offset else None
        self._note(Damage(position, following, reason, keys, is_as_written=False))
        return following

    def _note(self, damage: Damage) -> None:
        self.damages.append(damage)
        self.contents.skip(damage)

    async def _find_whole_batch(self, position: int) -> int:
        """Return the first offset above `position` from which the log can be read again; its end if there is none.

        Behind a damaged header, the log finds batches through its index only: from the next entry on.
        """
        unreadable, step = position, 1
        while (offset := unreadable + step) < self._end:
            found = await self._whole_batch_at(offset, position)
            if found is not None:
                break
            unreadable, step = offset, step * 2
        else:
            offset = self._end
            found = self._end
        while offset - unreadable > 1:
            middle = (unreadable + offset) // 2
            earlier = await self._whole_batch_at(middle, position)
            if earlier is None:
                unreadable = middle
            else:
                offset, found = min(middle, earlier), earlier
        return min(found, self._end)

    async def _whole_batch_at(self, offset: int, above: int) -> int | None:
        """Return the base offset of the batch that holds `offset`, if it is whole and begins above `above`."""
        try:
            buffer = await self._log.read(self._partition, offset, 1)
        except KafkaError as error:
            if error.code != ErrorCode.CORRUPT_MESSAGE:
                raise
            return None
        header = _whole_header(buffer, 0)
        if isinstance(header, str) or header.base_offset <= above or not _is_as_written(buffer, 0, header):
            return None
        return header.base_offset


def _whole_header(buffer: Buffer, at: int) -> BatchHeader | str:
    """Return the header at `at`, or why there is none.

    A message of an old format, which Kafka has written until 0.11, has a header with its size and its last offset.
    """
    try:
        if len(buffer) - at > MAGIC_POSITION and buffer[at + MAGIC_POSITION] in LEGACY_MAGICS:
            message = read_message_header(buffer, at)
            return _HEADER_OF_OLD_MESSAGE._replace(
                base_offset=message.offset, batch_length=message.message_size, magic=message.magic
            )
        return read_header(buffer, at)
    except Malformed as error:
        return str(error)


def _is_as_written(buffer: Buffer, at: int, header: BatchHeader) -> bool:
    """Return whether the batch is whole and its checksum is right."""
    if header.magic == MAGIC:
        return crc_is_valid(buffer, at, header)
    return message_crc_is_valid(buffer, at, read_message_header(buffer, at))


def _records(buffer: Buffer, at: int, header: BatchHeader) -> Iterable[Record]:
    """Return the records of a batch. Raises Malformed, also later."""
    if header.magic == MAGIC:
        return records(buffer, at, size_max=OPENED_BATCH_SIZE_MAX)
    return message_records(buffer, at, size_max=OPENED_BATCH_SIZE_MAX)


def _following(buffer: Buffer, at: int, above: int) -> int | None:
    """Return the base offset of the batch at `at`, which follows one that begins at `above`, if it is whole."""
    header = _whole_header(buffer, at)
    if isinstance(header, str) or header.base_offset <= above or not _is_as_written(buffer, at, header):
        return None
    return header.base_offset


def _unchecked_records(buffer: Buffer, at: int, header: BatchHeader) -> _Unchecked | None:
    """Return what a batch with a wrong checksum holds; None if it cannot be parsed, or looks like a marker."""
    if header.is_control or header.magic != MAGIC:
        return None
    keys: list[bytes | None] = []
    next_offset = header.base_offset
    try:
        for record in records(buffer, at, size_max=OPENED_BATCH_SIZE_MAX):
            keys.append(record.key)
            next_offset = record.offset + 1
    except Malformed:
        return None
    return _Unchecked(keys, next_offset)
