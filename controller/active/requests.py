"""Merge send effects into at most one request per broker and kind.

Owns the content of LeaderAndIsr, UpdateMetadata and StopReplica, which is read from the context when the batch is
drained. Must not know how requests are sent.

Invariants: a broker gets at most one request of each kind from a batch, in the order LeaderAndIsr, UpdateMetadata,
StopReplica; only live brokers get requests; each partition in a LeaderAndIsr is also in an UpdateMetadata to all
brokers.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

from base.pause import Pause
from base.topic_partition import TopicPartition
from controller.active.broker_channels import ControlRequest
from controller.machine.context import ControllerContext
from controller.machine.effects import SendEffect, SendLeaderAndIsr, SendMetadata, SendStopReplica
from controller.machine.model import (
    LEADER_DURING_DELETE,
    LEADER_EPOCH_DURING_DELETE,
    NO_LEADER_EPOCH,
    SECURITY_PROTOCOL_IDS,
    Broker,
)
from protocol.messages.leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from protocol.messages.stop_replica import StopReplicaPartitionState, StopReplicaRequest, StopReplicaTopicState
from protocol.messages.update_metadata import (
    UPDATE,
    UPDATE_OF_ALL,
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

T = TypeVar("T")


class RequestBatch:
    def __init__(self, context: ControllerContext, controller_id: int, inter_broker_listener: str) -> None:
        self._context = context
        self._controller_id = controller_id
        self._inter_broker_listener = inter_broker_listener
        self._leader_and_isr: dict[int, dict[TopicPartition, bool]] = {}
        self._metadata: dict[int, dict[TopicPartition, None]] = {}
        self._stop_replica: dict[int, dict[TopicPartition, bool]] = {}
        self._full: set[int] = set()

    def add(self, effect: SendEffect) -> None:
        match effect:
            case SendLeaderAndIsr(broker_ids, partition, is_new):
                for broker_id in broker_ids:
                    wanted = self._leader_and_isr.setdefault(broker_id, {})
                    wanted[partition] = is_new or wanted.get(partition, False)
                self.add(SendMetadata(tuple(self._context.live_brokers), (partition,)))
            case SendMetadata(broker_ids, partitions, is_full):
                if is_full:
                    self._full.update(broker_ids)
                for broker_id in broker_ids:
                    self._metadata.setdefault(broker_id, {}).update(dict.fromkeys(partitions))
            case SendStopReplica(replica, delete):
                self._stop_replica.setdefault(replica.broker_id, {})[replica.partition] = delete

    async def drain(self, pause: Pause) -> list[tuple[int, ControlRequest]]:
        """Return the requests in the order in which they are to be sent, and empty the batch.

        Effects must not be added, and the context must not change, before the last step.
        """
        requests: list[tuple[int, ControlRequest]] = []
        for broker, partitions in self._live(self._leader_and_isr):
            requests.append((broker.broker_id, await self._build_leader_and_isr(broker, partitions, pause)))
        requests += await self._build_metadata_for_all(pause)
        for broker, replicas in self._live(self._stop_replica):
            requests.append((broker.broker_id, await self._build_stop_replica(broker, replicas, pause)))
        self._leader_and_isr, self._metadata, self._stop_replica, self._full = {}, {}, {}, set()
        return requests

    def _live(self, wanted: Mapping[int, dict[TopicPartition, T]]) -> Iterator[tuple[Broker, dict[TopicPartition, T]]]:
        for broker_id, partitions in sorted(wanted.items()):
            broker = self._context.live_brokers.get(broker_id)
            if broker is not None:
                yield broker, partitions

    # -- LeaderAndIsr ----------------------------------------------------------------------------------------------

    async def _build_leader_and_isr(
        self, broker: Broker, partitions: Mapping[TopicPartition, bool], pause: Pause
    ) -> LeaderAndIsrRequest:
        states = await _group_by_topic(partitions, lambda it: self._leader_and_isr_state(it, partitions[it]), pause)
        return LeaderAndIsrRequest(
            controller_id=self._controller_id,
            controller_epoch=self._context.epoch,
            broker_epoch=broker.epoch,
            topic_states=[
                LeaderAndIsrTopicState(
                    topic_name=topic, topic_id=self._context.topic_ids[topic], partition_states=of_topic
                )
                for topic, of_topic in states.items()
            ],
            live_leaders=self._live_leaders(partitions),
        )

    def _leader_and_isr_state(self, partition: TopicPartition, is_new: bool) -> LeaderAndIsrPartitionState:
        leadership = self._context.leaderships[partition]
        assignment = self._context.assignment(partition)
        return LeaderAndIsrPartitionState(
            partition_index=partition[1],
            controller_epoch=leadership.controller_epoch,
            leader=leadership.state.leader,
            leader_epoch=leadership.state.leader_epoch,
            isr=list(leadership.state.isr),
            partition_epoch=leadership.partition_epoch,
            replicas=list(assignment.replicas),
            adding_replicas=list(assignment.adding),
            removing_replicas=list(assignment.removing),
            is_new=is_new,
            leader_recovery_state=leadership.state.recovery_state,
        )

    def _live_leaders(self, partitions: Iterable[TopicPartition]) -> list[LeaderAndIsrLiveLeader]:
        """Return the leaders' addresses for their followers, on the inter-broker listener."""
        leaders = dict.fromkeys(self._context.leaderships[partition].state.leader for partition in partitions)
        brokers = (self._context.live_brokers.get(leader) for leader in leaders)
        return [
            LeaderAndIsrLiveLeader(broker_id=broker.broker_id, host_name=endpoint.host, port=endpoint.port)
            for broker in brokers
            if broker is not None and (endpoint := broker.endpoint(self._inter_broker_listener)) is not None
        ]

    # -- UpdateMetadata --------------------------------------------------------------------------------------------

    async def _build_metadata_for_all(self, pause: Pause) -> list[tuple[int, ControlRequest]]:
        """Build the UpdateMetadata requests. Most have the same content, so their parts are built once and shared."""
        requests: list[tuple[int, ControlRequest]] = []
        live_brokers = [_describe_broker(broker) for _, broker in sorted(self._context.live_brokers.items())]
        built: dict[tuple[TopicPartition, ...], list[UpdateMetadataTopicState]] = {}
        for broker, partitions in self._live(self._metadata):
            key = tuple(partitions)
            if key not in built:
                built[key] = await self._metadata_states(key, pause)
            request = UpdateMetadataRequest(
                controller_id=self._controller_id,
                controller_epoch=self._context.epoch,
                broker_epoch=broker.epoch,
                type=UPDATE_OF_ALL if broker.broker_id in self._full else UPDATE,
                topic_states=built[key],
                live_brokers=live_brokers,
            )
            requests.append((broker.broker_id, request))
        return requests

    async def _metadata_states(
        self, partitions: Iterable[TopicPartition], pause: Pause
    ) -> list[UpdateMetadataTopicState]:
        known = [partition for partition in partitions if partition in self._context.leaderships]
        states = await _group_by_topic(known, self._metadata_state, pause)
        return [
            UpdateMetadataTopicState(
                topic_name=topic, topic_id=self._context.topic_ids[topic], partition_states=of_topic
            )
            for topic, of_topic in states.items()
        ]

    def _metadata_state(self, partition: TopicPartition) -> UpdateMetadataPartitionState:
        leadership = self._context.leaderships[partition]
        replicas = self._context.assignment(partition).replicas
        is_going = self._context.is_partition_to_be_deleted(partition)
        return UpdateMetadataPartitionState(
            partition_index=partition[1],
            controller_epoch=leadership.controller_epoch,
            leader=LEADER_DURING_DELETE if is_going else leadership.state.leader,
            leader_epoch=leadership.state.leader_epoch,
            isr=list(leadership.state.isr),
            zk_version=leadership.partition_epoch,
            replicas=list(replicas),
            offline_replicas=[it for it in replicas if not self._context.is_replica_online(it, partition)],
        )

    # -- StopReplica -----------------------------------------------------------------------------------------------

    async def _build_stop_replica(
        self, broker: Broker, replicas: Mapping[TopicPartition, bool], pause: Pause
    ) -> StopReplicaRequest:
        states = await _group_by_topic(
            replicas,
            lambda partition: StopReplicaPartitionState(
                partition_index=partition[1],
                leader_epoch=self._epoch_to_stop(partition),
                delete_partition=replicas[partition],
            ),
            pause,
        )
        return StopReplicaRequest(
            controller_id=self._controller_id,
            controller_epoch=self._context.epoch,
            broker_epoch=broker.epoch,
            topic_states=[
                StopReplicaTopicState(topic_name=topic, partition_states=of_topic) for topic, of_topic in states.items()
            ],
        )

    def _epoch_to_stop(self, partition: TopicPartition) -> int:
        if self._context.is_partition_to_be_deleted(partition):
            return LEADER_EPOCH_DURING_DELETE
        leadership = self._context.leaderships.get(partition)
        return NO_LEADER_EPOCH if leadership is None else leadership.state.leader_epoch


async def _group_by_topic(
    partitions: Iterable[TopicPartition], state: Callable[[TopicPartition], T], pause: Pause
) -> dict[str, list[T]]:
    """Return `state(partition)` of each partition, in order, grouped by topic."""
    topics: dict[str, list[T]] = {}
    for partition in sorted(partitions):
        topics.setdefault(partition[0], []).append(state(partition))
        await pause()
    return topics


def _describe_broker(broker: Broker) -> UpdateMetadataBroker:
    return UpdateMetadataBroker(
        id=broker.broker_id,
        endpoints=[
            UpdateMetadataEndpoint(
                port=endpoint.port,
                host=endpoint.host,
                listener=endpoint.listener,
                security_protocol=SECURITY_PROTOCOL_IDS[endpoint.security_protocol],
            )
            for endpoint in broker.endpoints
        ],
        rack=broker.rack,
    )
