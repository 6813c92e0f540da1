"""The partition counts of topics in the metadata store."""

from uuid import UUID

import pytest

from controller.coordination.memory_store import MemoryStore
from controller.machine.model import ReplicaAssignment, Topic
from controller.store.state_store import SessionExpired
from controller.tree import paths
from controller.tree.topic_nodes import read_partition_counts, write_new_topic


async def test_partition_counts_come_from_the_nodes(store: MemoryStore, caplog: pytest.LogCaptureFixture) -> None:
    partitions = {number: ReplicaAssignment((1,)) for number in range(5)}
    await write_new_topic(store.multi, "whole", Topic(UUID(int=1), partitions), {})
    await store.create(paths.topic_path("unreadable"), b"{")
    assert await read_partition_counts(store, ["missing", "unreadable", "whole"]) == {"whole": 5}
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "cannot read the partition count of topic missing",
        "cannot read the partition count of topic unreadable",
    ]


async def test_partition_counts_are_not_guessed_in_an_expired_session(store: MemoryStore) -> None:
    store.lose_session_silently()
    with pytest.raises(SessionExpired):
        await read_partition_counts(store, ["a"])
