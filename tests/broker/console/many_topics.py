"""Topics that only the metadata of a broker have, and offsets for them: thousands of real ones take minutes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from uuid import uuid4

from broker.cluster.metadata_cache import TopicState
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.messages.update_metadata import UpdateMetadataPartitionState
from tests.support.in_process import InProcessBroker

PARTITIONS = 4
TOPICS_PER_COMMIT = 250


def add_topics(broker: InProcessBroker, names: Iterable[str], *, larger: str) -> None:
    """Let the metadata have topics that no broker hosts, of four partitions each; `larger` has nine."""
    services = broker.services
    for name in names:
        state = TopicState(name, uuid4())
        for index in range(9 if name == larger else PARTITIONS):
            state.partitions[index] = UpdateMetadataPartitionState(
                topic_name=name,
                partition_index=index,
                controller_epoch=1,
                leader=0,
                leader_epoch=0,
                isr=[0],
                zk_version=0,
                replicas=[0],
                offline_replicas=[],
            )
        services.metadata_cache.topics[name] = state
        services.topic_configs.effective(name)  # known for every topic that the broker hosts


async def commit_all(broker: InProcessBroker, group: str, names: Iterable[str]) -> None:
    """Commit offset 0 of all partitions of topics."""
    await broker.services.topics.ensure_internal("__consumer_offsets")
    topics = [broker.services.metadata_cache.topics[name] for name in names]
    for first in range(0, len(topics), TOPICS_PER_COMMIT):
        request = OffsetCommitRequest(
            group_id=group,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic.name,
                    partitions=[
                        OffsetCommitRequestPartition(partition_index=each, committed_offset=0, committed_metadata="")
                        for each in topic.partitions
                    ],
                )
                for topic in topics[first : first + TOPICS_PER_COMMIT]
            ],
        )
        for _ in range(1_000):
            response = await broker.ask(request)
            if not response.topics[0].partitions[0].error_code:
                break
            await asyncio.sleep(0.01)  # the coordinator loads its partition
        else:
            raise AssertionError(response.topics[0])
