"""DescribeLogDirs (35): returns the log directories of a broker and their partitions.

v3 adds a top-level error, v4 the size of the volumes (KIP-827).
"""

from protocol.api_key import ApiKey
from protocol.schema import boolean, int16, int32, int64, message, since, string, struct


@struct
class DescribableLogDirTopic:
    topic: string
    partitions: list[int32]


@message(ApiKey.DESCRIBE_LOG_DIRS, versions=range(0, 5), flexible=2)
class DescribeLogDirsRequest:
    topics: list[DescribableLogDirTopic] | None  # None: all


@struct
class DescribeLogDirsPartition:
    partition_index: int32
    partition_size: int64
    offset_lag: int64
    is_future_key: boolean  # will replace the current log once it has caught up


@struct
class DescribeLogDirsTopic:
    name: string
    partitions: list[DescribeLogDirsPartition]


@struct
class DescribeLogDirsResult:
    error_code: int16 = 0
    log_dir: string
    topics: list[DescribeLogDirsTopic] = []
    total_bytes: int64 = since(4, default=-1)
    usable_bytes: int64 = since(4, default=-1)


@message(ApiKey.DESCRIBE_LOG_DIRS, versions=range(0, 5), flexible=2)
class DescribeLogDirsResponse:
    throttle_time_ms: int32 = 0
    error_code: int16 = since(3, default=0)
    results: list[DescribeLogDirsResult] = []
