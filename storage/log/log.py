"""One partition's log: its parts, its name and its configuration, from opening to closing.

Owns the parts and the steps that concern all of them. Must not know replicas, requests or other partitions: the replica
layer sets the high watermark, the log manager chooses the directory. Has no threads of its own.

=================  ===========================================================================================
`LogState`         what the parts share: files, offsets, producers, epochs, failures; the log is one itself
`appends`          as leader and as follower, rolls, and `planned`: appends that wait for a slow directory
`reader`           reads by offset, in any thread
`lookups`          offsets by time
`truncation`       removes the end, or everything
`durability`       flushes, the recovery point
`disposal`         retention, deletion, cleaned segments
=================  ===========================================================================================

While its directory is slow (`storage.disk.directory_writer`), an append gets its offsets now and is stored later, in
the directory's threads. `log_end_offset` counts stored batches only, and so does everything that may be read, synced or
acknowledged; `next_offset` counts planned ones too. One write of a log is stored at a time, and nothing else changes
its files during that write.

Threads: one thread owns the log and makes all changes, except that the directory's threads store planned appends, and
that a log which is reserved (`PlannedAppends.reserve`) belongs to the thread that it is reserved for. Reads and lookups
by time may run in other threads at the same time.

The thread that owns the log renames its directory in one step. A thread that missed a file under the old name tries
again under the new one.

Invariants, which `check` tests in addition to those of `LogState`:
- recovery point <= log end <= next offset.
- No leader epoch begins above the next offset.
"""

import errno
from pathlib import Path
from uuid import UUID

from base.topic_partition import TopicPartition
from config.log_config import LogConfig
from protocol.errors import ErrorCode, KafkaError
from storage.batches.validation import AppendRules
from storage.disk import checkpoints, names
from storage.disk.files import ShortageError
from storage.disk.names import DirectoryState
from storage.log.log_appends import LogAppends
from storage.log.log_disposal import LogDisposal
from storage.log.log_durability import LogDurability
from storage.log.log_lookups import LogLookups
from storage.log.log_reader import LogReader
from storage.log.log_state import LogOptions, LogState
from storage.log.log_truncation import LogTruncation
from storage.recovery.log_loader import LoadedLog, epochs_writer


