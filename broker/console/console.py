"""What the pages of one broker's console share: its parts, its settings and what it remembers.

Owns the wiring and the caches of cluster-wide facts that pages need without delay. Must not know HTTP.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from base.dataclass import dataclass
from base.topic_partition import TopicPartition
from broker.cluster.broker_state import BrokerState
from broker.console.cluster_client import ClusterClient, Responses
from broker.console.committed_offsets import committed
from broker.console.connect.workers import Workers
from broker.console.offset_growth import OffsetGrowth
from broker.console.rates import GroupHistory, RatesHistory
from broker.console.records.reader import RecordReader
from broker.console.records.schemas import SchemaRegistry
from broker.metrics.host import Host
from broker.metrics.metric import Distribution
from broker.network.connection import Dispatcher
from broker.network.outgoing import PeerUnavailable
from broker.network.socket_server import SocketServer
from broker.requests.request_metrics import RequestMetrics
from broker.requests.services import Services
from broker.security.acls import Operation, ResourceType
from config import broker_properties as properties
from milena_broker import __version__
from protocol.errors import KafkaError
from protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from protocol.messages.list_groups import ListGroupsRequest

T = TypeVar("T")

CACHED_MS = 10_000
STALE_MS_MAX = 60_000
SOON_S = 0.1
GROUPS_INDEXED_MAX = 5_000


@dataclass(frozen=True, slots=True)
class Measures:
    """What the broker measures about itself, as the metrics read it."""

    state: Callable[[], BrokerState]
    requests: Mapping[str, RequestMetrics]
    loop_lag: Callable[[], Distribution]
    loop_idle_percent: Callable[[], float]
    host: Host
    started_ms: int


class Cached(Generic[T]):
    """A fact that is expensive to collect: at most once per `valid_ms`, by one collection at a time."""

    def __init__(
        self,
        collect: Callable[[], Awaitable[T]],
        monotonic_ms: Callable[[], int],
        permissions: Callable[[], int],
        valid_ms: int,
    ) -> None:
        """`permissions()` is the version of the ACLs: a fact that was collected under others is no longer shown."""
        self._collect = collect
        self._valid_ms = valid_ms
        self._monotonic_ms = monotonic_ms
        self._permissions = permissions
        self._collected_under = -1
        self._collected_ms: int | None = None
        self._value: T | None = None
        self._collecting: asyncio.Task[T] | None = None

    async def get(self) -> T:
        """Return the fact, collected again if it is too old."""
        if self._value is not None and self._is_fresh and self._is_permitted:
            return self._value
        while True:
            value = await asyncio.shield(self._begin())
            if self._is_permitted:
                return value

    async def soon(self, wait_s: float = SOON_S) -> T | None:
        """Return the fact, for a page that does not wait for it longer than `wait_s`.

        If the collection takes longer, returns the last fact of at most `STALE_MS_MAX`, else None.
        """
        if not (self._is_fresh and self._is_permitted):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(self._begin()), wait_s)
        return self._value if self._is_permitted and self._age_ms < STALE_MS_MAX else None

    def forget(self) -> None:
        """Collect again at the next use: the fact was changed."""
        self._collected_ms = None

    @property
    def _age_ms(self) -> float:
        return math.inf if self._collected_ms is None else self._monotonic_ms() - self._collected_ms

    @property
    def _is_fresh(self) -> bool:
        return self._age_ms < self._valid_ms

    @property
    def _is_permitted(self) -> bool:
        return self._collected_under == self._permissions()

    def _begin(self) -> asyncio.Task[T]:
        if self._collecting is None or self._collecting.done():
            self._collecting = asyncio.ensure_future(self._collected())
            self._collecting.add_done_callback(lambda task: task.cancelled() or task.exception())
        return self._collecting

    async def _collected(self) -> T:
        collected_under = self._permissions()
        value = await self._collect()
        self._value, self._collected_ms, self._collected_under = value, self._monotonic_ms(), collected_under
        return value

    def stop(self) -> None:
        if self._collecting is not None:
            self._collecting.cancel()


class Console:
    """The console of one broker."""

    def __init__(self, services: Services, dispatcher: Dispatcher, sockets: SocketServer, measures: Measures) -> None:
        config = services.config
        self.services = services
        self.sockets = sockets
        self.measures = measures
        self.client = ClusterClient(
            services, dispatcher, config[properties.CONSOLE_PRINCIPAL], config.inter_broker_listener.name
        )
        self.pause = self.client.pause
        self.reader = RecordReader(services, self.client)
        self.schemas = SchemaRegistry(config[properties.CONSOLE_SCHEMA_REGISTRY_URL], services.clock.monotonic_ms)
        connect_urls = config[properties.CONSOLE_CONNECT_URL]
        self.connect = Workers(connect_urls, services.clock.monotonic_ms) if connect_urls else None
        """The workers of Kafka Connect; None: the console has no page of connectors."""
        self.broker_urls: Sequence[str] = config[properties.CONSOLE_BROKERS]
        """The HTTP ports of other brokers, which are asked for their rates and latencies."""
        self.version = __version__
        self.rates = RatesHistory()
        self.growth = OffsetGrowth()
        self.group_history = GroupHistory()
        self.group_offsets = self._cached(self._collect_group_offsets, CACHED_MS)
        """The committed offsets of all groups, by group."""
        self._remembered: dict[str, Cached[Any]] = {}
        self.log_dirs = self._cached(self._collect_log_dirs, CACHED_MS)

    @property
    def is_writing_enabled(self) -> bool:
        return self.services.config[properties.CONSOLE_WRITE_ENABLE]

    @property
    def optional_pages(self) -> tuple[str, ...]:
        """The pages that settings have switched on."""
        pages = {"connect": self.connect is not None, "schemas": self.schemas.is_configured}
        return tuple(name for name, is_on in pages.items() if is_on)

    @property
    def is_ready(self) -> bool:
        """Whether requests can be served: the logs are loaded and the cluster's metadata are known."""
        return self.measures.state() is BrokerState.RUNNING

    def may_describe(self, topic: str) -> bool:
        """Return whether the console's principal may know that a topic exists."""
        if not self.services.authorizer.is_active:
            return True
        return self.client.may(Operation.DESCRIBE, ResourceType.TOPIC, topic)

    @property
    def connection_count(self) -> int:
        """Open connections of Kafka clients to this broker."""
        return sum(listener.connection_count for listener in self.sockets.listeners)

    def _cached(self, collect: Callable[[], Awaitable[T]], valid_ms: int) -> Cached[T]:
        return Cached(collect, self.services.clock.monotonic_ms, lambda: self.services.authorizer.version, valid_ms)

    async def remembered(self, name: str, valid_ms: int, collect: Callable[[], Awaitable[T]]) -> T:
        """Return a fact that `collect` has collected at most `valid_ms` ago."""
        cached = self._remembered.get(name)
        if cached is None:
            cached = self._remembered[name] = self._cached(collect, valid_ms)
        value: T = await cached.get()
        return value

    def forget(self, name: str) -> None:
        """Collect a remembered fact again at its next use: it was changed."""
        if name in self._remembered:
            self._remembered[name].forget()

    async def stop(self) -> None:
        for cached in self._remembered.values():
            cached.stop()
        self.group_offsets.stop()
        self.log_dirs.stop()
        await self.schemas.close()
        if self.connect is not None:
            await self.connect.close()

    async def _collect_group_offsets(self) -> dict[str, dict[TopicPartition, int]]:
        responses = await self.client.ask_all(ListGroupsRequest())
        offsets: dict[str, dict[TopicPartition, int]] = {}
        for broker, response in responses.by_broker.items():
            names = [each.group_id for each in response.groups][:GROUPS_INDEXED_MAX]
            try:
                offsets.update(await committed(self.client, broker, names))
            except (PeerUnavailable, KafkaError):
                continue  # the groups of a broker that is away are missing in the list of topics
        return offsets

    async def _collect_log_dirs(self) -> Responses[object]:
        return await self.client.ask_all(DescribeLogDirsRequest(topics=None))
