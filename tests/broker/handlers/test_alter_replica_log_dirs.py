"""AlterReplicaLogDirs through the whole broker, version by version: the code of each partition."""

from pathlib import Path

import pytest

from protocol.errors import ErrorCode
from protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from tests.support.in_process import running_broker


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_each_partition_gets_its_own_code(tmp_path: Path, version: int) -> None:
    directories = [str(tmp_path / "a"), str(tmp_path / "b")]
    async with running_broker(tmp_path, {"log.dirs": ",".join(directories)}) as broker:
        await broker.create_topic("t", 2)
        before = (await broker.ask(DescribeLogDirsRequest(topics=None))).results
        lies_in = {
            partition.partition_index: result.log_dir
            for result in before
            for topic in result.topics
            for partition in topic.partitions
        }
        here = lies_in[0]
        for path, topic, partition, code in (
            (here, "t", 0, ErrorCode.NONE),
            (here, "t", 5, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (str(tmp_path / "c"), "t", 1, ErrorCode.LOG_DIR_NOT_FOUND),
        ):
            asked = AlterReplicaLogDirTopic(name=topic, partitions=[partition])
            request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=[asked])])
            response = await broker.ask(request, version)
            (responded,) = response.results
            assert [(it.partition_index, it.error_code) for it in responded.partitions] == [(partition, code)]
        after = (await broker.ask(DescribeLogDirsRequest(topics=None))).results
        assert [result.topics for result in after] == [result.topics for result in before]


async def test_a_name_without_room_for_that_of_a_copy(tmp_path: Path) -> None:
    directories = [str(tmp_path / "a"), str(tmp_path / "b")]
    async with running_broker(tmp_path, {"log.dirs": ",".join(directories)}) as broker:
        name = "t" * 249
        await broker.create_topic(name)
        codes = []
        for path in directories:
            asked = AlterReplicaLogDirTopic(name=name, partitions=[0])
            request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=[asked])])
            codes.append((await broker.ask(request)).results[0].partitions[0].error_code)
        assert codes == [ErrorCode.INVALID_TOPIC_EXCEPTION] * 2, "also where it is already"
