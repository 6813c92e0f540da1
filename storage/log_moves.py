"""Moving a log to another log directory: how its copy catches up, and how a start takes up what a crash has left.

Owns the steps of the copy, and the marker by which a start tells a finished move from two logs of one partition. Must
not know who asks for a move, how fast it may go, or in which thread it runs.

A copy lives in `<topic>-<partition>.<id>-future`. Once it holds everything it is synced and gets the file
`moved-from`, which names the log directory that it comes from; then it takes the log's own name, then the old log gets
the name of one that is to be deleted, and at last the marker goes. A crash between any two of these steps leaves at
least one whole log, and the marker says which. A move whose last step failed is finished before the next move of that
log marks a copy, so no two logs name each other; `settle` keeps one of them if it finds such a pair nevertheless.

Invariant: the copy holds nothing but a piece of the log, from where the log started when it was last looked at.
"""

import logging
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from storage import names
from storage.checkpoints import TopicPartition
from storage.files import Files
from storage.leader_epochs import NO_EPOCH
from storage.log import Log
from storage.names import DirectoryState
from storage.recovery import stored_batches
from storage.segment import CorruptSegmentError, Segment
from storage.stored_batch import extent_at

_logger = logging.getLogger(__name__)


class FoundLog(NamedTuple):
    """A partition directory as a start finds it, in service or a copy; `directory` is the log directory it lies in."""

    directory: str
    path: str
    name: TopicPartition
    state: DirectoryState


class Settled(NamedTuple):
    """`served` are to be loaded as they are, `promoted` as the log that they are a copy of, `retired` to be deleted."""

    served: list[FoundLog]
    promoted: list[FoundLog]
    retired: list[FoundLog]


class LogContents(NamedTuple):
    """How far a log on the disk reaches. The greater of two logs of one partition is the one to keep.

    The leader epoch comes first, as between replicas: a log may be longer only by records of an old epoch.
    """

    leader_epoch: int
    """Of the last whole batch."""
    end_offset: int
    recovery_point: int
    """As checkpointed."""


def catch_up(log: Log, copy: Log, max_bytes: int, *, now_ms: int) -> int:
    """Copies the next batches, about `max_bytes`, and returns how many bytes that were.

    0 when the copy has all, or the log was truncated meanwhile: then again. What the log has lost at either end, the
    copy loses first. Any thread, if it is the only one that changes the copy. Raises KafkaError: what reading the one
    or writing the other raises.
    """
    truncation_count = log.truncation_count
    _follow_truncation(log, copy, now_ms)
    if not copy.log_start_offset <= log.log_start_offset <= copy.log_end_offset:
        copy.truncate_fully_and_start_at(log.log_start_offset, now_ms=now_ms)
    end_offset = log.log_end_offset
    if copy.log_end_offset >= end_offset:
        _follow_roll(copy, log.segments.active.base_offset, now_ms)
        _follow_offsets(log, copy)
        return 0
    fetched = log.read(copy.log_end_offset, max_bytes, upper_bound_offset=end_offset, min_one_batch=True)
    if fetched is None or not fetched.records or truncation_count != log.truncation_count:
        # After a truncation, what was read may be new batches behind old ones that the copy still holds.
        return 0
    # The log starts within a batch: the copy has to begin with the whole of it.
    copy.truncate_to(extent_at(fetched.records, 0, 0).base_offset, now_ms=now_ms)
    _follow_roll(copy, fetched.segment_base_offset, now_ms)
    start_offset = copy.log_end_offset
    copy.append_as_follower(fetched.records, now_ms=now_ms)
    _follow_offsets(log, copy)
    return len(fetched.records) if copy.log_end_offset > start_offset else 0


def _follow_truncation(log: Log, copy: Log, now_ms: int) -> None:
    """Cuts off what the log does not hold any more, by the rules of followers: one epoch is the same everywhere."""
    while (latest := copy.leader_epochs.latest) != NO_EPOCH:
        asked = min(latest, log.leader_epochs.latest)
        if asked == NO_EPOCH:
            copy.truncate_fully_and_start_at(log.log_start_offset, now_ms=now_ms)
            return
        epoch, end_offset = log.leader_epochs.end_offset_for(asked, log.log_end_offset)
        _, own_end_offset = copy.leader_epochs.end_offset_for(epoch, copy.log_end_offset)
        copy.truncate_to(min(end_offset, own_end_offset), now_ms=now_ms)
        if epoch == latest:
            break
    copy.truncate_to(log.log_end_offset, now_ms=now_ms)


def _follow_roll(copy: Log, base_offset: int, now_ms: int) -> None:
    """Begins a segment where the log does: what is cleaned and what is deleted goes by segments."""
    if copy.segments.active.base_offset < base_offset:
        copy.roll(now_ms)


def _follow_offsets(log: Log, copy: Log) -> None:
    copy.advance_high_watermark(log.high_watermark)
    copy.delete_records_before(min(log.log_start_offset, copy.high_watermark))


# The marker


def write_marker(files: Files, path: str, source: str) -> None:
    """The copy at `path` is whole and about to replace the log in the log directory `source`. Waits for the disk."""
    files.replace(f"{path}/{names.MOVED_FROM}", f"{source}\n".encode(), durable=True)


def remove_marker(files: Files, path: str) -> None:
    """The move is over, also for a machine that loses its power. Waits for the disk."""
    if files.unlink_if_exists(f"{path}/{names.MOVED_FROM}"):
        files.sync_directory(path)


def read_marker(files: Files, path: str) -> str | None:
    """The log directory that the marker names; None without one."""
    try:
        return files.read_whole(f"{path}/{names.MOVED_FROM}").decode("utf-8", "replace").rstrip("\n")
    except FileNotFoundError:
        return None


# A start


def read_contents(files: Files, path: str, recovery_point: int) -> LogContents:
    """Reads a log that is not loaded from its recovery point to its first bad batch or gap. Changes nothing.

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
    """Decides what becomes of moves that were under way when the broker stopped. Touches nothing itself.

    `live` are the log directories that were listed. A copy without its log stays where it is, in no list, unless it is
    marked as whole: the log may be in a directory that is offline, or gone, and then the copy is all there is.

    If every log of a partition is marked as old by another one, the one with the greatest contents is served. If the
    contents of one cannot be read (None), all of them stay where they are, in no list.
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
            settled.served.extend([*current, *copies[:1]])
            settled.retired.extend(copies[1:])
        else:
            whole = [copy for copy in copies if marker_of(copy) in live]
            settled.promoted.extend(whole[:1])
            for copy in copies:
                if copy not in whole[:1]:
                    _logger.warning("%s is left alone: it is a copy that was not finished", copy.path)
    return settled


def _newest(logs: Iterable[FoundLog], contents_of: Callable[[FoundLog], LogContents | None]) -> FoundLog | None:
    """The log to keep of those that all are marked as replaced; None if one of them cannot be read."""
    contents: dict[FoundLog, LogContents] = {}
    for log in logs:
        found = contents_of(log)
        if found is None:
            _logger.error("%s and the other logs of its partition are left alone: it cannot be read", log.path)
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
