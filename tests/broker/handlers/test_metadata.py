"""Metadata of leaders and replicas that are not alive, or not reachable over the client's listener."""

import random
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from base.pause import never, whole
from broker.cluster.metadata_cache import MetadataCache
from broker.handlers import metadata
from broker.handlers.request_context import RequestContext
from broker.network.channel import Channel
from broker.security.authorizer import Authorizer
from protocol.api import APIS
from protocol.codec import encode
from protocol.errors import ErrorCode
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponsePartition
from protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from tests.storage.builders import done, pause, steps_of
from tests.support.in_process import InProcessBroker

DEAD = 9


async def partition_metadata(broker: InProcessBroker, topic: str, version: int) -> MetadataResponsePartition:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
    response = await broker.ask(request, version)
    assert response.topics[0].error_code == ErrorCode.NONE
    (partition,) = response.topics[0].partitions
    assert isinstance(partition, MetadataResponsePartition)
    return partition


def known(broker: InProcessBroker, topic: str) -> UpdateMetadataPartitionState:
    """The metadata that the broker received; tests change it in place."""
    state = broker.services.metadata_cache.topics[topic]
    state.encoded.clear()
    return state.partitions[0]


@pytest.mark.parametrize(
    ("version", "code"),
    [(0, ErrorCode.LEADER_NOT_AVAILABLE), (5, ErrorCode.LEADER_NOT_AVAILABLE), (6, ErrorCode.LISTENER_NOT_FOUND)],
)
async def test_a_leader_without_an_address_on_the_clients_listener(
    served: InProcessBroker, name: str, version: int, code: ErrorCode
) -> None:
    await served.create_topic(name)
    cache = served.services.metadata_cache
    known(served, name)
    cache.brokers[0] = replace(cache.brokers[0], endpoints={"INTERNAL": ("10.0.0.1", 9093)})
    partition = await partition_metadata(served, name, version)
    assert (partition.error_code, partition.leader_id) == (code, -1)


@pytest.mark.parametrize("version", [0, 1, 7, 12])
@pytest.mark.parametrize("leader", [-1, DEAD])
async def test_partition_without_a_live_leader_gets_leader_not_available(
    served: InProcessBroker, name: str, version: int, leader: int
) -> None:
    await served.create_topic(name)
    known(served, name).leader = leader
    partition = await partition_metadata(served, name, version)
    assert (partition.error_code, partition.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)


@pytest.mark.parametrize(
    ("version", "code", "replicas"),
    [(0, ErrorCode.REPLICA_NOT_AVAILABLE, [0]), (1, ErrorCode.NONE, [0, DEAD]), (12, ErrorCode.NONE, [0, DEAD])],
)
async def test_dead_replicas_are_an_error_in_version_0_only(
    served: InProcessBroker, name: str, version: int, code: ErrorCode, replicas: list[int]
) -> None:
    await served.create_topic(name)
    state = known(served, name)
    state.replicas, state.isr = [0, DEAD], [0]
    partition = await partition_metadata(served, name, version)
    assert (partition.error_code, partition.leader_id) == (code, 0)
    assert (partition.replica_nodes, partition.isr_nodes) == (replicas, [0])


LISTENERS = ("INTERNAL", "EXTERNAL")
METADATA = APIS[3]


