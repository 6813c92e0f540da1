"""Coordinators over damaged files: groups whose records are whole are served, and followers make up for the rest."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path
from typing import Any

import pytest

from protocol.errors import ErrorCode
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from protocol.records.batch import batches
from tests.broker.coordination.test_moved_coordinators import REPLICATED, ask_coordinator, coordinator_of, response_code
from tests.support.in_process_cluster import InProcessCluster, running_cluster, until

GROUPS = [f"g{number}" for number in range(8)]
LOG = "00000000000000000000.log"


async def commit(cluster: InProcessCluster, group: str, offset: int) -> None:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    request = OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])])
    assert response_code(await ask_coordinator(cluster, group, 0, request, 7)) == ErrorCode.NONE


async def committed(cluster: InProcessCluster) -> dict[str, int]:
    found = {}
    for group in GROUPS:
        request = OffsetFetchRequest(
            group_id=group, topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0])], require_stable=False
        )
        response = await ask_coordinator(cluster, group, 0, request, 5)
        assert response_code(response) == ErrorCode.NONE
        found[group] = response.topics[0].partitions[0].committed_offset
    return found


def batches_of(log: Path, group: str) -> list[slice]:
    """Return where the batches with commits of a group lie: several if a commit was sent again."""
    content = log.read_bytes()
    name = group.encode()
    key = struct.pack(">hh", 1, len(name)) + name + struct.pack(">h", 1) + b"t"
    found = [slice(at, at + header.size) for at, header in batches(content) if key in content[at : at + header.size]]
    assert found
    return found


def flip(log: Path, position: int) -> None:
    content = bytearray(log.read_bytes())
    content[position] ^= 0x40
    log.write_bytes(content)


async def reload(cluster: InProcessCluster, number: int) -> None:
    """Load a partition of `__consumer_offsets` again from its files."""
    led = cluster.services(await coordinator_of(cluster, GROUPS[0], 0)).groups.partitions
    partition: Any = led.get(number)
    led.resign(number)
    led.become_leader(number, partition.leader_epoch)
    await asyncio.sleep(0)


async def create_topic(cluster: InProcessCluster) -> None:
    await cluster.controller.create_topic("t")
    await until(lambda: all(each.services.metadata_cache.has_leaders("t", 1) for each in cluster.brokers.values()))


@pytest.mark.parametrize(
    ("byte", "lost"),
    [(61, ["g3"]), (-16, ["g3"]), (8, ["g3"]), (16, ["g3"])],
    ids=["record length", "offset", "batch length", "magic"],
)
async def test_groups_whose_records_are_whole_are_served(
    tmp_path: Path, byte: int, lost: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    settings = {"offsets.topic.num.partitions": "1", "log.index.interval.bytes": "1"}
    async with running_cluster(tmp_path, (1,), settings) as cluster:
        await create_topic(cluster)
        for number, group in enumerate(GROUPS):
            await commit(cluster, group, number)
        log = tmp_path / "1" / "__consumer_offsets-0" / LOG
        for batch in batches_of(log, "g3"):
            flip(log, (batch.start if byte >= 0 else batch.stop) + byte)
        await reload(cluster, 0)
        assert await committed(cluster) == {
            group: -1 if group in lost else number for number, group in enumerate(GROUPS)
        }
        assert str(log) in caplog.text
        await commit(cluster, "g3", 33)
        await reload(cluster, 0)
        assert (await committed(cluster))["g3"] == 33


async def test_damaged_copy_of_the_leader_is_made_up_for_by_a_follower(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_cluster(tmp_path, (1, 2), REPLICATED | {"offsets.topic.num.partitions": "1"}) as cluster:
        await create_topic(cluster)
        for number, group in enumerate(GROUPS):
            await commit(cluster, group, number)
        leader = await coordinator_of(cluster, GROUPS[0], 0)
        replica = cluster.services(leader).replica_manager.find("__consumer_offsets", 0)
        assert replica is not None
        await until(lambda: len(replica.leadership.isr) == 2)
        log = tmp_path / str(leader) / "__consumer_offsets-0" / LOG
        for batch in batches_of(log, "g3"):
            flip(log, batch.start + 61)
        await reload(cluster, 0)
        assert await committed(cluster) == {group: number for number, group in enumerate(GROUPS)}
        assert (
            f"__consumer_offsets-0 is damaged in this broker's copy and was read from broker {3 - leader}"
            in caplog.text
        )
