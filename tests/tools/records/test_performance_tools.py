"""The performance tools: their figures, their lines against a broker, and bad command lines."""

import re
import uuid
from pathlib import Path

import pytest

from tests.support.broker import BrokerProcess
from tests.tools.conftest import RunTool
from tools.records import consumer_performance, e2e_latency, producer_performance
from tools.records.consumer_performance import Consumed, figures
from tools.records.performance import MIB, Latencies, metrics_table, percentiles

CPU = r"This client used \d+\.\d\d of a core \(\d+\.\d s of CPU time in \d+\.\d s\)\.\n"
TOTAL = (
    r"{count} records sent, \d+\.\d{{6}} records/sec \(\d+\.\d\d MB/sec\), \d+\.\d\d ms avg latency, "
    r"\d+\.\d\d ms max latency, \d+ ms 50th, \d+ ms 95th, \d+ ms 99th, \d+ ms 99\.9th\.\n"
)
DATE = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{3}"
HEADER = (
    "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, "
    "fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec\n"
)


@pytest.fixture
def address(broker: BrokerProcess) -> str:
    return f"127.0.0.1:{broker.port}"


@pytest.fixture
def topic() -> str:
    return f"perf-{uuid.uuid4()}"


def test_figures_of_windows_and_of_the_run() -> None:
    latencies = Latencies(1000, started_s=100.0)
    latencies.add([1, 2, 3], 3 * MIB)
    latencies.add([], 0)
    assert latencies.window_seconds(102.0) == 2.0
    assert latencies.window_line(102.0) == (
        "3 records sent, 1.5 records/sec (1.50 MB/sec), 2.0 ms avg latency, 3.0 ms max latency."
    )
    latencies.add([10], MIB)
    assert latencies.window_line(104.0) == (
        "1 records sent, 0.5 records/sec (0.50 MB/sec), 10.0 ms avg latency, 10.0 ms max latency."
    )
    assert latencies.total_line(104.0) == (
        "4 records sent, 1.000000 records/sec (1.00 MB/sec), 4.00 ms avg latency, 10.00 ms max latency, "
        "3 ms 50th, 10 ms 95th, 10 ms 99th, 10 ms 99.9th."
    )


def test_a_long_run_keeps_a_sample_of_its_latencies() -> None:
    latencies = Latencies(3_000_000, started_s=0.0)
    for first in range(0, 3_000_000, 1000):
        latencies.add(list(range(first, first + 1000)), 1)
    assert len(latencies._sample_ms) == 500_000
    assert latencies.total_line(1.0).endswith("1500000 ms 50th, 2850000 ms 95th, 2970000 ms 99th, 2997000 ms 99.9th.")


def test_percentiles_are_those_of_kafka() -> None:
    assert percentiles(list(range(100, 0, -1)), 0.5, 0.99, 0.999) == [51, 100, 100]
    assert percentiles([], 0.5) == [0]


def test_figures_of_a_consumer_count_rebalances_apart() -> None:
    consumed = Consumed(10.0)
    consumed.joined(10.5)
    consumed.joined(11.0)  # an assignment without a revocation before it
    consumed.left(20.0)
    consumed.joined(20.25)
    assert consumed.rebalance_s == 0.75
    assert figures(2 * MIB, 1000, 2.0, 0.75) == "2.0000, 1.0000, 1000, 500.0000, 750, 1250, 1.6000, 800.0000"
    assert figures(0, 0, 0.0, 0.0) == "0.0000, 0.0000, 0, 0.0000, 0, 1, 0.0000, 0.0000"


def test_metrics_are_numbers_by_name() -> None:
    table = metrics_table({"tx": 3, "name": "x", "topics": {"t": {"batchsize": {"avg": 1.5}}}}, "producer", "me")
    assert table.splitlines()[1:] == [
        "Metric Name                                              Value",
        "producer-metrics:topics-t-batchsize-avg:{client-id=me} : 1.500",
        "producer-metrics:tx:{client-id=me}                     : 3.000",
    ]


def test_records_are_produced_and_consumed(run: RunTool, address: str, topic: str) -> None:
    arguments = ["--topic", topic, "--num-records", "3000", "--record-size", "100", "--throughput", "-1"]
    produced = run(producer_performance.main, *arguments, "--producer-props", f"bootstrap.servers={address}", "acks=1")
    assert produced.status == 0
    assert re.fullmatch(TOTAL.format(count=3000), produced.stdout)
    assert re.search(CPU, produced.stderr)
    where = ["--bootstrap-server", address, "--topic", topic]
    consumed = run(consumer_performance.main, *where, "--messages", "3000")
    assert consumed.status == 0
    assert consumed.stdout.startswith(HEADER)
    number = r"\d+\.\d{4}"
    assert re.fullmatch(
        rf"{DATE}, {DATE}, 0\.2861, {number}, 3000, {number}, \d+, -?\d+, {number}, {number}\n",
        consumed.stdout.removeprefix(HEADER),
    )
    few = run(
        consumer_performance.main, *where, "--messages", "4000", "--timeout", "2000", "--hide-header",
        "--show-detailed-stats", "--reporting-interval", "100",
    )  # fmt: skip
    assert few.status == 0
    assert "Exiting before consuming the expected number of messages: timeout (2000 ms) exceeded." in few.stdout
    # The first interval ends with the first records, and has the time of the rebalance.
    assert re.match(rf"{DATE}, 0, {number}, {number}, [1-9]\d*, {number}, \d+, \d+, ", few.stdout)


