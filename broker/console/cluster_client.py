"""Kafka requests of the console: to this broker through its own dispatcher, to the others over outgoing connections.

Owns: which broker is asked, as which principal, and which of them did not respond. Must not know HTTP, or pages.

The console reads and changes nothing in another way. A request to this broker runs through the dispatcher like that of
a client: its handler, its permissions, its quotas and its metrics. Another broker sees the connection of this broker,
so the permissions of the console's principal are checked here before the request leaves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import Any, Final, Generic, NamedTuple, TypeVar

from base.dataclass import dataclass
from base.file_slice import FileSlice
from base.topic_partition import TopicPartition
from broker.cluster.metadata_cache import NO_LEADER
from broker.cluster.peers import Link
from broker.handlers.config_permissions import WITH_PERMISSIONS
from broker.handlers.guard import DENIED
from broker.network.channel import Channel
from broker.network.connection import Buffer, Dispatcher, Outcome
from broker.network.outgoing import OutgoingConnection, PeerUnavailable
from broker.requests.budget import ELEMENTS_ON_LOOP_MAX, RESPONSE_SIZE_MAX
from broker.requests.routes import TABLE
from broker.requests.services import Services
from broker.security.acls import CLUSTER_NAME, Operation, ResourceType
from protocol.api import APIS, Api
from protocol.api_key import ApiKey
from protocol.codec import decoder, encode
from protocol.errors import ErrorCode, KafkaError, Malformed
from protocol.headers import read_response_header, request_header
from protocol.messages.fetch import FetchResponse
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.reader import ELEMENTS_UNLIMITED, TooManyElements
from protocol.schema import message_info

T = TypeVar("T")

CLIENT_ID: Final = "milena-console"
CONSUMER: Final = -1
LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
OFFSETS_PER_REQUEST: Final = 1_000
TIMEOUT_MS: Final = 3_000
"""How long another broker may take for one response."""
LAST_VERSION_WITH_NAMES: Final = 12  # of Fetch; later ones name topics by their ids
_VERSIONS: Final[Mapping[ApiKey, int]] = {ApiKey.FETCH: LAST_VERSION_WITH_NAMES}
CONNECTION_MUTE_MS_MAX: Final = 5_000


class FoundOffset(NamedTuple):
    """A response of ListOffsets for one partition."""

    offset: int
    timestamp_ms: int


@dataclass(slots=True)
class Responses(Generic[T]):
    """What several brokers responded; `unavailable` has the reason for each that did not."""

    by_broker: dict[int, T] = field(default_factory=dict)
    unavailable: dict[int, str] = field(default_factory=dict)


class ClusterClient:
    """The console's requests to all brokers of the cluster."""

    def __init__(self, services: Services, dispatcher: Dispatcher, principal: str, listener: str) -> None:
        self._services = services
        self._dispatcher = dispatcher
        self._channel = Channel("127.0.0.1", 0, listener, principal)
        self._connections: dict[int, OutgoingConnection] = {}
        self._requester = _Requester(principal)
        self.pause = services.sliced_work.pause
        """Awaited in loops over thousands of partitions."""
        self.principal = principal

    def may(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Return whether the console's principal may do this; nothing is logged."""
        return self._services.authorizer.allows(
            self._requester, operation, resource_type, name, is_logged_if_denied=False
        )

    async def ask(self, broker_id: int, request: object, *, timeout_ms: int = TIMEOUT_MS) -> Any:
        """Return the response of one broker; another one may take `timeout_ms`. Its records stay valid.

        Raises:
            PeerUnavailable: another broker did not respond in time, or is not alive.
            KafkaError: the console's principal may not send this request to another broker.
        """
        api = APIS[message_info(type(request)).api_key]
        version = _VERSIONS.get(api.key, api.usual_version)
        if broker_id == self._services.broker_id:
            return await self._ask_here(api, request, version)
        if self._services.authorizer.is_active:
            self._require(api, request)
        if broker_id not in self._services.metadata_cache.brokers:
            raise PeerUnavailable(f"broker {broker_id} is not alive")
        connection = self._connections.get(broker_id)
        if connection is None:
            connection = self._services.peers.connect_as(CLIENT_ID, Link(CLIENT_ID, broker_id), asks_versions=True)
            self._connections[broker_id] = connection
        response = await connection.ask(request, version, timeout_ms=timeout_ms)
        if api.key == ApiKey.FETCH:
            _keep_records(response)  # before anything else runs
        if self._services.authorizer.is_active:
            self._hide(api, response)
        return response

    async def ask_each(self, requests: Mapping[int, object]) -> Responses[Any]:
        """Ask several brokers at the same time, each its own request."""
        responses: Responses[Any] = Responses()

        async def ask_one(broker_id: int, request: object) -> None:
            try:
                responses.by_broker[broker_id] = await self.ask(broker_id, request)
            except (PeerUnavailable, Malformed) as error:
                responses.unavailable[broker_id] = str(error)
            except KafkaError as error:
                responses.unavailable[broker_id] = error.code.name

        await asyncio.gather(*(ask_one(*one) for one in requests.items()))
        return responses

    async def ask_all(self, request: object) -> Responses[Any]:
        """Ask every live broker the same."""
        return await self.ask_each(dict.fromkeys(self.broker_ids, request))

    @property
    def broker_ids(self) -> list[int]:
        """All live brokers, as far as the controller has reported."""
        return sorted(self._services.metadata_cache.brokers.keys() | {self._services.broker_id})

    async def offsets(
        self, partitions: Iterable[TopicPartition], timestamp: int, *, isolation: int = READ_UNCOMMITTED
    ) -> dict[TopicPartition, FoundOffset]:
        """Return offsets as ListOffsets has them; partitions without a leader, or with an error, are missing.

        Thousands of partitions take several requests, between which the event loop serves others.
        """
        found: dict[TopicPartition, FoundOffset] = {}
        wanted = list(partitions)
        for first in range(0, len(wanted), OFFSETS_PER_REQUEST):
            responses = await self.ask_each(
                self._offset_requests(wanted[first : first + OFFSETS_PER_REQUEST], timestamp, isolation)
            )
            for response in responses.by_broker.values():
                for topic in response.topics:
                    for one in topic.partitions:
                        if not one.error_code:
                            found[topic.name, one.partition_index] = FoundOffset(one.offset, one.timestamp)
        return found

    def _offset_requests(
        self, partitions: Iterable[TopicPartition], timestamp: int, isolation: int
    ) -> dict[int, ListOffsetsRequest]:
        """Return the requests by the leader that is asked."""
        by_leader: dict[int, dict[str, list[ListOffsetsPartition]]] = {}
        for topic, partition in partitions:
            leader = self._services.metadata_cache.leader_of(topic, partition)
            if leader != NO_LEADER:
                topics = by_leader.setdefault(leader, {})
                topics.setdefault(topic, []).append(
                    ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
                )
        return {
            leader: ListOffsetsRequest(
                replica_id=CONSUMER,
                isolation_level=isolation,
                topics=[ListOffsetsTopic(name=name, partitions=each) for name, each in topics.items()],
            )
            for leader, topics in by_leader.items()
        }

    async def _ask_here(self, api: Api, request: object, version: int) -> Any:
        frame = bytearray(request_header(api.key, version, 0, CLIENT_ID) + b"".join(encode(request, version)))
        received = self._dispatcher.dispatch(memoryview(frame), self._channel)
        if isinstance(received, bytes | bytearray | memoryview):
            received = [received]
        elif not (received is None or isinstance(received, list | Outcome)):
            received = await received
        now_s = self._services.clock.monotonic_s()
        self._channel.sent(now_s, now_s)
        if isinstance(received, Outcome):
            await asyncio.sleep(min(received.mute_ms, CONNECTION_MUTE_MS_MAX) / 1000)
            received = received.buffers
        if received is None:
            return None
        payload = memoryview(await self._joined(received))[4:]
        _, position = read_response_header(api.key, version, payload)
        read = decoder(api.response, version)
        try:
            return read(payload, position, ELEMENTS_ON_LOOP_MAX)
        except TooManyElements:
            return await self._services.cpu_pool.run(lambda: read(payload, position, ELEMENTS_UNLIMITED))

    async def _joined(self, buffers: Sequence[Buffer | FileSlice]) -> bytes:
        """Return the bytes of a response. Parts that are still in a file are read in a thread."""
        size = sum(map(len, buffers))
        if size > RESPONSE_SIZE_MAX:
            raise Malformed(f"a response of {size} bytes, expected at most {RESPONSE_SIZE_MAX}")
        if FileSlice in map(type, buffers):
            return await self._services.in_thread(lambda: _whole(buffers))
        return _whole(buffers)

    def _require(self, api: Api, request: Any) -> None:
        """Check the permissions of a request to another broker as a whole. Raises KafkaError."""
        permissions, authorizer, requester = TABLE[api.key].API.permissions, self._services.authorizer, self._requester
        if permissions.cluster is not None and not authorizer.allows_cluster(requester, permissions.cluster):
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        instead = permissions.cluster_instead
        if instead is not None and authorizer.allows_cluster(requester, instead, is_logged_if_denied=False):
            return
        operations = {ResourceType.TOPIC: permissions.topic, ResourceType.GROUP: permissions.group}
        for resource_type, name in _resources(request):
            operation = operations.get(resource_type)
            if resource_type is ResourceType.CLUSTER:
                operation = permissions.topic
            if operation is not None and not authorizer.allows(requester, operation, resource_type, name):
                raise KafkaError(DENIED[resource_type])

    def _hide(self, api: Api, response: Any) -> None:
        """Remove what the principal may not see from a response that lists without being asked for names."""
        if api.key == ApiKey.LIST_GROUPS:
            may_see = partial(self.may, Operation.DESCRIBE, ResourceType.GROUP)
            response.groups = [each for each in response.groups if may_see(each.group_id)]
        elif api.key in (ApiKey.LIST_TRANSACTIONS, ApiKey.DESCRIBE_TRANSACTIONS):
            may_see = partial(self.may, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID)
            response.transaction_states = [
                each for each in response.transaction_states if may_see(each.transactional_id)
            ]
            may_see_topic = partial(self.may, Operation.DESCRIBE, ResourceType.TOPIC)
            for state in response.transaction_states if api.key == ApiKey.DESCRIBE_TRANSACTIONS else ():
                state.topics = [each for each in state.topics if may_see_topic(each.topic)]
        elif api.key == ApiKey.OFFSET_FETCH:
            may_see = partial(self.may, Operation.DESCRIBE, ResourceType.TOPIC)
            for group in response.groups:
                group.topics = [each for each in group.topics if may_see(each.name)]


def _keep_records(response: FetchResponse) -> None:
    """Copy the records of a response: those of another broker are views, which its next response overwrites."""
    for topic in response.responses:
        for partition in topic.partitions:
            if partition.records is not None:
                partition.records = memoryview(bytes(partition.records))


@dataclass(frozen=True, slots=True)
class _Requester:
    """The console towards the authorizer."""

    principal: str
    client_host: str = "127.0.0.1"
    api_key: int = ApiKey.METADATA
    """In the audit log: the request that asks about the cluster."""


def _whole(buffers: Sequence[Buffer | FileSlice]) -> bytes:
    return b"".join(piece.read() if isinstance(piece, FileSlice) else piece for piece in buffers)


def _resources(request: Any) -> Iterable[tuple[ResourceType, str]]:
    """Yield the topics and groups that a request names, and the cluster for configurations of brokers."""
    for name in ("topics", "topic_data"):
        for topic in getattr(request, name, None) or ():
            yield ResourceType.TOPIC, topic.topic if hasattr(topic, "topic") else topic.name
    if getattr(request, "group_id", ""):
        yield ResourceType.GROUP, request.group_id
    for group in [*getattr(request, "groups", ()), *getattr(request, "groups_names", ())]:
        yield ResourceType.GROUP, group if isinstance(group, str) else group.group_id
    for resource in getattr(request, "resources", ()):
        kind = WITH_PERMISSIONS.get(resource.resource_type)
        yield (ResourceType.CLUSTER, CLUSTER_NAME) if kind is None else (kind, resource.resource_name)
