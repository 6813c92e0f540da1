"""kafka-storage repair: shows damaged records of the coordinators' topics, and cuts them out if that changes nothing.

Owns the search for damaged batches in the files, the proof, and the order in which files are replaced. Must not know:
how options are parsed, or what records mean.

A partition is replayed as its coordinator would, with the damaged batches and without them. Only if both lead to the
same groups, transactional ids or states, the batches are cut out: then later records have made up for what is lost, or
an older commit is served in any case. If it is, and another replica may have the lost one, nothing is cut out either:
the coordinator reads it there as long as this copy is damaged. The removed bytes are kept in a folder. A segment is
replaced before its indexes are removed, and the broker builds new ones.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from broker.coordination.replay import replay_copy
from broker.groups.loading import ReplayedPartition
from broker.share.loading import ReplayedStates
from broker.transactions.loading import ReplayedTransactions
from protocol.errors import ErrorCode, KafkaError
from protocol.internal_topics import GROUP_METADATA_TOPIC, SHARE_GROUP_STATE_TOPIC, TRANSACTION_STATE_TOPIC
from storage.disk.files import OsFiles
from storage.disk.names import (
    LOCK,
    LOG,
    OFFSET_INDEX,
    TIME_INDEX,
    TRANSACTION_INDEX,
    DirectoryState,
    parse_partition_directory,
    parse_segment_file,
)
from tools.files.log_verification import Stretch, stretches_of
from tools.files.segment_files import beside

Replayed = ReplayedPartition | ReplayedTransactions | ReplayedStates

_BUFFER_SIZE: Final = 1 << 20
_CONTENTS: Final[Mapping[str, Callable[[], Replayed]]] = {
    GROUP_METADATA_TOPIC: ReplayedPartition,
    TRANSACTION_STATE_TOPIC: ReplayedTransactions,
    SHARE_GROUP_STATE_TOPIC: ReplayedStates,
}


class RepairError(Exception):
    """Nothing was changed; the text is one line for stderr."""


class Damaged(NamedTuple):
    """A partition with damage."""

    folder: str
    stretches: Sequence[Stretch]

    @property
    def damages(self) -> Sequence[Stretch]:
        return [each for each in self.stretches if each.damage is not None]


def find_damage(log_dirs: Sequence[str]) -> Iterator[Damaged]:
    """Yield the damaged partitions of the coordinators' topics in log directories. Raises OSError, DumpError."""
    for log_dir in log_dirs:
        for entry in sorted(os.scandir(log_dir), key=lambda entry: entry.name):
            name = parse_partition_directory(entry.name)
            if name is not None and name.state is DirectoryState.CURRENT and name.topic in _CONTENTS:
                stretches = [stretch for path in _segments_in(entry.path) for stretch in stretches_of(path)]
                if any(stretch.damage is not None for stretch in stretches):
                    yield Damaged(entry.path, stretches)


def repair(damaged: Damaged, keep: str, *, is_only_copy: bool) -> list[str]:
    """Cut the damaged batches out of a partition; return what is lost. The broker must be stopped.

    The removed bytes are written to the folder `keep`. Unless this is the only copy, nothing may be lost.
    Raises RepairError, OSError.
    """
    name = os.path.basename(damaged.folder)
    if damaged.stretches[-1].damage is not None:
        raise RepairError(f"{name}: the last batch is damaged; repair after the broker has appended more")
    before, after = (
        _contents(damaged.folder, damaged.stretches),
        _contents(damaged.folder, [each for each in damaged.stretches if each.damage is None]),
    )
    if _state(before) != _state(after):
        lines = "; ".join(before.lost()) or "open transactions"
        raise RepairError(f"{name}: later records have not made up for the damage yet, so nothing is cut out: {lines}")
    lost = list(before.lost())
    if lost and not is_only_copy:
        raise RepairError(
            f"{name}: another replica may still have what is lost in this copy: {'; '.join(lost)}. Remove the folder, "
            "and the broker copies the partition; or use --only-copy if there is no other replica"
        )
    for path in dict.fromkeys(each.path for each in damaged.damages):
        _cut(path, [each for each in damaged.stretches if each.path == path], keep)
    return lost


