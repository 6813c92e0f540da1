"""Which deletions can start, continue or complete, for every combination of two replicas' states."""

from itertools import product

import pytest

from base.pause import AT_ONCE, Awaited, never, whole
from controller.machine.context import ControllerContext
from controller.machine.model import Broker, PartitionReplica, ReplicaAssignment, Topic
from controller.machine.replica_states import ReplicaState
from controller.machine.topic_deletion import DeletionStep, next_step, replicas_to_delete, topics_not_deletable_now
from protocol.ids import parse_id

PARTITION = ("t", 0)
DONE, STARTED = ReplicaState.DELETION_SUCCESSFUL, ReplicaState.DELETION_STARTED


def _context(*states: ReplicaState) -> ControllerContext:
    context = ControllerContext(1)
    replicas = tuple(range(1, len(states) + 1))
    context.live_brokers = {it: Broker(it, ()) for it in replicas}
    context.put_topic("t", Topic(parse_id("mxeDiPb0QsCUKycbljLM5g"), {0: ReplicaAssignment(replicas)}))
    context.replica_states = {
        PartitionReplica(PARTITION, it): state for it, state in zip(replicas, states, strict=True)
    }
    context.topics_to_delete = {"t"}
    return context


@pytest.mark.parametrize("states", list(product(ReplicaState, ReplicaState)))
def test_next_step_of_a_deletion_follows_from_its_replicas(states: tuple[ReplicaState, ReplicaState]) -> None:
    context = _context(*states)
    if set(states) == {DONE}:
        assert whole(next_step(context, never)) == DeletionStep(finished=("t",), startable=())
    elif STARTED in states:
        assert whole(next_step(context, never)) == DeletionStep((), ()), "brokers must respond first"
    else:
        assert whole(next_step(context, never)) == DeletionStep((), startable=("t",))
        context.topics_ineligible_for_deletion.add("t")
        assert whole(next_step(context, never)) == DeletionStep((), ())


def test_topics_not_to_be_deleted_are_ignored() -> None:
    context = _context(DONE, DONE)
    context.topics_to_delete.clear()
    assert whole(next_step(context, never)) == DeletionStep((), ())


def test_only_online_replicas_can_be_deleted_now() -> None:
    context = _context(ReplicaState.ONLINE, ReplicaState.OFFLINE, DONE)
    del context.live_brokers[2], context.live_brokers[3]
    possible, impossible = replicas_to_delete(context, "t")
    assert [it.broker_id for it in possible] == [1]
    assert [it.broker_id for it in impossible] == [2]
    assert whole(topics_not_deletable_now(context, never)) == {"t"}


def test_offline_directory_or_reassignment_suspends_a_deletion() -> None:
    context = _context(ReplicaState.ONLINE)
    assert whole(topics_not_deletable_now(context, never)) == set()
    context.offline_directory_replicas[1] = {PARTITION}
    assert whole(topics_not_deletable_now(context, never)) == {"t"}
    context.offline_directory_replicas.clear()
    context.reassigning.add(PARTITION)
    assert whole(topics_not_deletable_now(context, never)) == {"t"}


def test_the_look_at_many_deletions_that_wait_for_a_broker_pauses_after_each() -> None:
    context = _context(ReplicaState.OFFLINE)
    topic_id = parse_id("mxeDiPb0QsCUKycbljLM5g")
    for name in map(str, range(20)):
        context.put_topic(name, Topic(topic_id, {0: ReplicaAssignment((1,))}))
        context.topics_to_delete.add(name)
    context.live_brokers.clear()
    pauses = []

    def pause() -> Awaited:
        pauses.append(None)
        return AT_ONCE

    context.topics_ineligible_for_deletion = whole(topics_not_deletable_now(context, pause))
    assert context.topics_ineligible_for_deletion == context.topics_to_delete
    assert whole(next_step(context, pause)) == DeletionStep((), ())
    assert len(pauses) == 2 * len(context.topics_to_delete)
