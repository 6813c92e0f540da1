"""ShareAcknowledge: a member of a share group says what became of records, and fetches none (KIP-932)."""

from __future__ import annotations

from typing import Protocol
from uuid import UUID

from base.pause import through
from broker.handlers import share_requests
from broker.handlers.declaration import COORDINATOR_LOG, Declaration, Elements, Names, Permissions
from broker.handlers.request_context import RequestContext
from broker.handlers.share_requests import Leaders, acknowledged, check_names, close_session, given_by
from broker.security.acls import Operation
from broker.share.machine.sessions import FINAL_EPOCH, INITIAL_EPOCH
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.share_acknowledge import (
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)

API = Declaration(
    ApiKey.SHARE_ACKNOWLEDGE,
    permissions=Permissions(group=Operation.READ, topic=Operation.READ),
    names=Names(group="group_id"),
    waits_for=COORDINATOR_LOG,
    elements=Elements.BULK,
)


class Needs(share_requests.Needs, Protocol):
    """The parts of the broker that this handler uses."""


async def handle(
    services: Needs, request: ShareAcknowledgeRequest, context: RequestContext
) -> ShareAcknowledgeResponse:
    try:
        group_id, member_id = check_names(request.group_id, request.member_id)
        if request.share_session_epoch == INITIAL_EPOCH:
            raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH, "Only a ShareFetch opens a session.")
        session = services.share().sessions.require(group_id, member_id, request.share_session_epoch)
    except KafkaError as error:
        return ShareAcknowledgeResponse(error_code=error.code, error_message=error.message)
    pause = services.sliced_work.pause
    given = await given_by(request.topics, pause)
    outcomes = await acknowledged(services, context, session, given)
    if request.share_session_epoch == FINAL_EPOCH:
        close_session(services.share(), session)
    leaders, topics = Leaders(services, context), dict[UUID, list[PartitionData]]()
    for (topic_id, number, _), (code, message) in zip(given, outcomes, strict=True):
        await pause()
        topics.setdefault(topic_id, []).append(
            PartitionData(
                partition_index=number,
                error_code=code,
                error_message=message,
                current_leader=leaders.of(topic_id, number, code),
            )
        )
    return ShareAcknowledgeResponse(
        responses=[
            ShareAcknowledgeTopicResponse(topic_id=topic_id, partitions=partitions)
            async for topic_id, partitions in through(topics.items(), pause)
        ],
        node_endpoints=leaders.nodes(),
    )
