"""A cluster that follows a script instead of a schedule: steps in order, in virtual time, then the usual judgement.

Owns the vocabulary of scripted cases. Must not know what they show.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from uuid import UUID

from controller.tree import paths
from protocol.errors import ErrorCode
from protocol.ids import parse_id
from protocol.messages.alter_partition import AlterPartitionRequest, BrokerState, PartitionData, TopicData
from protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from protocol.messages.elect_leaders import ElectLeadersRequest
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from protocol.messages.leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from protocol.messages.stop_replica import StopReplicaPartitionState, StopReplicaRequest, StopReplicaTopicState
from protocol.schema import message_info
from tests.sim.clients.base import Retry, SimulatedClient
from tests.sim.clients.consumer import LEADER_VERSION, Consumer
from tests.sim.clients.producer import VERSION, batch_of, produce_request
from tests.sim.cluster import PROPERTIES
from tests.sim.faults import SECOND_US
from tests.sim.history import DataLoss, LeaderState, Partition, Send
from tests.sim.inspection import hosted_partition
from tests.sim.process import PORT
from tests.sim.rules import Violation
from tests.sim.run import BROKERS, ENABLE_VERSION_2, PLAIN, Run
from tests.sim.zookeeper import HOST as ZOOKEEPER

T = TypeVar("T")

_FETCH: Final = message_info(FetchRequest).api_key.to_bytes(2)
"""The first bytes of a Fetch request, after its length."""


class Script(Run):
    """A cluster with the usual topics, no clients and no faults but those of the script."""

    def __init__(
        self,
        seed: int = 1,
        properties: Mapping[str, str] | None = None,
        brokers: int = BROKERS,
        *,
        is_coordinated: bool = False,
    ) -> None:
        super().__init__(seed, brokers=brokers, clients=[], faults=[], is_coordinated=is_coordinated)
        self.cluster.ends_slices = self.history.allows_unclean = False
        self.cluster.properties = {**PROPERTIES, **self.fixed_properties, **(properties or {})}
        self.has_version_2 = self.cluster.properties.get(ENABLE_VERSION_2) == "true"
        self.history.retained.clear()
        self._racks.clear()
        for machine in self.cluster.machines.values():
            machine.rack = machine.protocol = ""
        self.history.leaders_write_states = False
        self._numbers = 0
        self.actor = Actor("actor", self)

    def begin(self) -> None:
        assert self._start(), self.history.anomalies
        self.wait_until(lambda: self.states.are_isrs_complete(set()))

    def end(self) -> list[Violation]:
        """Heal, read everything, compare the logs; return the violations."""
        self.cluster.network.mend_all()
        self._heal()
        self._read_everything()
        self._collect_logs()
        return self._judge()

    # Time

    def wait(self, seconds: float) -> None:
        self.world.run_for(round(seconds * SECOND_US))

    def wait_until(self, is_true: Callable[[], bool], limit_s: float = 30.0) -> None:
        """Run until the condition holds. Fails if it does not within the limit."""
        end_us = self.world.now_us + round(limit_s * SECOND_US)
        while not is_true():
            assert self.world.now_us < end_us, "the script waits in vain"
            self.world.run_for(5_000)

    def catch(self, is_true: Callable[[], bool], limit_s: float = 30.0) -> None:
        """Run to the very step after which the condition holds. Fails if it does not within the limit."""
        end_us = self.world.now_us + round(limit_s * SECOND_US)
        assert self.world.run_until(is_true, limit_us=end_us), "the script waits in vain"

    def do(self, work: Coroutine[Any, Any, T], limit_s: float = 30.0) -> T:
        """Let the actor do something, to its end."""
        task = self.actor.loop.start(work)
        self.wait_until(task.done, limit_s)
        return task.result()

    # State

    def state(self, partition: Partition) -> LeaderState:
        return self.states.latest[partition]

    def leader(self, partition: Partition) -> int:
        return self.state(partition).leader

    def others(self, *brokers: int) -> list[int]:
        return [broker for broker in self.cluster.machines if broker not in brokers]

    def controller(self) -> int:
        """Return the id of the controller, according to ZooKeeper."""
        return int(json.loads(self.cluster.zookeeper.tree.entries["/controller"].data or b"")["brokerid"])

    def controller_or_none(self) -> int | None:
        return self.controller() if "/controller" in self.cluster.zookeeper.tree.entries else None

    def controller_epoch(self) -> int:
        return int(self.cluster.zookeeper.tree.entries["/controller_epoch"].data or b"0")

    def broker_epoch(self, broker: int) -> int:
        return self.cluster.zookeeper.tree.entries[f"/brokers/ids/{broker}"].czxid

    def topic_id(self, partition: Partition) -> UUID:
        node = json.loads(self.cluster.zookeeper.tree.entries[f"/brokers/topics/{partition.topic}"].data or b"{}")
        return parse_id(node["topic_id"])

    def replica(self, partition: Partition, broker: int) -> Any:
        """Return the partition as its broker knows it."""
        return hosted_partition(self.cluster.machines[broker], partition)

    def is_out_of_sync(self, partition: Partition, broker: int) -> bool:
        return broker not in self.state(partition).isr

    def lead_with(self, partition: Partition, broker: int) -> None:
        """Wait until `broker` leads."""
        self.wait_until(lambda: self.leader(partition) == broker)

    # Hurt and heal

    def isolate(self, broker: int, *, store: bool = True) -> None:
        """Cut a broker from all others, and from ZooKeeper; clients still reach it."""
        host = self.cluster.machines[broker].host
        for other in self.cluster.hosts:
            if other != host:
                self.cluster.network.cut(host, other)
        if store:
            self.cluster.network.cut(host, ZOOKEEPER)

    def pause(self, broker: int) -> None:
        process = self.cluster.machines[broker].process
        assert process is not None
        process.loop.pause()

    def resume(self, broker: int) -> None:
        process = self.cluster.machines[broker].process
        assert process is not None
        process.loop.resume()

    def cut(self, one: int, other: int, *, one_way: bool = False) -> None:
        self.cluster.network.cut(self.cluster.machines[one].host, self.cluster.machines[other].host, one_way=one_way)

    def mend(self, one: int, other: int) -> None:
        self.cluster.network.mend(self.cluster.machines[one].host, self.cluster.machines[other].host)

    def lose_answer_to_fetch(self, follower: int, leader: int) -> None:
        """Let the next fetch of a follower reach its leader, but nothing come back from then on."""
        link = self.cluster.machines[follower].host, self.cluster.machines[leader].host, True
        first = len(self.world.trace)

        def is_sent() -> bool:
            return any(
                kind == "sent" and details[:3] == link and details[3][4:6] == _FETCH
                for _, kind, details in self.world.trace[first:]
            )

        self.catch(is_sent)
        self.cut(leader, follower, one_way=True)

    def rejoin(self, broker: int) -> None:
        """Mend all links of a broker."""
        host = self.cluster.machines[broker].host
        for other in [*self.cluster.hosts, ZOOKEEPER]:
            if other != host:
                self.cluster.network.mend(host, other)

    def leave(self, *brokers: int) -> None:
        """Let brokers die, and their sessions expire immediately."""
        for broker in brokers:
            self.cluster.kill(broker)
            self.cluster.zookeeper.expire(self.cluster.machines[broker].host)

    def return_empty(self, broker: int) -> None:
        """Let a broker die, lose its disk, and leave the cluster."""
        self.leave(broker)
        self.cluster.machines[broker].disk.erase()
        self.history.losses.append(DataLoss(self.world.now_us, broker))

    def depose_controller(self) -> None:
        """Delete the node of the controller, as an operator may, although its session continues."""
        self.cluster.zookeeper.delete_as_operator(paths.CONTROLLER)

    def elect_controller(self, broker: int) -> None:
        """Have a broker become the controller: all others are paused for a moment."""
        if self.controller() == broker:
            return
        others = self.others(broker)
        for other in others:
            self.pause(other)
        self.depose_controller()
        self.wait_until(lambda: self.controller_or_none() == broker)
        for other in others:
            self.resume(other)
        self.wait(0.5)

    # Requests

    def produce(
        self, value: str, *, partition: Partition = PLAIN[0], broker: int | None = None, acks: int = -1
    ) -> ScriptedSend:
        """Send one record once; return what came of it: `acked_us` is None if it was not acknowledged."""
        send = self.begin_produce(value, partition=partition, broker=broker, acks=acks)
        self.wait_until(send.task.done)
        return send

    def begin_produce(
        self, value: str, *, partition: Partition = PLAIN[0], broker: int | None = None, acks: int = -1
    ) -> ScriptedSend:
        """Send one record; do not wait for the response."""
        self._numbers += 1
        send = ScriptedSend(
            "actor", partition, (value,), self._numbers, acks, False, self.world.now_us, last_sent_us=self.world.now_us
        )
        self.history.sends.append(send)
        target = self.leader(partition) if broker is None else broker
        send.task = self.actor.loop.start(self.actor.send(send, target))
        return send

    def consume(self, partition: Partition, broker: int, epoch: int, *, is_committed: bool = False) -> ErrorCode:
        """Poll once from the start, as a consumer that knows `epoch` and reads leaders; return the error."""
        reader = Consumer(
            f"reader-{self.world.now_us}", self, [partition], is_committed=is_committed, version=LEADER_VERSION
        )
        reader._leaders[partition] = broker, epoch

        async def poll() -> ErrorCode:
            try:
                await reader.poll(broker, [partition], max_wait_ms=0)
            except Retry as reason:
                return ErrorCode[str(reason)] if str(reason) in ErrorCode.__members__ else ErrorCode.NETWORK_EXCEPTION
            return ErrorCode.NONE

        task = reader.loop.start(poll())
        self.wait_until(task.done)
        return task.result()

    def alter_partition(self, leader: int, members: list[BrokerState], leader_epoch: int, partition_epoch: int) -> None:
        """Ask the controller to change the ISR of the first partition, in the name of its leader."""
        self.do(self.request_isr(leader, members, leader_epoch, partition_epoch))

    def request_isr(
        self,
        leader: int,
        members: list[BrokerState],
        leader_epoch: int,
        partition_epoch: int,
        partition: Partition = PLAIN[0],
    ) -> Coroutine[Any, Any, Any]:
        """Return the request of `alter_partition`, to the present controller."""
        change = PartitionData(
            partition_index=partition.index,
            leader_epoch=leader_epoch,
            new_isr_with_epochs=members,
            partition_epoch=partition_epoch,
        )
        request = AlterPartitionRequest(
            broker_id=leader,
            broker_epoch=self.broker_epoch(leader),
            topics=[TopicData(topic_id=self.topic_id(partition), partitions=[change])],
        )
        return self.actor.ask(self.controller(), request, 3, fresh=True)

    def move(self, partition: Partition, replicas: Sequence[int] | None) -> ErrorCode:
        """Start to move a partition, or with None cancel the move; return the result."""
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=5000,
            topics=[
                ReassignableTopic(
                    name=partition.topic,
                    partitions=[
                        ReassignablePartition(
                            partition_index=partition.index, replicas=None if replicas is None else list(replicas)
                        )
                    ],
                )
            ],
        )
        response = self.ask(self.controller(), request, 0)
        return ErrorCode(response.responses[0].partitions[0].error_code)

    def prefer(self) -> None:
        """Have the preferred leader of each partition elected, where it is in sync."""
        self.ask(self.controller(), ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=3000), 2)

    def let(self, client: SimulatedClient, what: str, attempt: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Let a client do something, to its end; it repeats what may be retried."""
        task = client.loop.start(client.until_done(what, attempt))
        self.wait_until(task.done)
        return task.result()

    def let_run(self, *clients: SimulatedClient, limit_s: float = 60.0) -> None:
        """Start clients, and run until they have finished."""
        for client in clients:
            client.start()
        self.wait_until(lambda: all(client.task.done() for client in clients), limit_s)

    def stop_replica(
        self, broker: int, *, controller_epoch: int, broker_epoch: int = -1, leader_epoch: int | None = None
    ) -> None:
        """Have a broker delete its replica of the first partition, as a controller does.

        Without `leader_epoch`, in a later one than the present.
        """
        state = StopReplicaPartitionState(
            partition_index=PLAIN[0].index,
            leader_epoch=self.state(PLAIN[0]).leader_epoch + 10 if leader_epoch is None else leader_epoch,
            delete_partition=True,
        )
        request = StopReplicaRequest(
            controller_id=9,
            controller_epoch=controller_epoch,
            broker_epoch=broker_epoch,
            topic_states=[StopReplicaTopicState(topic_name=PLAIN[0].topic, partition_states=[state])],
        )
        self.ask(broker, request, 4)

    def send_state(self, broker: int, state: LeaderState, topic_id: UUID | None = None) -> None:
        """Send a state of the first partition to a broker, as the present controller does. None: its topic id."""
        partition_state = LeaderAndIsrPartitionState(
            partition_index=PLAIN[0].index,
            controller_epoch=state.controller_epoch,
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            isr=list(state.isr),
            partition_epoch=state.partition_epoch,
            replicas=list(state.replicas),
        )
        request = LeaderAndIsrRequest(
            controller_id=self.controller(),
            controller_epoch=self.controller_epoch(),
            topic_states=[
                LeaderAndIsrTopicState(
                    topic_name=PLAIN[0].topic,
                    topic_id=self.topic_id(PLAIN[0]) if topic_id is None else topic_id,
                    partition_states=[partition_state],
                )
            ],
            live_leaders=[
                LeaderAndIsrLiveLeader(broker_id=broker_id, host_name=machine.host, port=PORT)
                for broker_id, machine in self.cluster.machines.items()
            ],
        )
        self.ask(broker, request, 7)

    def fetch_as_follower(self, leader: int, follower: int, broker_epoch: int, offset: int) -> None:
        """Fetch the first partition from its leader, in the name of a registration of a follower."""
        wanted = FetchPartition(partition=PLAIN[0].index, fetch_offset=offset, partition_max_bytes=1000)
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=follower, replica_epoch=broker_epoch),
            max_wait_ms=0,
            min_bytes=0,
            session_epoch=-1,
            topics=[FetchTopic(topic_id=self.topic_id(PLAIN[0]), partitions=[wanted])],
        )
        self.ask(leader, request, 17)

    def ask(self, broker: int, request: object, version: int) -> Any:
        """Send any request to a broker from the actor's host."""
        return self.do(self.actor.ask(broker, request, version, fresh=True))


@dataclass(slots=True)
class ScriptedSend(Send):
    """A `Send` with the task that waits for the response."""

    task: Any = None


class Actor(SimulatedClient):
    """The client that performs the requests of a script."""

    async def run(self) -> None: ...

    async def send(self, send: Send, broker: int) -> None:
        records = batch_of(send.values, self.now_us())
        send.last_sent_us = self.now_us()
        try:
            response = await self.ask(
                broker, produce_request(send.partition, records, acks=send.acks), VERSION, fresh=True
            )
        except Retry:
            return
        (found,) = response.responses[0].partition_responses
        self.history.counts[f"produce: {ErrorCode(found.error_code).name}"] += 1
        if found.error_code == ErrorCode.NONE:
            send.offset, send.acked_us, send.broker = found.base_offset, self.now_us(), broker
            self.history.counts["acknowledged records"] += 1
            if send.acks == -1:
                send.stored_by = self.around.copies_of(send.partition, send.offset)
