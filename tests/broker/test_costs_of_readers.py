"""What a reader costs depends on what it reads: not on how much the topic keeps, nor on the number of other groups.

Costs are counted as lines that Python runs: they do not depend on the machine. A soak test measures the rate itself:
`tests/clients/test_readers.py`.
"""

import statistics
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records.builder import RecordData, build_batch
from tests.support.in_process import InProcessBroker, running_broker
from tests.support.lines import counted_lines
from tests.support.members import join_alone

RECORD = build_batch([RecordData(timestamp=1_700_000_000_000, key=b"k", value=b"v" * 100)])
BATCHES = 4  # of each segment
FETCHES = 6
FACTOR = 20
EARLIEST, LATEST = -2, -1
GROWTH_MAX = 1.15  # G-8: reading 20 GB is to be as fast as reading 1 GB, within 15 %


async def lines_of(work: Coroutine[Any, Any, None]) -> int:
    """Return how many lines run until `work` ends."""
    with counted_lines() as lines:
        await work
    return lines.count


async def fill(broker: InProcessBroker, topic: str, segments: int) -> None:
    """Create a topic whose segments have a few batches of one record each."""
    await broker.create_topic(topic, segment_bytes=str(BATCHES * len(RECORD)), retention_ms="-1")
    for _ in range(BATCHES * segments):
        data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=RECORD)])
        response = await broker.ask(ProduceRequest(acks=1, timeout_ms=1000, topic_data=[data]), 11)
        assert response.responses[0].partition_responses[0].error_code == 0


async def fetch(broker: InProcessBroker, topic: str, offset: int, end: int) -> None:
    """Fetch one batch."""
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=len(RECORD))
    request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic=topic, partitions=[partition])])
    (found,) = (await broker.ask(request, 12)).responses[0].partitions
    assert (found.error_code, found.high_watermark, len(found.records)) == (0, end, len(RECORD))


async def list_offset(broker: InProcessBroker, topic: str, timestamp: int, expected: int) -> None:
    partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[partition])])
    assert (await broker.ask(request, 7)).topics[0].partitions[0].offset == expected


async def costs_of_reading(broker: InProcessBroker, topic: str, segments: int) -> list[float]:
    """Return the costs of a fetch in the middle of a segment, and of asking for the first and the last offset.

    The median of fetches all over the topic leaves out the work that a broker puts off, such as its metrics.
    """
    end = BATCHES * segments
    places = [number * end // FETCHES + BATCHES // 2 for number in range(FETCHES)]
    for offset in places:  # what is done once for each segment
        await fetch(broker, topic, offset, end)
    fetches = [await lines_of(fetch(broker, topic, offset, end)) for offset in places]
    lists = [
        statistics.median([await lines_of(list_offset(broker, topic, *asked)) for _ in range(FETCHES)])
        for asked in ((EARLIEST, 0), (LATEST, end))
    ]
    return [statistics.median(fetches), *lists]


async def test_reading_runs_no_more_lines_where_twenty_times_as_much_is_kept(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        costs = []
        for segments in (2 * FETCHES, FACTOR * 2 * FETCHES):
            topic = f"kept-{segments}"
            await fill(broker, topic, segments)
            assert len(list((tmp_path / f"{topic}-0").glob("*.log"))) == segments
            costs.append(await costs_of_reading(broker, topic, segments))
        few, many = costs
        print(costs)
        assert all(large <= GROWTH_MAX * small for small, large in zip(few, many, strict=True)), costs


async def join_and_leave(broker: InProcessBroker, group: str, *, stays: bool = False) -> None:
    """Join a group as its only member, and leave it unless the member stays."""
    member = await join_alone(broker, group)
    if not stays:
        leave = LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id=member.member_id)])
        assert (await broker.ask(leave, 4)).error_code == 0


async def test_joining_and_leaving_runs_no_more_lines_beside_two_hundred_groups(tmp_path: Path) -> None:
    async with running_broker(tmp_path, {"offsets.topic.num.partitions": "1"}) as broker:
        await broker.create_topic("__consumer_offsets", cleanup_policy="compact")
        await join_and_leave(broker, "first")

        async def cost(beside: str) -> int:
            """Return the least of some: a timer of the broker may run between two steps."""
            return min([await lines_of(join_and_leave(broker, f"{beside}-{number}")) for number in range(5)])

        few = await cost("few")
        for number in range(200):
            await join_and_leave(broker, f"other-{number}", stays=True)
        many = await cost("many")
        print(few, many)
        assert many <= GROWTH_MAX * few, (few, many)
