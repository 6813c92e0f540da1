"""Checks the permissions of a request before and after its handler, if the broker has an authorizer.

Owns: the checks that a declaration states, and how the results of allowed and denied resources become one response.
Must not know any API: a handler module whose checks no declaration can state has a function `authorize`, which uses
the methods of `Guard`.

A denied request fails as a whole with the code of the resource type. If a request names several resources, the denied
ones are taken out, the handler serves the rest, and the handler's own `failed` gives the denied ones their results. So
a denied resource is never looked up, and its result does not depend on whether it exists.

Without an authorizer, dispatch calls the handlers directly, and these checks cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from types import ModuleType
from typing import Any, cast

from base.pause import Pause
from broker.handlers.declaration import Declaration, Each
from broker.handlers.partial_service import Handle, Needs, PartialService, with_field
from broker.handlers.request_context import RequestContext
from broker.loop.slices import Step
from broker.security.acls import Operation, ResourceType
from broker.security.authorizer import Authorizer
from protocol.api import Api
from protocol.errors import ErrorCode, KafkaError

DECIDED_AT_ONCE_MAX = 100
"""The most names that are decided about in one step: 3 ms if each of them is denied and logged."""
DECIDED_IN_A_SLICE_STEP = 16
NAMES_IN_A_STEP = 500

DENIED: Mapping[ResourceType, ErrorCode] = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    ResourceType.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
"""The error code of a denied request by the type of the resource."""


def guarded(module: ModuleType, api: Api, handle: Handle, authorizer: Authorizer) -> Handle:
    """Return `handle`, that of a handler module or one before it, behind the checks that its API needs."""
    guard = Guard(module, api, handle, authorizer)
    authorize = getattr(module, "authorize", None)
    return guard.serve if authorize is None else partial(authorize, guard)


class Guard(PartialService):
    """The checks around the handler of one API."""

    def __init__(self, module: ModuleType, api: Api, handle: Handle, authorizer: Authorizer) -> None:
        super().__init__(module, api, handle)
        self.authorizer = authorizer
        declaration: Declaration = module.API
        self._permissions = declaration.permissions
        self._has_records = declaration.has_records
        self._operations = {
            resource_type: operation
            for resource_type, operation in (
                (ResourceType.TOPIC, self._permissions.topic),
                (ResourceType.GROUP, self._permissions.group),
                (ResourceType.TRANSACTIONAL_ID, self._permissions.transactional_id),
            )
            if operation is not None
        }
        names = declaration.names
        self._whole = [
            (field, resource_type)
            for field, resource_type in (
                (names.transactional_id, ResourceType.TRANSACTIONAL_ID),
                (names.group, ResourceType.GROUP),
            )
            if field
        ]
        """The fields with the resources that the whole request needs."""
        self._each = names.each

    def serve(self, services: Needs, request: Any, context: RequestContext) -> Any:
        """Check what the table says, then serve what is allowed. Raises KafkaError."""
        self._require_whole(request, context)
        each = self._each
        if each is None or (self._permissions.cluster_instead is not None and self.has_instead(context)):
            return self.handle(services, request, context)
        return self.serve_each(services, request, context, each)

    # Checks

    def _require_whole(self, request: Any, context: RequestContext) -> None:
        if self._permissions.cluster is not None:
            self.require_cluster(context, self._permissions.cluster)
        for field, resource_type in self._whole:
            name = getattr(request, field)
            if name is not None:
                self.require(context, resource_type, name)

    def has_instead(self, context: RequestContext) -> bool:
        """Return whether the requester has the permission on the cluster that stands for those on each resource."""
        instead = self._permissions.cluster_instead
        return instead is not None and self.authorizer.allows_cluster(context, instead, is_logged_if_denied=False)

    def require_cluster(self, context: RequestContext, operation: Operation) -> None:
        if not self.authorizer.allows_cluster(context, operation):
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    def require(self, context: RequestContext, resource_type: ResourceType, name: str) -> None:
        if not self.allows(context, resource_type, name):
            raise KafkaError(DENIED[resource_type])

    def allows(self, context: RequestContext, resource_type: ResourceType, name: str) -> bool:
        return self.authorizer.allows(context, self._operations[resource_type], resource_type, name)

    async def refused(
        self,
        context: RequestContext,
        resource_type: ResourceType,
        names: Iterable[str],
        pause: Pause,
        *,
        operation: Operation | None = None,
        is_logged_if_denied: bool = True,
    ) -> Collection[str]:
        """Return the names that are denied. `operation` is by default the one that the API needs."""
        once: dict[str, None] = {}
        step = Step(NAMES_IN_A_STEP)
        for name in names:
            once[name] = None
            if step.is_over(name):
                await pause()
        distinct = [*once]
        refused: set[str] = set()
        for begin in range(0, len(distinct), DECIDED_IN_A_SLICE_STEP):
            refused.update(
                self.authorizer.denied(
                    context,
                    operation or self._operations[resource_type],
                    resource_type,
                    distinct[begin : begin + DECIDED_IN_A_SLICE_STEP],
                    is_logged_if_denied=is_logged_if_denied,
                )
            )
            await pause()
        return refused

    async def split(
        self,
        services: Needs,
        context: RequestContext,
        resource_type: ResourceType,
        items: Sequence[Any],
        name_of: Callable[[Any], str] = attrgetter("name"),
    ) -> tuple[Sequence[Any], Sequence[Any]]:
        """Return the allowed and the denied items."""
        refused = await self.refused(context, resource_type, map(name_of, items), services.sliced_work.pause)
        if not refused:
            return items, ()
        return await self.computed(services, context, lambda: parted(items, name_of, refused))

    async def visible(
        self,
        services: Needs,
        context: RequestContext,
        resource_type: ResourceType,
        items: Sequence[Any],
        name_of: Callable[[Any], str] = attrgetter("name"),
        operation: Operation | None = None,
    ) -> list[Any]:
        """Return the items of a response that the requester may see."""
        refused = await self.refused(
            context,
            resource_type,
            map(name_of, items),
            services.sliced_work.pause,
            operation=operation,
            is_logged_if_denied=False,
        )
        return await self.computed(services, context, lambda: parted(items, name_of, refused)[0])

    # Responses

    def serve_each(self, services: Needs, request: Any, context: RequestContext, each: Each) -> Any:
        items = getattr(request, each.items)
        if len(items) > DECIDED_AT_ONCE_MAX and (context.is_frame_kept or not self._has_records):
            return self._serve_many(services, request, context, each)
        refused_names = self.authorizer.denied(
            context, self._operations[each.resource_type], each.resource_type, [*map(each.name_of, items)]
        )
        if not refused_names:
            return self.handle(services, request, context)
        allowed, denied = parted(items, each.name_of, refused_names)
        return self._serve_allowed(services, request, context, each, allowed, denied)

    async def _serve_many(self, services: Needs, request: Any, context: RequestContext, each: Each) -> Any:
        items = getattr(request, each.items)
        allowed, denied = await self.split(services, context, each.resource_type, items, each.name_of)
        if not denied:
            return await self.served(services, request, context)
        return await self._serve_allowed(services, request, context, each, allowed, denied)

    def _serve_allowed(
        self,
        services: Needs,
        request: Any,
        context: RequestContext,
        each: Each,
        allowed: Sequence[Any],
        denied: Sequence[Any],
    ) -> Coroutine[Any, Any, Any]:
        refused = with_field(request, each.items, denied)
        code = DENIED[each.resource_type]

        def results() -> Sequence[Any]:
            response = self.as_message(self.module.failed(refused, context, code), context)
            return cast(Sequence[Any], getattr(response, each.results))

        if not allowed:
            return self.computed(services, context, lambda: self.module.failed(refused, context, code))
        outcome = self.begun(services, with_field(request, each.items, allowed), context)
        return self.extended(services, outcome, context, each.results, results)


def parted(
    items: Sequence[Any], name_of: Callable[[Any], str], refused: Collection[str]
) -> tuple[list[Any], list[Any]]:
    """Return the items with other names than those refused, and the refused ones."""
    allowed: list[Any] = []
    denied: list[Any] = []
    for item in items:
        (denied if name_of(item) in refused else allowed).append(item)
    return allowed, denied
