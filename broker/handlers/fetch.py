"""Fetch: read record batches, at once or when enough bytes are available.

Stored batches are sent unchanged. Owns the meaning of the request, what its client may read, and the layout of the
response. `broker.replica.fetch_service` reads and waits.

Version notes: v3 request-wide byte limit and whole first batch; v4 isolation levels; v5 log start offset; v7 sessions
(KIP-227); v9 leader epoch check; v12 last fetched epoch and diverging epoch; v13 topic ids; v15 replica state; v16
current leader with codes 6 and 74 (KIP-951).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from base.pause import Pause
from broker.cluster.metadata_cache import MetadataCache
from broker.handlers import leader_hints
from broker.handlers.cluster_action import is_listener_of_brokers
from broker.handlers.declaration import Declaration, Elements, Permissions
from broker.handlers.leader_hints import LEADER_ERRORS, leader_hint
from broker.handlers.metric_names import FETCH_CONSUMER, FETCH_FOLLOWER
from broker.handlers.request_context import RequestContext
from broker.loop.slices import SlicedWork
from broker.quotas.enforcement import EnforcedQuotas, Key
from broker.replica.bound_partition import bind
from broker.replica.fetch_service import NO_BROKER_EPOCH, Fetch, FetchService, ReadTerms
from broker.replica.fetch_sessions import FetchPartition, PartitionKey
from broker.replica.manager import ReplicaManager
from broker.replica.old_readers import needs_conversion
from broker.replica.partition import NO_EPOCH, Partition
from broker.replica.reader import CONSUMER, NO_PREFERENCE, FetchLimits, Located, PartitionRead
from broker.security.acls import Operation, ResourceType
from broker.security.authorizer import Authorizer
from config import broker_properties as properties
from config.broker import BrokerConfig
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ScannedFetch,
)
from protocol.row_writer import RowResponse, fetch_writer
from protocol.schema import Records, first_version

if TYPE_CHECKING:
    from broker.replica.near_reads import NearReads

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
FIRST_VERSION_WITH_REQUEST_LIMIT = first_version(FetchRequest, "max_bytes")
FIRST_VERSION_WITH_SESSIONS = first_version(FetchRequest, "session_id")
FIRST_VERSION_WITH_TOPIC_IDS = first_version(FetchableTopicResponse, "topic_id")
FIRST_VERSION_WITH_FOLLOWERS = first_version(FetchRequest, "rack_id")
FIRST_VERSION_WITH_LEADERS = first_version(FetchResponse, "node_endpoints")

SCANNED = ScannedFetch

_new_tuple = tuple.__new__  # creates a named tuple in half the time of calling its class

Response = FetchResponse | RowResponse
"""A `RowResponse` if no partition has an error."""


API = Declaration(
    ApiKey.FETCH,
    permissions=Permissions(topic=Operation.READ, note="ClusterAction on the cluster for followers"),
    elements=Elements.BULK,
)


class Needs(leader_hints.Needs, Protocol):
    """The parts of the broker that this handler uses."""

    authorizer: Authorizer
    enforced_quotas: EnforcedQuotas
    config: BrokerConfig
    metadata_cache: MetadataCache
    replica_manager: ReplicaManager
    fetch_service: FetchService
    sliced_work: SlicedWork

    def why_not_hosted(self, topic: str, partition: int) -> KafkaError: ...


async def handle(services: Needs, request: ScannedFetch, context: RequestContext) -> Response:
    reader = (_AuthorizedReader if services.authorizer.is_active else _Reader)(services, request, context)
    fetch = Fetch(services.fetch_service, reader.terms, reader.locate, context)
    try:
        read = await fetch.read(
            reader.named() if request.topics else (), reader.forgotten() if request.forgotten_topics_data else ()
        )
        if services.enforced_quotas.is_active and not reader.is_admitted(read.size):
            return FetchResponse(session_id=fetch.session_id, responses=[])
        sent = await fetch.sent(read)
        is_committed = reader.terms.limits.read_committed
        if sent and await _need_encoder(sent, fetch.pause):
            return await _message(services, context, fetch.session_id, sent, is_urgent=read.is_urgent)
        return await _rows(services, context, fetch.session_id, sent, is_committed=is_committed)
    finally:
        if fetch.reserved_size:
            context.with_extras().records_size = fetch.release()


def failed(request: ScannedFetch, context: RequestContext, code: ErrorCode) -> FetchResponse:
    """Return the response to a request that failed as a whole. Before version 7 only partitions carry error codes."""
    topics: list[FetchableTopicResponse] = []
    if context.api_version < FIRST_VERSION_WITH_SESSIONS:
        for row in request.topics:
            _add(topics, row.topic, row.topic_id, _error_data(row.partition, code))
    return FetchResponse(error_code=code, responses=topics)


def _replica_id_of(request: ScannedFetch) -> int:
    """Return the id of the reader: `CONSUMER`, a follower's above it, a tool's below it."""
    return request.replica_id if request.replica_state is None else request.replica_state.replica_id


def metric_name(request: ScannedFetch) -> str:
    """Return the request name for metrics; Kafka's `Fetch` is the sum of both."""
    return FETCH_FOLLOWER if _replica_id_of(request) > CONSUMER else FETCH_CONSUMER


