"""The names of all files and directories of storage: how to build and how to parse them.

Owns the format of names only. Must not know what is on a disk.

Invariants:
- `parse_*` accepts exactly the names that Kafka accepts.
- Parsing a built name returns the values that it was built from, except a topic that was cut to fit.
"""

import re
import uuid
from enum import Enum
from typing import Final, NamedTuple

LOG: Final = ".log"
OFFSET_INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
TRANSACTION_INDEX: Final = ".txnindex"
PRODUCER_SNAPSHOT: Final = ".snapshot"
INDEX_SUFFIXES: Final = (OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX)
SEGMENT_SUFFIXES: Final = (LOG, *INDEX_SUFFIXES)

DELETED: Final = ".deleted"
CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"
TEMPORARY: Final = ".tmp"
DETACHED: Final = ".detached"

LEADER_EPOCH_CHECKPOINT: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
MOVED_FROM: Final = "moved-from"

LOCK: Final = ".lock"
META_PROPERTIES: Final = "meta.properties"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
WRITTEN: Final = ".milena_written"
RECOVERY_POINT_CHECKPOINT: Final = "recovery-point-offset-checkpoint"
LOG_START_CHECKPOINT: Final = "log-start-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT: Final = "replication-offset-checkpoint"
CLEANER_CHECKPOINT: Final = "cleaner-offset-checkpoint"

PARTITION_FILES: Final = frozenset({LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA, MOVED_FROM})
"""The files of a partition directory besides those of its segments."""

KRAFT_METADATA: Final = "__cluster_metadata-0"
"""The directory of the metadata log of a KRaft node, which a broker with ZooKeeper ignores, as in Kafka 3.9."""

ROOT_FILES: Final = frozenset(
    {
        LOCK,
        META_PROPERTIES,
        CLEAN_SHUTDOWN,
        WRITTEN,
        RECOVERY_POINT_CHECKPOINT,
        LOG_START_CHECKPOINT,
        HIGH_WATERMARK_CHECKPOINT,
        CLEANER_CHECKPOINT,
    }
)
"""The files of a log directory besides its partition directories."""

DIRECTORY_NAME_LENGTH_MAX: Final = 255

_SEGMENT_FILE = r"(\d{20})(\.log|\.index|\.timeindex|\.txnindex|\.snapshot)(\.deleted|\.cleaned|\.swap)?"
_PARTITION_DIRECTORY = r"(?P<topic>.+)-(?P<partition>\d+)"
_MARKED_DIRECTORY = r"(?P<topic>.+)-(?P<partition>\d+)\.(?P<id>[0-9a-f]{32})-(?P<state>delete|future|stray)"


class SegmentFileName(NamedTuple):
    """`00000000000000000042.index.swap` is `(42, ".index", ".swap")`; `stage` is "" for a file in service."""

    base_offset: int
    suffix: str
    stage: str


class DirectoryState(Enum):
    """The purpose of a partition directory; the value is the ending of its name."""

    CURRENT = ""
    DELETE = "delete"
    FUTURE = "future"
    STRAY = "stray"


class PartitionDirectoryName(NamedTuple):
    """The parts of a name. If a long topic was cut to fit (state DELETE), `topic` is only its beginning."""

    topic: str
    partition: int
    state: DirectoryState


def segment_file(base_offset: int, suffix: str) -> str:
    """Return the file's name. Its twenty digits make names sort like offsets up to 2^63."""
    return f"{base_offset:020d}{suffix}"


def parse_segment_file(name: str) -> SegmentFileName | None:
    """Return the parts of the name of a segment's file or a producer snapshot, None for other names."""
    match = re.fullmatch(_SEGMENT_FILE, name)
    return None if match is None else SegmentFileName(int(match[1]), match[2], match[3] or "")


def partition_directory(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


def marked_partition_directory(topic: str, partition: int, state: DirectoryState, unique_id: uuid.UUID) -> str:
    """Return a unique name. A long topic is cut, because file systems reject names of more than 255 characters."""
    ending = f"-{partition}.{unique_id.hex}-{state.value}"
    return topic[: DIRECTORY_NAME_LENGTH_MAX - len(ending)] + ending


def can_have_future(topic: str, partition: int) -> bool:
    """Return whether the name of a FUTURE directory contains the whole topic; only the name identifies a copy."""
    whole = marked_partition_directory(topic, partition, DirectoryState.FUTURE, uuid.UUID(int=0))
    return whole.startswith(f"{topic}-{partition}.")


def parse_partition_directory(name: str) -> PartitionDirectoryName | None:
    """Return the parts of the name of a partition directory, None for other names."""
    if marked := re.fullmatch(_MARKED_DIRECTORY, name):
        return PartitionDirectoryName(marked["topic"], int(marked["partition"]), DirectoryState(marked["state"]))
    if plain := re.fullmatch(_PARTITION_DIRECTORY, name):
        return PartitionDirectoryName(plain["topic"], int(plain["partition"]), DirectoryState.CURRENT)
    return None
