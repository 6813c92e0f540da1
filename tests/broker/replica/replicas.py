"""Replicas of one topic on several brokers in one process, without sockets, controller or store.

Owns: the brokers' replica layers, with real logs and the real handlers of followers' requests, and the state that a
controller would hold: the test elects leaders. Must not know what a test expects.

Requests are encoded and decoded as on the wire, into one buffer per connection that the next request overwrites.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from random import Random
from types import ModuleType, SimpleNamespace
from typing import Any
from uuid import UUID

from base.file_slice import FileSlice
from broker.cluster.metadata_cache import BrokerNode, MetadataCache
from broker.cluster.not_hosted import why_not_hosted
from broker.handlers import fetch, list_offsets, offset_for_leader_epoch
from broker.handlers.request_context import RequestContext
from broker.loop.clock import SystemClock
from broker.loop.loop_timer import LoopTimer
from broker.loop.slices import SlicedWork
from broker.network.channel import Channel
from broker.network.outgoing import PeerUnavailable, RequestAbandoned
from broker.network.unsent_responses import UnsentResponses
from broker.replica.assigned_replicas import AssignedReplicas
from broker.replica.bound_partition import BoundPartition
from broker.replica.delayed_produce import AwaitedAppend
from broker.replica.fetch_news import FetchNews
from broker.replica.fetch_service import FetchService
from broker.replica.fetch_sessions import FetchSessionCache
from broker.replica.fetchers import FetcherSettings, ReplicaFetchers
from broker.replica.isr_changes import IsrChanges
from broker.replica.machine.fetcher import FetchTerms, FetchVersions
from broker.replica.machine.isr import IsrChange
from broker.replica.manager import ReplicaManager
from broker.replica.partition import Effects, IsrResponse, Partition, ReplicaRules
from broker.requests.dispatch import request_decoder
from config.broker import BrokerConfig
from config.log_config import LogConfig
from protocol.api import APIS
from protocol.codec import decode, encode
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    PartitionResult,
    TopicResult,
)
from protocol.messages.leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from protocol.records.builder import RecordData, build_batch
from protocol.row_writer import RowResponse
from protocol.schema import message_info
from storage.disk.files import OsFiles
from storage.manager.log_manager import LogManager
from storage.manager.log_startup import LogManagerSettings
from tests.storage.builders import done, in_thread, pause
from tests.support.replicas import throttles

TOPIC, TOPIC_ID = "t", UUID(int=7)
HANDLERS: dict[int, ModuleType] = {1: fetch, 2: list_offsets, 23: offset_for_leader_epoch}
WAIT_MS = 200
BACKOFF_MS = 5
PATIENCE_S = 20.0


class Node:
    """One broker; `start` and `crash` may alternate."""

    def __init__(self, cluster: Cluster, broker_id: int, folder: Path) -> None:
        self.cluster = cluster
        self.broker_id = broker_id
        self.folder = folder
        self.is_running = False
        self.epoch = 0
        self.requests: list[tuple[int, int, Any]] = []
        """What others have asked: (sender, version, request)."""

    def start(self) -> None:
        """Start over the folder, with recovery after a crash."""
        config = BrokerConfig.from_properties({})
        self.clock, self.config = SystemClock(), config
        self.log_config = LogConfig.from_overrides(config, self.cluster.topic_settings)
        self.log_manager = LogManager(
            [str(self.folder)],
            LogManagerSettings(),
            OsFiles(),
            random=Random(1),
            new_threads=ThreadPoolExecutor,
            on_directory_failed=lambda *_: None,
        )
        self.log_manager.startup.open()
        self.log_manager.startup.load(lambda topic: self.log_config, now_ms=self.clock.now_ms())
        loop = asyncio.get_running_loop()
        self.timer = LoopTimer(loop, self.clock)
        self.sliced_work = SlicedWork(self.clock.monotonic_ms)
        self.metadata_cache = MetadataCache("cluster")
        self.unsent_responses = UnsentResponses(lambda delay_ms, call: loop.call_later(delay_ms / 1000, call))
        self.cpu_pool: Any = None  # nothing is converted
        self.authorizer = self.enforced_quotas = SimpleNamespace(is_active=False)
        self.executor = ThreadPoolExecutor(2)
        news = FetchNews(loop.call_soon)
        ids = count(1)
        self.fetch_sessions = FetchSessionCache(10, 1000, lambda: next(ids), news)
        self.isr_changes = IsrChanges(
            self.broker_id,
            lambda: self.epoch,
            self.cluster.alter_partition,
            self._responded,
        )
        self.replica_manager = ReplicaManager(
            self.log_manager,
            self.timer.timer,
            news,
            throttles(self.broker_id, self.clock.monotonic_ms),
            topic_config=lambda topic: self.log_config,
            monotonic_ms=self.clock.monotonic_ms,
            on_isr_change=self.isr_changes.submit,
            produce_purge_interval=1000,
            fetch_purge_interval=1000,
        )
        self.fetch_service = FetchService(
            self.replica_manager,
            self.fetch_sessions,
            self.unsent_responses,
            self.sliced_work,
            self.cpu_pool,
            self.clock,
            in_thread=self.in_thread,
            near_reads=None,
        )
        self.fetchers = ReplicaFetchers(
            self.broker_id,
            lambda: self.epoch,
            self,
            self.replica_manager,
            self.clock,
            self.sliced_work,
            self.in_thread,
            FetcherSettings(FetchTerms(wait_ms_max=WAIT_MS), self.cluster.versions, BACKOFF_MS, timeout_ms=5_000),
            lambda: 1,
        )
        self.assigned_replicas = AssignedReplicas(
            self.broker_id,
            self.log_manager,
            self.replica_manager,
            self.fetchers,
            ReplicaRules(self.cluster.lag_ms, self.cluster.is_alive),
            topic_config=lambda topic: self.log_config,
            on_opened=lambda partition: None,
            on_not_opened=lambda: None,
        )
        self.epoch = self.cluster.next_epoch()
        self.is_running = True

    def _responded(self, partition: Partition, change: IsrChange, response: IsrResponse) -> Effects:
        return self.replica_manager.isr_responded(partition, change, response)

    async def crash(self) -> None:
        """Stop without closing any file; nothing is flushed or marked clean."""
        self.is_running = False
        await self.isr_changes.stop()
        await self.fetchers.stop()
        self.timer.close()
        self.executor.shutdown()
        self.log_manager.directories.unlock()

    async def stop(self) -> None:
        """Stop cleanly."""
        await self.isr_changes.stop()
        await self.fetchers.stop()
        self.timer.close()
        self.executor.shutdown()
        if self.is_running:
            self.log_manager.close(self.clock.now_ms())
        self.is_running = False

    def why_not_hosted(self, topic: str, partition: int) -> KafkaError:
        return why_not_hosted(self.replica_manager, self.metadata_cache, topic, partition)

    def in_thread(self, work: Callable[[], Any]) -> Awaitable[Any]:
        return asyncio.get_running_loop().run_in_executor(self.executor, work)

    # Peers

    def connect(self, broker_id: int, purpose: str) -> Link:
        return Link(self, self.cluster.nodes[broker_id])

    # What tests do with it

    def partition(self, index: int = 0) -> Partition:
        found = self.replica_manager.find(TOPIC, index)
        assert found is not None
        return found

    def append(self, value: bytes = b"v", *, index: int = 0, count: int = 1, needs_isr: bool = False) -> AwaitedAppend:
        """Append one batch as leader."""
        batch = build_batch([RecordData(timestamp=1, key=None, value=value)] * count)
        partition = self.partition(index)
        bound = BoundPartition(partition, self.replica_manager)
        result = bound.append(memoryview(bytearray(batch)), needs_isr=needs_isr, now_ms=self.clock.now_ms())
        return AwaitedAppend(partition, partition.leading_since, result.last_offset + 1, needs_isr)

    async def produce(self, value: bytes = b"v", *, index: int = 0, count: int = 1) -> ErrorCode:
        """Append with acks=all; return the outcome."""
        append = self.append(value, index=index, count=count, needs_isr=True)
        decided = asyncio.get_running_loop().create_future()
        deadline_ms = self.clock.monotonic_ms() + 5_000
        self.replica_manager.await_commit([append], deadline_ms, lambda: decided.set_result(None))
        await decided
        assert append.error is not None
        return append.error

    def log_bytes(self, index: int = 0) -> bytes:
        """Return all stored batches."""
        return b"".join(path.read_bytes() for path in sorted((self.folder / f"{TOPIC}-{index}").glob("*.log")))

    def ends(self, index: int = 0) -> tuple[int, int]:
        log = self.partition(index).log
        return log.log_end_offset, log.high_watermark


class Link:
    """A `Peer`: a connection from one broker to another."""

    def __init__(self, sender: Node, receiver: Node) -> None:
        self._sender = sender
        self._receiver = receiver
        self._epoch = receiver.epoch
        self._channel = Channel("127.0.0.1", 50_000, "PLAINTEXT")
        self._buffer = bytearray()
        self._responding: asyncio.Future[bytes] | None = None
        self.is_closed = False

    async def ask(self, request: Any, version: int, *, timeout_ms: int) -> Any:
        sender, receiver = self._sender, self._receiver
        self._buffer[:] = b"\xff" * len(self._buffer)  # views of the last response are not valid any more
        await asyncio.sleep(0)
        if not sender.cluster.is_connected(sender, receiver):
            raise PeerUnavailable(f"broker {receiver.broker_id}: connection refused")
        api = APIS[message_info(type(request)).api_key]
        receiver.requests.append((sender.broker_id, version, request))
        payload = await self._awaited(self._respond(api.key, b"".join(encode(request, version)), version))
        if not sender.cluster.is_connected(sender, receiver):
            raise PeerUnavailable(f"broker {receiver.broker_id}: connection lost")
        payload = sender.cluster.tamper(api.key, payload)
        self._buffer = bytearray(payload)
        return decode(api.response, version, memoryview(self._buffer))

    async def _awaited(self, response: Coroutine[Any, Any, bytes]) -> bytes:
        responding = self._responding = asyncio.ensure_future(response)
        try:
            return await asyncio.shield(responding)
        except asyncio.CancelledError:
            if responding.cancelled():
                raise RequestAbandoned from None
            raise
        finally:
            self._responding = None
            responding.cancel()

    def abandon(self) -> bool:
        if self._responding is None or self._responding.done():
            return False
        self._sender.cluster.abandoned += 1
        return self._responding.cancel()

    async def _respond(self, key: int, payload: bytes, version: int) -> bytes:
        module, receiver = self._receiver.cluster.handlers[key], self._receiver
        context = RequestContext(key, version, 1, "test", self._channel)
        request = request_decoder(module, APIS[key], version)(memoryview(payload))
        try:
            response = module.handle(receiver, request, context)
            if isinstance(response, Coroutine):
                response = await receiver.sliced_work.anew(response)
        except KafkaError as error:
            response = module.failed(request, context, error.code)
        except Exception as error:
            receiver.cluster.failures.append(error)
            raise
        pieces = response.write() if isinstance(response, RowResponse) else encode(response, version)
        return b"".join(piece.read() if isinstance(piece, FileSlice) else piece for piece in pieces)

    def close(self) -> None:
        self.is_closed = True


class Cluster:
    """The brokers, and what a controller knows of partitions."""

    def __init__(self, folder: Path, broker_ids: Iterable[int], *, partitions: int = 1, **topic_settings: str) -> None:
        self.topic_settings = {name.replace("_", "."): value for name, value in topic_settings.items()}
        self.handlers: dict[int, Any] = dict(HANDLERS)
        self.versions = FetchVersions()
        """The protocol of the followers."""
        self.lag_ms = 30_000
        self.partitions = partitions
        self._epochs = count(1)
        self.nodes = {broker_id: Node(self, broker_id, folder / str(broker_id)) for broker_id in broker_ids}
        self.state: dict[int, LeaderAndIsrPartitionState] = {}
        self.failures: list[Exception] = []
        """What handlers have raised that is no error of Kafka's."""
        self.cut: set[frozenset[int]] = set()
        self.dead: set[int] = set()
        self.alterations: list[AlterPartitionRequest] = []
        self.may_alter = asyncio.Event()
        self.may_alter.set()
        self.abandoned = 0
        """How many requests their senders have abandoned."""
        self.tamper: Callable[[int, bytes], bytes] = lambda key, payload: payload
        """Changes the bytes of responses."""

    def next_epoch(self) -> int:
        return next(self._epochs)

    def is_alive(self, broker_id: int) -> bool:
        node = self.nodes.get(broker_id)
        return node is not None and node.is_running and broker_id not in self.dead

    def is_connected(self, one: Node, other: Node) -> bool:
        return other.is_running and frozenset((one.broker_id, other.broker_id)) not in self.cut

    async def elect(
        self,
        leader: int,
        isr: Iterable[int] | None = None,
        *,
        index: int = 0,
        notified: Iterable[int] | None = None,
        replicas: Iterable[int] | None = None,
    ) -> None:
        """Begin a leader epoch, known to `notified` or all running brokers. Without arguments ISR and replicas stay."""
        before = self.state.get(index)
        everyone = sorted(self.nodes)
        self.state[index] = LeaderAndIsrPartitionState(
            partition_index=index,
            controller_epoch=1,
            leader=leader,
            leader_epoch=0 if before is None else before.leader_epoch + 1,
            isr=list(isr) if isr is not None else (everyone if before is None else before.isr),
            partition_epoch=0 if before is None else before.partition_epoch + 1,
            replicas=list(replicas) if replicas is not None else (everyone if before is None else before.replicas),
            is_new=before is None,
        )
        for broker_id in self.nodes if notified is None else notified:
            if self.nodes[broker_id].is_running:
                await self.inform(broker_id, [index])

    async def inform(self, broker_id: int, indexes: Iterable[int] | None = None) -> None:
        """Send a broker the present states, as a controller does after its start."""
        node = self.nodes[broker_id]
        states = [state for index, state in self.state.items() if indexes is None or index in indexes]
        nodes = {it: BrokerNode(it, None, {"PLAINTEXT": ("localhost", 9092 + it)}) for it in self.nodes}
        node.metadata_cache.brokers = {it: found for it, found in nodes.items() if self.is_alive(it)}
        node.metadata_cache._names_by_id[TOPIC_ID] = TOPIC
        request = LeaderAndIsrRequest(
            controller_id=1,
            controller_epoch=1,
            topic_states=[LeaderAndIsrTopicState(topic_name=TOPIC, topic_id=TOPIC_ID, partition_states=states)],
            live_leaders=[
                LeaderAndIsrLiveLeader(broker_id=it, host_name="localhost", port=9092)
                for it in self.nodes
                if self.is_alive(it)
            ],
        )
        manager = node.replica_manager
        async with manager.truncations.kept_out(lambda: [(TOPIC, state.partition_index) for state in states]):
            done(node.assigned_replicas.create_logs(request, node.clock.now_ms(), pause, in_thread))
            await node.assigned_replicas.become_leader_or_follower(request, node.sliced_work.pause)

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """Apply the ISR changes of a leader, as the controller does."""
        self.alterations.append(request)
        await self.may_alter.wait()
        results = []
        for data in request.topics[0].partitions:
            state = self.state[data.partition_index]
            isr = [it.broker_id for it in data.new_isr_with_epochs]
            if data.leader_epoch != state.leader_epoch or request.broker_id != state.leader:
                code = ErrorCode.FENCED_LEADER_EPOCH
            elif data.partition_epoch != state.partition_epoch:
                code = ErrorCode.INVALID_UPDATE_VERSION
            elif not all(
                self.is_alive(it.broker_id) and it.broker_epoch in (-1, self.nodes[it.broker_id].epoch)
                for it in data.new_isr_with_epochs
            ):
                code = ErrorCode.INELIGIBLE_REPLICA
            else:
                code = ErrorCode.NONE
                state.isr, state.partition_epoch = isr, state.partition_epoch + 1
            results.append(
                PartitionResult(
                    partition_index=data.partition_index,
                    error_code=code,
                    leader_id=state.leader,
                    leader_epoch=state.leader_epoch,
                    isr=list(state.isr),
                    partition_epoch=state.partition_epoch,
                )
            )
        return AlterPartitionResponse(topics=[TopicResult(topic_id=TOPIC_ID, partitions=results)])

    # Waiting and checking

    async def until_equal(self, index: int = 0, *, among: Iterable[int] | None = None) -> None:
        """Wait until all is committed and the logs of the running brokers are equal byte for byte."""
        nodes = [self.nodes[it] for it in among or self.nodes if self.nodes[it].is_running]
        leader = self.nodes[self.state[index].leader]

        def are_equal() -> bool:
            end, _ = leader.ends(index)
            if any(node.ends(index) != (end, end) for node in nodes):
                return False
            return len({node.log_bytes(index) for node in nodes}) == 1

        await until(are_equal, lambda: [(node.broker_id, node.ends(index), node.log_bytes(index)) for node in nodes])

    async def until_in_sync(self, isr: Iterable[int], index: int = 0) -> None:
        await until(lambda: sorted(self.state[index].isr) == sorted(isr), lambda: self.state[index].isr)

    async def stop(self) -> None:
        self.may_alter.set()
        for node in self.nodes.values():
            if node.is_running:
                await node.stop()


async def until(holds: Callable[[], object], what: Callable[[], object] = lambda: "") -> None:
    """Let the loop turn until a condition holds."""
    give_up_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < give_up_s, what()
        await asyncio.sleep(0.001)
