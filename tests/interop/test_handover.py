"""A data directory is handed from Milena to Apache Kafka and back, several times, without any loss."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from storage.disk.checkpoints import read_leader_epochs
from storage.disk.files import OsFiles
from storage.disk.names import LEADER_EPOCH_CHECKPOINT
from tests.interop.conftest import RunKafkaTool
from tests.interop.handover import (
    CODED,
    COMPACTED,
    GROUP,
    OLD_FORMATS,
    OPEN,
    OPEN_TRANSACTIONAL_ID,
    SEQUENCE,
    SHORTENED,
    TRANSACTIONAL_ID,
    TRANSACTIONS,
    TRIMMED,
    Handover,
    House,
    Partition,
    Record,
    chain,
    headers_in,
)
from tests.protocol.records.golden import expected_records, golden_logs
from tests.support.apache_kafka import jars
from tests.support.parts import skip_when_unavailable
from tests.support.zookeeper import ZooKeeperProcess

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "logs"
HANDOVERS = ("to-kafka-killed", "to-milena", "to-kafka", "to-milena-killed")
SEGMENT_SUFFIXES = frozenset({".log", ".index", ".timeindex", ".txnindex", ".snapshot"})
INDEX_SUFFIXES = frozenset({".index", ".timeindex"})
# Cleaning leaves gaps in the offsets; any other finding would be damage.
MISMATCHES = re.compile(r"mismatch|out of order|corrupt|isvalid: false|invalid|exception|not found", re.IGNORECASE)

# Recovery logs truncations and rebuilds at a lower level.
COMPLAINTS = re.compile(r"\b(WARN|WARNING|ERROR|FATAL)\b|truncating|corrupt|invalid|rebuilding index", re.IGNORECASE)
# At its start Kafka connects to itself before it listens.
KNOCKING = re.compile(r"\(org\.apache\.kafka\.clients\.NetworkClient\)|\(kafka\.controller\.RequestSendThread\)")


@dataclass(frozen=True)
class Story:
    """All that happened in one house."""

    house: House
    handovers: Mapping[str, Handover]


def story_of(folder: Path, *, cycles: int = 1) -> Story:
    with skip_when_unavailable():
        jars()
        with ZooKeeperProcess(folder / "zookeeper") as zookeeper:
            house = House(folder, zookeeper)
            names = [f"{name}-{cycle}" if cycle else name for cycle in range(cycles) for name in HANDOVERS]
            return Story(house, dict(zip(names, chain(house, FIXTURES, cycles=cycles), strict=True)))


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    return story_of(tmp_path_factory.mktemp("house"))


@pytest.fixture(params=HANDOVERS)
def handover(request: pytest.FixtureRequest, story: Story) -> Handover:
    return story.handovers[request.param]


def is_internal(partition: Partition) -> bool:
    return partition[0].startswith("__")


def newest(records: Sequence[Record]) -> dict[bytes | None, Record]:
    return {record.key: record for record in records}


def test_every_record_is_served(handover: Handover) -> None:
    for before, after in (
        (handover.before.uncommitted, handover.after.uncommitted),
        (handover.before.committed, handover.after.committed),
    ):
        assert before.keys() == after.keys()
        for partition, records in before.items():
            served = after[partition]
            if partition[0] == COMPACTED:
                # Either broker may have cleaned on.
                assert newest(served) == newest(records)
                assert set(map(repr, served)) <= set(map(repr, records))
            elif is_internal(partition) or (handover.was_killed and partition[0] == SEQUENCE):
                assert served[: len(records)] == records, partition
            else:
                assert served == records, partition


def test_log_start_and_end_offsets_are_unchanged(handover: Handover) -> None:
    for partition, bounds in handover.before.bounds.items():
        served = handover.after.bounds[partition]
        if is_internal(partition) or (handover.was_killed and partition[0] == SEQUENCE):
            assert served[0] == bounds[0]
            assert served[1] >= bounds[1]
        else:
            assert served == bounds, partition
    assert handover.after.bounds[TRIMMED, 0][0] > 0
    assert handover.after.bounds[SHORTENED, 0][0] > 0


def test_start_logs_no_warning(handover: Handover) -> None:
    assert [line for line in handover.log_lines if COMPLAINTS.search(line) and not KNOCKING.search(line)] == []


def test_only_logs_of_a_killed_broker_are_scanned(handover: Handover) -> None:
    text = "\n".join(handover.log_lines)
    if handover.is_to_kafka:
        assert ("since no clean shutdown file was found" in text) == handover.was_killed
        assert ("since clean shutdown file was found" in text) != handover.was_killed
    else:
        assert ("was not closed cleanly" in text) == handover.was_killed


def test_committed_offsets_are_unchanged(handover: Handover) -> None:
    assert handover.after.group_offsets == handover.before.group_offsets
    assert all(offset > 0 for offsets in handover.after.group_offsets.values() for _, _, offset in offsets)


def test_lookups_by_time_return_the_same_offsets(handover: Handover) -> None:
    assert handover.after.found_by_time == handover.before.found_by_time
    assert len({offset for topic, _, offset in handover.after.found_by_time if topic == CODED}) > 5


def test_leader_epochs_are_those_of_the_batches(story: Story) -> None:
    for partition in story.house.partitions():
        starts = read_leader_epochs(OsFiles(), str(partition / LEADER_EPOCH_CHECKPOINT))
        assert starts == sorted(set(starts))
        if partition.name.startswith(OLD_FORMATS):
            continue
        for header in headers_in(partition):
            # What lies below the start of the log has lost its epoch.
            known = [epoch for epoch, start in starts if start <= header.base_offset]
            assert known[-1:] in ([], [header.partition_leader_epoch]), partition.name


def test_a_group_resumes_at_its_committed_offset(story: Story) -> None:
    expected, found = zip(*story.house.resumed, strict=True)
    assert found == expected


def test_an_idempotent_producer_survives_every_handover(story: Story) -> None:
    """Each record once, in order, at the offset it was acknowledged with, and all under one id, epoch and sequence."""
    *_, last = story.handovers.values()
    records = last.after.uncommitted[SEQUENCE, 0]
    assert [record.value for record in records] == story.house.written[: len(records)]
    assert all(story.house.acknowledged[record.value or b""] == record.offset for record in records)
    assert len(story.house.acknowledged) == len(story.house.written)
    headers = story.house.headers(SEQUENCE)
    assert len({(header.producer_id, header.producer_epoch) for header in headers}) == 1
    assert [header.base_sequence for header in headers] == [header.base_offset for header in headers]


@pytest.mark.parametrize("topic", [TRANSACTIONS, OPEN])
def test_a_transactional_id_keeps_its_producer_and_raises_its_epoch(story: Story, topic: str) -> None:
    producers = list(
        dict.fromkeys(
            (header.producer_id, header.producer_epoch)
            for header in story.house.headers(topic)
            if header.is_transactional and not header.is_control
        )
    )
    assert len({producer_id for producer_id, _ in producers}) == 1
    epochs = [epoch for _, epoch in producers]
    assert epochs == sorted(set(epochs))
    assert len(epochs) >= story.house.round


def test_messages_of_old_formats_are_unchanged(story: Story) -> None:
    for topic in OLD_FORMATS:
        expected = [
            record[:1] + record[2:4]
            for log in golden_logs()
            if log.name.startswith(f"{topic}-0/")
            for batch in log.batches
            for record in expected_records(batch)
        ]
        for handover in story.handovers.values():
            served = handover.after.uncommitted[topic, 0]
            assert [(record.offset, record.key, record.value) for record in served] == expected


@pytest.mark.parametrize("folder", ["milena-only", "data"])
def test_kafkas_dump_tool_accepts_every_file(story: Story, run_kafka_tool: RunKafkaTool, folder: str) -> None:
    """`milena-only` is what one Milena wrote; `data` what both have written by turns, after the last clean stop."""
    by_kind: dict[str, list[Path]] = {"user": [], "__consumer_offsets": [], "__transaction_state": []}
    for path in sorted((story.house.folder / folder).glob("*/*")):
        if path.suffix in SEGMENT_SUFFIXES:
            topic = path.parent.name.rpartition("-")[0]
            by_kind[topic if topic in by_kind else "user"].append(path)
    assert {path.suffix for path in by_kind["user"]} == SEGMENT_SUFFIXES
    every = [path for paths in by_kind.values() for path in paths]
    indexes = [path for path in every if path.suffix in INDEX_SUFFIXES]
    runs = {
        "--print-data-log --deep-iteration": by_kind["user"],
        "--index-sanity-check": indexes,
        "--verify-index-only": indexes,
        "--offsets-decoder": by_kind["__consumer_offsets"],
        "--transaction-log-decoder": by_kind["__transaction_state"],
    }
    printed = {}
    for options, files in runs.items():
        names = ",".join(map(str, files))
        lines = run_kafka_tool("kafka.tools.DumpLogSegments", *options.split(), "--files", names)
        assert [line for line in lines if MISMATCHES.search(line)] == []
        printed[options] = "\n".join(lines)
    assert len(re.findall("passed sanity check|is empty", printed["--index-sanity-check"])) == len(indexes)
    deep = printed["--print-data-log --deep-iteration"]
    assert set(re.findall(r"compresscodec: (\w+)", deep)) == {"none", "gzip", "snappy", "lz4", "zstd"}
    assert {"COMMIT", "ABORT"} <= set(re.findall(r"endTxnMarker: (\w+)", deep))
    assert f'"group":"{GROUP}"' in printed["--offsets-decoder"]
    for transactional_id in (TRANSACTIONAL_ID, OPEN_TRANSACTIONAL_ID):
        assert re.search(rf"key: \S*={transactional_id} payload: producerId:", printed["--transaction-log-decoder"])


@pytest.mark.soak
def test_many_handovers_lose_no_record(tmp_path: Path, run_kafka_tool: RunKafkaTool) -> None:
    story = story_of(tmp_path, cycles=4)
    for handover in story.handovers.values():
        test_every_record_is_served(handover)
        test_log_start_and_end_offsets_are_unchanged(handover)
        test_start_logs_no_warning(handover)
        test_only_logs_of_a_killed_broker_are_scanned(handover)
        test_committed_offsets_are_unchanged(handover)
        test_lookups_by_time_return_the_same_offsets(handover)
    test_a_group_resumes_at_its_committed_offset(story)
    test_an_idempotent_producer_survives_every_handover(story)
    test_leader_epochs_are_those_of_the_batches(story)
    for topic in (TRANSACTIONS, OPEN):
        test_a_transactional_id_keeps_its_producer_and_raises_its_epoch(story, topic)
    test_messages_of_old_formats_are_unchanged(story)
    for folder in ("milena-only", "data"):
        test_kafkas_dump_tool_accepts_every_file(story, run_kafka_tool, folder)
