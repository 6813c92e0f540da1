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
from base.pause import each
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
    wanted = ((name, metadata) for name, metadata in known if is_named(name) and _is_wanted(request, metadata, now_ms))
    states = await each(wanted, _state, pause)
    return ListTransactionsResponse(unknown_state_filters=_unknown_states(request), transaction_states=states)


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


def _state(known: tuple[str, Metadata]) -> TransactionState:
    transactional_id, metadata = known
    return TransactionState(
        transactional_id=transactional_id,
        producer_id=metadata.producer_id,
        transaction_state=metadata.state.title,
    )


def failed(request: ListTransactionsRequest, context: RequestContext, code: ErrorCode) -> ListTransactionsResponse:
    return ListTransactionsResponse(error_code=code, unknown_state_filters=_unknown_states(request))


def _unknown_states(request: ListTransactionsRequest) -> list[str]:
    return [name for name in request.state_filters if name not in STATES_BY_TITLE]


def _is_wanted(request: ListTransactionsRequest, metadata: Metadata, now_ms: int) -> bool:
    if request.state_filters and metadata.state.title not in request.state_filters:
        return False
    if request.producer_id_filters and metadata.producer_id not in request.producer_id_filters:
        return False
    return request.duration_filter < 0 or now_ms - metadata.started_ms > request.duration_filter


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