def random_update(rng: random.Random) -> UpdateMetadataRequest:
    """Brokers that come, go and move, and topics that change, go and come back with another id."""
    brokers = [
        UpdateMetadataBroker(
            id=number,
            rack=rng.choice((None, "r")),
            endpoints=[
                UpdateMetadataEndpoint(host="h", port=rng.choice((1, 1, 2)), listener=name, security_protocol=0)
                for name in rng.sample(LISTENERS, rng.randint(1, 2))
            ],
        )
        for number in range(3)
        if rng.random() < 0.8
    ]
    topics = [
        UpdateMetadataTopicState(
            topic_name=f"t{number}",
            topic_id=UUID(int=1 + number + 10 * (rng.random() < 0.1)),
            partition_states=[
                UpdateMetadataPartitionState(
                    partition_index=index,
                    controller_epoch=1,
                    leader=rng.choice((-2, -1, 0, 1, 2)),
                    leader_epoch=rng.randint(0, 9),
                    isr=[0],
                    zk_version=0,
                    replicas=[0, 1],
                    offline_replicas=rng.choice(([], [1])),
                )
                for index in range(rng.randint(1, 3))
            ],
        )
        for number in rng.sample(range(4), rng.randint(0, 2))
    ]
    return UpdateMetadataRequest(
        controller_id=rng.randint(0, 2), controller_epoch=1, broker_epoch=1, topic_states=topics, live_brokers=brokers
    )


def encoded(cache: MetadataCache, version: int, listener: str, *, with_operations: bool) -> bytes:
    services: Any = SimpleNamespace(
        authorizer=Authorizer(is_active=False),
        metadata_cache=cache,
        internal_topics=frozenset({"t1"}),
        sliced_work=SimpleNamespace(pause=never),
    )
    request = MetadataRequest(topics=None if version else [], include_topic_authorized_operations=with_operations)
    context = RequestContext(METADATA.key, version, 0, "client", Channel("127.0.0.1", 1, listener))
    return b"".join(encode(whole(metadata.handle(services, request, context)), version))


@pytest.mark.parametrize("seed", range(3))
def test_repeated_response_equals_a_newly_built_one(seed: int) -> None:
    rng = random.Random(seed)
    remembering, forgetful = MetadataCache("c"), MetadataCache("c")
    update = random_update(rng)
    for _ in range(200):
        changed = random_update(rng)
        if rng.random() < 0.7:
            changed.live_brokers = update.live_brokers  # so that topics outlive an update
        update = changed
        for cache in (remembering, forgetful):
            whole(cache.update(update, never))
        for _ in range(3):
            version, listener = rng.choice(METADATA.versions), rng.choice(LISTENERS)
            for state in forgetful.topics.values():
                state.encoded.clear()
            with_operations = version >= 8 and rng.random() < 0.5
            told_again, told_anew = (
                encoded(cache, version, listener, with_operations=with_operations) for cache in (remembering, forgetful)
            )
            assert told_again == told_anew


@pytest.mark.parametrize("topics", [None, [MetadataRequestTopic(name=f"t{number}") for number in range(4)]])
def test_update_between_the_steps_of_a_response_does_not_change_it(topics: list[MetadataRequestTopic] | None) -> None:
    rng = random.Random(1)
    before, after = random_update(rng), random_update(rng)
    before.topic_states = [topic for update in (before, random_update(rng)) for topic in update.topic_states]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    context = RequestContext(METADATA.key, 9, 0, "client", Channel("127.0.0.1", 1, LISTENERS[0]))

    def response(*, updated_after_steps: int | None) -> bytes:
        cache = MetadataCache("c")
        whole(cache.update(before, never))
        services: Any = SimpleNamespace(
            authorizer=Authorizer(is_active=False),
            metadata_cache=cache,
            internal_topics=frozenset(),
            sliced_work=SimpleNamespace(pause=pause),
            topics=SimpleNamespace(why_unknown=lambda name: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        )
        work = steps_of(metadata.handle(services, request, context))
        if updated_after_steps is not None:
            for _ in range(updated_after_steps):
                next(work)
            whole(cache.update(after, never))
        return b"".join(encode(done(work), 9))

    expected = response(updated_after_steps=None)
    assert [response(updated_after_steps=count) for count in (1, 2)] == [expected, expected]


async def test_names_beside_a_topic_id_create_no_topic(served: InProcessBroker, name: str) -> None:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name), MetadataRequestTopic(topic_id=UUID(int=99), name=None)]
    )
    response = await served.ask(request, 12)
    assert [topic.error_code for topic in response.topics] == [ErrorCode.UNKNOWN_TOPIC_ID]
    assert name not in served.services.metadata_cache.topics
