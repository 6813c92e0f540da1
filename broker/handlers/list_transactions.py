"""ListTransactions: list the transactional ids coordinated here; for all ids a client sends it to every broker.

Unknown state names in the filter are returned, and match nothing.

Version notes: v1 filters by the minimum duration of the transaction (KIP-994); v2 by a regular expression (KIP-1152).
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, Protocol

from base import re2_patterns
from base.clock import Clock
from base.pause import through
from broker.handlers.declaration import Declaration, Permissions
from broker.handlers.guard import Guard
from broker.handlers.partial_service import Needs as PartNeeds
from broker.handlers.request_context import RequestContext
from broker.loop.slices import SlicedWork
from broker.security.acls import Operation, ResourceType
from broker.transactions.coordinator import TransactionCoordinator
from broker.transactions.machine.states import STATES_BY_TITLE
from broker.transactions.machine.transaction import Metadata
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)

API = Declaration(
    ApiKey.LIST_TRANSACTIONS,
    permissions=Permissions(transactional_id=Operation.DESCRIBE, note="other transactions are not listed"),
)


class Needs(Protocol):
    """The parts of the broker that this handler uses."""

    clock: Clock
    transactions: TransactionCoordinator
    sliced_work: SlicedWork


async def handle(
    services: Needs, request: ListTransactionsRequest, context: RequestContext
) -> ListTransactionsResponse:
    pause = services.sliced_work.pause
    now_ms = services.clock.now_ms()
    known = list(services.transactions.inspection.transactions())
    is_named = _named(request.transactional_id_pattern)
    states, producer_ids = frozenset(request.state_filters), frozenset(request.producer_id_filters)
    listed = [
        _state(name, metadata)
        async for name, metadata in through(known, pause)
        if (not states or metadata.state.title in states)
        and (not producer_ids or metadata.producer_id in producer_ids)
        and (request.duration_filter < 0 or now_ms - metadata.started_ms > request.duration_filter)
        and is_named(name)
    ]
    return ListTransactionsResponse(unknown_state_filters=_unknown_states(request), transaction_states=listed)


def _named(pattern: str | None) -> Callable[[str], bool]:
    """Return the test of ids by a regular expression (RE2). Raises KafkaError: INVALID_REGULAR_EXPRESSION."""
    if not pattern:
        return lambda _: True
    try:
        return re2_patterns.matcher(pattern)
    except ValueError as error:
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"TransactionalIdPattern `{pattern}` is not a valid regular expression: {error}.",
        ) from error


def _state(transactional_id: str, metadata: Metadata) -> TransactionState:
    return TransactionState(
        transactional_id=transactional_id,
        producer_id=metadata.producer_id,
        transaction_state=metadata.state.title,
    )


def failed(request: ListTransactionsRequest, context: RequestContext, code: ErrorCode) -> ListTransactionsResponse:
    return ListTransactionsResponse(error_code=code, unknown_state_filters=_unknown_states(request))


def _unknown_states(request: ListTransactionsRequest) -> list[str]:
    return [name for name in request.state_filters if name not in STATES_BY_TITLE]


async def authorize(guard: Guard, services: PartNeeds, request: Any, context: RequestContext) -> Any:
    response = await guard.settled(services, guard.begun(services, request, context), context)
    response.transaction_states = await guard.visible(
        services,
        context,
        ResourceType.TRANSACTIONAL_ID,
        response.transaction_states,
        attrgetter("transactional_id"),
    )
    return response
