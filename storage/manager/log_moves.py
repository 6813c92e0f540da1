"""Moving a log to another log directory: how its copy catches up, and how a start completes what a crash interrupted.

Owns the steps of the copy, and the marker with which a start recognizes the current one of two logs of a partition.
Must not know who requests a move, how fast it may run, or in which thread it runs.

A move has these steps, for a log `t-0` in directory A that moves to B:

    step                                      A               B
    1  copy the log, then sync the copy       t-0             t-0.<id>-future
    2  write the marker, which names A        t-0             t-0.<id>-future/moved-from
    3  give the copy the log's name           t-0             t-0/moved-from
    4  rename the old log, to be deleted      t-0.<id>-delete t-0/moved-from
    5  remove the marker                      (deleted later) t-0

A crash between two steps leaves at least one complete log, and the marker says which. If step 5 fails, it is repeated
before the next move of that log writes a marker, so no two logs name each other's directory. If `settle` finds such a
pair nevertheless, it keeps one of them.

Invariant: the copy contains only a contiguous part of the log. The part begins at the log start that `catch_up` read
last.
"""

import logging
import threading
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from base.topic_partition import TopicPartition
from protocol.errors import ErrorCode, KafkaError
from storage.batches.stored_batch import extent_at
from storage.directories.log_directories import LogDirectories
from storage.directories.log_directory import LogDirectory
from storage.disk import names
from storage.disk.files import Files
from storage.disk.names import DirectoryState
from storage.log.log import Log
from storage.manager.log_table import LogTable
from storage.recovery.recovery import stored_batches
from storage.segments.leader_epochs import NO_EPOCH
from storage.segments.segment import CorruptSegmentError, Segment

_logger = logging.getLogger(__name__)


class FoundLog(NamedTuple):
    """A partition directory that a start finds, of a log or of a copy; `directory` is its log directory."""

    directory: str
    path: str
    name: TopicPartition
    state: DirectoryState


class Settled(NamedTuple):
    """What a start does with the logs it finds.

    It loads `served` as they are, loads each of `promoted` in place of the log that it is a copy of, and deletes
    `retired`.
    """

    served: list[FoundLog]
    promoted: list[FoundLog]
    retired: list[FoundLog]


class LogContents(NamedTuple):
    """How far a log on the disk reaches. Of two logs of one partition, the one that compares greater is kept.

    The leader epoch is compared first, as between replicas: a log may be longer only by records of an old epoch.
    """

    leader_epoch: int
    """The leader epoch of the last complete batch."""
    end_offset: int
    recovery_point: int
    """From the checkpoint."""


def catch_up(log: Log, copy: Log, max_bytes: int, *, now_ms: int) -> int:
    """Copy the next batches, about `max_bytes`; return the number of bytes copied.

    First removes from the copy what the log has lost at its start or end. Any thread, if it is the only one that
    changes the copy.

    Returns:
        0 if the copy is complete, or if the log was truncated during the call; then call again.

    Raises:
        KafkaError: reading the log or writing the copy failed.
    """
    truncation_count = log.truncation_count
    _follow_truncation(log, copy, now_ms)
    if not copy.log_start_offset <= log.log_start_offset <= copy.log_end_offset:
        copy.truncation.truncate_fully_and_start_at(log.log_start_offset, now_ms=now_ms)
    end_offset = log.log_end_offset
    if copy.log_end_offset >= end_offset:
        _follow_roll(copy, log.segments.active.base_offset, now_ms)
        _follow_offsets(log, copy)
        return 0
    fetched = log.reader.read(copy.log_end_offset, max_bytes, upper_bound_offset=end_offset, min_one_batch=True)
    if fetched is None or not fetched.records or truncation_count != log.truncation_count:
        # After a truncation, the batches read may be new ones, which must not follow old ones in the copy.
        return 0
    # If the log starts within a batch, the copy must begin with the whole batch.
    copy.truncation.truncate_to(extent_at(fetched.records, 0, 0).base_offset, now_ms=now_ms)
    _follow_roll(copy, fetched.segment_base_offset, now_ms)
    start_offset = copy.log_end_offset
    copy.appends.append_as_follower(fetched.records, now_ms=now_ms)
    _follow_offsets(log, copy)
    return len(fetched.records) if copy.log_end_offset > start_offset else 0


