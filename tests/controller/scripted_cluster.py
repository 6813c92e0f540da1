"""A cluster in one process, driven by one-line commands: real controllers over the store in memory, brokers that only
respond. Everything that reaches a broker is written down as a line.

Used by the golden scripts (`test_scripts.py`) and by tests that break something in the middle of a command.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from random import Random
from typing import Protocol

from base.pause import never
from base.topic_partition import TopicPartition, partition_name
from controller.active.broker_channels import ControlRequest, ControlResponse
from controller.controller import Controller
from controller.coordination.memory_store import MemoryStore, MemoryTree, stat_of
from controller.machine.events import ElectionType, RebalanceDue
from controller.machine.model import ApiError, Broker, Endpoint, Leadership
from controller.machine.settings import ControllerSettings
from controller.store.state_store import Node, SessionExpired, StateStore, StoreError
from controller.tree import paths
from controller.tree.registration import BrokerRegistration, ensure_cluster_id, register_broker
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.alter_partition import AlterPartitionRequest, BrokerState, PartitionData, TopicData
from protocol.messages.create_partitions import CreatePartitionsTopic
from protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig
from protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from protocol.messages.stop_replica import StopReplicaPartitionError, StopReplicaRequest, StopReplicaResponse
from protocol.messages.update_metadata import UPDATE_OF_ALL, UpdateMetadataRequest, UpdateMetadataResponse
from tests.support.manual_clock import ManualClock

# Iterations of the event loop without a change, after which nothing more will happen.
QUIET_TURNS = 30
TURNS_MAX = 100_000


class ScriptedBroker:
    """Responds to control requests synchronously, unless it is set to hold or to fail."""

    def __init__(self, broker_id: int, log: Callable[[str], None]) -> None:
        self.broker_id = broker_id
        self.is_up = True
        self.failed_directory: set[TopicPartition] = set()
        self.cannot_delete: set[TopicPartition] = set()
        self.highest_controller_epoch = -1
        self.failures: list[ErrorCode] = []
        """The errors of the next LeaderAndIsr requests, each for a request as a whole."""
        self._log = log
        self._released = asyncio.Event()
        self._released.set()

    def hold(self) -> None:
        self._released.clear()

    def release(self) -> None:
        self._released.set()

    @property
    def is_held(self) -> bool:
        return not self._released.is_set()

    async def receive(self, request: ControlRequest) -> ControlResponse:
        if not self.is_up:
            raise ConnectionError(f"broker {self.broker_id} is down")
        self._log(f"{self.broker_id} <- {describe_request(request)}")
        await self._released.wait()
        if request.controller_epoch < self.highest_controller_epoch:
            self._log(f"{self.broker_id} -- refuses controller epoch {request.controller_epoch}")
            return self._respond(request, ErrorCode.STALE_CONTROLLER_EPOCH)
        self.highest_controller_epoch = request.controller_epoch
        fails = isinstance(request, LeaderAndIsrRequest) and self.failures
        return self._respond(request, self.failures.pop(0) if fails else ErrorCode.NONE)

    def _respond(self, request: ControlRequest, code: ErrorCode) -> ControlResponse:
        if isinstance(request, UpdateMetadataRequest):
            return UpdateMetadataResponse(error_code=code)
        if isinstance(request, StopReplicaRequest):
            errors = [
                StopReplicaPartitionError(
                    topic_name=topic.topic_name,
                    partition_index=it.partition_index,
                    error_code=ErrorCode.KAFKA_STORAGE_ERROR
                    if it.delete_partition and (topic.topic_name, it.partition_index) in self.cannot_delete
                    else ErrorCode.NONE,
                )
                for topic in request.topic_states
                for it in topic.partition_states
            ]
            return StopReplicaResponse(error_code=code, partition_errors=errors)
        topics = [
            LeaderAndIsrTopicError(
                topic_id=topic.topic_id,
                partition_errors=[
                    LeaderAndIsrPartitionError(
                        partition_index=it.partition_index,
                        error_code=ErrorCode.KAFKA_STORAGE_ERROR
                        if (topic.topic_name, it.partition_index) in self.failed_directory
                        else ErrorCode.NONE,
                    )
                    for it in topic.partition_states
                ],
            )
            for topic in request.topic_states
        ]
        return LeaderAndIsrResponse(error_code=code, topics=topics)


class ScriptedStore(StateStore, Protocol):
    """A session whose process can be stopped and whose end can be forced."""

    @property
    def is_usable(self) -> bool: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    async def lose_session(self) -> None:
        """End the session on the server; the client does not know yet."""
        ...


class ScriptedMemoryStore(MemoryStore):
    """A `ScriptedStore` in memory."""

    async def lose_session(self) -> None:
        """Part of `ScriptedStore`."""
        self.lose_session_silently()


class ScriptedCluster:
    def __init__(
        self,
        settings: ControllerSettings | None = None,
        make_store: Callable[[MemoryTree], ScriptedStore] = ScriptedMemoryStore,
        tree: MemoryTree | None = None,
    ) -> None:
        self.settings = settings or ControllerSettings(auto_leader_rebalance_enable=False)
        self.clock = ManualClock()
        self.tree = tree or MemoryTree(self.clock.now_ms())
        self.lines: list[str] = []
        self.brokers: dict[int, ScriptedBroker] = {}
        self.stores: dict[int, ScriptedStore] = {}
        self.controllers: dict[int, Controller] = {}
        self.pending: list[asyncio.Task[None]] = []
        self._make_store = make_store
        self._registrations: dict[int, BrokerRegistration] = {}

    # -- BrokerChannels --------------------------------------------------------------------------------------------

    def open_to(self, broker: Broker) -> None: ...

    def close_to(self, broker_id: int) -> None: ...

    async def send(self, broker_id: int, request: ControlRequest) -> ControlResponse:
        return await self.brokers[broker_id].receive(request)

    # -- the store, as an observer reads it ------------------------------------------------------------------------

    async def node(self, path: str) -> Node:
        entry = self.tree.entries[path]
        return Node(entry.data, stat_of(entry))

    async def dump(self) -> dict[str, bytes | None]:
        """Return the data of every node."""
        return self.tree.dump()

    # -- running ---------------------------------------------------------------------------------------------------

    async def run(self, command: str) -> list[str]:
        """Do one command until nothing moves any more; return what could be seen."""
        verb, *words = command.split()
        handler: Callable[..., Awaitable[None]] = getattr(self, "do_" + verb.replace("-", "_"))
        options = dict(word.split("=", 1) for word in words if "=" in word and not word.startswith("{"))
        self.lines.clear()
        self.pending.append(
            asyncio.ensure_future(
                self._guarded(handler(*(w for w in words if w.split("=", 1)[0] not in options), **options))
            )
        )
        await self.settle()
        self.pending = [task for task in self.pending if not task.done()]
        return list(self.lines)

    async def _guarded(self, work: Awaitable[None]) -> None:
        try:
            await work
        except KafkaError as error:
            self.say(f"error {error}")

    async def settle(self, quiet_turns: int = QUIET_TURNS) -> None:
        """Let the loop turn until nothing has happened for `quiet_turns`."""
        quiet = 0
        before: object = None
        for _ in range(TURNS_MAX):
            await asyncio.sleep(0)
            now = (
                self.tree.operations,
                len(self.lines),
                [it.gauges()["EventQueueSize"]() for it in self.controllers.values()],
            )
            quiet = quiet + 1 if now == before else 0
            before = now
            if quiet > quiet_turns:
                self.check()
                return
        raise AssertionError("the cluster does not come to rest")

    def check(self) -> None:
        """Check what each active controller knows."""
        for controller in self.controllers.values():
            if controller._active_term is not None:
                controller._active_term.context.check()

    async def close(self) -> None:
        for store in self.stores.values():
            store.resume()
        for broker in self.brokers.values():
            broker.release()
        await self.settle()
        for controller in self.controllers.values():
            await controller.stop()
        for task in self.pending:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    def say(self, line: str) -> None:
        self.lines.append(line.rstrip())

    @property
    def controller(self) -> Controller:
        """The controller that can still write."""
        epoch = max(it.epoch for it in self.controllers.values())
        return next(it for it in self.controllers.values() if it.epoch == epoch)

    # -- brokers ---------------------------------------------------------------------------------------------------

    async def do_start(self, *ids: str, rack: str | None = None) -> None:
        for broker_id in map(int, ids):
            endpoint = Endpoint("PLAINTEXT", "127.0.0.1", 9090 + broker_id, "PLAINTEXT")
            registration = BrokerRegistration(Broker(broker_id, (endpoint,), rack), self.clock.now_ms())
            store = self.stores[broker_id] = self._make_store(self.tree)
            self.brokers[broker_id] = ScriptedBroker(broker_id, self.say)
            self._registrations[broker_id] = registration
            await store.open()
            await ensure_cluster_id(store, Random(1))
            await register_broker(store, registration)
            controller = Controller(broker_id, store, self, self.settings, self.clock, Random(broker_id), never)
            self.controllers[broker_id] = controller
            store.on_session_expired(partial(self._session_expired, controller))
            await controller.start()
            await self.settle(QUIET_TURNS // 2)
            self.say(f"broker {broker_id} sees controller {controller.controller_id}")

    def _session_expired(self, controller: Controller) -> None:
        self.pending.append(asyncio.ensure_future(controller.session_expired()))

    async def do_kill(self, *ids: str) -> None:
        """End the process; the store expires its session immediately."""
        for broker_id in map(int, ids):
            self.brokers[broker_id].is_up = False
            await self.stores[broker_id].lose_session()
            await self.controllers.pop(broker_id).stop()

    async def do_bounce(self, broker_id: str) -> None:
        """Restart the broker before the controller handles the event."""
        store = self.controller_store()
        store.pause()
        await self.do_kill(broker_id)
        restart = asyncio.ensure_future(self.do_start(broker_id))
        await self.settle(QUIET_TURNS // 3)
        store.resume()
        await restart

    async def do_listeners(self, broker_id: str, port: str) -> None:
        """Change the registration as a broker of Kafka does for changed listeners; its epoch stays."""
        broker = Broker(int(broker_id), (Endpoint("PLAINTEXT", "127.0.0.1", int(port), "PLAINTEXT"),))
        data = paths.encode_broker(broker, jmx_port=-1, timestamp_ms=self.clock.now_ms(), version=5)
        await self.stores[int(broker_id)].set(paths.broker_path(int(broker_id)), data)

    async def do_hold(self, broker_id: str) -> None:
        self.brokers[int(broker_id)].hold()

    async def do_release(self, broker_id: str) -> None:
        self.brokers[int(broker_id)].release()

    async def do_lose_directory(self, broker_id: str, *partitions: str) -> None:
        self.brokers[int(broker_id)].failed_directory = set(map(parse_partition, partitions))
        data = b'{"version":1,"broker":%d,"event":1}' % int(broker_id)
        await self.any_store().create("/log_dir_event_notification/log_dir_event_", data, sequential=True)

    async def do_fail_deletions(self, broker_id: str, *partitions: str) -> None:
        self.brokers[int(broker_id)].cannot_delete = set(map(parse_partition, partitions))

    async def do_shutdown(self, broker_id: str) -> None:
        remaining = await self.controller.controlled_shutdown(int(broker_id), -1)
        self.say(f"still leads {' '.join(map(str, remaining)) or 'nothing'}")

    # -- controllers -----------------------------------------------------------------------------------------------

    def controller_store(self) -> ScriptedStore:
        return self.stores[self.controller.broker_id]

    def any_store(self) -> ScriptedStore:
        """A session of another client."""
        return next(store for store in self.stores.values() if store.is_usable)

    async def do_pause(self, broker_id: str) -> None:
        """The process stops in the middle of whatever it does."""
        self.stores[int(broker_id)].pause()

    async def do_resume(self, broker_id: str) -> None:
        self.stores[int(broker_id)].resume()

    async def do_lose_session(self, broker_id: str) -> None:
        """The store gives the session up, and the process does not know."""
        await self.stores[int(broker_id)].lose_session()

    async def do_expire(self, broker_id: str) -> None:
        store = self.stores[int(broker_id)]
        await store.lose_session()
        with suppress(SessionExpired):
            await store.exists("/")

    async def do_rejoin(self, broker_id: str) -> None:
        """What a broker does once it knows that its session has expired."""
        store = self.stores[int(broker_id)]
        await store.open()
        await register_broker(store, self._registrations[int(broker_id)])
        await self.controllers[int(broker_id)].rejoin()

    async def do_controllers(self) -> None:
        for broker_id, controller in sorted(self.controllers.items()):
            active = f"active, epoch {controller.epoch}" if controller.is_active else "not active"
            self.say(f"{broker_id}: {active}, sees {controller.controller_id}")

    # -- topics ----------------------------------------------------------------------------------------------------

    async def do_create(
        self, *names: str, partitions: str = "1", rf: str = "1", assignment: str = "", by: str = "", **configs: str
    ) -> None:
        assignments = [
            CreatableReplicaAssignment(partition_index=index, broker_ids=parse_ids(replicas))
            for index, replicas in enumerate(assignment.split("/") if assignment else ())
        ]
        topics = [
            CreatableTopic(
                name=name,
                num_partitions=-1 if assignments else int(partitions),
                replication_factor=-1 if assignments else int(rf),
                assignments=assignments,
                configs=[
                    CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()
                ],
            )
            for name in names
        ]
        controller = self.controllers[int(by)] if by else self.controller
        for result in await controller.create_topics(topics):
            self.say(f"{result.name}: {result.error_code.name}" + (f" {result.message}" if result.message else ""))

    async def do_add_partitions(self, name: str, count: str) -> None:
        request = CreatePartitionsTopic(name=name, count=int(count), assignments=None)
        for result in await self.controller.create_partitions([request]):
            self.say(f"{result.name}: {result.error_code.name}" + (f" {result.message}" if result.message else ""))

    async def do_delete(self, *names: str) -> None:
        for result in await self.controller.delete_topics(names):
            self.say(f"{result.name}: {result.error_code.name}")

    # -- partitions ------------------------------------------------------------------------------------------------

    async def do_isr(self, leader: str, partition_text: str, isr: str, recovery: str = "0") -> None:
        """The leader reports its in-sync replicas, knowing all that the store knows."""
        partition = parse_partition(partition_text)
        leadership = await self._leadership(partition)
        request = AlterPartitionRequest(
            broker_id=int(leader),
            broker_epoch=(await self.node(paths.broker_path(int(leader)))).stat.czxid,
            topics=[
                TopicData(
                    topic_id=self.controller._active_term.context.topic_ids[partition[0]],  # type: ignore[union-attr]
                    partitions=[
                        PartitionData(
                            partition_index=partition[1],
                            leader_epoch=leadership.state.leader_epoch,
                            new_isr_with_epochs=[BrokerState(broker_id=it) for it in parse_ids(isr)],
                            leader_recovery_state=int(recovery),
                            partition_epoch=leadership.partition_epoch,
                        )
                    ],
                )
            ],
        )
        response = await self.controller.alter_partition(request, 3)
        for topic in response.topics:
            for it in topic.partitions:
                self.say(
                    f"{partition_name(partition)}: {ErrorCode(it.error_code).name} leader={it.leader_id} "
                    f"epoch={it.leader_epoch} isr={format_ids(it.isr)} version={it.partition_epoch}"
                )

    async def do_elect(self, kind: str, *partitions: str) -> None:
        wanted = [parse_partition(it) for it in partitions] or None
        self._say_results(await self.controller.elect_leaders(ElectionType[kind.upper()], wanted))

    async def do_rebalance(self) -> None:
        self.controller._queue.put(RebalanceDue())

    async def do_reassign(self, partition: str, replicas: str) -> None:
        targets = {parse_partition(partition): tuple(parse_ids(replicas))}
        self._say_results(await self.controller.alter_partition_reassignments(targets))

    async def do_cancel(self, partition: str) -> None:
        self._say_results(await self.controller.alter_partition_reassignments({parse_partition(partition): None}))

    async def do_reassignments(self) -> None:
        for partition, it in (await self.controller.list_partition_reassignments(None)).items():
            self.say(
                f"{partition_name(partition)}: {format_ids(it.replicas)} adding={format_ids(it.adding)} "
                f"removing={format_ids(it.removing)}"
            )

    def _say_results(self, results: dict[TopicPartition, ApiError]) -> None:
        for partition, (code, message) in results.items():
            self.say(f"{partition_name(partition)}: {code.name}" + (f" {message}" if message else ""))

    # -- the store -------------------------------------------------------------------------------------------------

    async def do_set(self, path: str, data: str) -> None:
        """Write a node as an operator does by hand."""
        store = self.any_store()
        try:
            await store.create(path, data.encode())
        except StoreError:
            await store.set(path, data.encode())

    async def do_remove(self, path: str) -> None:
        await self.any_store().delete(path)

    async def do_tree(self, prefix: str) -> None:
        for path, data in (await self.dump()).items():
            if path.startswith(prefix):
                self.say(f"{path} {'-' if data is None else data.decode()}")

    async def do_states(self, topic: str = "") -> None:
        """Every partition as the store has it."""
        for path in await self.dump():
            words = path.split("/")
            if path.startswith(f"{paths.TOPICS}/{topic}") and words[-1] == "state":
                partition = (words[3], int(words[5]))
                it = await self._leadership(partition)
                recovering = " recovering" if it.state.recovery_state else ""
                self.say(
                    f"{partition_name(partition)}: leader={it.state.leader} epoch={it.state.leader_epoch} "
                    f"isr={format_ids(it.state.isr)} version={it.partition_epoch} "
                    f"controller={it.controller_epoch}{recovering}"
                )

    async def do_gauges(self) -> None:
        for name, gauge in self.controller.gauges().items():
            if value := gauge():
                self.say(f"{name}={value}")
        for name, parts in self.controller.sums().items():
            if value := sum(parts()):
                self.say(f"{name}={value}")

    async def _leadership(self, partition: TopicPartition) -> Leadership:
        node = await self.node(paths.partition_state_path(partition))
        return paths.decode_partition_state(partition, node.data, node.stat.version)


def parse_partition(text: str) -> TopicPartition:
    topic, _, partition = text.rpartition("-")
    return (topic, int(partition))


def parse_ids(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


def format_ids(ids: object) -> str:
    assert isinstance(ids, list | tuple)
    return ",".join(map(str, ids)) or "none"


def describe_request(request: ControlRequest) -> str:
    """One line with what matters of a request."""
    if isinstance(request, LeaderAndIsrRequest):
        parts = [
            f"{topic.topic_name}-{it.partition_index} leader={it.leader} epoch={it.leader_epoch} "
            f"isr={format_ids(it.isr)} version={it.partition_epoch} replicas={format_ids(it.replicas)}"
            + (f" adding={format_ids(it.adding_replicas)}" if it.adding_replicas else "")
            + (f" removing={format_ids(it.removing_replicas)}" if it.removing_replicas else "")
            + (" recovering" if it.leader_recovery_state else "")
            + (" new" if it.is_new else "")
            for topic in request.topic_states
            for it in topic.partition_states
        ]
        return f"LeaderAndIsr c{request.controller_epoch} " + "; ".join(parts)
    if isinstance(request, UpdateMetadataRequest):
        parts = [
            f"{topic.topic_name}-{it.partition_index} leader={it.leader} isr={format_ids(it.isr)}"
            + (f" offline={format_ids(it.offline_replicas)}" if it.offline_replicas else "")
            for topic in request.topic_states
            for it in topic.partition_states
        ]
        live = ",".join(f"{it.id}@{it.endpoints[0].port}" for it in request.live_brokers)
        full = "all " if request.type == UPDATE_OF_ALL else ""
        return f"UpdateMetadata c{request.controller_epoch} {full}live={live} " + "; ".join(parts)
    parts = [
        f"{topic.topic_name}-{it.partition_index} epoch={it.leader_epoch}" + (" delete" if it.delete_partition else "")
        for topic in request.topic_states
        for it in topic.partition_states
    ]
    return f"StopReplica c{request.controller_epoch} " + "; ".join(parts)
