"""The table of topic settings, and the broker settings that provide their defaults.

A topic setting without an override has the value of the first of its broker settings that is set, times that row's
factor. So removing an override, or changing the broker's value at run time, takes effect immediately. The `default` of
a row is used only if it has no broker setting.

Owns the rows. Must not know topics or logs.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from config import broker_properties as broker
from config.definition import ConfigType, Importance, NoEffect, Property, Rows, UpdateMode
from config.validators import Check, OneOf, Range

_MS_PER_MINUTE = 60_000
_MS_PER_HOUR = 3_600_000


class BrokerDefault(NamedTuple):
    """A broker setting that provides the default of a topic setting, and the factor to multiply it by."""

    property: Property[object]
    factor: int = 1


def _throttled_replicas_problem(replicas: tuple[str, ...]) -> str | None:
    if replicas == ("*",) or all(_is_partition_and_broker(entry) for entry in replicas):
        return None
    return f"{THROTTLED_REPLICAS} or * for all"


def _is_partition_and_broker(entry: str) -> bool:
    partition, colon, broker_id = entry.partition(":")
    return bool(colon) and partition.isdecimal() and broker_id.isdecimal()


THROTTLED_REPLICAS = "[partitionId]:[brokerId],[partitionId]:[brokerId],..."

boolean = Rows[bool](ConfigType.BOOLEAN)
integer = Rows[int](ConfigType.INT)
long = Rows[int](ConfigType.LONG)
double = Rows[float](ConfigType.DOUBLE)
string = Rows[str](ConfigType.STRING)
string_list = Rows[tuple[str, ...]](ConfigType.LIST)

DYNAMIC = UpdateMode.CLUSTER_WIDE
MEDIUM, LOW = Importance.MEDIUM, Importance.LOW
LONG_MAX = broker.LONG_MAX
POSITIVE, NOT_NEGATIVE, NOT_BELOW_MINUS_ONE = Range(1), Range(0), Range(-1)

# The formatter would spread each row over seven lines; two are easier to read.

CLEANUP_POLICY = string_list(
    "cleanup.policy",
    ("delete",),
    DYNAMIC,
    MEDIUM,
    OneOf(("compact", "delete")),
    doc="What happens to old data: delete, compact, or both.",
)
COMPRESSION_TYPE = string(
    "compression.type",
    "producer",
    DYNAMIC,
    MEDIUM,
    broker.COMPRESSION_TYPE.validator,
    doc="How stored batches are compressed; producer keeps what the producer chose.",
)
COMPRESSION_GZIP_LEVEL = integer(
    "compression.gzip.level",
    -1,
    DYNAMIC,
    MEDIUM,
    broker.COMPRESSION_GZIP_LEVEL.validator,
    doc="Level used when the broker compresses with gzip; -1 is the library's default.",
)
COMPRESSION_LZ4_LEVEL = integer(
    "compression.lz4.level",
    9,
    DYNAMIC,
    MEDIUM,
    broker.COMPRESSION_LZ4_LEVEL.validator,
    doc="Level used when the broker compresses with lz4.",
)
COMPRESSION_ZSTD_LEVEL = integer(
    "compression.zstd.level",
    3,
    DYNAMIC,
    MEDIUM,
    broker.COMPRESSION_ZSTD_LEVEL.validator,
    doc="Level used when the broker compresses with zstd.",
)
DELETE_RETENTION_MS = long(
    "delete.retention.ms",
    86_400_000,
    DYNAMIC,
    MEDIUM,
    NOT_NEGATIVE,
    doc="Time for which a tombstone stays readable after its log was cleaned.",
)
FILE_DELETE_DELAY_MS = long(
    "file.delete.delay.ms", 60_000, DYNAMIC, MEDIUM, NOT_NEGATIVE, doc="Time a deleted segment's files stay on disk."
)
FLUSH_MESSAGES = long(
    "flush.messages",
    LONG_MAX,
    DYNAMIC,
    MEDIUM,
    POSITIVE,
    doc="Number of records after which the log is flushed to disk.",
)
FLUSH_MS = long("flush.ms", LONG_MAX, DYNAMIC, MEDIUM, NOT_NEGATIVE, doc="Time after which the log is flushed to disk.")
FOLLOWER_REPLICATION_THROTTLED_REPLICAS = string_list(
    "follower.replication.throttled.replicas",
    (),
    DYNAMIC,
    MEDIUM,
    Check(_throttled_replicas_problem, THROTTLED_REPLICAS),
    doc="Replicas whose fetches from the leader are throttled, or * for all.",
)
INDEX_INTERVAL_BYTES = integer(
    "index.interval.bytes", 4096, DYNAMIC, MEDIUM, NOT_NEGATIVE, doc="Bytes of log between two index entries."
)
LEADER_REPLICATION_THROTTLED_REPLICAS = string_list(
    "leader.replication.throttled.replicas",
    (),
    DYNAMIC,
    MEDIUM,
    Check(_throttled_replicas_problem, THROTTLED_REPLICAS),
    doc="Replicas whose fetches the leader throttles, or * for all.",
)
LOCAL_RETENTION_BYTES = long(
    "local.retention.bytes",
    -2,
    DYNAMIC,
    MEDIUM,
    Range(-2),
    no_effect=NoEffect.TIERED_STORAGE,
    doc="Size kept locally if segments are tiered.",
)
LOCAL_RETENTION_MS = long(
    "local.retention.ms",
    -2,
    DYNAMIC,
    MEDIUM,
    Range(-2),
    no_effect=NoEffect.TIERED_STORAGE,
    doc="Age kept locally when segments are tiered.",
)
MAX_COMPACTION_LAG_MS = long(
    "max.compaction.lag.ms",
    LONG_MAX,
    DYNAMIC,
    MEDIUM,
    POSITIVE,
    doc="Age above which a record must become compactable.",
)
MAX_MESSAGE_BYTES = integer(
    "max.message.bytes", 1_048_588, DYNAMIC, MEDIUM, NOT_NEGATIVE, doc="Largest record batch accepted."
)
MESSAGE_DOWNCONVERSION_ENABLE = boolean(
    "message.downconversion.enable",
    True,
    DYNAMIC,
    LOW,
    doc="Whether records are converted for clients that support only older formats.",
)
MESSAGE_FORMAT_VERSION = string(
    "message.format.version",
    "3.0-IV1",
    DYNAMIC,
    MEDIUM,
    broker.RELEASED_VERSION,
    no_effect=NoEffect.RECORD_FORMAT,
    doc="Old format of stored records.",
)
MESSAGE_TIMESTAMP_AFTER_MAX_MS = long(
    "message.timestamp.after.max.ms",
    LONG_MAX,
    DYNAMIC,
    MEDIUM,
    NOT_NEGATIVE,
    doc="How far a record's timestamp may lie after the broker's time.",
)
MESSAGE_TIMESTAMP_BEFORE_MAX_MS = long(
    "message.timestamp.before.max.ms",
    LONG_MAX,
    DYNAMIC,
    MEDIUM,
    NOT_NEGATIVE,
    doc="How far a record's timestamp may lie before the broker's time.",
)
MESSAGE_TIMESTAMP_DIFFERENCE_MAX_MS = long(
    "message.timestamp.difference.max.ms",
    LONG_MAX,
    DYNAMIC,
    MEDIUM,
    NOT_NEGATIVE,
    doc="Both limits in one; replaced by the before and after ones.",
)
MESSAGE_TIMESTAMP_TYPE = string(
    "message.timestamp.type",
    "CreateTime",
    DYNAMIC,
    MEDIUM,
    OneOf(("CreateTime", "LogAppendTime")),
    doc="Whether records keep the producer's timestamp or get the broker's.",
)
MIN_CLEANABLE_DIRTY_RATIO = double(
    "min.cleanable.dirty.ratio",
    0.5,
    DYNAMIC,
    MEDIUM,
    Range(0, 1),
    doc="Minimum share of uncleaned bytes at which the log is cleaned.",
)
MIN_COMPACTION_LAG_MS = long(
    "min.compaction.lag.ms", 0, DYNAMIC, MEDIUM, NOT_NEGATIVE, doc="Age below which a record is never compacted."
)
MIN_INSYNC_REPLICAS = integer(
    "min.insync.replicas",
    1,
    DYNAMIC,
    MEDIUM,
    POSITIVE,
    doc="In-sync replicas that must exist for acks=all to be accepted and for records to be committed.",
)
PREALLOCATE = boolean(
    "preallocate", False, DYNAMIC, MEDIUM, doc="Whether the file of a new segment is preallocated with its full size."
)
REMOTE_LOG_COPY_DISABLE = boolean(
    "remote.log.copy.disable", False, DYNAMIC, MEDIUM, no_effect=NoEffect.TIERED_STORAGE, doc="Stops tiering."
)
REMOTE_LOG_DELETE_ON_DISABLE = boolean(
    "remote.log.delete.on.disable",
    False,
    DYNAMIC,
    MEDIUM,
    no_effect=NoEffect.TIERED_STORAGE,
    doc="Deletes tiered data when tiering stops.",
)
REMOTE_STORAGE_ENABLE = boolean(
    "remote.storage.enable", False, DYNAMIC, MEDIUM, no_effect=NoEffect.TIERED_STORAGE, doc="Tiered storage."
)
RETENTION_BYTES = long(
    "retention.bytes",
    -1,
    DYNAMIC,
    MEDIUM,
    doc="Size of a partition above which its oldest segments are deleted; -1 is no limit.",
)
RETENTION_MS = long(
    "retention.ms",
    604_800_000,
    DYNAMIC,
    MEDIUM,
    NOT_BELOW_MINUS_ONE,
    doc="Age after which segments are deleted; -1 is never.",
)
SEGMENT_BYTES = integer(
    "segment.bytes",
    1 << 30,
    DYNAMIC,
    MEDIUM,
    Range(14),
    doc="Size at which a new segment is rolled.",
)
SEGMENT_INDEX_BYTES = integer(
    "segment.index.bytes", 10_485_760, DYNAMIC, MEDIUM, Range(4), doc="Largest size of an offset index."
)
SEGMENT_JITTER_MS = long(
    "segment.jitter.ms",
    0,
    DYNAMIC,
    MEDIUM,
    NOT_NEGATIVE,
    doc="Random time subtracted from the roll age, so that logs do not roll at the same time.",
)
SEGMENT_MS = long("segment.ms", 604_800_000, DYNAMIC, MEDIUM, POSITIVE, doc="Age at which a new segment is rolled.")
UNCLEAN_LEADER_ELECTION_ENABLE = boolean(
    "unclean.leader.election.enable",
    False,
    DYNAMIC,
    MEDIUM,
    doc="Whether an out-of-sync replica may become leader if no in-sync replica is left; this can lose records.",
)

# fmt: on

BROKER_DEFAULTS: Mapping[Property[object], tuple[BrokerDefault, ...]] = {
    CLEANUP_POLICY: (BrokerDefault(broker.LOG_CLEANUP_POLICY),),
    COMPRESSION_TYPE: (BrokerDefault(broker.COMPRESSION_TYPE),),
    COMPRESSION_GZIP_LEVEL: (BrokerDefault(broker.COMPRESSION_GZIP_LEVEL),),
    COMPRESSION_LZ4_LEVEL: (BrokerDefault(broker.COMPRESSION_LZ4_LEVEL),),
    COMPRESSION_ZSTD_LEVEL: (BrokerDefault(broker.COMPRESSION_ZSTD_LEVEL),),
    DELETE_RETENTION_MS: (BrokerDefault(broker.LOG_CLEANER_DELETE_RETENTION_MS),),
    FILE_DELETE_DELAY_MS: (BrokerDefault(broker.LOG_SEGMENT_DELETE_DELAY_MS),),
    FLUSH_MESSAGES: (BrokerDefault(broker.LOG_FLUSH_INTERVAL_MESSAGES),),
    FLUSH_MS: (BrokerDefault(broker.LOG_FLUSH_INTERVAL_MS), BrokerDefault(broker.LOG_FLUSH_SCHEDULER_INTERVAL_MS)),
    INDEX_INTERVAL_BYTES: (BrokerDefault(broker.LOG_INDEX_INTERVAL_BYTES),),
    LOCAL_RETENTION_BYTES: (BrokerDefault(broker.LOG_LOCAL_RETENTION_BYTES),),
    LOCAL_RETENTION_MS: (BrokerDefault(broker.LOG_LOCAL_RETENTION_MS),),
    MAX_COMPACTION_LAG_MS: (BrokerDefault(broker.LOG_CLEANER_MAX_COMPACTION_LAG_MS),),
    MAX_MESSAGE_BYTES: (BrokerDefault(broker.MESSAGE_MAX_BYTES),),
    MESSAGE_DOWNCONVERSION_ENABLE: (BrokerDefault(broker.LOG_MESSAGE_DOWNCONVERSION_ENABLE),),
    MESSAGE_FORMAT_VERSION: (BrokerDefault(broker.LOG_MESSAGE_FORMAT_VERSION),),
    MESSAGE_TIMESTAMP_AFTER_MAX_MS: (BrokerDefault(broker.LOG_MESSAGE_TIMESTAMP_AFTER_MAX_MS),),
    MESSAGE_TIMESTAMP_BEFORE_MAX_MS: (BrokerDefault(broker.LOG_MESSAGE_TIMESTAMP_BEFORE_MAX_MS),),
    MESSAGE_TIMESTAMP_DIFFERENCE_MAX_MS: (BrokerDefault(broker.LOG_MESSAGE_TIMESTAMP_DIFFERENCE_MAX_MS),),
    MESSAGE_TIMESTAMP_TYPE: (BrokerDefault(broker.LOG_MESSAGE_TIMESTAMP_TYPE),),
    MIN_CLEANABLE_DIRTY_RATIO: (BrokerDefault(broker.LOG_CLEANER_MIN_CLEANABLE_RATIO),),
    MIN_COMPACTION_LAG_MS: (BrokerDefault(broker.LOG_CLEANER_MIN_COMPACTION_LAG_MS),),
    MIN_INSYNC_REPLICAS: (BrokerDefault(broker.MIN_INSYNC_REPLICAS),),
    PREALLOCATE: (BrokerDefault(broker.LOG_PREALLOCATE),),
    RETENTION_BYTES: (BrokerDefault(broker.LOG_RETENTION_BYTES),),
    RETENTION_MS: (
        BrokerDefault(broker.LOG_RETENTION_MS),
        BrokerDefault(broker.LOG_RETENTION_MINUTES, _MS_PER_MINUTE),
        BrokerDefault(broker.LOG_RETENTION_HOURS, _MS_PER_HOUR),
    ),
    SEGMENT_BYTES: (BrokerDefault(broker.LOG_SEGMENT_BYTES),),
    SEGMENT_INDEX_BYTES: (BrokerDefault(broker.LOG_INDEX_SIZE_MAX_BYTES),),
    SEGMENT_JITTER_MS: (
        BrokerDefault(broker.LOG_ROLL_JITTER_MS),
        BrokerDefault(broker.LOG_ROLL_JITTER_HOURS, _MS_PER_HOUR),
    ),
    SEGMENT_MS: (BrokerDefault(broker.LOG_ROLL_MS), BrokerDefault(broker.LOG_ROLL_HOURS, _MS_PER_HOUR)),
    UNCLEAN_LEADER_ELECTION_ENABLE: (BrokerDefault(broker.UNCLEAN_LEADER_ELECTION_ENABLE),),
}
"""For each topic setting the broker settings behind it, in order of precedence; settings that have none are missing."""

TOPIC_PROPERTIES: Mapping[str, Property[object]] = MappingProxyType(
    {row.name: row for row in tuple(globals().values()) if isinstance(row, Property)}
)
"""Every row by its name, in the order of the table."""
