"""Records for old fetch versions: message sets of magic 0 and 1, no zstd, and error codes that they know.

Owns: which version reads which format, and that a reader is moved past a part of the log without records for it. Must
not know: requests or waiting. Conversion opens every record; callers run it off the event loop.
"""

from __future__ import annotations

from broker.replica.reader import PartitionRead
from protocol.errors import ErrorCode, KafkaError
from protocol.records.batch import LOG_OVERHEAD
from protocol.records.compression import PLAIN_SIZE_MAX, OpensTooFar
from storage.batches.validation import SHARED_PLAIN_SIZE_MAX

FIRST_VERSION_WITH_MAGIC_1 = 2
FIRST_VERSION_WITH_MAGIC_2 = 4
FIRST_VERSION_WITH_STORAGE_ERROR = 6
FIRST_VERSION_WITH_ZSTD = 10


def needs_conversion(fetch_version: int, replica_id: int) -> bool:
    """Return whether responses of this version carry message sets.

    Followers get what the leader has stored in every version: by an old `inter.broker.protocol.version` their logs are
    to be equal all the same.
    """
    return fetch_version < FIRST_VERSION_WITH_MAGIC_2 and replica_id < 0


def replace_new_errors(read: PartitionRead, fetch_version: int) -> None:
    """Refuse records that clients of versions before 10 cannot open (KIP-110), and replace newer error codes.

    As in Kafka, only the topic's configuration counts. Batches that a producer compressed with zstd are sent unchanged:
    some clients fetch with versions from 4 on and support zstd all the same.
    """
    if fetch_version < FIRST_VERSION_WITH_STORAGE_ERROR and read.error_code is ErrorCode.KAFKA_STORAGE_ERROR:
        read.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    if read.partition is None or fetch_version >= FIRST_VERSION_WITH_ZSTD or read.error_code:
        return
    if read.partition.log.config.compression_type == "zstd":
        _fail(read, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)


def convert(read: PartitionRead, fetch_version: int, *, is_alone: bool) -> int:
    """Replace the records by message sets; return how many records were converted. May block on further reads.

    Raises OpensTooFar: the first batch takes a thread that others do not wait for, and `is_alone` is False. The read is
    unchanged.
    """
    partition = read.partition
    if partition is None or read.error_code or not len(read.records):
        return 0
    log = partition.log
    if not log.config.message_downconversion_enable:
        _fail(read, ErrorCode.UNSUPPORTED_VERSION)
        return 0
    from protocol.records.down_conversion import down_convert  # most brokers never meet such a client

    magic = 0 if fetch_version < FIRST_VERSION_WITH_MAGIC_1 else 1
    fetch_offset = read.wanted.fetch_offset
    size_max = PLAIN_SIZE_MAX if is_alone else SHARED_PLAIN_SIZE_MAX
    try:
        converted = down_convert(read.records, magic=magic, fetch_offset=fetch_offset, size_max=size_max)
        count = converted.records_converted
        while not converted.records and converted.next_offset is not None:
            # Only control batches: an empty response would make this reader fetch the same offset forever.
            fetched = log.reader.read(
                converted.next_offset,
                read.wanted.bytes_max,
                upper_bound_offset=read.high_watermark,
                min_one_batch=True,
            )
            if fetched is None or not len(fetched.records):
                break
            converted = down_convert(fetched.records, magic=magic, fetch_offset=fetch_offset, size_max=size_max)
            count += converted.records_converted
    except KafkaError as error:
        _fail(read, error.code)
        return 0
    except OpensTooFar:
        if not is_alone:
            raise
        _fail(read, ErrorCode.CORRUPT_MESSAGE)
        return 0
    if converted.next_offset is not None:
        read.records = converted.records
    else:
        # Not even one batch fits the reader's buffer. A batch begins with offset and size, as a message of the old
        # formats does. From a message that is cut off after them, a reader before version 3 learns to fetch more bytes.
        # The magic byte must not follow: a reader that checks it first would fail.
        read.records = read.records[:LOG_OVERHEAD]
    return count


def _fail(read: PartitionRead, code: ErrorCode) -> None:
    read.error_code = code
    read.records = b""
