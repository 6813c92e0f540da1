"""AlterClientQuotas: set and remove quotas (KIP-546). Each entity has a result."""

from __future__ import annotations

from operator import attrgetter
from typing import Protocol

from broker.handlers.declaration import METADATA_STORE, Declaration, Permissions
from broker.handlers.request_context import RequestContext
from broker.quotas.client_quotas import ClientQuotas, QuotaChange
from broker.security.acls import Operation
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntryData,
    EntryResult,
)

API = Declaration(
    ApiKey.ALTER_CLIENT_QUOTAS,
    permissions=Permissions(cluster=Operation.ALTER_CONFIGS),
    waits_for=METADATA_STORE,
)


class Needs(Protocol):
    """The parts of the broker that this handler uses."""

    client_quotas: ClientQuotas


async def handle(
    services: Needs, request: AlterClientQuotasRequest, context: RequestContext
) -> AlterClientQuotasResponse:
    """Apply the entries of one entity in order; the response has one result for it, that of the last entry."""
    results = {}
    for entry in request.entries:
        # As in Kafka, the last of several parts of one type counts, and the response has the client id first.
        by_type = {part.entity_type: part for part in entry.entity}
        entry.entity = sorted(by_type.values(), key=attrgetter("entity_type"))
        entity = frozenset((part.entity_type, part.entity_name) for part in entry.entity)
        results[entity] = await _alter(services, entry, validate_only=request.validate_only)
    return AlterClientQuotasResponse(entries=list(results.values()))


def failed(request: AlterClientQuotasRequest, context: RequestContext, code: ErrorCode) -> AlterClientQuotasResponse:
    return AlterClientQuotasResponse(
        entries=[EntryResult(error_code=code, entity=entry.entity) for entry in request.entries]
    )


async def _alter(services: Needs, entry: EntryData, *, validate_only: bool) -> EntryResult:
    names = [(part.entity_type, part.entity_name) for part in entry.entity]
    changes = [QuotaChange(op.key, None if op.remove else op.value) for op in entry.ops]
    try:
        await services.client_quotas.alter(names, changes, validate_only=validate_only)
    except KafkaError as error:
        return EntryResult(error_code=error.code, error_message=error.message, entity=entry.entity)
    return EntryResult(entity=entry.entity)
