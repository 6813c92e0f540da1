"""The permissions of requests about configurations: on a topic or group, or on the cluster for everything else.

Owns how the results of allowed and denied resources become one response, for the handlers of such requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from broker.handlers.guard import DENIED, Guard
from broker.handlers.partial_service import Needs, with_field
from broker.handlers.request_context import RequestContext
from broker.security.acls import Operation, ResourceType
from broker.settings import config_changes
from protocol.errors import ErrorCode

WITH_PERMISSIONS: Mapping[int, ResourceType] = MappingProxyType(
    {config_changes.ResourceType.TOPIC: ResourceType.TOPIC, config_changes.ResourceType.GROUP: ResourceType.GROUP}
)
"""What has permissions of its own, by the type of a configured resource (KIP-248, KIP-848)."""


async def authorize_resources(
    guard: Guard, services: Needs, request: Any, context: RequestContext, operation: Operation, *, results: str
) -> Any:
    """Serve the resources of a request that are allowed; `results` is the field of the response."""
    allowed: list[Any] = []
    denied: dict[ErrorCode, list[Any]] = {}
    pause = services.sliced_work.pause
    for resource in request.resources:
        await pause()
        kind = WITH_PERMISSIONS.get(resource.resource_type)
        if kind is None:
            is_allowed = guard.authorizer.allows_cluster(context, operation)
            code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        else:
            is_allowed = guard.authorizer.allows(context, operation, kind, resource.resource_name)
            code = DENIED[kind]
        (allowed if is_allowed else denied.setdefault(code, [])).append(resource)
    if not denied:
        return await guard.served(services, request, context)

    def refused() -> list[Any]:
        parts = [
            getattr(guard.module.failed(with_field(request, "resources", them), context, code), results)
            for code, them in denied.items()
        ]
        return [result for part in parts for result in part]

    outcome = guard.begun(services, with_field(request, "resources", allowed), context)
    return await guard.extended(services, outcome, context, results, refused)
