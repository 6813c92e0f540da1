"""The log directories of stopped brokers, as they change between ZooKeeper and KRaft.

Owns which files say to which side a directory belongs, and the order in which they are written. `meta.properties` is
the last of them: until it is replaced, the directory belongs to the side on which it was, so that an interrupted change
can be repeated, or forgotten. Must not know metadata.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID

from base.properties import parse
from base.topic_partition import TopicPartition
from protocol.ids import id_text, parse_id
from storage.disk import checkpoints, names
from storage.disk.files import OsFiles
from storage.disk.names import DirectoryState
from tools.kraft import metadata_log
from tools.kraft.metadata_log import PARTIAL, SnapshotId, StoredRecord

ZOOKEEPER_VERSION: Final = 0
KRAFT_VERSION: Final = 1
_QUORUM_STATE: Final = "quorum-state"


class FolderError(Exception):
    """A directory cannot be used. The text names it."""


@dataclass(frozen=True, slots=True)
class NodeFolder:
    """One log directory. `version` is that of its meta.properties: 0 with ZooKeeper, 1 with KRaft."""

    path: Path
    version: int
    node_id: int
    cluster_id: str
    directory_id: UUID | None
    """Files of Kafka before 3.7 lack it."""


class PartitionFolder(NamedTuple):
    """A directory of a partition."""

    path: Path
    node_id: int
    partition: TopicPartition
    state: DirectoryState
    topic_id: UUID | None


@contextmanager
def locked(folders: Sequence[Path]) -> Iterator[None]:
    """Hold the locks of log directories, so that no broker starts on them. Raises FolderError if one runs."""
    files = OsFiles()
    with ExitStack() as undo:
        for folder in folders:
            lock = files.lock(str(folder / names.LOCK))
            if lock is None:
                raise FolderError(f"{folder} is in use: stop its broker first")
            undo.callback(lock.close)
        yield


def read_folder(path: Path) -> NodeFolder:
    """Raises FolderError."""
    meta = path / names.META_PROPERTIES
    try:
        properties = parse(meta.read_text("utf-8", "replace"))
    except FileNotFoundError:
        raise FolderError(f"{meta} does not exist, expected a log directory of a broker that has run") from None
    version = properties.get("version", "0")  # as Kafka reads it
    id_key = {"0": "broker.id", "1": "node.id"}.get(version)
    if id_key is None:
        raise FolderError(f'{meta}: version is "{version}", expected 0 or 1')
    node_id, cluster_id = properties.get(id_key, ""), properties.get("cluster.id", "")
    if not node_id.isdecimal() or not cluster_id:
        raise FolderError(f"{meta}: expected {id_key} and cluster.id, found {dict(properties)}")
    directory_id = properties.get("directory.id")
    try:
        parsed = None if directory_id is None else parse_id(directory_id)
    except ValueError as error:
        raise FolderError(f"{meta}: directory.id: {error}") from None
    return NodeFolder(path, int(version), int(node_id), cluster_id, parsed)


def write_meta_properties(folder: NodeFolder) -> None:
    """Replace meta.properties durably: the directory belongs to the side of `folder.version` from now on."""
    id_key = "node.id" if folder.version == KRAFT_VERSION else "broker.id"
    lines = [f"version={folder.version}", f"{id_key}={folder.node_id}", f"cluster.id={folder.cluster_id}"]
    if folder.directory_id is not None:
        lines.append(f"directory.id={id_text(folder.directory_id)}")
    text = "".join(f"{line}\n" for line in lines)
    OsFiles().replace(str(folder.path / names.META_PROPERTIES), text.encode(), durable=True)


def partitions_in(folder: NodeFolder) -> Iterator[PartitionFolder]:
    """Yield the directories of partitions. Raises FolderError for one of another kind."""
    for path in sorted(folder.path.iterdir()):
        if not path.is_dir() or path.name == names.KRAFT_METADATA:
            continue
        name = names.parse_partition_directory(path.name)
        if name is None:
            raise FolderError(f"{path} is not a directory of a partition, expected <topic>-<number>: move it away")
        try:
            topic_id = checkpoints.read_partition_metadata(OsFiles(), str(path / names.PARTITION_METADATA))
        except checkpoints.MalformedCheckpointError as error:
            raise FolderError(f"{error}: remove the file, it is written again") from None
        yield PartitionFolder(path, folder.node_id, (name.topic, name.partition), name.state, topic_id)


def write_topic_id(partition: PartitionFolder, topic_id: UUID) -> None:
    path = str(partition.path / names.PARTITION_METADATA)
    checkpoints.write_partition_metadata(OsFiles(), path, topic_id)
    OsFiles().sync_path(path)


# -- the log of the metadata ---------------------------------------------------------------------------------------


def write_snapshot(folder: NodeFolder, batches: Iterable[bytes], end: SnapshotId) -> Path:
    """Make a snapshot the only content of the metadata log of a directory that belongs to ZooKeeper's side."""
    assert folder.version == ZOOKEEPER_VERSION, "the metadata log of a KRaft node is its only metadata"
    remove_metadata_log(folder)
    log = folder.path / names.KRAFT_METADATA
    log.mkdir()
    path = log / metadata_log.snapshot_name(end)
    partial = path.with_name(path.name + PARTIAL)
    with partial.open("wb") as file:
        for batch in batches:
            file.write(batch)
        file.flush()
        os.fsync(file.fileno())
    files = OsFiles()
    files.rename(str(partial), str(path))
    # Without this file the node would warn that the log is ahead of its last vote.
    files.replace(str(log / _QUORUM_STATE), metadata_log.quorum_state(end.epoch), durable=True)
    files.sync_directory(str(folder.path))
    return path