class _Reader:
    """Binds the partitions of one Fetch request, and knows what its client may read."""

    __slots__ = ("_context", "_is_follower", "_request", "_services", "_uses_topic_ids", "terms")

    def __init__(self, services: Needs, request: ScannedFetch, context: RequestContext) -> None:
        """Raises KafkaError: INVALID_REQUEST for an unknown isolation level."""
        self._services = services
        self._request = request
        self._context = context
        if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"isolation level {request.isolation_level}: expected is 0 or 1"
            )
        version = context.api_version
        self._uses_topic_ids = version >= FIRST_VERSION_WITH_TOPIC_IDS
        replica_id = _replica_id_of(request)
        self._is_follower = replica_id > CONSUMER
        if self._is_follower:
            context.is_of_broker = self._may_follow()
        has_limit = version >= FIRST_VERSION_WITH_REQUEST_LIMIT
        bytes_max = services.config[properties.FETCH_MAX_BYTES]
        if has_limit:
            bytes_max = min(bytes_max, request.max_bytes)
        if services.enforced_quotas.is_active and not self._is_follower:
            allowed = services.enforced_quotas.window_max(*context.quota_entity, Key.FETCH)
            if allowed is not None:
                bytes_max = min(bytes_max, max(1, int(allowed)))  # with 0, no fetch would wait for records
        state = request.replica_state
        near_reads = services.fetch_service.near_reads
        reads_followers = replica_id == CONSUMER and version >= FIRST_VERSION_WITH_FOLLOWERS
        limits = (
            bytes_max,
            request.isolation_level == READ_COMMITTED and not self._is_follower,
            has_limit,
            replica_id,
            not needs_conversion(version, replica_id),
            reads_followers,
        )
        self.terms = _new_tuple(
            ReadTerms,
            (
                version,
                request.session_id,
                request.session_epoch,
                self._uses_topic_ids,
                request.max_wait_ms,
                min(request.min_bytes, bytes_max),
                _new_tuple(FetchLimits, limits),
                NO_BROKER_EPOCH if state is None else state.replica_epoch,
                self._prefer(near_reads) if reads_followers and near_reads is not None else None,
            ),
        )

    def _prefer(self, near_reads: NearReads) -> Callable[[Partition, int], int | None]:
        """Return what chooses a near replica for the client."""
        context = self._context
        return near_reads.for_client(
            self._request.rack_id, context.client_id or "", context.client_host, context.principal, context.listener
        )

    def is_admitted(self, size: int) -> bool:
        """Count `size` bytes of records for the client's quota; return whether they may be sent.

        A client that is throttled gets none of the records.
        """
        if self._is_follower:
            return True
        quotas = self._services.enforced_quotas
        user, client_id = self._context.quota_entity
        throttle_ms = quotas.record(user, client_id, Key.FETCH, size)
        if throttle_ms:
            quotas.take_back(user, client_id, Key.FETCH, size)
            self._context.mute_ms = max(self._context.mute_ms, throttle_ms)
        return throttle_ms <= 0

    def named(self) -> Iterable[FetchPartition]:
        """Return the partitions that the request names."""
        name_of = self._services.metadata_cache.name_of
        by_id = self._uses_topic_ids
        for topic, topic_id, index, epoch, offset, last_epoch, log_start_offset, bytes_max in self._request.topics:
            yield FetchPartition(
                (topic_id if by_id else topic, index),
                name_of(topic_id) if by_id else topic,
                topic_id,
                index,
                offset,
                bytes_max,
                max(epoch, NO_EPOCH),
                last_epoch,
                log_start_offset,
            )

    def forgotten(self) -> Iterable[PartitionKey]:
        """Return the partitions that the request removes from its session."""
        by_id = self._uses_topic_ids
        for topic, topic_id, indexes in self._request.forgotten_topics_data:
            for index in indexes:
                yield (topic_id if by_id else topic, index)

    def locate(self, wanted: FetchPartition) -> Located:
        """Bind a partition: a `broker.replica.fetch_service.Locate`."""
        bound = wanted.bound
        if bound is not None and bound.version == bound.partition.version:
            return wanted, bound.partition, ErrorCode.NONE
        services = self._services
        if wanted.topic is None:
            wanted.topic = self._name_of(wanted.topic_id)
            if wanted.topic is None:
                return wanted, None, ErrorCode.UNKNOWN_TOPIC_ID
        bound = bind(self._context.channel.bound, services.replica_manager, wanted.topic, wanted.partition)
        if bound is None:
            return wanted, None, services.why_not_hosted(wanted.topic, wanted.partition).code
        if self._uses_topic_ids and bound.partition.log.topic_id != wanted.topic_id:
            return wanted, None, ErrorCode.INCONSISTENT_TOPIC_ID
        wanted.bound = bound
        return wanted, bound.partition, ErrorCode.NONE

    def _may_follow(self) -> bool:
        return is_listener_of_brokers(self._services.config, self._context.listener)

    def _name_of(self, topic_id: UUID) -> str | None:
        services = self._services
        return services.metadata_cache.name_of(topic_id) or services.replica_manager.topic_of(topic_id)


