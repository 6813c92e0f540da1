"""Applies quotas to requests, if any quota is configured.

Owns: what is recorded of a request, and how its response states a throttle. Must not know how rates are computed.

Produce records its size, and every request the time that it took. Changes of topics take tokens for their partitions
before they are served, and return those of topics that fail. The handler of Fetch records its size itself, because a
throttled Fetch returns nothing. The response is sent at once with `throttle_time_ms`, and its connection is muted for
that time (KIP-219).
"""

from __future__ import annotations

from collections.abc import Sequence
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
from protocol.errors import ErrorCode, KafkaError
from protocol.row_writer import RowResponse
from protocol.schema import Encoded

PERCENT_PER_SECOND = 100.0
CHANGED = (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT)
"""The codes of changes that are made, the second one perhaps after the response."""


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
        field = self._changes.items(context.api_version)
        user, client_id = context.quota_entity
        allowed: list[tuple[Any, int]] = []
        refused: list[Any] = []
        pause = services.sliced_work.pause
        for topic in getattr(request, field):
            await pause()
            size = self._changes.count_of(services, topic)
            # What changes nothing gets an error of its own, which must not depend on the quota.
            if not size or self._quotas.take(user, client_id, size, is_strict=self._is_strict(context)):
                allowed.append((topic, size))
            else:
                refused.append(topic)
        if not refused:
            return await self._changed(services, request, context, allowed)
        response = None
        if allowed:
            part = with_field(request, field, [topic for topic, _ in allowed])
            response = await self._changed(services, part, context, allowed)
        self._mute(context)
        denied = await self.computed(
            services,
            context,
            lambda: self.module.failed(
                with_field(request, field, refused), context, ErrorCode.THROTTLING_QUOTA_EXCEEDED
            ),
        )
        if response is None:
            return denied
        results = self._changes.results
        return await self.extended(services, response, context, results, lambda: getattr(denied, results))

    async def _changed(
        self, services: Services, request: Any, context: RequestContext, sizes: Sequence[tuple[Any, int]]
    ) -> Any:
        """Serve topics that have taken as many tokens as `sizes` states, and return the tokens of those that fail.

        If the client leaves before the response, no tokens are returned: the changes may still be made.
        """
        user, client_id = context.quota_entity
        taken = sum(size for _, size in sizes)
        try:
            response = await self.settled(services, self.begun(services, request, context), context)
        except KafkaError:
            self._quotas.return_tokens(user, client_id, taken)
            raise
        returned = await self.computed(services, context, lambda: self._failed_size(response, sizes))
        self._quotas.return_tokens(user, client_id, returned)
        if taken > returned and not self._is_strict(context):
            self._mute(context)
        return response

    def _failed_size(self, response: Any, sizes: Sequence[tuple[Any, int]]) -> int:
        """Return how many of the partitions in `sizes` belong to topics that were not changed."""
        key_of = self._changes.key_of
        failed = {
            key_of(result)
            for result in getattr(response, self._changes.results)
            if type(result) is not Encoded and result.error_code not in CHANGED
        }
        return sum(size for topic, size in sizes if key_of(topic) in failed)

    def _is_strict(self, context: RequestContext) -> bool:
        return context.api_version >= self._changes.strict_from

    def _mute(self, context: RequestContext) -> None:
        """Mute the client until no token is missing."""
        context.mute_ms = max(context.mute_ms, self._quotas.mutation_throttle_ms(*context.quota_entity))