def is_used_by_kraft(folder: NodeFolder) -> bool:
    """Return whether the newest metadata of a directory is in its metadata log.

    Kafka 4 also runs on a directory of version 0, and leaves the version as it is.
    """
    return folder.version == KRAFT_VERSION or has_run_with_kraft(folder)


def has_run_with_kraft(folder: NodeFolder) -> bool:
    """Return whether Kafka 4 has run on a directory since its last conversion."""
    log = folder.path / names.KRAFT_METADATA
    if not log.is_dir() or not _segments(log):
        return False
    state = log / _QUORUM_STATE
    return not (state.exists() and metadata_log.is_retired(state.read_bytes()))


def retire_metadata_log(folder: NodeFolder, epoch: int) -> None:
    """Keep Kafka 4 from starting on the metadata log of a directory, if there is one. It stays readable."""
    log = folder.path / names.KRAFT_METADATA
    if log.is_dir():
        content = metadata_log.quorum_state(epoch, is_retired=True)
        OsFiles().replace(str(log / _QUORUM_STATE), content, durable=True)


def remove_metadata_log(folder: NodeFolder) -> None:
    """Remove what an earlier conversion has left. A node that is only a broker gets its log from the controller.

    The file that says whether the log is retired goes last, so that what an interrupted call leaves is told apart.
    """
    log = folder.path / names.KRAFT_METADATA
    if log.is_dir():
        for name in sorted(os.listdir(log), key=_QUORUM_STATE.__eq__):
            path = log / name
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        log.rmdir()


class MetadataLog(NamedTuple):
    """The records of a metadata log, and where they end. `epoch` is that of the last one."""

    records: Sequence[object]
    end: SnapshotId


def read_metadata_log(folder: Path) -> MetadataLog | None:
    """Read the newest snapshot and the log behind it; None if the directory has no metadata log.

    Raises:
        FolderError: There is neither a whole snapshot nor the start of the log, or a part of the log is missing.
        Malformed: A record is not one of Kafka 4.
    """
    log = folder / names.KRAFT_METADATA
    if not log.is_dir():
        return None
    found: list[object] = []
    end = SnapshotId(0, 0)
    for snapshot_id in sorted(filter(None, (metadata_log.parse_snapshot_name(path.name) for path in log.iterdir())))[
        ::-1
    ]:
        stored = list(metadata_log.read_records((log / metadata_log.snapshot_name(snapshot_id)).read_bytes()))
        if metadata_log.is_whole_snapshot(stored):
            found, end = _fields(stored), snapshot_id
            break
    for segment in _segments(log):
        for record in metadata_log.read_records(segment.read_bytes()):
            if record.offset < end.offset:
                continue
            if record.offset > end.offset:
                raise FolderError(f"{segment}: offset {record.offset} follows {end.offset - 1}: a part is missing")
            end = SnapshotId(record.offset + 1, record.epoch)
            found += _fields([record])
    if not found:
        raise FolderError(f"{log} holds no metadata")
    return MetadataLog(found, end)


def _fields(stored: Iterable[StoredRecord]) -> list[object]:
    return [record.fields for record in stored if record.fields is not None]


def _segments(log: Path) -> list[Path]:
    """Return the segments in the order of their offsets."""
    return [
        path
        for path in sorted(log.iterdir())
        if (name := names.parse_segment_file(path.name)) and (name.suffix, name.stage) == (names.LOG, "")
    ]


# -- rehearsals ----------------------------------------------------------------------------------------------------


def link_folder(source: Path, target: Path) -> None:
    """Copy a log directory without changing it: closed segments as hard links, everything else as copies.

    No broker writes into a segment below the recovery point and the high watermark: later ones, which a recovery or a
    follower may truncate, are copied, like the files that are changed in place.

    Raises:
        FolderError: The new folder `target` would be on another file system.
    """
    recovery, watermarks = (
        _offsets(source / name) for name in (names.RECOVERY_POINT_CHECKPOINT, names.HIGH_WATERMARK_CHECKPOINT)
    )
    target.mkdir(parents=True)
    for path in sorted(source.iterdir()):
        if path.name in (names.LOCK, names.KRAFT_METADATA):
            continue
        if not path.is_dir():
            shutil.copy2(path, target / path.name)
            continue
        name = names.parse_partition_directory(path.name)
        partition = ("", -1) if name is None else (name.topic, name.partition)
        _link_partition(path, target / path.name, min(recovery.get(partition, 0), watermarks.get(partition, 0)))


def _offsets(path: Path) -> Mapping[TopicPartition, int]:
    """Return the offsets of a checkpoint, none if it is damaged: a start then begins at the first segments."""
    try:
        return checkpoints.read_offsets(OsFiles(), str(path))
    except checkpoints.MalformedCheckpointError:
        return {}


def _link_partition(source: Path, target: Path, immutable_below: int) -> None:
    target.mkdir()
    segments = _segments(source)
    ends = {path: int(after.stem) for path, after in pairwise(segments)}
    for path in sorted(source.iterdir()):
        if path in ends and ends[path] <= immutable_below:
            try:
                os.link(path, target / path.name)
            except OSError as error:
                raise FolderError(
                    f"{target} cannot have a hard link of {path}: {error.strerror}; "
                    "expected a folder on the same file system"
                ) from None
        elif path.is_dir():
            shutil.copytree(path, target / path.name)
        else:
            shutil.copy2(path, target / path.name)


def by_node(folders: Sequence[NodeFolder]) -> Mapping[int, list[NodeFolder]]:
    """Return the directories of each node, in their order."""
    found: dict[int, list[NodeFolder]] = {}
    for folder in folders:
        found.setdefault(folder.node_id, []).append(folder)
    return found