def _follow_truncation(log: Log, copy: Log, now_ms: int) -> None:
    """Truncate the copy to what the log still contains, as a follower does: equal epochs have equal records."""
    while (latest := copy.leader_epochs.latest) != NO_EPOCH:
        asked = min(latest, log.leader_epochs.latest)
        if asked == NO_EPOCH:
            copy.truncation.truncate_fully_and_start_at(log.log_start_offset, now_ms=now_ms)
            return
        reply = log.leader_epochs.end_offset_for(asked, log.log_end_offset)
        copy.truncation.truncate_to_epoch_end(reply, now_ms=now_ms)
        if reply.epoch == latest:
            break
    copy.truncation.truncate_to(log.log_end_offset, now_ms=now_ms)


def _follow_roll(copy: Log, base_offset: int, now_ms: int) -> None:
    """Roll the copy where the log has rolled, because cleaning and retention work on whole segments."""
    if copy.segments.active.base_offset < base_offset:
        copy.appends.roll(now_ms)


def _follow_offsets(log: Log, copy: Log) -> None:
    copy.advance_high_watermark(log.high_watermark)
    copy.delete_records_before(min(log.log_start_offset, copy.high_watermark))


# The marker


def write_marker(files: Files, path: str, source: str) -> None:
    """Mark the copy at `path` as complete, before it replaces the log in the log directory `source`.

    Waits for the disk.
    """
    files.replace(f"{path}/{names.MOVED_FROM}", f"{source}\n".encode(), durable=True)


def remove_marker(files: Files, path: str) -> None:
    """Remove the marker durably: the move is complete. Waits for the disk."""
    if files.unlink_if_exists(f"{path}/{names.MOVED_FROM}"):
        files.sync_directory(path)


def read_marker(files: Files, path: str) -> str | None:
    """Return the log directory that the marker names, None without a marker."""
    try:
        return files.read_whole(f"{path}/{names.MOVED_FROM}").decode("utf-8", "replace").rstrip("\n")
    except FileNotFoundError:
        return None


# A start


def read_contents(files: Files, path: str, recovery_point: int) -> LogContents:
    """Read a log that is not loaded, from its recovery point to its first damaged batch or gap. Changes nothing.

    Raises OSError.
    """
    sizes = {
        name.base_offset: entry.size
        for entry in files.list_directory(path)
        if (name := names.parse_segment_file(entry.name)) is not None and name.suffix == names.LOG and not name.stage
    }
    bases = sorted(sizes)
    first = max((base for base in bases if base <= recovery_point), default=0)
    leader_epoch, end_offset = NO_EPOCH, min(bases, default=0)
    for base in bases:
        if base < first:
            continue
        if base > max(end_offset, recovery_point):
            break
        segment = Segment(files, path, base, now_ms=0, index_interval_bytes=0, index_size_max=0, size=sizes[base])
        end_offset = max(end_offset, base)
        try:
            for batch in stored_batches(segment, 0, segment.size):
                if not batch.is_crc_valid:
                    return LogContents(leader_epoch, end_offset, recovery_point)
                leader_epoch, end_offset = batch.leader_epoch, batch.extent.last_offset + 1
        except CorruptSegmentError:
            break
        finally:
            segment.release()
    return LogContents(leader_epoch, end_offset, recovery_point)


def settle(
    found: Iterable[FoundLog],
    live: Collection[str],
    marker_of: Callable[[FoundLog], str | None],
    contents_of: Callable[[FoundLog], LogContents | None],
) -> Settled:
    """Decide what a start does with moves that were in progress when the broker stopped. Changes nothing itself.

    `live` are the log directories that were listed. A copy without its log is in none of the lists, and so stays as it
    is, unless its marker names a live directory. For the log may be in an offline directory, or the copy may be the
    only one left.

    If each log of a partition is named by the marker of another, the one with the greatest contents is served. If the
    contents of one of them cannot be read (None), none of them is in any list.
    """
    of_partition: dict[TopicPartition, list[FoundLog]] = {}
    for one in found:
        of_partition.setdefault(one.name, []).append(one)
    settled = Settled([], [], [])
    for logs in of_partition.values():
        current = [log for log in logs if log.state is DirectoryState.CURRENT]
        copies = [log for log in logs if log.state is DirectoryState.FUTURE]
        if len(current) > 1:
            replaced = {marker_of(log) for log in current} - {None}
            kept = [log for log in current if log.directory not in replaced]
            if not kept:
                newest = _newest(current, contents_of)
                if newest is None:
                    continue
                kept = [newest]
            settled.retired.extend(log for log in current if log not in kept)
            current = kept
        if current:
            # A copy beside its log was left without one by a crash, before the log was created again.
            elsewhere = [copy for copy in copies if copy.directory != current[0].directory]
            settled.served.extend([*current, *elsewhere[:1]])
            settled.retired.extend(copy for copy in copies if copy not in elsewhere[:1])
        else:
            whole = [copy for copy in copies if marker_of(copy) in live]
            settled.promoted.extend(whole[:1])
            for copy in copies:
                if copy not in whole[:1]:
                    _logger.warning("%s is left as it is: it is an incomplete copy without its log", copy.path)
    return settled