class _AuthorizedReader(_Reader):
    """A Fetch request of a broker with an authorizer."""

    __slots__ = ()

    def locate(self, wanted: FetchPartition) -> Located:
        """Do the same, but look up only what the client may read."""
        name = wanted.topic if wanted.topic is not None else self._name_of(wanted.topic_id)
        if name is not None and not self._may_read(name):
            wanted.topic = name
            return wanted, None, ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return super().locate(wanted)

    def _may_follow(self) -> bool:
        return self._services.authorizer.allows_cluster(self._context, Operation.CLUSTER_ACTION)

    def _may_read(self, topic: str) -> bool:
        authorizer, context = self._services.authorizer, self._context
        if self._is_follower:
            return context.is_of_broker
        return authorizer.allows(context, Operation.READ, ResourceType.TOPIC, topic)


async def _rows(
    services: Needs, context: RequestContext, session_id: int, reads: Sequence[PartitionRead], *, is_committed: bool
) -> RowResponse:
    """Return the response if it needs no encoder."""
    pause = services.sliced_work.pause
    groups: list[tuple[str, UUID, list[tuple[int, int, int, int, Records]]]] = []
    for read in reads:
        wanted = read.wanted
        name, topic_id = wanted.topic or "", wanted.topic_id
        if not groups or groups[-1][1] != topic_id or groups[-1][0] != name:
            groups.append((name, topic_id, []))
        groups[-1][2].append(
            (wanted.partition, read.high_watermark, read.last_stable_offset, read.log_start_offset, read.records)
        )
        await pause()
    write = fetch_writer(context.api_version).write
    return RowResponse(len(reads), partial(write, session_id, groups, is_committed=is_committed))


async def _message(
    services: Needs, context: RequestContext, session_id: int, reads: Sequence[PartitionRead], *, is_urgent: bool
) -> FetchResponse:
    """Return the response with all that a partition may carry. `is_urgent`: see `FetchRead.is_urgent`."""
    pause = services.sliced_work.pause
    topics: list[FetchableTopicResponse] = []
    for read in reads:
        _add(topics, read.wanted.topic or "", read.wanted.topic_id, _data(read))
        await pause()
    response = FetchResponse(session_id=session_id, responses=topics)
    if is_urgent and context.api_version >= FIRST_VERSION_WITH_LEADERS:
        await _add_leaders(services, context, response)
    return response


async def _add_leaders(services: Needs, context: RequestContext, response: FetchResponse) -> None:
    """Add the current leader to partitions with an error of `LEADER_ERRORS` (KIP-951)."""
    nodes: dict[int, NodeEndpoint] = {}
    listener = context.listener
    for topic in response.responses:
        for data in topic.partitions:
            await services.sliced_work.pause()
            if data.error_code not in LEADER_ERRORS:
                continue
            hint = leader_hint(services, topic.topic, data.partition_index, listener)
            data.current_leader = LeaderIdAndEpoch(leader_id=hint.leader_id, leader_epoch=hint.leader_epoch)
            if hint.node is not None:
                host, port = hint.node.endpoints[listener]
                nodes[hint.leader_id] = NodeEndpoint(node_id=hint.leader_id, host=host, port=port, rack=hint.node.rack)
    response.node_endpoints = list(nodes.values())


async def _need_encoder(reads: Sequence[PartitionRead], pause: Pause) -> bool:
    """Return whether the response carries more for a partition than a `RowResponse` can encode."""
    for read in reads:
        if read.error_code or read.aborted_transactions or read.diverging is not None:
            return True
        if read.preferred_replica != NO_PREFERENCE:
            return True
        await pause()
    return False


def _add(topics: list[FetchableTopicResponse], name: str, topic_id: UUID, data: PartitionData) -> None:
    """Add one partition; consecutive partitions of one topic share an entry."""
    if not topics or topics[-1].topic_id != topic_id or topics[-1].topic != name:
        topics.append(FetchableTopicResponse(topic=name, topic_id=topic_id, partitions=[]))
    topics[-1].partitions.append(data)


def _data(read: PartitionRead) -> PartitionData:
    if read.error_code:
        return _error_data(read.wanted.partition, read.error_code)
    data = PartitionData(
        partition_index=read.wanted.partition,
        error_code=ErrorCode.NONE,
        high_watermark=read.high_watermark,
        last_stable_offset=read.last_stable_offset,
        log_start_offset=read.log_start_offset,
        aborted_transactions=None,
        preferred_read_replica=read.preferred_replica,
        records=read.records,
    )
    if read.aborted_transactions is not None:
        data.aborted_transactions = [
            AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
            for aborted in read.aborted_transactions
        ]
    if read.diverging is not None:
        epoch, end_offset = read.diverging
        data.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
    return data


def _error_data(partition: int, code: ErrorCode) -> PartitionData:
    # Empty records, not null: librdkafka rejects null records.
    return PartitionData(
        partition_index=partition, error_code=code, high_watermark=-1, aborted_transactions=None, records=b""
    )
