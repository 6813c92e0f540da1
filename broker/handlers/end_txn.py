"""EndTxn: commit or abort a transaction. The response is sent once the outcome is durable, before the markers.

Version notes: v2 PRODUCER_FENCED, which is INVALID_PRODUCER_EPOCH in older versions.
"""

from __future__ import annotations

from typing import Protocol

from broker.handlers.declaration import COORDINATOR_LOG, Declaration, Names, Permissions
from broker.handlers.request_context import RequestContext
from broker.security.acls import Operation
from broker.transactions.coordinator import TransactionCoordinator
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from storage.producers.producer_state import Producer

FIRST_VERSION_WITH_PRODUCER_FENCED = 2


API = Declaration(
    ApiKey.END_TXN,
    permissions=Permissions(transactional_id=Operation.WRITE),
    names=Names(transactional_id="transactional_id"),
    waits_for=COORDINATOR_LOG,
)


class Needs(Protocol):
    """The parts of the broker that this handler uses."""

    transactions: TransactionCoordinator


async def handle(services: Needs, request: EndTxnRequest, context: RequestContext) -> EndTxnResponse:
    producer = Producer(request.producer_id, request.producer_epoch)
    await services.transactions.end(request.transactional_id, producer, is_committed=request.committed)
    return EndTxnResponse()


def failed(request: EndTxnRequest, context: RequestContext, code: ErrorCode) -> EndTxnResponse:
    if code is ErrorCode.PRODUCER_FENCED and context.api_version < FIRST_VERSION_WITH_PRODUCER_FENCED:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    return EndTxnResponse(error_code=code)
