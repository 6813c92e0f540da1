"""kafka-replica-verification: the comparison of replicas, and the tool with one broker."""

from __future__ import annotations

import re
import signal

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from protocol.records.batch import BatchHeader
from tests.support.broker import BrokerProcess
from tests.support.forked_programs import running_program
from tests.tools.conftest import RunTool
from tools.monitoring import replica_verification
from tools.monitoring.replica_verification import Comparison, Difference, Fetched

TIMEOUT_S = 30
PARTITION = ("t", 0)


def batch(base: int, count: int = 1, crc: int = 7) -> BatchHeader:
    return BatchHeader(base, 49, 0, 2, crc, 0, count - 1, 0, 0, -1, -1, -1, count)


def test_offset_moves_on_with_what_all_replicas_have() -> None:
    comparison = Comparison({PARTITION: 0})
    replicas = {1: Fetched(10, [batch(0, 5), batch(5, 5)]), 2: Fetched(10, [batch(0, 5)])}
    assert list(comparison.add(PARTITION, replicas)) == []
    assert comparison.offsets == {PARTITION: 5}
    assert comparison.report() == "max lag is 5 for partition t-0 at offset 5 among 1 partitions"


def test_records_above_the_high_watermark_are_not_compared() -> None:
    comparison = Comparison({PARTITION: 0})
    replicas = {1: Fetched(1, [batch(0), batch(1, crc=8)]), 2: Fetched(1, [batch(0), batch(1, crc=9)])}
    assert list(comparison.add(PARTITION, replicas)) == []
    assert comparison.offsets == {PARTITION: 1}


def test_different_checksums_are_reported() -> None:
    comparison = Comparison({PARTITION: 0})
    replicas = {2: Fetched(9, [batch(0), batch(1, crc=8)]), 1: Fetched(9, [batch(0), batch(1)])}
    assert list(comparison.add(PARTITION, replicas)) == [
        "partition t-0 has unmatched checksum at offset 1; replica 1's checksum 7; replica 2's checksum 8"
    ]


def test_different_offsets_end_the_comparison() -> None:
    comparison = Comparison({PARTITION: 5})
    replicas = {1: Fetched(9, [batch(5)]), 2: Fetched(9, [batch(5, 2)])}
    with pytest.raises(Difference) as raised:
        list(comparison.add(PARTITION, replicas))
    assert str(raised.value) == "partition t-0: replica 1's offset 5 doesn't match replica 2's offset 6"


def test_report_names_the_partition_with_the_largest_lag() -> None:
    comparison = Comparison({("t", 0): 3, ("t", 1): 4})
    assert comparison.report() == "max lag is -1 for partition null at offset -1 among 2 partitions"
    list(comparison.add(("t", 0), {1: Fetched(3, [])}))
    list(comparison.add(("t", 1), {1: Fetched(6, [])}))
    assert comparison.report() == "max lag is 2 for partition t-1 at offset 4 among 2 partitions"


def test_tool_reports_until_it_is_stopped(broker: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("verified", 1, 1)])["verified"].result()
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(500):
        producer.produce("verified", str(number).encode())
    assert producer.flush(TIMEOUT_S) == 0
    arguments = ["--broker-list", broker.bootstrap, "--topics-include", "verified", "--time", "-2"]
    arguments += ["--report-interval-ms", "10", "--max-wait-ms", "10", "--fetch-size", "1000"]
    with running_program("tools.monitoring.replica_verification", arguments) as (process, output):
        started = output.readline()
        assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}: verification process is started\n", started)
        while "max lag is 0 for partition verified-0 at offset 500 among 1 partitions" not in output.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        output.read()
        assert process.wait(TIMEOUT_S) == 0


def test_pattern_without_a_topic_is_reported(run: RunTool, broker: BrokerProcess) -> None:
    outcome = run(replica_verification.main, "--broker-list", broker.bootstrap, "--topic-white-list", "nope")
    assert outcome.status == 1
    assert outcome.stderr == "No topics found. --topics-include nope matches no topic.\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--time", "-1"), 'Missing required argument "[broker-list]"'),
        (("--broker-list", "h:1", "--fetch-size", "0"), "Expected a --fetch-size above 0"),
        (("--broker-list", "h:1", "--topics-include", "("), "( is an invalid regex"),
    ],
)
def test_invalid_command_lines_are_rejected(run: RunTool, arguments: tuple[str, ...], message: str) -> None:
    outcome = run(replica_verification.main, *arguments)
    assert (outcome.status, outcome.stdout) == (1, "")
    assert outcome.stderr.startswith(message)
