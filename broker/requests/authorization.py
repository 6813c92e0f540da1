"""Checks the permissions of a request before and after its handler, if the broker has an authorizer.

Owns: where the requests of each API name their resources, and how the results of allowed and denied resources become
one response. Must not know which permission an API needs (`broker.security.api_permissions`), or how it is decided.

A denied request fails as a whole with the code of the resource type. If a request names several resources, the denied
ones are taken out, the handler serves the rest, and the handler's own `failed` gives the denied ones their results. So
a denied resource is never looked up, and its result does not depend on whether it exists.

Without an authorizer, dispatch calls the handlers directly, and these checks cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import attrgetter
from types import ModuleType
from typing import Any, NamedTuple, cast

from broker.handlers.request_context import RequestContext
from broker.loop.slices import Slices
from broker.requests.partial_service import Handle, PartialService, with_field
from broker.requests.services import Services
from broker.security.acls import Operation, ResourceType
from broker.security.api_permissions import DENIED, PERMISSIONS
from broker.security.authorizer import Authorizer
from protocol.api import Api
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsResponse, DeleteTopicState
from protocol.messages.offset_delete import OffsetDeleteResponsePartition, OffsetDeleteResponseTopic
from protocol.messages.offset_fetch import (
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from protocol.schema import ZERO_UUID

GROUP_KEY = 0
TOPIC_RESOURCE = 2
PRODUCE_KEY = 0
DECIDED_AT_ONCE_MAX = 100
"""The most names that are decided about in one step: 3 ms if each of them is denied and logged."""
DECIDED_IN_A_SLICE_STEP = 16

FIRST_VERSION_OF_BROKERS = 4  # of AddPartitionsToTxn
FIRST_VERSION_WITH_SEVERAL_KEYS = 4  # of FindCoordinator
FIRST_VERSION_WITH_STATES = 6  # of DeleteTopics
FIRST_VERSION_WITH_SEVERAL_GROUPS = 8  # of OffsetFetch


def _itself(item: Any) -> str:
    return cast(str, item)


class Each(NamedTuple):
    """Where a request lists resources that each have a result."""

    resource_type: ResourceType
    items: str
    """The field of the request."""
    results: str
    """The field of the response."""
    name_of: Callable[[Any], str] = attrgetter("name")
    """Returns the resource's name of an item."""


class Names(NamedTuple):
    """Where the requests of an API name their resources."""

    group: str = ""
    transactional_id: str = ""
    each: Each | None = None


_TOPICS = Each(ResourceType.TOPIC, "topics", "topics")
_OF_GROUP = Names(group="group_id")

NAMES: Mapping[int, Names] = {
    0: Names(transactional_id="transactional_id", each=Each(ResourceType.TOPIC, "topic_data", "responses")),
    2: Names(each=_TOPICS),
    8: Names(group="group_id", each=_TOPICS),
    11: _OF_GROUP,
    12: _OF_GROUP,
    13: _OF_GROUP,
    14: _OF_GROUP,
    15: Names(each=Each(ResourceType.GROUP, "groups", "groups", _itself)),
    19: Names(each=_TOPICS),
    21: Names(each=_TOPICS),
    23: Names(each=Each(ResourceType.TOPIC, "topics", "topics", attrgetter("topic"))),
    25: Names(group="group_id", transactional_id="transactional_id"),
    26: Names(transactional_id="transactional_id"),
    28: Names(group="group_id", transactional_id="transactional_id", each=_TOPICS),
    37: Names(each=Each(ResourceType.TOPIC, "topics", "results")),
    42: Names(each=Each(ResourceType.GROUP, "groups_names", "results", _itself)),
    47: _OF_GROUP,
    61: Names(each=_TOPICS),
    65: Names(each=Each(ResourceType.TRANSACTIONAL_ID, "transactional_ids", "transaction_states", _itself)),
}


