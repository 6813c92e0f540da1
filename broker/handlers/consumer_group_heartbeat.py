"""ConsumerGroupHeartbeat: rejected, as a cluster with ZooKeeper supports the classic protocol only (KIP-848)."""

from __future__ import annotations

from broker.handlers.declaration import Declaration
from broker.handlers.request_context import RequestContext
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse

API = Declaration(ApiKey.CONSUMER_GROUP_HEARTBEAT)


def handle(
    services: object, request: ConsumerGroupHeartbeatRequest, context: RequestContext
) -> ConsumerGroupHeartbeatResponse:
    return failed(request, context, ErrorCode.UNSUPPORTED_VERSION)


def failed(
    request: ConsumerGroupHeartbeatRequest, context: RequestContext, code: ErrorCode
) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=code, member_epoch=0, heartbeat_interval_ms=0)