def lock(log_dir: str) -> Callable[[], None]:
    """Lock a log directory; return a function that unlocks it. Raises RepairError if a broker uses it."""
    locked = OsFiles().lock(os.path.join(log_dir, LOCK))
    if locked is None:
        raise RepairError(f"{log_dir} is in use: stop the broker")
    return locked.close


def _segments_in(folder: str) -> list[str]:
    """Return the paths of the segments' logs, which their names order by offset."""
    names = sorted(os.listdir(folder))
    return [
        os.path.join(folder, name)
        for name in names
        if (segment := parse_segment_file(name)) and (segment.suffix, segment.stage) == (LOG, "")
    ]


def _contents(folder: str, stretches: Sequence[Stretch]) -> Replayed:
    topic, _, _ = os.path.basename(folder).rpartition("-")
    return asyncio.run(_replayed(stretches, _CONTENTS[topic]))


async def _replayed(stretches: Sequence[Stretch], begin: Callable[[], Replayed]) -> Replayed:
    contents = begin()
    await replay_copy(_StoredLog(stretches), 0, _BUFFER_SIZE, contents)
    return contents


class _StoredLog:
    """`StoredRecords` over some stretches of the segments of one partition."""

    def __init__(self, stretches: Sequence[Stretch]) -> None:
        self._stretches = stretches
        self._path, self._content = "", b""

    def start_offset(self, partition: int) -> int:
        return self._stretches[0].offset if self._stretches else 0

    def end_offset(self, partition: int) -> int:
        return max((each.next_offset for each in self._stretches), default=0)

    async def read(self, partition: int, offset: int, max_bytes: int) -> bytes:
        found = bytearray()
        for number, stretch in enumerate(self._stretches):
            if not stretch.is_batch:
                following = self._stretches[number + 1 : number + 2]
                if found:
                    break
                if not following or offset < following[0].offset:
                    raise KafkaError(ErrorCode.CORRUPT_MESSAGE, stretch.damage)
            elif found and len(found) + stretch.size > max_bytes:
                break
            elif found or stretch.next_offset > offset:
                found += self._bytes_of(stretch)
        return bytes(found)

    def _bytes_of(self, stretch: Stretch) -> bytes:
        if stretch.path != self._path:
            with open(stretch.path, "rb") as file:
                self._path, self._content = stretch.path, file.read()
        return self._content[stretch.position : stretch.end]


def _state(contents: Replayed) -> object:
    """Return what a coordinator serves of the contents."""
    if isinstance(contents, ReplayedTransactions):
        return contents.transactions
    if isinstance(contents, ReplayedStates):
        return contents.states
    offsets = {
        group: (found.committed, set(found.open_transactions()), set(found.partitions()))
        for group, found in contents.offsets.items()
        if not found.is_empty
    }
    # The coordinator expels all members of a group whose records of members are lost.
    changes = {group: (found, contents.has_lost_members(group)) for group, found in contents.changes.items()}
    return contents.groups, changes, offsets


def _cut(path: str, stretches: Sequence[Stretch], keep: str) -> None:
    """Replace a segment by its whole batches, and keep the damaged bytes."""
    files = OsFiles()
    os.makedirs(keep, exist_ok=True)
    with open(path, "rb") as file:
        content = file.read()
    for damage in (each for each in stretches if each.damage is not None):
        partition = os.path.basename(os.path.dirname(path))
        kept = os.path.join(keep, f"{partition}-{os.path.basename(path)}-{damage.position}")
        files.replace(kept, content[damage.position : damage.end], durable=True)
    whole = b"".join(content[each.position : each.end] for each in stretches if each.damage is None)
    files.replace(path, whole, durable=True)
    for suffix in (OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX):
        files.unlink_if_exists(beside(path, suffix))
