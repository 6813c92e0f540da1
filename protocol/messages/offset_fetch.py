"""OffsetFetch (9): reads the offsets that a group has stored.

v0 read from ZooKeeper. v2 asks for all topics with null and adds a top-level error, v5 leader epochs, v7 stable
offsets only, v8 several groups in a request, v9 members of the new group protocol (KIP-848).
"""

from protocol.api_key import ApiKey
from protocol.schema import boolean, int16, int32, int64, message, since, string, struct


@struct
class OffsetFetchRequestTopic:
    name: string
    partition_indexes: list[int32]


@struct
class OffsetFetchRequestTopics:
    name: string
    partition_indexes: list[int32]


@struct
class OffsetFetchRequestGroup:
    group_id: string
    member_id: string | None = since(9, ignorable=True, default=None)
    member_epoch: int32 = since(9, ignorable=True, default=-1)
    topics: list[OffsetFetchRequestTopics] | None  # None: all


@message(ApiKey.OFFSET_FETCH, versions=range(0, 10), flexible=6)
class OffsetFetchRequest:
    group_id: string = since(0, until=7, default="")
    topics: list[OffsetFetchRequestTopic] | None = since(0, until=7, nullable=2, default=None)  # None: all
    groups: list[OffsetFetchRequestGroup] = since(8, default=[])
    require_stable: boolean = since(7, default=False)


@struct
class OffsetFetchResponsePartition:
    partition_index: int32
    committed_offset: int64 = -1  # -1: none
    committed_leader_epoch: int32 = since(5, default=-1)
    metadata: string | None = ""
    error_code: int16 = 0


@struct
class OffsetFetchResponseTopic:
    name: string
    partitions: list[OffsetFetchResponsePartition]


@struct
class OffsetFetchResponsePartitions:
    partition_index: int32
    committed_offset: int64 = -1  # -1: none
    committed_leader_epoch: int32 = -1
    metadata: string | None = ""
    error_code: int16 = 0


@struct
class OffsetFetchResponseTopics:
    name: string
    partitions: list[OffsetFetchResponsePartitions]


@struct
class OffsetFetchResponseGroup:
    group_id: string
    topics: list[OffsetFetchResponseTopics] = []
    error_code: int16 = 0


@message(ApiKey.OFFSET_FETCH, versions=range(0, 10), flexible=6)
class OffsetFetchResponse:
    throttle_time_ms: int32 = since(3, default=0)
    topics: list[OffsetFetchResponseTopic] = since(0, until=7, default=[])
    error_code: int16 = since(2, until=7, default=0)
    groups: list[OffsetFetchResponseGroup] = since(8, default=[])
