"""What ShareFetch and ShareAcknowledge have in common: sessions, acknowledgements and the leaders of errors.

Owns: the steps that both take for each partition. Must not know: the layouts of their messages.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple, Protocol
from uuid import UUID

from base.pause import Pause, through
from broker.cluster.metadata_cache import MetadataCache
from broker.handlers import leader_hints
from broker.handlers.leader_hints import LEADER_ERRORS, LeaderHint, leader_hint
from broker.handlers.request_context import RequestContext
from broker.loop.promise import Promise
from broker.loop.slices import SlicedWork
from broker.network.channel import Channel
from broker.replica.manager import ReplicaManager
from broker.security.acls import Operation, ResourceType
from broker.security.authorizer import Authorizer
from broker.share.machine.deliveries import Acknowledgement
from broker.share.machine.records import ShareKey
from broker.share.machine.sessions import Place, ShareSession
from broker.share.parts import ShareParts
from broker.share.shared_partition import SharedPartition
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.share_fetch import AcknowledgementBatch, LeaderIdAndEpoch, NodeEndpoint


class Needs(leader_hints.Needs, Protocol):
    """The parts of the broker that both handlers use."""

    authorizer: Authorizer
    metadata_cache: MetadataCache
    replica_manager: ReplicaManager
    share: Callable[[], ShareParts]
    sliced_work: SlicedWork

    def why_not_hosted(self, topic: str, partition: int) -> KafkaError: ...


class Outcome(NamedTuple):
    """The result for one partition."""

    code: ErrorCode = ErrorCode.NONE
    message: str | None = None


DONE = Outcome()


def check_names(group_id: str | None, member_id: str | None) -> tuple[str, str]:
    """Return group and member of a request. Raises KafkaError: INVALID_REQUEST."""
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "GroupId can't be empty.")
    if not member_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "MemberId can't be empty.")
    return group_id, member_id


def open_session(channel: Channel, parts: ShareParts, group_id: str, member_id: str) -> ShareSession:
    """Begin a session, which ends with its connection, in place of the one that the member may have.

    Raises KafkaError: SHARE_SESSION_LIMIT_REACHED.
    """
    before = parts.sessions.find(group_id, member_id)
    if before is not None:
        close_session(parts, before)
    channel.when_closed(parts.sessions, partial(_close_all, parts, channel))
    return parts.sessions.open(group_id, member_id, channel)


def _close_all(parts: ShareParts, channel: Channel) -> None:
    for session in parts.sessions.of_connection(channel):
        close_session(parts, session)


def close_session(parts: ShareParts, session: ShareSession) -> None:
    """End a session; what its member has acquired is available again."""
    places = parts.sessions.close(session)
    keys = (ShareKey(session.group_id, topic_id, number) for topic_id, number in places)
    parts.partitions.release(session.group_id, keys, session)


class Asking(Protocol):
    """A partition in a request, with what its member says of records."""

    partition_index: int
    acknowledgement_batches: list[AcknowledgementBatch]


class AskingTopic(Protocol):
    """A topic in a request."""

    topic_id: UUID

    @property
    def partitions(self) -> Sequence[Asking]: ...


Given = tuple[UUID, int, Sequence[AcknowledgementBatch]]
"""Topic id and number of a partition, and what a member says of its records."""


async def given_by(topics: Sequence[AskingTopic], pause: Pause) -> list[Given]:
    """Return the partitions of a request."""
    return [
        (topic.topic_id, wanted.partition_index, wanted.acknowledgement_batches)
        async for topic in through(topics, pause)
        async for wanted in through(topic.partitions, pause)
    ]


async def located(
    services: Needs, context: RequestContext, group_id: str, places: Iterable[Place]
) -> list[Promise[SharedPartition] | Outcome]:
    """Return partitions that the client may read, or why it does not get them. All are loaded at the same time."""
    begun: list[Promise[SharedPartition] | Outcome] = []
    async for topic_id, number in through(places, services.sliced_work.pause):
        try:
            begun.append(_located(services, context, group_id, topic_id, number))
        except KafkaError as error:
            begun.append(Outcome(error.code, error.message))
    return begun


def _located(
    services: Needs, context: RequestContext, group_id: str, topic_id: UUID, number: int
) -> Promise[SharedPartition]:
    name = services.metadata_cache.name_of(topic_id) or services.replica_manager.topic_of(topic_id)
    if name is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    if not services.authorizer.allows(context, Operation.READ, ResourceType.TOPIC, name):
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if services.replica_manager.find(name, number) is None:
        raise services.why_not_hosted(name, number)
    return services.share().partitions.find(group_id, name, topic_id, number)


async def acknowledged(
    services: Needs,
    context: RequestContext,
    session: ShareSession,
    given: Sequence[Given],
) -> list[Outcome]:
    """Apply the acknowledgements of each partition, and return the outcomes once all are stored."""
    pause = services.sliced_work.pause
    places = [(topic_id, number) async for topic_id, number, batches in through(given, pause) if batches]
    found = iter(await located(services, context, session.group_id, places))
    begun = [
        await _begun(services, session, next(found), batches) if batches else DONE
        async for _, _, batches in through(given, pause)
    ]
    return [
        outcome if isinstance(outcome, Outcome) else await _ended(outcome) async for outcome in through(begun, pause)
    ]


async def _begun(
    services: Needs,
    session: ShareSession,
    located: Promise[SharedPartition] | Outcome,
    batches: Sequence[AcknowledgementBatch],
) -> Outcome | Awaitable[None]:
    """Apply the acknowledgements of one partition, and return its outcome, or the awaitable of when they are stored."""
    if isinstance(located, Outcome):
        return located
    said = [_acknowledgement(one) async for one in through(batches, services.sliced_work.pause)]
    try:
        return services.share().partitions.acknowledge(await located, session, said)
    except KafkaError as error:
        return Outcome(error.code, error.message)


async def _ended(stored: Awaitable[None]) -> Outcome:
    try:
        await stored
    except KafkaError as error:
        return Outcome(error.code, error.message)
    return DONE


def _acknowledgement(batch: AcknowledgementBatch) -> Acknowledgement:
    return Acknowledgement(batch.first_offset, batch.last_offset, batch.acknowledge_types)


class Leaders:
    """The leaders that the response to one request names (KIP-951)."""

    def __init__(self, services: Needs, context: RequestContext) -> None:
        self._services = services
        self._listener = context.listener
        self._nodes: dict[int, NodeEndpoint] = {}

    def of(self, topic_id: UUID, number: int, code: ErrorCode) -> LeaderIdAndEpoch:
        """Return the leader that an error calls for; nobody for other errors."""
        name = self._services.metadata_cache.name_of(topic_id) if code in LEADER_ERRORS else None
        if name is None:
            return LeaderIdAndEpoch()
        hint: LeaderHint = leader_hint(self._services, name, number, self._listener)
        if hint.node is not None:
            host, port = hint.node.endpoints[self._listener]
            self._nodes[hint.leader_id] = NodeEndpoint(
                node_id=hint.leader_id, host=host, port=port, rack=hint.node.rack
            )
        return LeaderIdAndEpoch(leader_id=hint.leader_id, leader_epoch=hint.leader_epoch)

    def nodes(self) -> list[NodeEndpoint]:
        """Return the addresses of the leaders that were named."""
        return list(self._nodes.values())
