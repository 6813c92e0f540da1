"""ShareFetch: a member of a share group says what became of records, and gets others (KIP-932).

Owns the meaning of the request, what its client may read, and the layout of the response. `broker.share` delivers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from base.pause import Pause, through
from broker.handlers import share_requests
from broker.handlers.declaration import Declaration, Elements, Names, Permissions
from broker.handlers.request_context import RequestContext
from broker.handlers.share_requests import (
    Given,
    Leaders,
    Outcome,
    acknowledged,
    check_names,
    close_session,
    given_by,
    located,
    open_session,
)
from broker.loop.promise import Promise
from broker.quotas.enforcement import EnforcedQuotas, Key
from broker.security.acls import Operation
from broker.share.machine.records import ShareKey
from broker.share.machine.sessions import FINAL_EPOCH, INITIAL_EPOCH, Place, ShareSession
from broker.share.share_fetch import AcquiredRecords as Acquisition
from broker.share.share_fetch import ShareFetchTerms
from broker.share.shared_partition import SharedPartition
from config import broker_properties as properties
from config.broker import BrokerConfig
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.share_fetch import (
    AcquiredRecords,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)

API = Declaration(
    ApiKey.SHARE_FETCH,
    permissions=Permissions(group=Operation.READ, topic=Operation.READ),
    names=Names(group="group_id"),
    elements=Elements.BULK,
)


class Needs(share_requests.Needs, Protocol):
    """The parts of the broker that this handler uses."""

    config: BrokerConfig
    enforced_quotas: EnforcedQuotas


async def handle(services: Needs, request: ShareFetchRequest, context: RequestContext) -> ShareFetchResponse:
    parts, pause = services.share(), services.sliced_work.pause
    given = await given_by(request.topics, pause)
    try:
        session = await _session(services, request, context, given)
    except KafkaError as error:
        return ShareFetchResponse(error_code=error.code, error_message=error.message)
    outcomes = await acknowledged(services, context, session, given)
    response = _Response(services, context)
    for (topic_id, number, batches), outcome in zip(given, outcomes, strict=True):
        if batches:
            response.add_acknowledged((topic_id, number), outcome)
        await pause()
    found: Sequence[Acquisition] = ()
    try:
        if request.share_session_epoch == FINAL_EPOCH:
            close_session(parts, session)
        else:
            found = await _fetched(services, request, context, session, response)
            for one in found:
                response.add_records(one)
                session.postpone(one.place)
        return await response.message(parts.partitions.terms(session.group_id).limits.lock_duration_ms, pause)
    finally:
        if size := parts.fetches.release(found):
            context.with_extras().records_size = size


async def _session(
    services: Needs, request: ShareFetchRequest, context: RequestContext, given: Sequence[Given]
) -> ShareSession:
    """Return the session of a request, with its partitions. Raises KafkaError."""
    parts, pause, epoch = services.share(), services.sliced_work.pause, request.share_session_epoch
    group_id, member_id = check_names(request.group_id, request.member_id)
    if epoch == INITIAL_EPOCH:
        async for _, _, batches in through(given, pause):
            if batches:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "A first request acknowledges nothing.")
        session = open_session(context.channel, parts, group_id, member_id)
    else:
        session = parts.sessions.require(group_id, member_id, epoch)
    if epoch != FINAL_EPOCH:
        async for topic_id, number, _ in through(given, pause):
            if (topic_id, number) not in session.places:
                session.add((topic_id, number))
                parts.partitions.read_again(ShareKey(group_id, topic_id, number))
        for topic in request.forgotten_topics_data:
            async for number in through(topic.partitions, pause):
                session.forget((topic.topic_id, number))
            await pause()
    return session


async def _fetched(
    services: Needs,
    request: ShareFetchRequest,
    context: RequestContext,
    session: ShareSession,
    response: _Response,
) -> Sequence[Acquisition]:
    """Return what the member gets; partitions that it cannot read go into the response."""
    places = list(session.places)
    found = await located(services, context, session.group_id, places)
    loads: dict[Place, Promise[SharedPartition]] = {}
    async for place, one in through(zip(places, found, strict=True), services.sliced_work.pause):
        if isinstance(one, Outcome):
            response.add_error(place, one)
        elif request.max_bytes > 0:  # else the member wants no records, as Kafka takes it
            loads[place] = one
    has_news = response.has_news
    bytes_max = min(request.max_bytes, services.config[properties.FETCH_MAX_BYTES])
    quotas = services.enforced_quotas
    if quotas.is_active:
        allowed = quotas.window_max(*context.quota_entity, Key.FETCH)
        bytes_max = bytes_max if allowed is None else min(bytes_max, int(allowed))
    terms = ShareFetchTerms(
        session, 0 if has_news else request.max_wait_ms, bytes_max, request.max_records, request.batch_size
    )
    acquired = await services.share().fetches.fetch(loads, terms, context)
    if quotas.is_active and acquired:
        size = sum(len(one.records) for one in acquired)
        context.mute_ms = max(context.mute_ms, quotas.record(*context.quota_entity, Key.FETCH, size))
    return acquired


class _Response:
    """The response as it grows."""

    def __init__(self, services: Needs, context: RequestContext) -> None:
        self._leaders = Leaders(services, context)
        self._partitions: dict[Place, PartitionData] = {}

    def add_acknowledged(self, place: Place, outcome: Outcome) -> None:
        data = self._data(place)
        data.acknowledge_error_code, data.acknowledge_error_message = outcome
        data.current_leader = self._leaders.of(*place, outcome.code)

    @property
    def has_news(self) -> bool:
        """Whether there is something to send before records are there."""
        return bool(self._partitions)

    def add_error(self, place: Place, outcome: Outcome) -> None:
        data = self._data(place)
        data.error_code, data.error_message = outcome
        data.current_leader = self._leaders.of(*place, outcome.code)

    def add_records(self, found: Acquisition) -> None:
        if found.error is not None:
            self.add_error(found.place, Outcome(found.error.code, found.error.message))
            return
        data = self._data(found.place)
        data.records = found.records
        data.acquired_records = [
            AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
            for first, last, count in found.acquired
        ]

    async def message(self, lock_duration_ms: int, pause: Pause) -> ShareFetchResponse:
        topics: dict[UUID, list[PartitionData]] = {}
        async for (topic_id, _), data in through(self._partitions.items(), pause):
            topics.setdefault(topic_id, []).append(data)
        return ShareFetchResponse(
            acquisition_lock_timeout_ms=lock_duration_ms,
            responses=[
                ShareFetchableTopicResponse(topic_id=topic_id, partitions=partitions)
                async for topic_id, partitions in through(topics.items(), pause)
            ],
            node_endpoints=self._leaders.nodes(),
        )

    def _data(self, place: Place) -> PartitionData:
        data = self._partitions.get(place)
        if data is None:
            # Empty records, not null: librdkafka may reject null records.
            data = self._partitions[place] = PartitionData(partition_index=place[1], records=b"")
        return data