class Log(LogState):
    """One partition's log, whose parts are its attributes."""

    __slots__ = ("appends", "disposal", "durability", "lookups", "planned", "reader", "truncation")

    def __init__(
        self,
        options: LogOptions["Log"],
        directory: str,
        name: TopicPartition,
        config: LogConfig,
        loaded: LoadedLog,
        now_ms: int,
    ) -> None:
        """Made by `log_opening.create` and `log_opening.load`."""
        super().__init__(options, directory, name, config, loaded)
        self.appends = LogAppends(self)
        self.planned = self.appends.planned
        self.reader = LogReader(self)
        self.lookups = LogLookups(self)
        self.durability = LogDurability(
            self, recovery_point=loaded.recovery_point, was_scanned=loaded.was_scanned, now_ms=now_ms
        )
        self.disposal = LogDisposal(self, self.appends)
        self.truncation = LogTruncation(self, self.appends, self.durability, self.disposal)
        self.appends.rolls.activate(self.segments.active)

    # Name and state

    @property
    def directory(self) -> Path:
        return Path(self.folder.path)

    @property
    def is_future(self) -> bool:
        """Whether this is the copy of a log that is being moved to another log directory, and not in service yet."""
        return self.folder.path.endswith(f"-{DirectoryState.FUTURE.value}")

    @property
    def size(self) -> int:
        """Bytes of all log files."""
        return self.segments.size

    @property
    def segment_count(self) -> int:
        return len(self.segments)

    @property
    def next_offset(self) -> int:
        """The offset of the next record. Offsets from the log's end on are planned and not stored yet."""
        return self.appends.next_offset

    @property
    def is_slow(self) -> bool:
        """Whether appends are planned first and stored later."""
        return self.writer.is_slow

    def reconfigure(self, config: LogConfig) -> None:
        """Apply `config` from the next append on."""
        self.config = config
        self.rules = AppendRules.of(config)
        self.appends.rolls.activate(self.segments.active)

    def assign_topic_id(self, topic_id: UUID) -> None:
        """Record the topic id of a log that has none. The replica layer checks that it is the right one.

        Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        assert self.topic_id is None
        try:
            self._write_topic_id(topic_id)
        except OSError as error:
            raise self.storage_error(error) from error

    def _write_topic_id(self, topic_id: UUID) -> None:
        checkpoints.write_partition_metadata(self.files, f"{self.folder.path}/{names.PARTITION_METADATA}", topic_id)
        self.topic_id = topic_id

    # Offsets and producers

    def delete_records_before(self, offset: int) -> None:
        """Raise the log start to `offset`, unless it is there already. Retention removes the segments below it.

        Raises KafkaError: OFFSET_OUT_OF_RANGE above the high watermark; KAFKA_STORAGE_ERROR.
        """
        if offset > self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Cannot increment the log start offset to {offset} of partition {self.topic}-{self.partition} since "
                f"it is larger than the high watermark {self.high_watermark}",
            )
        if offset > self.log_start_offset:
            self.planned.refuse_change()
            self.raise_log_start(offset)

    def expire_producers(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers that have been idle for longer than `expiration_ms`; return how many.

        Raises TryLaterError: Another thread is truncating the log, and the producers with it.
        """
        self.planned.refuse_reserved()
        return self.producer_state.remove_expired(now_ms, expiration_ms)

    # Moving

    def take_over_state(self, source: "Log") -> None:
        """Adopt the producers and leader epochs of `source`, whose batches this log already holds.

        `source` may know producers and epochs whose batches retention or compaction removed, so that none was copied.
        It must not be used afterwards. Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        assert self.log_end_offset == source.next_offset
        try:
            self.leader_epochs.adopt(source.leader_epochs.entries)
            self.appends.rolls.write_snapshot(self.log_end_offset, source.producer_state)
            self.producer_state = source.producer_state
        except OSError as error:
            raise self.storage_error(error) from error

    def rename(self, path: str) -> None:
        """Rename the directory. Reads and flushes in other threads continue.

        Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        self.planned.refuse_change()
        try:
            self.folder.rename(path, self._relocate)
        except OSError as error:
            raise self.unfinished_error(error) from error

    def _relocate(self, path: str) -> None:
        for segment in self.segments.all():
            segment.on_disk.relocate(path)
        self.snapshots.relocate(path)
        self.leader_epochs.persist_with(epochs_writer(self.files, path))

    def close(self, now_ms: int) -> None:
        """Cut the indexes to their length, write a producer snapshot, sync, and close all files.

        A log without unflushed offsets is not synced: most logs are idle, and syncing them would cost a stop a second
        for each hundred. If a crash undoes the cut of its indexes, the next start cuts them again.

        Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        self.planned.refuse_any()
        try:
            self.appends.rolls.seal_active()
            self.appends.rolls.write_snapshot(self.end_of_batches(self.log_end_offset), self.producer_state)
            self.leader_epochs.write_pending()
        except OSError as error:
            raise self.storage_error(error) from error
        if self.durability.unflushed_count:
            self.durability.flush(now_ms)
        self.release()

    def retire(self) -> None:
        """Take the log offline because it is to be deleted.

        The indexes are cut to their length first: a start that finds the directory before it is removed checks them.
        Raises OSError.
        """
        try:
            self.segments.active.seal()
        except OSError as error:
            # A full disk must not prevent deletions. A start can do without the indexes.
            if error.errno != errno.ENOSPC and not isinstance(error, ShortageError):
                raise
        finally:
            self.take_offline()

    def check(self) -> None:
        """Raise AssertionError with the invariant that does not hold."""
        super().check()
        if self.is_offline or self.was_truncated_since(self.truncation_count):
            return
        assert self.durability.recovery_point <= self.log_end_offset <= self.next_offset, (
            "recovery point <= log end <= next offset"
        )
        epochs = self.leader_epochs.entries
        assert not epochs or epochs[-1].start_offset <= self.next_offset, "No leader epoch begins above the next offset"
