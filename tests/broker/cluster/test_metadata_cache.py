"""The metadata cache: readers see the state before or after one UpdateMetadata, never a part of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from uuid import UUID

import pytest

from base.pause import never, whole
from broker.cluster.metadata_cache import LEADER_OF_DELETED_TOPIC, MetadataCache
from protocol.messages.update_metadata import (
    UPDATE,
    UPDATE_OF_ALL,
    UpdateMetadataBroker,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from tests.storage.builders import pause, steps_of

OLD, NEW = UUID(int=1), UUID(int=2)


def topic(name: str, partitions: range, *, leader: int = 1, topic_id: UUID = OLD) -> UpdateMetadataTopicState:
    states = [
        UpdateMetadataPartitionState(
            partition_index=index,
            controller_epoch=1,
            leader=leader,
            leader_epoch=0,
            isr=[1],
            zk_version=0,
            replicas=[1],
        )
        for index in partitions
    ]
    return UpdateMetadataTopicState(topic_name=name, topic_id=topic_id, partition_states=states)


def update(
    *topics: UpdateMetadataTopicState, brokers: range = range(1, 2), kind: int = UPDATE
) -> UpdateMetadataRequest:
    return UpdateMetadataRequest(
        controller_id=brokers[0],
        controller_epoch=1,
        type=kind,
        topic_states=list(topics),
        live_brokers=[UpdateMetadataBroker(id=each, endpoints=[]) for each in brokers],
    )


Seen = tuple[object, ...]


def seen(cache: MetadataCache) -> Seen:
    """What readers see of the topics that the tests change."""
    return (
        cache.controller_id,
        list(cache.brokers),
        {
            name: (state.topic_id, {index: each.leader for index, each in state.partitions.items()})
            for name, state in cache.topics.items()
        },
        cache.name_of(OLD),
        cache.name_of(NEW),
        cache.partition_count("t"),
    )


def states_during(cache: MetadataCache, request: UpdateMetadataRequest) -> Iterator[Seen]:
    """Yield what readers see before the update and after each of its steps."""
    yield seen(cache)
    for _ in steps_of(cache.update(request, pause)):
        yield seen(cache)
    yield seen(cache)


@pytest.mark.parametrize(
    "request_of",
    [
        lambda: update(topic("new", range(20), topic_id=NEW)),
        lambda: update(topic("t", range(10, 30)), topic("other", range(20), topic_id=NEW)),
        lambda: update(topic("t", range(10), leader=2), brokers=range(2, 4)),
        lambda: update(topic("t", range(10), leader=LEADER_OF_DELETED_TOPIC)),
        lambda: update(topic("t", range(20), topic_id=NEW)),
        lambda: update(topic("t", range(10), leader=LEADER_OF_DELETED_TOPIC), topic("t", range(5), topic_id=NEW)),
        lambda: update(topic("t", range(3)), topic("o", range(20), topic_id=NEW), kind=UPDATE_OF_ALL),
    ],
    ids=["new topic", "partitions added", "brokers and leaders", "deletion", "new id", "created anew", "full"],
)
def test_no_part_of_an_update_is_visible(request_of: Callable[[], UpdateMetadataRequest]) -> None:
    cache = MetadataCache("c")
    whole(cache.update(update(topic("t", range(10))), never))
    before, snapshot = seen(cache), cache.snapshot()
    states = list(states_during(cache, request_of()))
    after = seen(cache)
    assert before != after
    changes = [state for previous, state in pairwise(states) if state != previous]
    assert changes == [after]
    assert seen(snapshot) == before


def test_interrupted_update_changes_nothing() -> None:
    cache = MetadataCache("c")
    whole(cache.update(update(topic("t", range(10))), never))
    before = seen(cache)
    work = steps_of(cache.update(update(topic("t", range(20), leader=2), brokers=range(2, 4)), pause))
    for _ in range(15):
        next(work)
    work.close()
    assert seen(cache) == before


def test_names_of_changed_topics_are_returned() -> None:
    cache = MetadataCache("c")
    whole(cache.update(update(topic("t", range(2)), topic("gone", range(2), topic_id=NEW)), never))
    changed = whole(cache.update(update(topic("t", range(2)), kind=UPDATE_OF_ALL), never))
    assert changed == {"t", "gone"}
    assert list(cache.topics) == ["t"]
