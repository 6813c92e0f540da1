"""The shell of a controller: life cycle, failures that no script shows, and the whole way over SQLite."""

import asyncio
import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from uuid import UUID

import pytest

from base.pause import never
from controller.active.broker_channels import ControlRequest, ControlResponse
from controller.controller import Controller
from controller.coordination.memory_store import MemoryStore, MemoryTree
from controller.embedded.sqlite_store import SqliteStore
from controller.machine.events import ElectionType, LeaderAndIsrResponseReceived, StopReplicaResponseReceived
from controller.machine.model import Broker, Endpoint, Leadership, PartitionReplica
from controller.machine.replica_states import ReplicaState
from controller.machine.settings import ControllerSettings
from controller.store.state_store import (
    BadVersion,
    Node,
    Operation,
    Result,
    SetData,
    StateStore,
    StoreUnavailable,
    Watch,
)
from controller.tree import paths
from controller.tree.registration import BrokerRegistration, ensure_cluster_id, register_broker
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.alter_partition import AlterPartitionRequest
from protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig
from protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from protocol.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaTopicState,
)
from tests.controller.scripted_cluster import ScriptedBroker, ScriptedCluster, ScriptedMemoryStore
from tests.support.manual_clock import ManualClock


class OneBroker:
    """Channels of a cluster of one."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._broker = ScriptedBroker(1, self.lines.append)
        self.opened: list[Broker] = []

    def open_to(self, broker: Broker) -> None:
        self.opened.append(broker)

    def close_to(self, broker_id: int) -> None: ...

    async def send(self, broker_id: int, request: ControlRequest) -> ControlResponse:
        assert broker_id == 1
        return await self._broker.receive(request)


def _topic(name: str, partitions: int = 1) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        assignments=[],
        configs=[CreatableTopicConfig(name="retention.ms", value="1000")],
    )


async def start_alone(store: StateStore) -> tuple[Controller, OneBroker, int]:
    await ensure_cluster_id(store, Random(1))
    endpoint = Endpoint("PLAINTEXT", "127.0.0.1", 9091, "PLAINTEXT")
    epoch = await register_broker(store, BrokerRegistration(Broker(1, (endpoint,)), timestamp_ms=0))
    channels = OneBroker()
    controller = Controller(1, store, channels, ControllerSettings(), ManualClock(), Random(0), never)
    await controller.start()
    return controller, channels, epoch


async def test_topics_in_sqlite_survive_a_restart(tmp_path: Path) -> None:
    store = SqliteStore([tmp_path / "metadata.sqlite"], ManualClock())
    await store.open()
    controller, channels, epoch = await start_alone(store)
    assert (controller.is_active, controller.controller_id, controller.epoch) == (True, 1, 1)
    results = await controller.create_topics([_topic("fifty", 50), _topic("going"), _topic("bad name")])
    assert [it.error_code for it in results] == [0, 0, ErrorCode.INVALID_TOPIC_EXCEPTION]
    assert (results[0].partition_count, results[0].replication_factor) == (50, 1)
    assert results[0].configs == {"retention.ms": "1000"}
    assert results[0].topic_id is not None
    assert [it.error_code for it in await controller.delete_topics(["going"])] == [0]
    assert await store.children(paths.TOPICS) == ["fifty"]
    assert await controller.allocate_producer_ids(1, epoch) == range(1000)
    await controller.stop()
    await store.close()

    await store.open()
    controller, channels, epoch_after = await start_alone(store)
    assert controller.epoch == 2
    assert epoch_after > epoch
    assert [line.split(" ")[2] for line in channels.lines] == ["UpdateMetadata", "LeaderAndIsr", "UpdateMetadata"]
    assert channels.lines[1].count("leader=1 epoch=0") == 50
    assert await controller.allocate_producer_ids(1, epoch_after) == range(1000, 2000)
    await controller.stop()
    await store.close()


async def test_validate_only_creates_nothing(store: MemoryStore, tree: MemoryTree) -> None:
    controller, _, _ = await start_alone(store)
    before = tree.dump()
    results = await controller.create_topics([_topic("a.b"), _topic("a_b"), _topic("x")], validate_only=True)
    assert [it.error_code for it in results] == [0, ErrorCode.INVALID_TOPIC_EXCEPTION, 0]
    assert results[0].topic_id is None
    assert tree.dump() == before
    await controller.stop()


async def test_a_topic_is_created_without_a_visit_of_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    class Unvisited(dict[str, UUID]):
        def __iter__(self) -> Iterator[str]:
            raise AssertionError("There may be 50,000 topics.")

    cluster = ScriptedCluster()
    await cluster.run("start 1")
    await cluster.run("create a.b")
    term = cluster.controller._active_term
    assert term is not None
    with monkeypatch.context() as patched:
        patched.setattr(term.context, "topic_ids", Unvisited(term.context.topic_ids))
        results = await cluster.controller.create_topics(
            [_topic("a_b"), _topic("c_d"), _topic("c.d")], validate_only=True
        )
    assert [it.message for it in results] == [
        "Topic 'a_b' collides with existing topics: a.b",
        None,
        "Topic 'c.d' collides with existing topics: c_d",
    ]
    await cluster.close()


async def test_calls_fail_with_not_controller_outside_a_term(store: MemoryStore) -> None:
    idle = Controller(2, store, OneBroker(), ControllerSettings(), ManualClock(), Random(0), never)
    controller, _, _ = await start_alone(store)
    await controller.stop()
    for it in (idle, controller):
        with pytest.raises(KafkaError) as caught:
            await it.create_topics([_topic("t")])
        assert caught.value.code == ErrorCode.NOT_CONTROLLER
        assert not it.is_active
    assert controller.gauges()["ActiveControllerCount"]() == 0


@pytest.mark.parametrize(
    ("broker_id", "epoch", "code"), [(9, 0, ErrorCode.BROKER_ID_NOT_REGISTERED), (1, 0, ErrorCode.STALE_BROKER_EPOCH)]
)
async def test_producer_ids_are_allocated_to_registered_brokers_only(
    store: MemoryStore, broker_id: int, epoch: int, code: ErrorCode
) -> None:
    controller, _, _ = await start_alone(store)
    with pytest.raises(KafkaError) as caught:
        await controller.allocate_producer_ids(broker_id, epoch)
    assert caught.value.code == code
    await controller.stop()


async def test_producer_ids_do_not_wrap(store: MemoryStore) -> None:
    controller, _, epoch = await start_alone(store)
    last = (1 << 63) - 2
    data = paths.encode_producer_id_block(paths.ProducerIdBlock(2, last - 1999, last - 1000))
    await store.multi([SetData(paths.PRODUCER_ID_BLOCK, data)])
    assert await controller.allocate_producer_ids(1, epoch) == range(last - 999, last + 1)
    with pytest.raises(KafkaError) as caught:
        await controller.allocate_producer_ids(1, epoch)
    assert caught.value.code == ErrorCode.UNKNOWN_SERVER_ERROR
    await controller.stop()


async def test_a_lost_race_for_producer_ids_is_run_again(
    store: MemoryStore, other_store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Older brokers take their blocks by themselves."""
    controller, _, epoch = await start_alone(store)
    look = store.get
    looks = 0

    async def look_and_be_overtaken(path: str, *rest: object) -> Node:
        nonlocal looks
        node = await look(path, *rest)  # type: ignore[arg-type]
        if path == paths.PRODUCER_ID_BLOCK and (looks := looks + 1) == 1:
            taken = paths.encode_producer_id_block(paths.ProducerIdBlock(2, 0, 999))
            await other_store.multi([SetData(path, taken, node.stat.version)])
        return node

    monkeypatch.setattr(store, "get", look_and_be_overtaken)
    assert await controller.allocate_producer_ids(1, epoch) == range(1000, 2000)
    assert looks == 2
    await controller.stop()


