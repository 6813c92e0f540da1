"""DescribeClientQuotas: quotas of users, client ids and addresses by a filter (KIP-546)."""

from __future__ import annotations

from typing import Protocol

from broker.handlers.declaration import METADATA_STORE, Declaration, Permissions
from broker.handlers.request_context import RequestContext
from broker.quotas.client_quotas import ENTITY_TYPES, ClientQuotas, FilterComponent
from broker.security.acls import Operation
from protocol.api_key import ApiKey
from protocol.errors import KafkaError
from protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

API = Declaration(
    ApiKey.DESCRIBE_CLIENT_QUOTAS,
    permissions=Permissions(cluster=Operation.DESCRIBE_CONFIGS),
    waits_for=METADATA_STORE,
)


class Needs(Protocol):
    """The parts of the broker that this handler uses."""

    client_quotas: ClientQuotas


async def handle(
    services: Needs, request: DescribeClientQuotasRequest, context: RequestContext
) -> DescribeClientQuotasResponse:
    components = [FilterComponent(it.entity_type, it.match_type, it.match) for it in request.components]
    try:
        found = await services.client_quotas.describe(components, is_strict=request.strict)
    except KafkaError as error:
        return DescribeClientQuotasResponse(error_code=error.code, error_message=error.message)
    return DescribeClientQuotasResponse(
        error_message="",
        entries=[
            EntryData(
                entity=[
                    EntityData(entity_type=ENTITY_TYPES[stored], entity_name=name) for stored, name in entity.parts
                ],
                values=[ValueData(key=key, value=value) for key, value in quotas.items()],
            )
            for entity, quotas in found
        ],
    )
