"""AlterReplicaLogDirs (34): moves replicas between the log directories of a broker.

v2 is flexible.
"""

from protocol.api_key import ApiKey
from protocol.schema import int16, int32, message, string, struct


@struct
class AlterReplicaLogDirTopic:
    name: string
    partitions: list[int32]


@struct
class AlterReplicaLogDir:
    path: string
    topics: list[AlterReplicaLogDirTopic]


@message(ApiKey.ALTER_REPLICA_LOG_DIRS, versions=range(0, 3), flexible=2)
class AlterReplicaLogDirsRequest:
    dirs: list[AlterReplicaLogDir]


@struct
class AlterReplicaLogDirPartitionResult:
    partition_index: int32
    error_code: int16 = 0


@struct
class AlterReplicaLogDirTopicResult:
    topic_name: string
    partitions: list[AlterReplicaLogDirPartitionResult]


@message(ApiKey.ALTER_REPLICA_LOG_DIRS, versions=range(0, 3), flexible=2)
class AlterReplicaLogDirsResponse:
    throttle_time_ms: int32 = 0
    results: list[AlterReplicaLogDirTopicResult]
