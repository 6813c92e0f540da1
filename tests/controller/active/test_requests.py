"""Requests as Apache Kafka 3.9.1 sent them in the same situation, and which broker gets what.

Kafka's lists are in no order; they are compared in ours, which is numerical.
"""

from base.pause import never, whole
from controller.active.requests import RequestBatch
from controller.machine.context import ControllerContext
from controller.machine.effects import SendLeaderAndIsr, SendMetadata, SendStopReplica
from controller.machine.model import (
    Broker,
    Endpoint,
    LeaderAndIsr,
    Leadership,
    PartitionReplica,
    ReplicaAssignment,
    Topic,
)
from protocol.codec import decode, encode
from protocol.ids import parse_id
from protocol.messages.leader_and_isr import LeaderAndIsrRequest
from protocol.messages.stop_replica import StopReplicaRequest
from protocol.messages.update_metadata import UpdateMetadataRequest

P0, P1 = ("ibt", 0), ("ibt", 1)

# The versions that Kafka's controller used: those that inter.broker.protocol.version 3.4 and later stand for.
LEADER_AND_ISR_VERSION = 7
UPDATE_METADATA_VERSION = 8
STOP_REPLICA_VERSION = 4

# What the controller of a three-broker cluster of Apache Kafka 3.9.1 sent to broker 1 when topic `ibt` was created with
# two partitions, and to stop its replicas (three by then) when it was deleted. Without the header.
LEADER_AND_ISR_TO_1 = bytes.fromhex(
    "00000001000000000100000000000000190002046962743bc95365fa224b77a4d28e7b36923735030000000100000001000000020000"
    "000004000000020000000300000001000000000400000002000000030000000101010100000000000000000001000000010000000004"
    "000000010000000200000003000000000400000001000000020000000301010100000003000000020a3132372e302e302e3100003451"
    "00000000010a3132372e302e302e31000034500000"
)
UPDATE_METADATA_TO_1 = bytes.fromhex(
    "000000010000000001000000000000001902046962743bc95365fa224b77a4d28e7b3692373503000000010000000100000002000000"
    "000400000002000000030000000100000000040000000200000003000000010100000000000000000100000001000000000400000001"
    "00000002000000030000000004000000010000000200000003010000040000000204000033890a3132372e302e302e310a504c41494e"
    "54455854000000000034510a3132372e302e302e3109494e5445524e414c000000000035190a3132372e302e302e310f5341534c5f50"
    "4c41494e54455854000200037232000000000104000033880a3132372e302e302e310a504c41494e54455854000000000034500a3132"
    "372e302e302e3109494e5445524e414c000000000035180a3132372e302e302e310f5341534c5f504c41494e54455854000200037231"
    "0000000003040000338a0a3132372e302e302e310a504c41494e54455854000000000034520a3132372e302e302e3109494e5445524e"
    "414c0000000000351a0a3132372e302e302e310f5341534c5f504c41494e544558540002000372330000"
)
STOP_REPLICA_TO_1 = bytes.fromhex(
    "000000010000000001000000000000001902046962740400000001fffffffe000000000002fffffffe000000000000fffffffe00000000"
)


def _broker(broker_id: int, epoch: int) -> Broker:
    """With the three listeners of the captured cluster."""
    ports = {"PLAINTEXT": 13191, "INTERNAL": 13391, "SASL_PLAINTEXT": 13591}
    return Broker(
        broker_id,
        tuple(
            Endpoint(name, "127.0.0.1", port + broker_id, "PLAINTEXT" if name == "INTERNAL" else name)
            for name, port in ports.items()
        ),
        f"r{broker_id}",
        epoch,
    )


def _context() -> ControllerContext:
    context = ControllerContext(epoch=1)
    context.live_brokers = {it: _broker(it, epoch) for it, epoch in ((1, 25), (2, 416), (3, 884))}
    partitions = {0: ReplicaAssignment((1, 2, 3)), 1: ReplicaAssignment((2, 3, 1))}
    context.put_topic("ibt", Topic(parse_id("O8lTZfoiS3ek0o57NpI3NQ"), partitions))
    for partition, isr in ((P0, (1, 2, 3)), (P1, (2, 3, 1))):
        context.leaderships[partition] = Leadership(LeaderAndIsr(isr[0], 0, isr), 1, 0)
    return context


def _batch(context: ControllerContext) -> RequestBatch:
    return RequestBatch(context, controller_id=1, inter_broker_listener="INTERNAL")