def test_transactions_payload_files_and_metrics(run: RunTool, address: str, topic: str, tmp_path: Path) -> None:
    payload = tmp_path / "rows.txt"
    payload.write_text("one;two;three")
    settings = tmp_path / "producer.properties"
    settings.write_text(f"bootstrap.servers={address}\n")
    outcome = run(
        producer_performance.main, "--topic", topic, "--num-records", "30", "--payload-file", str(payload),
        "--payload-delimiter", ";", "--throughput", "100", "--producer.config", str(settings), "--print-metrics",
        "--transaction-duration-ms", "50", "--transactional-id", topic,
    )  # fmt: skip
    assert outcome.status == 0, outcome.stderr
    assert outcome.stdout.startswith(f"Reading payloads from: {payload}\nNumber of messages read: 3\n")
    assert re.search(TOTAL.format(count=30), outcome.stdout)
    assert re.search(r"producer-metrics:txmsgs:\{client-id=perf-producer-client\} +: 30\.000", outcome.stdout)
    consumed = run(
        consumer_performance.main, "--bootstrap-server", address, "--topic", topic, "--messages", "30", "--hide-header"
    )
    assert ", 30, " in consumed.stdout


def test_failed_records_are_reported(run: RunTool, address: str, topic: str) -> None:
    outcome = run(
        producer_performance.main, "--topic", topic, "--num-records", "2", "--record-size", "1100000", "--throughput",
        "-1", "--producer-props", f"bootstrap.servers={address}", "max.request.size=9000000",
    )  # fmt: skip
    assert outcome.status == 1
    assert "2 records were not acknowledged: Broker: Message size too large" in outcome.stderr


def test_latency_from_end_to_end(run: RunTool, address: str, topic: str) -> None:
    outcome = run(e2e_latency.main, address, topic, "5", "all", "20")
    assert outcome.status == 0, outcome.stderr
    assert re.fullmatch(
        rf'Topic "{topic}" does not exist\. Will create topic with 1 partition\(s\) and replication factor = 1\n'
        r"0\t\d+\.\d+\nAvg latency: \d+\.\d{4} ms\nPercentiles: 50th = \d+, 99th = \d+, 99\.9th = \d+\n",
        outcome.stdout,
    )
    assert re.search(CPU, outcome.stderr)


PRODUCE = ["--topic", "t", "--num-records", "1", "--throughput", "-1"]
BAD: list[tuple[object, list[str], str]] = [
    (producer_performance, PRODUCE, "Exactly one of --record-size, --payload-file and --payload-monotonic"),
    (producer_performance, [*PRODUCE, "--record-size", "1"], "Either --producer-props or --producer.config must be"),
    (producer_performance, [*PRODUCE, "--record-size", "-1"], "--record-size should not be negative, found -1"),
    (producer_performance, [*PRODUCE, "--payload-file", "/nowhere"], "Cannot read /nowhere: No such file"),
    (producer_performance, [*PRODUCE, "--record-size", "x"], "Cannot parse argument 'x' of option record-size"),
    (producer_performance, [*PRODUCE[:4], "--throughput", "0", "--record-size", "1"], "--throughput should be greater"),
    (consumer_performance, ["--bootstrap-server", "a:1", "--topic", "t"], 'Missing required argument "[messages]"'),
    (
        consumer_performance,
        ["--bootstrap-server", "a:1", "--topic", "t", "--messages", "0"],
        "--messages should be greater than 0, found 0",
    ),
    (e2e_latency, ["a:1", "t", "1", "0", "1"], "Latency testing requires synchronous acknowledgement. Please use 1 or"),
    (e2e_latency, ["a:1", "t", "x", "1", "1"], "num_messages is x, expected a number greater than 0"),
    (e2e_latency, ["a:1"], "USAGE: kafka-e2e-latency broker_list topic"),
    (e2e_latency, ["127.0.0.1", "t", "1", "1", "1"], "Invalid url in bootstrap.servers: '127.0.0.1'"),
]


@pytest.mark.parametrize(("tool", "arguments", "error"), BAD)
def test_bad_command_lines_name_what_is_wrong(run: RunTool, tool: object, arguments: list[str], error: str) -> None:
    outcome = run(tool.main, *arguments)  # type: ignore[attr-defined]
    assert outcome.status == 1
    assert outcome.stderr.startswith(error)
    assert not outcome.stdout