def authorized(module: ModuleType, api: Api, handle: Handle, authorizer: Authorizer) -> Handle:
    """Return `handle`, that of a handler module or one before it, behind the checks that its API needs."""
    guard = _Guard(module, api, handle, authorizer)
    special = {
        9: guard.offset_fetch,
        10: guard.find_coordinator,
        16: guard.list_groups,
        20: guard.delete_topics,
        22: guard.init_producer_id,
        24: guard.add_partitions_to_txn,
        27: guard.write_txn_markers,
        32: lambda *request: guard.configs(*request, results="results"),
        33: lambda *request: guard.configs(*request, results="responses"),
        44: lambda *request: guard.configs(*request, results="responses"),
        47: guard.offset_delete,
        65: guard.describe_transactions,
        66: guard.list_transactions,
    }
    return special.get(api.key, guard.serve)


class _Guard(PartialService):
    """The checks around the handler of one API."""

    def __init__(self, module: ModuleType, api: Api, handle: Handle, authorizer: Authorizer) -> None:
        super().__init__(module, api, handle)
        self._authorizer = authorizer
        self._permissions = PERMISSIONS[api.key]
        self._operations = {
            resource_type: operation
            for resource_type, operation in (
                (ResourceType.TOPIC, self._permissions.topic),
                (ResourceType.GROUP, self._permissions.group),
                (ResourceType.TRANSACTIONAL_ID, self._permissions.transactional_id),
            )
            if operation is not None
        }
        names = NAMES.get(api.key, Names())
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

    def serve(self, services: Services, request: Any, context: RequestContext) -> Any:
        """Check what the table says, then serve what is allowed. Raises KafkaError."""
        self._require_whole(request, context)
        each = self._each
        if each is None or (self._permissions.cluster_instead is not None and self._has_instead(context)):
            return self._handle(services, request, context)
        return self._serve_each(services, request, context, each)

    # APIs whose checks the table cannot express

    def offset_fetch(self, services: Services, request: Any, context: RequestContext) -> Any:
        if context.api_version >= FIRST_VERSION_WITH_SEVERAL_GROUPS:
            return self._offset_fetch_of_groups(services, request, context)
        self._require(context, ResourceType.GROUP, request.group_id)
        return self._offset_fetch_of_one_group(services, request, context)

    async def _offset_fetch_of_one_group(self, services: Services, request: Any, context: RequestContext) -> Any:
        denied: Sequence[Any] = ()
        if request.topics is not None:
            allowed, denied = await self._split(services, context, ResourceType.TOPIC, request.topics)
            request = with_field(request, "topics", allowed)
        response = await self._settled(services, self._begun(services, request, context), context)
        response.topics = await self._visible(services, context, ResourceType.TOPIC, response.topics)

        def refused() -> list[Any]:
            return [
                OffsetFetchResponseTopic(
                    name=topic.name,
                    partitions=[
                        OffsetFetchResponsePartition(partition_index=index, **_DENIED_OFFSET)
                        for index in topic.partition_indexes
                    ],
                )
                for topic in denied
            ]

        response.topics += await self._computed(services, context, refused)
        return response

    async def _offset_fetch_of_groups(self, services: Services, request: Any, context: RequestContext) -> Any:
        groups, denied_groups = await self._split(
            services, context, ResourceType.GROUP, request.groups, attrgetter("group_id")
        )
        asked = await self._computed(services, context, lambda: _topic_names(groups))
        refused_names = await services.sliced_work.finished(self._refused(context, ResourceType.TOPIC, asked))
        served, denied_topics = await self._computed(services, context, lambda: _parted_groups(groups, refused_names))
        response = await self._settled(
            services, self._begun(services, with_field(request, "groups", served), context), context
        )
        found = await self._computed(services, context, lambda: _topic_names(response.groups))
        hidden = await services.sliced_work.finished(
            self._refused(context, ResourceType.TOPIC, found, is_logged_if_denied=False)
        )

        def completed() -> Any:
            for group in response.groups:
                group.topics = [topic for topic in group.topics if topic.name not in hidden]
                group.topics += [
                    OffsetFetchResponseTopics(
                        name=topic.name,
                        partitions=[
                            OffsetFetchResponsePartitions(partition_index=index, **_DENIED_OFFSET)
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in denied_topics.get(group.group_id, ())
                ]
            refused = with_field(request, "groups", denied_groups)
            response.groups += self._module.failed(refused, context, ErrorCode.GROUP_AUTHORIZATION_FAILED).groups
            return response

        return await self._computed(services, context, completed)

    def find_coordinator(self, services: Services, request: Any, context: RequestContext) -> Any:
        resource_type = ResourceType.GROUP if request.key_type == GROUP_KEY else ResourceType.TRANSACTIONAL_ID
        if context.api_version < FIRST_VERSION_WITH_SEVERAL_KEYS:
            self._require(context, resource_type, request.key)
            return self._handle(services, request, context)
        each = Each(resource_type, "coordinator_keys", "coordinators", _itself)
        return self._serve_each(services, request, context, each)

    def list_groups(self, services: Services, request: Any, context: RequestContext) -> Any:
        outcome = self._begun(services, request, context)
        if self._has_instead(context):
            return outcome

        async def respond() -> object:
            response = await self._settled(services, outcome, context)
            response.groups = await self._visible(
                services, context, ResourceType.GROUP, response.groups, attrgetter("group_id")
            )
            return response

        return respond()

    async def delete_topics(self, services: Services, request: Any, context: RequestContext) -> Any:
        if context.api_version < FIRST_VERSION_WITH_STATES:
            states = [DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in request.topic_names]
        else:
            states = request.topics
        allowed = []
        denied = []
        pace = services.sliced_work.pace()
        for state in states:
            await pace.keep()
            result = self._refused_deletion(services, state, context)
            if result is None:
                allowed.append(state)
            else:
                denied.append(result)
        if context.api_version < FIRST_VERSION_WITH_STATES:
            request = with_field(request, "topic_names", [state.name for state in allowed])
        else:
            request = with_field(request, "topics", allowed)
        if not allowed and denied:
            return DeleteTopicsResponse(responses=denied)
        return await self._extended(
            services, self._begun(services, request, context), context, "responses", lambda: denied
        )

    def _refused_deletion(self, services: Services, state: Any, context: RequestContext) -> DeletableTopicResult | None:
        """Return the result of a topic that must not be deleted; its name only if the requester knows it."""
        name = state.name if state.name is not None else services.metadata_cache.name_of(state.topic_id)
        if name is None:
            return None  # the handler reports the unknown id
        is_known = state.name is not None or self._authorizer.allows(
            context, Operation.DESCRIBE, ResourceType.TOPIC, name
        )
        if is_known and self._allows(context, ResourceType.TOPIC, name):
            return None
        return DeletableTopicResult(
            name=name if is_known else None,
            topic_id=state.topic_id,
            error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        )

    def init_producer_id(self, services: Services, request: Any, context: RequestContext) -> Any:
        authorizer = self._authorizer
        if request.transactional_id is not None:
            self._require(context, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        elif not authorizer.allows_on_any(context, Operation.WRITE, ResourceType.TOPIC):
            self._require_cluster(context, Operation.IDEMPOTENT_WRITE)
        return self._handle(services, request, context)

    def add_partitions_to_txn(self, services: Services, request: Any, context: RequestContext) -> Any:
        if context.api_version >= FIRST_VERSION_OF_BROKERS:
            self._require_cluster(context, Operation.CLUSTER_ACTION)
            return self._handle(services, request, context)
        self._require(context, ResourceType.TRANSACTIONAL_ID, request.v3_and_below_transactional_id)
        return self._add_partitions(services, request, context)

    async def _add_partitions(self, services: Services, request: Any, context: RequestContext) -> Any:
        _, denied = await self._split(services, context, ResourceType.TOPIC, request.v3_and_below_topics)
        if not denied:
            return self._handle(services, request, context)
        return await self._computed(
            services,
            context,
            lambda: self._module.rejected(services, request, {topic.name for topic in denied}),
        )

    def write_txn_markers(self, services: Services, request: Any, context: RequestContext) -> Any:
        if not self._authorizer.allows_cluster(context, Operation.ALTER, is_logged_if_denied=False):
            self._require_cluster(context, Operation.CLUSTER_ACTION)
        return self._handle(services, request, context)

    async def configs(self, services: Services, request: Any, context: RequestContext, *, results: str) -> Any:
        """Topics need a permission on the topic, all other resources the same permission on the cluster."""
        operation = cast(Operation, self._permissions.topic)
        allowed: list[Any] = []
        denied: dict[ErrorCode, list[Any]] = {}
        pace = services.sliced_work.pace()
        for resource in request.resources:
            await pace.keep()
            if resource.resource_type == TOPIC_RESOURCE:
                is_allowed = self._allows(context, ResourceType.TOPIC, resource.resource_name)
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            else:
                is_allowed = self._authorizer.allows_cluster(context, operation)
                code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            (allowed if is_allowed else denied.setdefault(code, [])).append(resource)
        if not denied:
            return self._handle(services, request, context)

        def refused() -> list[Any]:
            parts = [
                getattr(self._module.failed(with_field(request, "resources", them), context, code), results)
                for code, them in denied.items()
            ]
            return [result for part in parts for result in part]

        outcome = self._begun(services, with_field(request, "resources", allowed), context)
        return await self._extended(services, outcome, context, results, refused)

    def offset_delete(self, services: Services, request: Any, context: RequestContext) -> Any:
        self._require(context, ResourceType.GROUP, request.group_id)
        return self._offset_delete(services, request, context)

    async def _offset_delete(self, services: Services, request: Any, context: RequestContext) -> Any:
        allowed, denied = await self._split(services, context, ResourceType.TOPIC, request.topics)

        def refused() -> list[Any]:
            return [
                OffsetDeleteResponseTopic(
                    name=topic.name,
                    partitions=[
                        OffsetDeleteResponsePartition(
                            partition_index=one.partition_index, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED
                        )
                        for one in topic.partitions
                    ],
                )
                for topic in denied
            ]

        outcome = self._begun(services, with_field(request, "topics", allowed), context)
        return await self._extended(services, outcome, context, "topics", refused)

    def describe_transactions(self, services: Services, request: Any, context: RequestContext) -> Any:
        outcome = self.serve(services, request, context)

        async def respond() -> object:
            response = await self._settled(services, outcome, context)
            for state in response.transaction_states:
                if state.topics:
                    state.topics = await self._visible(
                        services, context, ResourceType.TOPIC, state.topics, attrgetter("topic"), Operation.DESCRIBE
                    )
            return response

        return respond()

    def list_transactions(self, services: Services, request: Any, context: RequestContext) -> Any:
        outcome = self._begun(services, request, context)

        async def respond() -> object:
            response = await self._settled(services, outcome, context)
            response.transaction_states = await self._visible(
                services,
                context,
                ResourceType.TRANSACTIONAL_ID,
                response.transaction_states,
                attrgetter("transactional_id"),
            )
            return response

        return respond()

    # Checks

    def _require_whole(self, request: Any, context: RequestContext) -> None:
        if self._permissions.cluster is not None:
            self._require_cluster(context, self._permissions.cluster)
        for field, resource_type in self._whole:
            name = getattr(request, field)
            if name is not None:
                self._require(context, resource_type, name)

    def _has_instead(self, context: RequestContext) -> bool:
        """Return whether the requester has the permission on the cluster that stands for those on each resource."""
        instead = self._permissions.cluster_instead
        return instead is not None and self._authorizer.allows_cluster(context, instead, is_logged_if_denied=False)

    def _require_cluster(self, context: RequestContext, operation: Operation) -> None:
        if not self._authorizer.allows_cluster(context, operation):
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    def _require(self, context: RequestContext, resource_type: ResourceType, name: str) -> None:
        if not self._allows(context, resource_type, name):
            raise KafkaError(DENIED[resource_type])

    def _allows(self, context: RequestContext, resource_type: ResourceType, name: str) -> bool:
        return self._authorizer.allows(context, self._operations[resource_type], resource_type, name)

    def _refused(
        self,
        context: RequestContext,
        resource_type: ResourceType,
        names: Iterable[str],
        operation: Operation | None = None,
        *,
        is_logged_if_denied: bool = True,
    ) -> Slices[Collection[str]]:
        """Return the names that are denied. `operation` is by default the one that the API needs."""
        distinct = [*dict.fromkeys(names)]
        refused: set[str] = set()
        for begin in range(0, len(distinct), DECIDED_IN_A_SLICE_STEP):
            refused.update(
                self._authorizer.denied(
                    context,
                    operation or self._operations[resource_type],
                    resource_type,
                    distinct[begin : begin + DECIDED_IN_A_SLICE_STEP],
                    is_logged_if_denied=is_logged_if_denied,
                )
            )
            yield
        return refused

    async def _split(
        self,
        services: Services,
        context: RequestContext,
        resource_type: ResourceType,
        items: Sequence[Any],
        name_of: Callable[[Any], str] = attrgetter("name"),
    ) -> tuple[Sequence[Any], Sequence[Any]]:
        """Return the allowed and the denied items."""
        refused = await services.sliced_work.finished(self._refused(context, resource_type, map(name_of, items)))
        if not refused:
            return items, ()
        return await self._computed(services, context, lambda: _parted(items, name_of, refused))

    async def _visible(
        self,
        services: Services,
        context: RequestContext,
        resource_type: ResourceType,
        items: Sequence[Any],
        name_of: Callable[[Any], str] = attrgetter("name"),
        operation: Operation | None = None,
    ) -> list[Any]:
        """Return the items of a response that the requester may see."""
        refused = await services.sliced_work.finished(
            self._refused(context, resource_type, map(name_of, items), operation, is_logged_if_denied=False)
        )
        return await self._computed(services, context, lambda: _parted(items, name_of, refused)[0])

    # Responses

    def _serve_each(self, services: Services, request: Any, context: RequestContext, each: Each) -> Any:
        items = getattr(request, each.items)
        if len(items) > DECIDED_AT_ONCE_MAX and (context.is_frame_kept or self._api.key != PRODUCE_KEY):
            return self._serve_many(services, request, context, each)
        refused_names = self._authorizer.denied(
            context, self._operations[each.resource_type], each.resource_type, [*map(each.name_of, items)]
        )
        if not refused_names:
            return self._handle(services, request, context)
        allowed, denied = _parted(items, each.name_of, refused_names)
        return self._serve_allowed(services, request, context, each, allowed, denied)

    async def _serve_many(self, services: Services, request: Any, context: RequestContext, each: Each) -> Any:
        items = getattr(request, each.items)
        allowed, denied = await self._split(services, context, each.resource_type, items, each.name_of)
        if not denied:
            return self._handle(services, request, context)
        return self._serve_allowed(services, request, context, each, allowed, denied)

    def _serve_allowed(
        self,
        services: Services,
        request: Any,
        context: RequestContext,
        each: Each,
        allowed: Sequence[Any],
        denied: Sequence[Any],
    ) -> Any:
        refused = with_field(request, each.items, denied)
        code = DENIED[each.resource_type]

        def results() -> Sequence[Any]:
            response = self._as_message(self._module.failed(refused, context, code), context)
            return cast(Sequence[Any], getattr(response, each.results))

        if not allowed:
            return self._computed(services, context, lambda: self._module.failed(refused, context, code))
        outcome = self._begun(services, with_field(request, each.items, allowed), context)
        return self._extended(services, outcome, context, each.results, results)


_DENIED_OFFSET: Mapping[str, Any] = {
    "committed_offset": -1,
    "metadata": "",
    "error_code": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
}


def _topic_names(groups: Iterable[Any]) -> Collection[str]:
    return dict.fromkeys(topic.name for group in groups for topic in group.topics or ())


def _parted_groups(groups: Iterable[Any], refused: Collection[str]) -> tuple[list[Any], Mapping[str, Sequence[Any]]]:
    """Return the groups with their allowed topics, and by group the refused ones."""
    served = []
    refused_topics: dict[str, Sequence[Any]] = {}
    for group in groups:
        allowed = group.topics
        if allowed is not None:
            allowed, denied = _parted(allowed, attrgetter("name"), refused)
            refused_topics.setdefault(group.group_id, denied)
        served.append(with_field(group, "topics", allowed))
    return served, refused_topics


def _parted(
    items: Sequence[Any], name_of: Callable[[Any], str], refused: Collection[str]
) -> tuple[list[Any], list[Any]]:
    """Return the items with other names than those refused, and the refused ones."""
    allowed: list[Any] = []
    denied: list[Any] = []
    for item in items:
        (denied if name_of(item) in refused else allowed).append(item)
    return allowed, denied