async def test_alter_partition_with_an_old_broker_epoch_is_stale(store: MemoryStore) -> None:
    controller, _, epoch = await start_alone(store)
    with pytest.raises(KafkaError) as caught:
        await controller.alter_partition(AlterPartitionRequest(broker_id=1, broker_epoch=epoch - 1, topics=[]), 3)
    assert caught.value.code == ErrorCode.STALE_BROKER_EPOCH
    await controller.stop()


class FailingStore(ScriptedMemoryStore):
    """Fails one operation with an unexpected exception."""

    failures_left = 0

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        self._maybe_fail()
        return await super().multi(operations)

    async def get_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[Node | None]:
        self._maybe_fail()
        return await super().get_many(paths, watch)

    def _maybe_fail(self) -> None:
        if self.failures_left:
            self.failures_left -= 1
            raise StoreUnavailable("the disk is full")


async def test_unexpected_failure_starts_a_new_term_that_reads_everything(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("controller.controller.RETRY_PAUSE_SECONDS_MIN", 0.0)
    caplog.set_level(logging.CRITICAL, "kafka.controller")
    cluster = ScriptedCluster(make_store=FailingStore)
    await cluster.run("start 1")
    store = cluster.stores[1]
    assert isinstance(store, FailingStore)
    for failures in (1, 2, 3):
        store.failures_left = failures
        assert "error UNKNOWN_SERVER_ERROR" in " ".join(await cluster.run(f"create t{failures}"))
        while not cluster.controllers[1].is_active:  # noqa: ASYNC110 - turns of the loop, not time, until it is back
            await asyncio.sleep(0)
        assert f"t{failures}: NONE" in await cluster.run(f"create t{failures}")
    assert cluster.controllers[1].epoch == 1 + 3
    await cluster.close()


@pytest.mark.parametrize(
    ("topic", "statistic"), [(None, "UncleanLeaderElectionEnable"), ("t", "TopicUncleanLeaderElectionEnable")]
)
async def test_unclean_election_happens_only_once_enabled(topic: str | None, statistic: str) -> None:
    cluster = ScriptedCluster()
    for command in ("start 1 2 3", "create t assignment=2,3", "kill 3", "kill 2", "start 3"):
        await cluster.run(command)
    assert "t-0: leader=-1" in (await cluster.run("states"))[0]
    cluster.controller.reconfigure(ControllerSettings(unclean_leader_election_enable=True))
    cluster.controller.enable_unclean_election(topic)
    await cluster.settle()
    assert "t-0: leader=3 epoch=3 isr=3 version=3 controller=1 recovering" in await cluster.run("states")
    assert cluster.controller.statistics.unclean_leader_elections == 1
    assert cluster.controller.statistics.by_event[statistic].count == 1
    await cluster.close()


async def test_slow_deletion_does_not_delay_the_response(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.controller.DELETION_WAIT_SECONDS_MAX", 0.01)
    cluster = ScriptedCluster()
    for command in ("start 1", "create t", "hold 1"):
        await cluster.run(command)
    assert [it.error_code for it in await cluster.controller.delete_topics(["t"])] == [0]
    assert "t" in cluster.tree.children(paths.TOPICS)
    await cluster.run("release 1")
    assert cluster.tree.children(paths.TOPICS) == []
    await cluster.close()


async def test_a_deletion_whose_client_leaves_is_not_kept() -> None:
    cluster = ScriptedCluster()
    for command in ("start 1", "create t", "hold 1"):
        await cluster.run(command)
    controller = cluster.controller
    deleting = asyncio.ensure_future(controller.delete_topics(["t"]))
    async with asyncio.timeout(10):
        while not controller._deletions_awaited:  # noqa: ASYNC110 - no event says when the wait begins
            await asyncio.sleep(0)
    deleting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await deleting
    assert not controller._deletions_awaited
    await cluster.run("release 1")
    await cluster.close()


async def test_deletion_can_be_disabled() -> None:
    cluster = ScriptedCluster(ControllerSettings(delete_topic_enable=False))
    await cluster.run("start 1")
    await cluster.run("create t")
    assert await cluster.run("delete t") == ["t: TOPIC_DELETION_DISABLED"]
    await cluster.run("set /admin/delete_topics/t x")
    assert cluster.tree.children(paths.DELETE_TOPICS) == []
    assert cluster.tree.children(paths.TOPICS) == ["t"]
    await cluster.close()


async def test_thousand_partitions_are_one_request_per_broker() -> None:
    cluster = ScriptedCluster()
    await cluster.run("start 1 2")
    lines = await cluster.run("create t partitions=1000 rf=2")
    kinds = [" ".join(line.split()[:3]) for line in lines]
    assert kinds == ["1 <- LeaderAndIsr", "2 <- LeaderAndIsr", "1 <- UpdateMetadata", "2 <- UpdateMetadata", "t: NONE"]
    kinds = [" ".join(line.split()[:3]) for line in await cluster.run("kill 2")]
    assert kinds == ["1 <- LeaderAndIsr", "1 <- UpdateMetadata"] * 2
    assert await cluster.controller.elect_leaders(ElectionType.UNCLEAN, None) == {}
    await cluster.close()


async def test_watches_do_not_accumulate_over_terms() -> None:
    cluster = ScriptedCluster()
    for command in ("start 1", "create t", "create u partitions=3"):
        await cluster.run(command)

    def armed() -> int:
        watches = cluster.stores[1].watches
        return sum(len(it) for by_path in (watches._data, watches._children) for it in by_path.values())

    before = armed()
    for _ in range(5):
        await cluster.run("remove /controller")
        assert armed() == before
    assert cluster.controller.epoch == 6
    await cluster.close()


async def test_two_topics_with_the_same_id_are_both_served() -> None:
    cluster = ScriptedCluster()
    await cluster.run("start 1")
    for name in ("one", "two"):
        node = '{"version":3,"partitions":{"0":[1]},"topic_id":"mxeDiPb0QsCUKycbljLM5g"}'
        await cluster.run(f"set /brokers/topics/{name} {node}")
    for name in ("one", "two"):
        assert f"{name}: NONE" in await cluster.run(f"delete {name}")
    assert cluster.controller.epoch == 1
    assert cluster.controller.gauges()["GlobalTopicCount"]() == 0
    await cluster.close()


async def test_statistics_count_events_under_kafkas_names() -> None:
    cluster = ScriptedCluster()
    await cluster.run("start 1")
    await cluster.run("create t")
    by_event = cluster.controller.statistics.by_event
    assert by_event["TopicChange"].count >= 1
    assert by_event["ControllerChange"].count >= 1
    assert cluster.controller.statistics.queue_time.count >= 3
    await cluster.close()


async def test_move_whose_topic_would_be_too_large_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = ScriptedCluster()
    await cluster.run("start 1 2 3")
    await cluster.run("create t partitions=5 rf=2")
    size = len(cluster.tree.entries["/brokers/topics/t"].data or b"")
    monkeypatch.setattr("controller.coordination.memory_store.DATA_SIZE_MAX", size)
    seen = await cluster.run("reassign t-0 1,2,3")
    assert seen == [
        "t-0: INVALID_REPLICA_ASSIGNMENT Topic 't' is too large: /brokers/topics/t would exceed 1 MB.",
    ]
    request = '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2,3]}]}'
    await cluster.run(f"set /admin/reassign_partitions {request}")
    assert "/admin/reassign_partitions" not in cluster.tree.entries
    assert (await cluster.run("controllers"))[0] == "1: active, epoch 1, sees 1"
    await cluster.close()


@pytest.mark.parametrize("partitions", ['{"0":[1,1]}', '{"0":[1,99999999999]}', '{"99999999999":[1]}'])
async def test_unusable_topic_of_another_writer_stops_no_controller(
    partitions: str, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = ScriptedCluster()
    await cluster.run("start 1 2")
    topic = f'{{"version":3,"partitions":{partitions},"topic_id":"ECfE0cOGS8SNYT4w2PFq3w"}}'
    await cluster.run(f"set /brokers/topics/bad {topic}")
    assert "/brokers/topics/bad: " in caplog.text
    assert await cluster.run("delete bad") == ["bad: UNKNOWN_TOPIC_OR_PARTITION"]
    await cluster.run("set /admin/delete_topics/bad x")
    await cluster.run("kill 1")
    assert await cluster.run("controllers") == ["2: active, epoch 2, sees 2"]
    assert "t: NONE" in await cluster.run("create t assignment=2")
    await cluster.close()


async def test_states_that_a_broker_could_not_apply_are_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.active.brokers.RESEND_PAUSES_SECONDS", (0.001, 0.002))
    cluster = ScriptedCluster()
    await cluster.run("start 1 2")
    cluster.brokers[2].failures = [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.KAFKA_STORAGE_ERROR]
    seen = [*await cluster.run("create t assignment=2,1"), *await _seen_within(cluster, 0.05)]
    sent = [line for line in seen if line.startswith("2 <- LeaderAndIsr")]
    assert sent == ["2 <- LeaderAndIsr c1 t-0 leader=2 epoch=0 isr=2,1 version=0 replicas=2,1 new"] * 3
    await cluster.close()


async def test_no_replica_is_new_to_a_broker_that_has_restarted_since(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.active.brokers.RESEND_PAUSES_SECONDS", (0.02,))
    cluster = ScriptedCluster()
    await cluster.run("start 1 2")
    cluster.brokers[2].failures = [ErrorCode.UNKNOWN_SERVER_ERROR]
    await cluster.run("create t assignment=1,2")
    await cluster.run("bounce 2")
    (sent,) = [line for line in await _seen_within(cluster, 0.1) if line.startswith("2 <- LeaderAndIsr")]
    assert "t-0" in sent
    assert not sent.endswith("new")
    await cluster.close()


async def test_controller_gives_up_on_a_broker_that_fails_every_request(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("controller.active.brokers.RESEND_PAUSES_SECONDS", (0.001, 0.002))
    cluster = ScriptedCluster()
    await cluster.run("start 1 2")
    cluster.brokers[2].failures = [ErrorCode.UNKNOWN_SERVER_ERROR] * 5
    await cluster.run("create t assignment=2,1")
    await _seen_within(cluster, 0.05)
    assert len(cluster.brokers[2].failures) == 2, "two more attempts"
    assert "broker 2 failed 3 LeaderAndIsr requests in a row" in caplog.text
    await cluster.close()


@pytest.mark.parametrize("code", [ErrorCode.STALE_CONTROLLER_EPOCH, ErrorCode.STALE_BROKER_EPOCH])
async def test_stale_states_are_not_sent_again(monkeypatch: pytest.MonkeyPatch, code: ErrorCode) -> None:
    monkeypatch.setattr("controller.active.brokers.RESEND_PAUSES_SECONDS", (0.001, 0.002))
    cluster = ScriptedCluster()
    await cluster.run("start 1 2")
    cluster.brokers[2].failures = [code] * 2
    await cluster.run("create t assignment=2,1")
    assert await _seen_within(cluster, 0.05) == []
    assert cluster.brokers[2].failures == [code]
    await cluster.close()


async def test_replica_that_was_stopped_since_is_not_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.active.brokers.RESEND_PAUSES_SECONDS", (0.01,))
    cluster = ScriptedCluster()
    await cluster.run("start 1 2")
    cluster.brokers[2].failures = [ErrorCode.UNKNOWN_SERVER_ERROR]
    await cluster.run("create t assignment=1,2")
    await cluster.run("shutdown 2")
    assert await _seen_within(cluster, 0.05) == []
    await cluster.close()


async def test_late_response_of_an_earlier_registration_does_not_suspend_a_deletion() -> None:
    """The controller may be slow: a broker refuses what was sent to its predecessor before it is known to be back."""
    cluster = ScriptedCluster()
    await cluster.run("start 1 2")
    await cluster.run("create t assignment=1,2")
    earlier_epoch = await _broker_epoch(cluster, 2)
    await cluster.run("kill 2")
    await cluster.run("start 2")
    assert await _broker_epoch(cluster, 2) > earlier_epoch
    await cluster.run("hold 2")
    await cluster.run("delete t")
    states = [StopReplicaPartitionState(partition_index=0, leader_epoch=-2, delete_partition=True)]
    request = StopReplicaRequest(
        controller_id=1,
        controller_epoch=1,
        broker_epoch=earlier_epoch,
        topic_states=[StopReplicaTopicState(topic_name="t", partition_states=states)],
    )
    response = StopReplicaResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
    late = StopReplicaResponseReceived(2, frozenset({("t", 0)}), response, request)
    cluster.controllers[1]._queue.put(late)
    await cluster.settle()
    await cluster.run("release 2")
    assert await cluster.run("tree /brokers/topics") == ["/brokers/topics -"]
    assert await cluster.run("tree /admin/delete_topics") == ["/admin/delete_topics -"]
    await cluster.close()


async def test_late_response_of_an_earlier_registration_takes_no_replica_offline() -> None:
    cluster = ScriptedCluster()
    await cluster.run("start 1 2")
    await cluster.run("create t assignment=2,1")
    earlier_epoch = await _broker_epoch(cluster, 2)
    await cluster.run("kill 2")
    await cluster.run("start 2")
    await cluster.run("isr 1 t-0 1,2")
    await cluster.run("elect preferred t-0")
    term = cluster.controller._active_term
    assert term is not None
    errors = [LeaderAndIsrPartitionError(partition_index=0, error_code=ErrorCode.KAFKA_STORAGE_ERROR)]
    topics = [LeaderAndIsrTopicError(topic_id=term.context.topic_ids["t"], partition_errors=errors)]
    for epoch, is_offline in ((earlier_epoch, False), (await _broker_epoch(cluster, 2), True)):
        request = LeaderAndIsrRequest(
            controller_id=1, controller_epoch=1, broker_epoch=epoch, topic_states=[], live_leaders=[]
        )
        cluster.controller._queue.put(LeaderAndIsrResponseReceived(2, LeaderAndIsrResponse(topics=topics), request))
        await cluster.settle()
        (line,) = await cluster.run("states t")
        assert line.startswith("t-0: leader=1" if is_offline else "t-0: leader=2")
    await cluster.close()


async def test_move_is_sent_again_to_all_replicas_when_a_broker_of_its_target_returns() -> None:
    cluster = ScriptedCluster()
    await cluster.run("start 1 2 3")
    await cluster.run("create t assignment=1,2")
    await cluster.run("reassign t-0 1,3")
    await cluster.run("kill 3")
    (before,) = await cluster.run("states t")
    lines = await cluster.run("start 3")
    (after,) = await cluster.run("states t")
    epochs = [int(line.partition("epoch=")[2].split()[0]) for line in (before, after)]
    assert epochs[1] == epochs[0] + 1
    told = [line for line in lines if "LeaderAndIsr" in line and f"epoch={epochs[1]}" in line]
    assert [line[0] for line in told] == ["1", "2", "3"]
    assert await cluster.run("reassignments") == ["t-0: 1,3,2 adding=3 removing=2"]
    await cluster.close()


class _LeaderWritesIsr(ScriptedMemoryStore):
    """After the controller has written a topic's node and then read a state, the leader adds broker 3 to the ISR.

    It does so once, over the state that the controller has sent it before it wrote the node.
    """

    reads_left = 0
    _known: Leadership | None = None
    _path, _key = paths.partition_state_path(("t", 0)), ("t", 0)

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        if self.reads_left and any(isinstance(it, SetData) and it.path == paths.topic_path("t") for it in operations):
            entry = self.tree.entries[self._path]
            self._known = paths.decode_partition_state(self._key, entry.data, entry.version)
        return await super().multi(operations)

    async def get_many(self, requested: Sequence[str], watch: Watch | None = None) -> list[Node | None]:
        nodes = await super().get_many(requested, watch)
        if self._known is not None and self._path in requested:
            self.reads_left -= 1
            if not self.reads_left:
                known, self._known = self._known, None
                state = replace(known.state, isr=(*known.state.isr, 3))
                with suppress(BadVersion):
                    data = paths.encode_partition_state(state, known.controller_epoch)
                    await self.set(self._path, data, known.partition_epoch)
        return nodes


@pytest.mark.parametrize("reads", [1, 2])
@pytest.mark.parametrize("command", ["cancel t-0", "reassign t-0 1,4"])
@pytest.mark.parametrize("was_in_sync", [True, False])
async def test_replica_of_a_replaced_move_does_not_stay_in_the_isr(command: str, was_in_sync: bool, reads: int) -> None:
    cluster = ScriptedCluster(make_store=_LeaderWritesIsr)
    await cluster.run("start 1 2 3 4 5")
    await cluster.run("create t assignment=1,2")
    await cluster.run("reassign t-0 1,3,5")
    if was_in_sync:
        await cluster.run("isr 1 t-0 1,2,3")
    store = cluster.controller_store()
    assert isinstance(store, _LeaderWritesIsr)
    store.reads_left = reads
    lines = await cluster.run(command)
    assert not store.reads_left
    (state,) = await cluster.run("states t")
    assert "isr=1,2 " in f"{state} ", state
    told = [line for line in lines if line.startswith("1 <- LeaderAndIsr")]
    assert "isr=1,2 " in told[-1]
    await cluster.close()


async def test_partitions_added_by_hand_to_a_topic_that_is_being_deleted_are_removed() -> None:
    cluster = ScriptedCluster()
    await cluster.run("start 1 2")
    await cluster.run("create t assignment=1,2")
    await cluster.run("kill 2")
    await cluster.run("delete t")
    node = json.loads((await cluster.node("/brokers/topics/t")).data or b"")
    grown = {**node, "partitions": {**node["partitions"], "1": [1]}}
    await cluster.any_store().set("/brokers/topics/t", json.dumps(grown).encode())
    await cluster.settle()
    assert json.loads((await cluster.node("/brokers/topics/t")).data or b"")["partitions"] == {"0": [1, 2]}
    await cluster.run("start 2")
    assert await cluster.run("tree /brokers/topics") == ["/brokers/topics -"]
    await cluster.close()


@pytest.mark.parametrize(("preferring_1", "limit", "moves"), [(9, 10, True), (10, 10, False), (10, 9, True)])
async def test_leadership_moves_back_above_the_allowed_imbalance_only(
    preferring_1: int, limit: int, moves: bool
) -> None:
    cluster = ScriptedCluster(ControllerSettings(leader_imbalance_per_broker_percentage=limit))
    await cluster.run("start 1 2")
    await cluster.run(f"create t assignment={'/'.join(['1,2'] * preferring_1)}")
    await cluster.run("kill 1")
    await cluster.run("start 1")
    for index in range(preferring_1):
        await cluster.run(f"isr 2 t-{index} 2,1")
    await cluster.run("elect preferred " + " ".join(f"t-{index}" for index in range(1, preferring_1)))
    assert [line.split()[1] for line in await cluster.run("states t")] == [
        "leader=2",
        *["leader=1"] * (preferring_1 - 1),
    ]
    await cluster.run("rebalance")
    (line, *_) = await cluster.run("states t")
    assert line.startswith("t-0: leader=1" if moves else "t-0: leader=2")
    await cluster.close()


async def test_partition_that_is_being_moved_is_not_rebalanced() -> None:
    cluster = ScriptedCluster()
    await cluster.run("start 1 2 3")
    await cluster.run("create t assignment=1,2")
    await cluster.run("reassign t-0 2,1,3")
    assert (await cluster.run("states t"))[0].startswith("t-0: leader=1")
    await cluster.run("rebalance")
    assert (await cluster.run("states t"))[0].startswith("t-0: leader=1")
    await cluster.close()


async def test_topic_that_another_writer_removed_can_be_created_again() -> None:
    cluster = ScriptedCluster()
    await cluster.run("start 1")
    await cluster.run("create t assignment=1")
    paths_of_topic = [path for path in await cluster.dump() if path.startswith("/brokers/topics/t")]
    for path in sorted(paths_of_topic, reverse=True):
        await cluster.any_store().delete(path)
    await cluster.settle()
    assert "t: NONE" in await cluster.run("create t assignment=1")
    await cluster.close()


async def test_topic_without_an_id_gets_one_in_its_node() -> None:
    cluster = ScriptedCluster()
    await cluster.run("start 1")
    await cluster.any_store().create("/brokers/topics/t", b'{"version":1,"partitions":{"0":[1]}}')
    await cluster.settle()
    topic = paths.decode_topic("t", (await cluster.node("/brokers/topics/t")).data)
    assert topic.topic_id is not None
    assert cluster.controller._active_term is not None
    assert cluster.controller._active_term.context.topic_ids == {"t": topic.topic_id}
    await cluster.close()


async def test_leaders_of_a_topic_that_is_being_deleted_are_not_elected() -> None:
    cluster = ScriptedCluster()
    await cluster.run("start 1 2")
    await cluster.run("create t assignment=1,2")
    await cluster.run("kill 2")
    await cluster.run("delete t")
    assert await cluster.run("elect unclean t-0") == ["t-0: INVALID_TOPIC_EXCEPTION The topic is being deleted"]
    await cluster.close()


async def test_controlled_shutdown_of_an_earlier_registration_is_stale() -> None:
    cluster = ScriptedCluster()
    await cluster.run("start 1 2")
    await cluster.run("create t assignment=2,1")
    epoch = await _broker_epoch(cluster, 2)
    for wrong in (epoch - 1, epoch + 1):
        with pytest.raises(KafkaError) as refused:
            await cluster.controller.controlled_shutdown(2, wrong)
        assert refused.value.code == ErrorCode.STALE_BROKER_EPOCH
    with pytest.raises(KafkaError) as refused:
        await cluster.controller.controlled_shutdown(9, -1)
    assert refused.value.code == ErrorCode.BROKER_NOT_AVAILABLE
    assert (await cluster.run("states t"))[0].startswith("t-0: leader=2"), "broker 2 is not shutting down"
    assert await cluster.controller.controlled_shutdown(2, epoch) == []
    assert (await cluster.run("states t"))[0].startswith("t-0: leader=1")
    await cluster.close()


async def _broker_epoch(cluster: ScriptedCluster, broker_id: int) -> int:
    return (await cluster.node(paths.broker_path(broker_id))).stat.czxid


async def _seen_within(cluster: ScriptedCluster, seconds: float) -> list[str]:
    """Return what the brokers receive in this time of the wall clock."""
    cluster.lines.clear()
    await asyncio.sleep(seconds)
    await cluster.settle()
    return list(cluster.lines)


async def test_brokers_keep_the_metadata_of_topics_that_cannot_be_read() -> None:
    cluster = ScriptedCluster()
    await cluster.run("start 1 2")
    await cluster.run("create t partitions=1 rf=1")
    await cluster.run("set /brokers/topics/t unreadable")
    seen = await cluster.run("kill 1")
    assert seen[0].startswith("2 <- UpdateMetadata c2 live=2@9092"), "not of all partitions"
    await cluster.close()


async def test_partition_whose_leader_was_stopped_is_elected_at_the_next_occasion() -> None:
    cluster = ScriptedCluster()
    await cluster.run("start 1 2 3")
    await cluster.run("create t assignment=2,3")
    term = cluster.controller._active_term
    assert term is not None
    leader = PartitionReplica(("t", 0), 2)
    await term.active._term.transitions.move_replicas([leader], ReplicaState.OFFLINE)
    assert (await cluster.run("states"))[-1].startswith("t-0: leader=-1 epoch=1 isr=3 ")
    await cluster.run("start 4")
    assert (await cluster.run("states"))[-1].startswith("t-0: leader=3 epoch=2 isr=3 ")
    await cluster.close()
