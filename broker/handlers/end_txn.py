"""EndTxn: commit or abort a transaction. The response is sent once the outcome is durable, before the markers.

Version notes: v2 PRODUCER_FENCED, which is INVALID_PRODUCER_EPOCH in older versions; v5 transactions of version 2: the
producer continues with the epoch in the response (KIP-890).
"""

from __future__ import annotations

from typing import Protocol

from broker.handlers.declaration import COORDINATOR_LOG, Declaration, Names, Permissions
from broker.handlers.request_context import RequestContext
from broker.security.acls import Operation
from broker.transactions.coordinator import TransactionCoordinator
from broker.transactions.machine.transaction import VERSION_1, VERSION_2, EndOfTransaction
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from storage.producers.producer_state import Producer

FIRST_VERSION_WITH_PRODUCER_FENCED = 2
FIRST_VERSION_THAT_RAISES_EPOCHS = 5


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
    version = VERSION_2 if context.api_version >= FIRST_VERSION_THAT_RAISES_EPOCHS else VERSION_1
    producer = Producer(request.producer_id, request.producer_epoch)
    next_producer = await services.transactions.end(
        request.transactional_id, EndOfTransaction(producer, request.committed, version)
    )
    return EndTxnResponse(producer_id=next_producer.producer_id, producer_epoch=next_producer.epoch)


def failed(request: EndTxnRequest, context: RequestContext, code: ErrorCode) -> EndTxnResponse:
    if code is ErrorCode.PRODUCER_FENCED and context.api_version < FIRST_VERSION_WITH_PRODUCER_FENCED:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    return EndTxnResponse(error_code=code)
