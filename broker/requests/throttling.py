"""Applies quotas to requests, if any quota is configured.

Owns: what is recorded of a request, and how its response states a throttle. Must not know how rates are computed.

Produce records its size, every request the time that it took, and changes of topics the partitions that they change.
The handler of Fetch records its size itself, because a throttled Fetch returns nothing. The response is sent at once
with `throttle_time_ms`, and its connection is muted for that time (KIP-219).
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from broker.handlers.declaration import Declaration, PartitionChanges
from broker.handlers.partial_service import Handle, PartialService, with_field
from broker.handlers.request_context import RequestContext
from broker.network.channel import Authentication
from broker.quotas.enforcement import EnforcedQuotas
from broker.requests.request_metrics import ServedRequest
from broker.requests.services import Services
from protocol import row_writer
from protocol.api import APIS, Api
from protocol.errors import ErrorCode
from protocol.row_writer import RowResponse

PERCENT_PER_SECOND = 100.0


def record(quotas: EnforcedQuotas, declaration: Declaration, context: ServedRequest, now_s: float) -> None:
    """Record a request, on the event loop; `context.mute_ms` says then for how long its client is throttled."""
    if context.channel.authentication is not Authentication.COMPLETE:
        return
    extras = context.extras
    waited_s = 0.0 if extras is None else extras.waited_s + extras.queue_s
    elapsed_s = max(now_s - context.received_s - waited_s, 0.0)
    if context.is_of_broker:
        quotas.record_exempt_request(elapsed_s * PERCENT_PER_SECOND)
        return
    user, client_id = context.quota_entity
    produced_size = context.size if declaration.has_records else 0
    throttle_ms = quotas.record_request(user, client_id, elapsed_s * PERCENT_PER_SECOND, produced_size)
    context.mute_ms = max(throttle_ms, context.mute_ms)


def with_throttle(context: ServedRequest, response: Any) -> Any:
    """Return the response of a recorded request, which states a throttle if there is one."""
    if not context.mute_ms:
        return response
    if type(response) is RowResponse:
        return row_writer.with_throttle(response, APIS[context.api_key].response, context.api_version, context.mute_ms)
    if hasattr(response, "throttle_time_ms"):
        response.throttle_time_ms = context.mute_ms
    return response


def limited(module: ModuleType, api: Api, handle: Handle, quotas: EnforcedQuotas) -> Handle:
    """Return `handle` behind the quota of changes to partitions, for the APIs that change some."""
    changes: PartitionChanges | None = module.API.partition_changes
    return handle if changes is None else _MutationGuard(module, api, handle, quotas, changes).serve


class _MutationGuard(PartialService):
    """An API that creates or deletes partitions: topics that exceed the quota are refused one by one."""

    def __init__(
        self, module: ModuleType, api: Api, handle: Handle, quotas: EnforcedQuotas, changes: PartitionChanges
    ) -> None:
        super().__init__(module, api, handle)
        self._quotas = quotas
        self._changes = changes

    async def serve(self, services: Services, request: Any, context: RequestContext) -> Any:
        if getattr(request, "validate_only", False):
            return await self.served(services, request, context)
        is_strict = context.api_version >= self._changes.strict_from
        field = self._changes.items(context.api_version)
        user, client_id = context.quota_entity
        allowed: list[Any] = []
        refused: list[Any] = []
        pause = services.sliced_work.pause
        for topic in getattr(request, field):
            await pause()
            size = self._changes.count_of(services, topic)
            # What changes nothing gets an error of its own, which must not depend on the quota.
            throttle_ms = self._quotas.take(user, client_id, size, is_strict=is_strict) if size else 0
            (refused if throttle_ms is None else allowed).append(topic)
            if not is_strict:
                context.mute_ms = max(context.mute_ms, throttle_ms or 0)
        if not refused:
            return await self.served(services, request, context)
        context.mute_ms = max(context.mute_ms, self._quotas.mutation_throttle_ms(user, client_id))
        results = self._changes.results
        denied = await self.computed(
            services,
            context,
            lambda: self.module.failed(
                with_field(request, field, refused), context, ErrorCode.THROTTLING_QUOTA_EXCEEDED
            ),
        )
        if not allowed:
            return denied
        outcome = self.begun(services, with_field(request, field, allowed), context)
        return await self.extended(services, outcome, context, results, lambda: getattr(denied, results))