def _newest(logs: Iterable[FoundLog], contents_of: Callable[[FoundLog], LogContents | None]) -> FoundLog | None:
    """Return the log to keep if all are marked as replaced; None if one of them cannot be read."""
    contents: dict[FoundLog, LogContents] = {}
    for log in logs:
        found = contents_of(log)
        if found is None:
            _logger.error("%s cannot be read: it and the other logs of its partition are left as they are", log.path)
            return None
        contents[log] = found
    newest = max(contents, key=contents.__getitem__)
    _logger.warning(
        "Moves have marked every log of %s-%d as replaced. %s is kept: it has the newest leader epoch, then the most "
        "records, then the highest recovery point of %s",
        *newest.name,
        newest.path,
        ", ".join(
            f"{log.path} (leader epoch {each.leader_epoch}, end offset {each.end_offset}, "
            f"recovery point {each.recovery_point})"
            for log, each in contents.items()
        ),
    )
    return newest


class MoveMarkers:
    """Writes and removes the markers of one broker's moves, one at a time. Waits for the disk."""

    def __init__(self, table: LogTable, directories: LogDirectories, files: Files) -> None:
        self._table = table
        self._directories = directories
        self._files = files
        self._marking = threading.Lock()

    def mark_whole(self, copy: Log, log: Log, *, now_ms: int) -> None:
        """Write the marker by which the copy may replace the log. Waits for the disk. Raises KafkaError.

        The log's previous move is finished first: if a crash left two logs that each name the other's directory as the
        old one, the next start could not decide between them by their markers.
        """
        with self._marking:
            self._finish_previous(log, now_ms)
            directory = self._table.home[copy]
            try:
                directory.write_log_starts()  # only the old directory's checkpoint has the start of this log
                write_marker(self._files, str(copy.directory), self._table.home[log].path)
            except OSError as error:
                raise self._directories.storage_error(directory, error) from error

    def finish(self, log: Log, old_directory: LogDirectory, *, now_ms: int) -> None:
        """Make durable that `log` has replaced the one in `old_directory`. Waits for the disk."""
        with self._marking:
            directory = self._table.home.get(log)
            if directory is None:
                return  # deleted, or moved again
            # Syncs also what `log` adopted from the old log without copying it, see `Log.take_over_state`.
            is_flushed = any(True for _ in self._table.each_online(lambda each: each.durability.flush(now_ms), [log]))
            if not is_flushed:
                return  # the marker stays, and the next move or the next start finishes this one
            if self._directories.each(LogDirectory.sync, [directory, old_directory]) and not old_directory.is_offline:
                # Otherwise a crash may bring back the old log's name, and the next start needs the marker to decide.
                self._directories.each(lambda one: remove_marker(self._files, str(log.directory)), [directory])

    def _finish_previous(self, log: Log, now_ms: int) -> None:
        """Finish the move of a log that still has its marker. Raises KafkaError if the marker has to stay."""
        directory = self._table.home[log]
        try:
            source = read_marker(self._files, str(log.directory))
        except OSError as error:
            raise self._directories.storage_error(directory, error) from error
        old_directory = next((one for one in self._directories if one.path == source), None)
        if old_directory is None:
            return  # no marker, or one that names a directory which is not configured, so no copy goes there
        if old_directory.is_offline:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"The previous move of {log.topic}-{log.partition} is not finished: {old_directory.path} is offline",
            )
        log.durability.flush(now_ms)
        for one in (directory, old_directory):
            try:
                one.sync()
            except OSError as error:
                raise self._directories.storage_error(one, error) from error
        try:
            remove_marker(self._files, str(log.directory))
        except OSError as error:
            raise self._directories.storage_error(directory, error) from error
