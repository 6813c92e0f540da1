"""Fetch (1): reads record batches, for consumers and for followers.

v3 limits the whole response, v4 adds isolation levels, v5 log start offsets, v7 incremental sessions (KIP-227), v9
leader epochs (KIP-320), v10 zstd, v11 reading from followers (KIP-392), v12 diverging epochs (KIP-595), v13 topic
ids instead of names (KIP-516), v15 moves the replica into a tagged struct (KIP-903), v16 reports new leaders
(KIP-951), v17 the directory of a follower (KIP-853).
"""

from typing import NamedTuple
from uuid import UUID

from protocol.api_key import ApiKey
from protocol.schema import ZERO_UUID, int8, int16, int32, int64, message, records_, since, string, struct, uuid


@struct
class ReplicaState:
    replica_id: int32 = -1  # -1: a consumer
    replica_epoch: int64 = -1


@struct
class FetchPartition:
    partition: int32
    current_leader_epoch: int32 = since(9, ignorable=True, default=-1)
    fetch_offset: int64
    last_fetched_epoch: int32 = since(12, default=-1)  # lets the leader detect where the logs diverge
    log_start_offset: int64 = since(5, ignorable=True, default=-1)  # of a follower
    partition_max_bytes: int32
    replica_directory_id: uuid = since(17, tag=0, ignorable=True, default=ZERO_UUID)


@struct
class FetchTopic:
    topic: string = since(0, until=12, ignorable=True, default="")
    topic_id: uuid = since(13, ignorable=True, default=ZERO_UUID)
    partitions: list[FetchPartition]


@struct
class ForgottenTopic:
    topic: string = since(7, until=12, ignorable=True, default="")
    topic_id: uuid = since(13, ignorable=True, default=ZERO_UUID)
    partitions: list[int32]  # to be removed from the session


@message(ApiKey.FETCH, versions=range(0, 18), flexible=12)
class FetchRequest:
    cluster_id: string | None = since(12, tag=0, ignorable=True, default=None)
    replica_id: int32 = since(0, until=14, default=-1)  # -1: a consumer, -2: a debugger
    replica_state: ReplicaState | None = since(15, tag=1, default=None)
    max_wait_ms: int32
    min_bytes: int32
    max_bytes: int32 = since(3, ignorable=True, default=0x7FFF_FFFF)
    isolation_level: int8 = since(4, ignorable=True, default=0)  # 0: read uncommitted, 1: read committed
    session_id: int32 = since(7, ignorable=True, default=0)
    session_epoch: int32 = since(7, ignorable=True, default=-1)  # -1: no session, 0: a full request
    topics: list[FetchTopic]
    forgotten_topics_data: list[ForgottenTopic] = since(7, default=[])
    rack_id: string = since(11, ignorable=True, default="")


class FetchRow(NamedTuple):
    """One partition of a request."""

    topic: str
    topic_id: UUID
    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    partition_max_bytes: int


class ForgottenRow(NamedTuple):
    """Partitions of one topic that are to be removed from the session."""

    topic: str
    topic_id: UUID
    partitions: list[int]


class ScannedFetch(NamedTuple):
    """The result of scanning a FetchRequest (`protocol.scanner`)."""

    replica_id: int
    replica_state: ReplicaState | None
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[FetchRow]
    forgotten_topics_data: list[ForgottenRow]
    rack_id: string


@struct
class EpochEndOffset:
    epoch: int32 = -1
    end_offset: int64 = -1


@struct
class LeaderIdAndEpoch:
    leader_id: int32 = -1
    leader_epoch: int32 = -1


@struct
class SnapshotId:
    end_offset: int64 = -1
    epoch: int32 = -1


@struct
class AbortedTransaction:
    producer_id: int64
    first_offset: int64


@struct
class PartitionData:
    partition_index: int32
    error_code: int16 = 0
    high_watermark: int64 = -1
    last_stable_offset: int64 = since(4, default=-1)
    log_start_offset: int64 = since(5, default=-1)
    diverging_epoch: EpochEndOffset | None = since(12, tag=0, default=None)
    current_leader: LeaderIdAndEpoch | None = since(12, tag=1, default=None)
    snapshot_id: SnapshotId | None = since(12, tag=2, default=None)
    aborted_transactions: list[AbortedTransaction] | None = since(4, default=None)  # None: read uncommitted
    preferred_read_replica: int32 = since(11, default=-1)  # -1: keep reading from this broker
    records: records_ | None = b""


@struct
class FetchableTopicResponse:
    topic: string = since(0, until=12, default="")
    topic_id: uuid = since(13, default=ZERO_UUID)
    partitions: list[PartitionData]


@struct
class NodeEndpoint:
    node_id: int32
    host: string
    port: int32
    rack: string | None = None


@message(ApiKey.FETCH, versions=range(0, 18), flexible=12)
class FetchResponse:
    throttle_time_ms: int32 = since(1, default=0)
    error_code: int16 = since(7, default=0)
    session_id: int32 = since(7, default=0)
    responses: list[FetchableTopicResponse] = []
    node_endpoints: list[NodeEndpoint] = since(16, tag=0, default=[])