def test_topic_creation_sends_the_requests_of_kafka() -> None:
    batch = _batch(_context())
    for partition in (P0, P1):
        batch.add(SendLeaderAndIsr((1, 2, 3), partition, is_new=True))
    requests = whole(batch.drain(never))
    assert [(broker_id, type(request)) for broker_id, request in requests] == [
        *((broker_id, LeaderAndIsrRequest) for broker_id in (1, 2, 3)),
        *((broker_id, UpdateMetadataRequest) for broker_id in (1, 2, 3)),
    ]
    leader_and_isr, update_metadata = requests[0][1], requests[3][1]
    kafkas = decode(LeaderAndIsrRequest, LEADER_AND_ISR_VERSION, LEADER_AND_ISR_TO_1)
    kafkas.topic_states[0].partition_states.sort(key=lambda it: it.partition_index)
    kafkas.live_leaders.sort(key=lambda it: it.broker_id)
    assert encode(leader_and_isr, LEADER_AND_ISR_VERSION) == encode(kafkas, LEADER_AND_ISR_VERSION)
    expected = decode(UpdateMetadataRequest, UPDATE_METADATA_VERSION, UPDATE_METADATA_TO_1)
    expected.topic_states[0].partition_states.sort(key=lambda it: it.partition_index)
    expected.live_brokers.sort(key=lambda it: it.id)
    assert encode(update_metadata, UPDATE_METADATA_VERSION) == encode(expected, UPDATE_METADATA_VERSION)
    assert whole(batch.drain(never)) == []


def test_topic_deletion_sends_the_requests_of_kafka() -> None:
    context = _context()
    context.put_topic("ibt", Topic(context.topic_ids["ibt"], dict.fromkeys(range(3), ReplicaAssignment((1, 2, 3)))))
    context.topics_to_delete.add("ibt")
    batch = _batch(context)
    batch.add(SendMetadata((1,), (P0, P1)))
    for partition in context.partitions_of("ibt"):
        batch.add(SendStopReplica(PartitionReplica(partition, 1), delete=False))
    (_, metadata), (_, stop) = whole(batch.drain(never))
    assert isinstance(metadata, UpdateMetadataRequest)
    assert {it.leader for it in metadata.topic_states[0].partition_states} == {-2}
    kafkas = decode(StopReplicaRequest, STOP_REPLICA_VERSION, STOP_REPLICA_TO_1)
    kafkas.topic_states[0].partition_states.sort(key=lambda it: it.partition_index)
    assert encode(stop, STOP_REPLICA_VERSION) == encode(kafkas, STOP_REPLICA_VERSION)


def test_a_broker_gets_one_request_of_a_kind() -> None:
    """Whatever many partitions: everything for a broker is in one request, the last word about a replica counts."""
    context = _context()
    batch = _batch(context)
    batch.add(SendLeaderAndIsr((1,), P0))
    batch.add(SendLeaderAndIsr((1,), P0, is_new=True))
    batch.add(SendLeaderAndIsr((1,), P0))
    batch.add(SendStopReplica(PartitionReplica(P1, 2), delete=False))
    batch.add(SendStopReplica(PartitionReplica(P1, 2), delete=True))
    requests = whole(batch.drain(never))
    assert [(broker_id, type(it).__name__) for broker_id, it in requests] == [
        (1, "LeaderAndIsrRequest"),
        (1, "UpdateMetadataRequest"),
        (2, "UpdateMetadataRequest"),
        (3, "UpdateMetadataRequest"),
        (2, "StopReplicaRequest"),
    ]
    leader_and_isr, stop = requests[0][1], requests[4][1]
    assert isinstance(leader_and_isr, LeaderAndIsrRequest)
    assert leader_and_isr.topic_states[0].partition_states[0].is_new
    assert isinstance(stop, StopReplicaRequest)
    (state,) = stop.topic_states[0].partition_states
    assert (state.delete_partition, state.leader_epoch) == (True, 0)


def test_dead_brokers_get_no_request_and_are_offline_replicas_in_others() -> None:
    context = _context()
    del context.live_brokers[2]
    batch = _batch(context)
    batch.add(SendLeaderAndIsr((1, 2), P1))
    requests = whole(batch.drain(never))
    assert [broker_id for broker_id, _ in requests] == [1, 1, 3]
    leader_and_isr, metadata = requests[0][1], requests[1][1]
    assert isinstance(leader_and_isr, LeaderAndIsrRequest)
    assert leader_and_isr.live_leaders == []
    assert isinstance(metadata, UpdateMetadataRequest)
    assert metadata.topic_states[0].partition_states[0].offline_replicas == [2]
    assert [it.id for it in metadata.live_brokers] == [1, 3]


def test_replica_without_a_leader_epoch_is_stopped_without_one() -> None:
    context = _context()
    context.leaderships.clear()
    batch = _batch(context)
    batch.add(SendStopReplica(PartitionReplica(P0, 1), delete=False))
    batch.add(SendMetadata((1,), (P0,)))
    (_, metadata), (_, stop) = whole(batch.drain(never))
    assert isinstance(stop, StopReplicaRequest)
    assert stop.topic_states[0].partition_states[0].leader_epoch == -1
    assert isinstance(metadata, UpdateMetadataRequest)
    assert metadata.topic_states == []
