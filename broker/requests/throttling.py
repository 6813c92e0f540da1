"""Applies quotas to requests, if any quota is configured.

Owns: what is recorded of a request, and how its response states a throttle. Must not know how rates are computed.

Produce records its size, every request the time that it took, and changes of topics the partitions that they change.
The handler of Fetch records its size itself, because a throttled Fetch returns nothing. The response is sent at once
with `throttle_time_ms`, and its connection is muted for that time (KIP-219).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

from broker.handlers.request_context import RequestContext
from broker.quotas.enforcement import EnforcedQuotas
from broker.requests.authorization import Handle
from broker.requests.partial_service import PartialService, with_field
from broker.requests.request_metrics import ServedRequest
from broker.requests.services import Services
from config import broker_properties as properties
from protocol.api import APIS, Api
from protocol.codec import decode
from protocol.errors import ErrorCode
from protocol.row_writer import RowResponse

PRODUCE, FETCH = 0, 1
EXEMPT = frozenset({4, 5, 6, 7, 17, 18, 27, 36, 56, 58, 67})
"""Requests between brokers, and those before a login."""
FIRST_STRICT_VERSIONS: Mapping[int, int] = {19: 6, 20: 5, 37: 3}
"""The first versions of CreateTopics, DeleteTopics and CreatePartitions whose clients know the code of the quota."""

PERCENT_PER_SECOND = 100.0


def quota_entity(context: RequestContext) -> tuple[str, str]:
    """Return the user and the client id that quotas are set for."""
    return context.principal.partition(":")[2], context.client_id or ""


def applied(quotas: EnforcedQuotas, context: ServedRequest, response: object, now_s: float) -> Any:
    """Record a request and return its response, which may state a throttle. `response` may be None."""
    if context.api_key in EXEMPT:
        return response
    user, client_id = quota_entity(context)
    elapsed_s = max(now_s - context.received_s - context.waited_s - context.queue_s, 0.0)
    produced_size = context.size if context.api_key == PRODUCE else 0
    throttle_ms = quotas.record_request(user, client_id, elapsed_s * PERCENT_PER_SECOND, produced_size)
    if not throttle_ms and not context.mute_ms:
        return response
    throttle_ms = max(throttle_ms, context.mute_ms)
    context.mute_ms = throttle_ms
    if response is None:
        return None
    if type(response) is RowResponse and context.api_key != FETCH:
        # A throttled response is rare, so its rows are not written with a throttle of their own.
        response = decode(APIS[context.api_key].response, context.api_version, b"".join(response.write()))
    if hasattr(response, "throttle_time_ms"):
        response.throttle_time_ms = throttle_ms
    return response


def limited(module: ModuleType, api: Api, handle: Handle, quotas: EnforcedQuotas) -> Handle:
    """Return `handle` behind the quota of changes to partitions, for the APIs that change some."""
    if api.key not in FIRST_STRICT_VERSIONS:
        return handle
    return _MutationGuard(module, api, handle, quotas).serve


class _MutationGuard(PartialService):
    """CreateTopics, CreatePartitions or DeleteTopics: topics that exceed the quota are refused one by one."""

    def __init__(self, module: ModuleType, api: Api, handle: Handle, quotas: EnforcedQuotas) -> None:
        super().__init__(module, api)
        self._handle = handle
        self._quotas = quotas

    def serve(self, services: Services, request: Any, context: RequestContext) -> Any:
        if getattr(request, "validate_only", False):
            return self._handle(services, request, context)
        is_strict = context.api_version >= FIRST_STRICT_VERSIONS[self._api.key]
        field = "topic_names" if self._api.key == 20 and context.api_version < 6 else "topics"
        user, client_id = quota_entity(context)
        allowed: list[Any] = []
        refused: list[Any] = []
        for topic in getattr(request, field):
            size = self._partition_count(services, topic)
            throttle_ms = self._quotas.take(user, client_id, size, is_strict=is_strict)
            (refused if throttle_ms is None else allowed).append(topic)
            if not is_strict:
                context.mute_ms = max(context.mute_ms, throttle_ms or 0)
        if not refused:
            return self._handle(services, request, context)
        context.mute_ms = max(context.mute_ms, self._quotas.mutation_throttle_ms(user, client_id))
        results = "responses" if self._api.key == 20 else "results" if self._api.key == 37 else "topics"
        denied = self._module.failed(with_field(request, field, refused), context, ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        if not allowed:
            return denied
        outcome = self._begun_by(self._handle, services, with_field(request, field, allowed), context)
        return self._extended(services, outcome, context, results, lambda: getattr(denied, results))

    def _partition_count(self, services: Services, topic: Any) -> int:
        """Return how many partitions a request creates or deletes for a topic."""
        topics = services.metadata_cache.topics
        if self._api.key == 19:
            if topic.assignments:
                return len(topic.assignments)
            return int(topic.num_partitions if topic.num_partitions > 0 else services.config[properties.NUM_PARTITIONS])
        name = topic if isinstance(topic, str) else topic.name
        if name is None:
            name = services.metadata_cache.name_of(topic.topic_id)
        state = topics.get(name) if name is not None else None
        present = 0 if state is None else len(state.partitions)
        return max(topic.count - present, 0) if self._api.key == 37 else present
