"""DescribeLogDirs through the whole broker."""

from pathlib import Path

import pytest

from protocol.errors import ErrorCode
from protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest, DescribeLogDirsResult
from tests.broker.handlers.test_delete_records import fill
from tests.support.in_process import InProcessBroker, running_broker


async def described(
    broker: InProcessBroker, wanted: dict[str, list[int]] | None, version: int | None = None
) -> list[DescribeLogDirsResult]:
    topics = None
    if wanted is not None:
        topics = [DescribableLogDirTopic(topic=topic, partitions=partitions) for topic, partitions in wanted.items()]
    results: list[DescribeLogDirsResult] = (await broker.ask(DescribeLogDirsRequest(topics=topics), version)).results
    return results


def sizes(result: DescribeLogDirsResult) -> dict[tuple[str, int], int]:
    return {
        (topic.name, partition.partition_index): partition.partition_size
        for topic in result.topics
        for partition in topic.partitions
    }


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
async def test_sizes_of_logs_and_of_the_disk_are_returned(served: InProcessBroker, name: str, version: int) -> None:
    await served.create_topic(name, 2)
    await fill(served, name)
    (everything,) = await described(served, None, version)
    assert everything.error_code == ErrorCode.NONE
    assert sizes(everything)[name, 0] > sizes(everything)[name, 1] == 0
    for partition in everything.topics[0].partitions:
        assert (partition.offset_lag, partition.is_future_key) == (0, False)
    if version >= 4:
        assert everything.total_bytes >= everything.usable_bytes > 0


async def test_only_requested_partitions_are_returned(served: InProcessBroker, name: str) -> None:
    await served.create_topic(name, 3)
    (result,) = await described(served, {name: [2, 7], "absent": [0]})
    assert set(sizes(result)) == {(name, 2)}
    (nothing,) = await described(served, {"absent": [0]})
    assert nothing.topics == []


async def test_every_directory_is_named_by_its_absolute_path(tmp_path: Path) -> None:
    directories = [tmp_path / "a", tmp_path / "b"]
    async with running_broker(tmp_path, {"log.dirs": ",".join(map(str, directories))}) as broker:
        await broker.create_topic("t", 4)
        results = await described(broker, None)
    assert [result.log_dir for result in results] == [str(directory) for directory in directories]
    assert [len(sizes(result)) for result in results] == [2, 2]
