"""A broker whose clients ask for much and read nothing: its memory stays what it is, and the others are served."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.processes import MIB, PeakMemory
from broker.network.unsent_responses import UNSENT_SIZE_MAX
from protocol.api import APIS
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records.builder import RecordData, build_batch
from tests.support.broker import BrokerProcess
from tests.support.wire_client import WireClient

TOPIC = "large"
BATCH_SIZE = 512 << 10
BATCH_COUNT = 128
READERS = 120
# The allocator's overhead, and one response under construction.
SLACK_SIZE = 64 << 20
# What so many connections take with all that is behind them.
FILE_READERS_SIZE = 16 << 20


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One that holds 64 MB in one partition."""
    with BrokerProcess(tmp_path_factory.mktemp("slow"), is_measured=True) as process:
        with WireClient(process.port) as client:
            topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1, assignments=[], configs=[])
            assert not client.ask(CreateTopicsRequest(topics=[topic]), 5).topics[0].error_code
            batch = build_batch([RecordData(1, None, bytes(BATCH_SIZE - 100))], base_offset=0)
            data = TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=0, records=batch)])
            for _ in range(BATCH_COUNT):
                produced = client.ask(ProduceRequest(acks=1, timeout_ms=1000, topic_data=[data]), 8)
                assert not produced.responses[0].partition_responses[0].error_code
        yield process


FROM_MEMORY = 3
"""A version of Fetch whose responses are converted in memory; those of later versions stay in their files."""
CONVERTED_SIZE = 4 << 20
"""What each reader from memory asks for; all of them together ask for several times what they may take."""


def everything(size_max: int = 1 << 30) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=size_max)
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 30,
        session_epoch=-1,
        topics=[FetchTopic(topic=TOPIC, topic_id=uuid.UUID(int=0), partitions=[partition])],
    )


def resident_size(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def bring_into_memory(broker: BrokerProcess) -> None:
    """Machines that reclaim memory early may have dropped what was just written: then less stays in its file."""
    for path in broker.log_dir.glob(f"{TOPIC}-0/*.log"):
        path.read_bytes()


def test_unsent_responses_of_any_number_of_slow_readers_are_bounded(broker: BrokerProcess) -> None:
    with WireClient(broker.port) as other:
        before = resident_size(broker.pid)
        peak = PeakMemory(broker.pid)
        readers = [WireClient(broker.port) for _ in range(READERS)]
        try:
            for reader in readers:
                reader.send(everything(CONVERTED_SIZE), FROM_MEMORY)
            # A response to one that reads may have to wait until those that do not have lost theirs.
            response = other.ask(everything(CONVERTED_SIZE), FROM_MEMORY)
            grown = int(peak.mib() * MIB) - before
            assert len(response.responses[0].partitions[0].records) > BATCH_SIZE - 200
            assert grown <= UNSENT_SIZE_MAX + SLACK_SIZE, f"{grown >> 20} MB for {READERS} slow readers"
            assert grown >= UNSENT_SIZE_MAX // 4, f"{grown >> 20} MB: the readers did not use up what they share"
        finally:
            for reader in readers:
                reader.__exit__()
        response = other.ask(everything(CONVERTED_SIZE), FROM_MEMORY)
        assert len(response.responses[0].partitions[0].records) > BATCH_SIZE - 200


@pytest.mark.parametrize("version", [9, 11])
def test_slow_readers_of_files_use_no_memory_and_stay_connected(broker: BrokerProcess, version: int) -> None:
    bring_into_memory(broker)
    with WireClient(broker.port) as other:
        other.ask(everything(), version)
        before = resident_size(broker.pid)
        readers = [WireClient(broker.port) for _ in range(READERS)]
        try:
            for number, reader in enumerate(readers):
                if number % 20 == 0:
                    bring_into_memory(broker)
                reader.send(everything(), version)
            bring_into_memory(broker)
            expected = other.ask(everything(), version).responses[0].partitions[0].records
            assert len(expected) > BATCH_COUNT // 2 * BATCH_SIZE
            grown = resident_size(broker.pid) - before
            assert grown <= FILE_READERS_SIZE, f"{grown >> 20} MB for {READERS} slow readers"
            for reader in readers[::40]:
                assert reader.receive(APIS[1], version).responses[0].partitions[0].records == expected
        finally:
            for reader in readers:
                reader.__exit__()
