"""IncrementalAlterConfigs: change single settings of topics, brokers and loggers (KIP-339, KIP-412).

Each resource has its own result.
"""

from __future__ import annotations

from typing import Any, Protocol

from base.pause import Pause, each
from broker.handlers.config_permissions import authorize_resources
from broker.handlers.declaration import METADATA_STORE, Declaration, Elements, Permissions
from broker.handlers.guard import Guard
from broker.handlers.partial_service import Needs as PartNeeds
from broker.handlers.request_context import RequestContext
from broker.loop.slices import SlicedWork
from broker.security.acls import Operation
from broker.settings.config_changes import STATED_CHANGES_MAX, Alteration, ConfigChanges, KeyChange
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

API = Declaration(
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    permissions=Permissions(
        topic=Operation.ALTER_CONFIGS,
        note="AlterConfigs on the group for groups, on the cluster for everything else",
    ),
    waits_for=METADATA_STORE,
    elements=Elements.BULK,
    may_be_long=True,
)


class Needs(Protocol):
    """The parts of the broker that this handler uses."""

    config_changes: ConfigChanges
    sliced_work: SlicedWork


async def handle(
    services: Needs, request: IncrementalAlterConfigsRequest, context: RequestContext
) -> IncrementalAlterConfigsResponse:
    pause = services.sliced_work.pause
    alterations = await each(request.resources, _alteration, pause)
    results = await services.config_changes.alter(alterations, validate_only=request.validate_only)
    return await _response(request, results, pause)


async def _response(
    request: IncrementalAlterConfigsRequest, results: list[KafkaError | None], pause: Pause
) -> IncrementalAlterConfigsResponse:
    responses = await each(zip(request.resources, results, strict=True), lambda pair: _result(*pair), pause)
    return IncrementalAlterConfigsResponse(responses=responses)


def failed(
    request: IncrementalAlterConfigsRequest, context: RequestContext, code: ErrorCode
) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
        responses=[_result(resource, KafkaError(code)) for resource in request.resources]
    )


def _alteration(resource: AlterConfigsResource) -> Alteration:
    changes = [
        KeyChange(config.name, config.config_operation, config.value)
        for config in resource.configs[:STATED_CHANGES_MAX]
    ]
    return Alteration(resource.resource_type, resource.resource_name, changes)


def _result(resource: AlterConfigsResource, error: KafkaError | None) -> AlterConfigsResourceResponse:
    response = AlterConfigsResourceResponse(resource_type=resource.resource_type, resource_name=resource.resource_name)
    if error is not None:
        response.error_code, response.error_message = error.code, error.message
    return response


async def authorize(guard: Guard, services: PartNeeds, request: Any, context: RequestContext) -> Any:
    return await authorize_resources(guard, services, request, context, Operation.ALTER_CONFIGS, results="responses")
