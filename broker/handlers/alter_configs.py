"""AlterConfigs: replace all settings of topics and brokers; each resource has its own result.

Settings that the request does not name return to their defaults, so IncrementalAlterConfigs replaced it (KIP-339).
Log levels cannot be changed this way.
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
from broker.security import acls
from broker.settings.config_changes import STATED_CHANGES_MAX, Alteration, ConfigChanges, KeyChange, Operation
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

API = Declaration(
    ApiKey.ALTER_CONFIGS,
    permissions=Permissions(
        topic=acls.Operation.ALTER_CONFIGS,
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


async def handle(services: Needs, request: AlterConfigsRequest, context: RequestContext) -> AlterConfigsResponse:
    pause = services.sliced_work.pause
    alterations = await each(request.resources, _alteration, pause)
    results = await services.config_changes.alter(alterations, validate_only=request.validate_only)
    return await _response(request, results, pause)


async def _response(
    request: AlterConfigsRequest, results: list[KafkaError | None], pause: Pause
) -> AlterConfigsResponse:
    responses = await each(zip(request.resources, results, strict=True), lambda pair: _result(*pair), pause)
    return AlterConfigsResponse(responses=responses)


def failed(request: AlterConfigsRequest, context: RequestContext, code: ErrorCode) -> AlterConfigsResponse:
    return AlterConfigsResponse(responses=[_result(resource, KafkaError(code)) for resource in request.resources])


def _alteration(resource: AlterConfigsResource) -> Alteration:
    changes = [KeyChange(config.name, Operation.SET, config.value) for config in resource.configs[:STATED_CHANGES_MAX]]
    return Alteration(resource.resource_type, resource.resource_name, changes, replaces=True)


def _result(resource: AlterConfigsResource, error: KafkaError | None) -> AlterConfigsResourceResponse:
    response = AlterConfigsResourceResponse(resource_type=resource.resource_type, resource_name=resource.resource_name)
    if error is not None:
        response.error_code, response.error_message = error.code, error.message
    return response


async def authorize(guard: Guard, services: PartNeeds, request: Any, context: RequestContext) -> Any:
    return await authorize_resources(
        guard, services, request, context, acls.Operation.ALTER_CONFIGS, results="responses"
    )
