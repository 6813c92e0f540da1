"""The console producer and consumer with a real broker."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.broker import BrokerProcess
from tests.support.processes import closed_port
from tests.tools.conftest import ROOT, RunTool, run_module
from tools.admin import topics
from tools.client.bootstrap import require_reachable
from tools.records import console_consumer, console_producer

CONSOLE_CONSUMER = (sys.executable, "-P", "-m", "tools.records.console_consumer")


def create(broker: BrokerProcess, topic: str, partitions: int = 1) -> None:
    topics.main(["--bootstrap-server", broker.bootstrap, "--create", "--topic", topic, "--partitions", str(partitions)])


def produce(broker: BrokerProcess, topic: str, text: bytes, *arguments: str) -> None:
    outcome = run_module(
        "records.console_producer", "--bootstrap-server", broker.bootstrap, "--topic", topic, *arguments, stdin=text
    )
    assert (outcome.status, outcome.stdout, outcome.stderr) == (0, "", "")


def consume(broker: BrokerProcess, topic: str, count: int, *arguments: str) -> str:
    outcome = run_module(
        "records.console_consumer",
        "--bootstrap-server",
        broker.bootstrap,
        "--topic",
        topic,
        "--max-messages",
        str(count),
        "--timeout-ms",
        "20000",
        *arguments,
    )
    assert outcome.status == 0
    assert outcome.stderr == f"Processed a total of {count} messages\n"
    return outcome.stdout


def test_produced_lines_are_consumed(broker: BrokerProcess) -> None:
    create(broker, "lines")
    produce(broker, "lines", b"one\ntwo\tparts\n\nlast without end")
    assert consume(broker, "lines", 4, "--from-beginning") == "one\ntwo\tparts\n\nlast without end\n"


def test_all_parts_of_a_record_are_printed(broker: BrokerProcess) -> None:
    create(broker, "parts")
    produce(
        broker,
        "parts",
        b"h:1,i:2\tk1\tv1\nNULL\tk2\tNULL\n",
        *("--property", "parse.key=true"),
        *("--property", "parse.headers=true"),
        *("--property", "null.marker=NULL"),
    )
    shown = [f"print.{part}=true" for part in ("timestamp", "partition", "offset", "headers", "key")]
    printed = consume(
        broker, "parts", 2, "--from-beginning", *(word for name in shown for word in ("--property", name))
    )
    assert re.sub(r"CreateTime:\d{13}", "CreateTime:T", printed) == (
        "CreateTime:T\tPartition:0\tOffset:0\th:1,i:2\tk1\tv1\n"
        "CreateTime:T\tPartition:0\tOffset:1\tNO_HEADERS\tk2\tnull\n"
    )


def test_keys_get_the_partitions_of_javas_producer(broker: BrokerProcess) -> None:
    create(broker, "keys", partitions=3)
    produce(broker, "keys", b"".join(b"k%d\tv\n" % number for number in range(8)), "--property", "parse.key=true")
    printed = consume(
        broker, "keys", 8, "--from-beginning", "--property", "print.key=true", "--property", "print.partition=true"
    )
    rows = (line.split("\t") for line in printed.splitlines())
    partitions = {key: int(partition.removeprefix("Partition:")) for partition, key, _ in rows}
    # murmur2 of the key, positive, modulo 3: computed with Java's Utils.murmur2.
    assert partitions == {"k0": 2, "k1": 2, "k2": 0, "k3": 1, "k4": 1, "k5": 0, "k6": 1, "k7": 1}


@pytest.mark.parametrize("codec", [[], ["gzip"], ["snappy"], ["lz4"], ["zstd"], ["none"]])
def test_every_compression_is_consumed(broker: BrokerProcess, codec: list[str]) -> None:
    topic = f"codec-{''.join(codec) or 'bare'}"
    create(broker, topic)
    produce(broker, topic, b"same same same\n" * 5, "--compression-codec", *codec)
    assert consume(broker, topic, 5, "--from-beginning") == "same same same\n" * 5


def test_one_partition_is_consumed_from_an_offset(broker: BrokerProcess) -> None:
    create(broker, "offsets")
    produce(broker, "offsets", b"0\n1\n2\n3\n", "--sync")
    assert consume(broker, "offsets", 2, "--partition", "0", "--offset", "2") == "2\n3\n"
    assert consume(broker, "offsets", 1, "--partition", "0", "--offset", "earliest") == "0\n"
    assert consume(broker, "offsets", 1, "--partition", "0", "--from-beginning") == "0\n"
    assert (
        consume(broker, "offsets", 1, "--partition", "0", "--offset", "1", "--isolation-level", "read_committed")
        == "1\n"
    )


def test_group_resumes_at_its_committed_offset(broker: BrokerProcess) -> None:
    create(broker, "resumed")
    produce(broker, "resumed", b"0\n1\n2\n3\n")
    assert consume(broker, "resumed", 2, "--group", "resuming", "--from-beginning") == "0\n1\n"
    assert consume(broker, "resumed", 2, "--group", "resuming", "--from-beginning") == "2\n3\n"


def test_group_resumes_at_the_first_record_that_was_not_printed(broker: BrokerProcess) -> None:
    create(broker, "unprinted")
    produce(broker, "unprinted", b"12345678\nxx\nabcdefgh\n")
    outcome = run_module(
        "records.console_consumer",
        *("--bootstrap-server", broker.bootstrap),
        *("--topic", "unprinted", "--group", "printing", "--from-beginning"),
        *("--value-deserializer", "org.apache.kafka.common.serialization.LongDeserializer"),
    )
    assert (outcome.status, outcome.stdout) == (1, f"{int.from_bytes(b'12345678', 'big')}\n")
    assert consume(broker, "unprinted", 2, "--group", "printing", "--from-beginning") == "xx\nabcdefgh\n"


def test_topics_are_selected_by_regular_expression(broker: BrokerProcess) -> None:
    for topic in ("many-1", "many-2"):
        create(broker, topic)
        produce(broker, topic, topic.encode())
    outcome = run_module(
        "records.console_consumer",
        *("--bootstrap-server", broker.bootstrap),
        *("--include", "many-.*"),
        "--from-beginning",
        *("--max-messages", "2"),
    )
    assert sorted(outcome.stdout.split()) == ["many-1", "many-2"]


def test_timeout_ends_with_status_0(broker: BrokerProcess) -> None:
    create(broker, "empty")
    outcome = run_module(
        "records.console_consumer", "--bootstrap-server", broker.bootstrap, "--topic", "empty", "--timeout-ms", "300"
    )
    assert (outcome.status, outcome.stdout) == (0, "")
    assert "ERROR Error processing message, terminating consumer process: " in outcome.stderr
    assert outcome.stderr.endswith("org.apache.kafka.common.errors.TimeoutException\nProcessed a total of 0 messages\n")


def test_unknown_topic_is_created_after_a_warning(broker: BrokerProcess, run: RunTool) -> None:
    outcome = run_module(
        "records.console_consumer",
        *("--bootstrap-server", broker.bootstrap),
        *("--topic", "brought-up"),
        *("--timeout-ms", "1000"),
    )
    assert outcome.status == 0
    assert "WARN Topic brought-up does not exist yet" in outcome.stderr
    assert "brought-up\n" in run(topics.main, "--bootstrap-server", broker.bootstrap, "--list").stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_stops_a_consumer_cleanly(broker: BrokerProcess, number: signal.Signals) -> None:
    topic = f"endless-{number.name}"
    create(broker, topic)
    produce(broker, topic, b"a line\n")
    process = subprocess.Popen(
        [*CONSOLE_CONSUMER, "--bootstrap-server", broker.bootstrap, "--topic", topic, "--from-beginning"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"a line\n"
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=30)
    assert (process.returncode, stdout, stderr) == (0, b"", b"Processed a total of 1 messages\n")


def test_closed_output_ends_a_consumer_without_a_traceback(broker: BrokerProcess) -> None:
    create(broker, "cut")
    produce(broker, "cut", b"x" * 1000 + b"\n" + b"a line\n" * 2000)
    process = subprocess.Popen(
        [*CONSOLE_CONSUMER, "--bootstrap-server", broker.bootstrap, "--topic", "cut", "--from-beginning"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdout is not None
    process.stdout.read(10)
    process.stdout.close()
    produce(broker, "cut", b"another line\n" * 2000)
    assert process.stderr is not None
    stderr = process.stderr.read()
    process.stderr.close()
    assert process.wait(30) == 0
    assert b"Traceback" not in stderr


def test_line_without_a_key_ends_the_producer(broker: BrokerProcess) -> None:
    create(broker, "keyless")
    outcome = run_module(
        "records.console_producer",
        *("--bootstrap-server", broker.bootstrap),
        *("--topic", "keyless"),
        *("--property", "parse.key=true"),
        stdin=b"k1\tv1\nno key\nk2\tv2\n",
    )
    assert outcome.status == 1
    assert "No key separator found on line number 2: 'no key'" in outcome.stderr
    assert consume(broker, "keyless", 1, "--from-beginning") == "v1\n"


@pytest.mark.parametrize("size", range(1, 9))
def test_a_line_ends_as_in_java_wherever_reads_end(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(console_producer, "CHUNK_SIZE", size)
    text = b"a\rb\r\nc\n\r\r\n\nd\r\r\n\x85e\x0b\x0cf"
    assert list(console_producer.split_lines(io.BytesIO(text))) == [
        *(b"a", b"b", b"c", b"", b"", b"", b"d", b""),
        b"\x85e\x0b\x0cf",
    ]
    assert list(console_producer.split_lines(io.BytesIO(b"a\r"))) == [b"a"]
    assert list(console_producer.split_lines(io.BytesIO())) == []


def test_a_line_is_read_when_it_ends() -> None:
    read_end, write_end = os.pipe()
    with open(read_end, "rb") as stream, open(write_end, "wb", buffering=0) as writer:
        lines = console_producer.split_lines(stream)
        for text in (b"one\n", b"two\r", b"\nthree\n"):
            writer.write(text)
            assert next(lines) == text.strip()


def test_failed_send_is_logged_and_the_producer_continues(broker: BrokerProcess) -> None:
    topics.main(
        ["--bootstrap-server", broker.bootstrap, "--create", "--topic", "small", "--config", "max.message.bytes=200"]
    )
    outcome = run_module(
        "records.console_producer",
        *("--bootstrap-server", broker.bootstrap),
        *("--topic", "small"),
        "--sync",
        stdin=b"before\n" + b"x" * 1000 + b"\nafter\n",
    )
    assert outcome.status == 0
    assert "ERROR Error when sending message to topic small: " in outcome.stderr
    assert sorted(consume(broker, "small", 2, "--from-beginning").split()) == ["after", "before"]


@pytest.mark.parametrize("tool", [console_producer, console_consumer])
def test_without_brokers_the_error_is_reported(run: RunTool, monkeypatch: pytest.MonkeyPatch, tool: ModuleType) -> None:
    monkeypatch.setattr(require_reachable, "__defaults__", (0.2,))
    with closed_port() as port:
        bootstrap = f"127.0.0.1:{port}"
        outcome = run(tool.main, "--bootstrap-server", bootstrap, "--topic", "t")
    assert outcome.status == 1
    error = f"No broker at {bootstrap}: Connection refused. Does it run at this address?"
    assert outcome.stderr.splitlines() == [error]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--bootstrap-server", "a:1"), 'Missing required argument "[topic]"'),
        (("--topic", "t"), 'Missing required argument "[bootstrap-server]"'),
        (("--topic", "t", "--bootstrap-server", "a:1", "--nosuch"), "nosuch is not a recognized option"),
        (
            ("--topic", "t", "--bootstrap-server", "a:1", "--compression-codec", "rar"),
            "Cannot parse argument 'rar' of option compression-codec",
        ),
        (("--topic", "t", "--bootstrap-server", "a:1", "--property", "x"), "Invalid command line properties"),
        (("--topic", "t", "--bootstrap-server", "a:1", "--line-reader", "NoReader"), "Unknown line reader NoReader"),
        (("--topic", "t", "--bootstrap-server", "a:1", "--producer.config", "/nowhere"), "Cannot read /nowhere"),
        (("--topic", "t", "--bootstrap-server", "a"), "Invalid url in bootstrap.servers: 'a'"),
    ],
)
def test_invalid_options_of_the_producer_are_usage_errors(run: RunTool, arguments: tuple[str, ...], text: str) -> None:
    outcome = run(console_producer.main, *arguments)
    assert (outcome.status, outcome.stdout) == (1, "")
    assert outcome.stderr.startswith(text)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((), "Exactly one of --include/--topic is required."),
        (("--topic", "t", "--include", "t"), "Exactly one of --include/--topic is required."),
        (("--include", "t", "--partition", "1"), "The topic is required when partition is specified."),
        (("--topic", "t", "--offset", "1"), "The partition is required when offset is specified."),
        (
            ("--topic", "t", "--partition", "1", "--offset", "1", "--from-beginning"),
            "Options from-beginning and offset cannot be specified together.",
        ),
        (("--topic", "t", "--partition", "1", "--offset", "-1"), "The provided offset value '-1' is incorrect."),
        (
            ("--topic", "t", "--partition", "0", "--group", "g"),
            "Options group and partition cannot be specified together.",
        ),
        (("--topic", "t", "--isolation-level", "none"), "Cannot parse argument 'none' of option isolation-level"),
        (
            ("--topic", "t", "--group", "a", "--consumer-property", "group.id=b"),
            "The group ids provided in different places do not match. Detected group ids: a, b",
        ),
        (
            ("--topic", "t", "--from-beginning", "--consumer-property", "auto.offset.reset=latest"),
            "Can't simultaneously specify --from-beginning and 'auto.offset.reset=latest'",
        ),
        (("--topic", "t", "--formatter", "NoFormatter"), "Unknown formatter NoFormatter"),
        (("--topic", "t", "--consumer-property", "fetch.min.bytes=lots"), "Invalid value"),
        (("--topic", "t", "--nosuch"), "nosuch is not a recognized option"),
    ],
)
def test_invalid_options_of_the_consumer_are_usage_errors(run: RunTool, arguments: tuple[str, ...], text: str) -> None:
    outcome = run(console_consumer.main, "--bootstrap-server", "127.0.0.1:1", *arguments)
    assert (outcome.status, outcome.stdout) == (1, "")
    assert text in outcome.stderr.splitlines()[0]


def test_settings_files_are_read(broker: BrokerProcess, tmp_path: Path) -> None:
    create(broker, "configured")
    producer = tmp_path / "producer.properties"
    producer.write_text("bootstrap.servers=ignored:1\ncompression.type=lz4\nacks=all\n")
    produce(
        broker,
        "configured",
        b"k|v\n",
        "--producer.config",
        str(producer),
        "--property",
        "parse.key=true",
        "--property",
        "key.separator=|",
    )
    consumer = tmp_path / "consumer.properties"
    consumer.write_text("group.id=configured-group\nauto.offset.reset=earliest\n")
    formatter = tmp_path / "formatter.properties"
    formatter.write_text("print.key=true\nkey.separator=|\n")
    arguments = ("--consumer.config", str(consumer), "--formatter-config", str(formatter))
    assert consume(broker, "configured", 1, *arguments) == "k|v\n"
