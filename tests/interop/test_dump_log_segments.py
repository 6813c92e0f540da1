"""Kafka's DumpLogSegments reads a broker's files: every batch is valid, every index entry points at its record."""

from __future__ import annotations

import re
from pathlib import Path

from confluent_kafka import Consumer, Producer

from tests.interop.conftest import Server, StartServer, create_topic, output_lines
from tests.support.apache_kafka import tool_command

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
# With these the records below roll several segments and put many entries into every index.
TOPIC_CONFIGS = {"segment.bytes": "16384", "index.interval.bytes": "1024", "retention.ms": "-1"}
RECORDS_PER_CODEC = 300
TOPIC = "dumped"
GROUP = "dumpers"
TIMEOUT_S = 30
FIRST_TIMESTAMP = 1_700_000_000_000
COMPLAINTS = re.compile(
    r"mismatch|out of order|non-consecutive|corrupt|isvalid: false|invalid|exception|not found", re.IGNORECASE
)
RECORD = re.compile(r"^\| offset: (\d+) .*?keySize: (-?\d+) .*?key: (.*) payload: (.*)$")


def values() -> list[tuple[str, str]]:
    """Codec and value of every record, in the order of their offsets. Digits compress little, so that segments roll."""
    return [
        (codec, f"{codec}-{index}-" + "".join(str((index * 7919 + step * 104729) % 9973) for step in range(20)))
        for codec in CODECS
        for index in range(RECORDS_PER_CODEC)
    ]


def produce(bootstrap: str) -> None:
    """Small batches, a millisecond from record to record."""
    producers = {codec: producer(bootstrap, codec) for codec in CODECS}
    for offset, (codec, value) in enumerate(values()):
        producers[codec].produce(TOPIC, value.encode(), key=codec.encode(), timestamp=FIRST_TIMESTAMP + offset)
        if (offset + 1) % RECORDS_PER_CODEC == 0:
            assert producers[codec].flush(TIMEOUT_S) == 0


def producer(bootstrap: str, codec: str) -> Producer:
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "compression.codec": codec,
            "batch.num.messages": 10,
        }
    )


def commit_in_a_group(bootstrap: str) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP, "auto.offset.reset": "earliest"})
    consumer.subscribe([TOPIC])
    messages = consumer.consume(1, TIMEOUT_S)
    assert len(messages) == 1
    consumer.commit(asynchronous=False)
    consumer.close()


def dump(folder: Path, *arguments: str) -> list[str]:
    files = sorted(
        str(path)
        for path in folder.iterdir()
        if path.suffix in {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}
    )
    return output_lines(tool_command("kafka.tools.DumpLogSegments", "--files", ",".join(files), *arguments))


def filled_and_stopped(start_server: StartServer, **overrides: str) -> Path:
    """The data folder of a server after its clean shutdown."""
    with start_server({"offsets.topic.num.partitions": "1", **overrides}) as server:
        create_topic(server.bootstrap, TOPIC, configs=TOPIC_CONFIGS)
        produce(server.bootstrap)
        commit_in_a_group(server.bootstrap)
        return stopped(server)


def stopped(server: Server) -> Path:
    server.stop()
    return server.log_dir


def test_segments_and_indexes_have_no_mismatch(start_server: StartServer) -> None:
    folder = filled_and_stopped(start_server) / f"{TOPIC}-0"
    lines = dump(folder, "--deep-iteration", "--print-data-log")
    assert not [line for line in lines if COMPLAINTS.search(line)]
    records = [match for line in lines if (match := RECORD.match(line))]
    assert [int(record[1]) for record in records] == list(range(RECORDS_PER_CODEC * len(CODECS)))
    assert [(record[3].rpartition(" ")[2], record[4]) for record in records] == values()
    assert len(list(folder.glob("*.log"))) > 3
    assert sum(line.startswith("offset: ") for line in lines) > 50, "entries of the offset indexes"
    assert sum(line.startswith("timestamp: ") for line in lines) > 50, "entries of the time indexes"


def test_the_offsets_topic_can_be_decoded(start_server: StartServer) -> None:
    folder = filled_and_stopped(start_server) / "__consumer_offsets-0"
    lines = dump(folder, "--offsets-decoder")
    assert not [line for line in lines if COMPLAINTS.search(line)]
    text = "\n".join(lines)
    assert f'"group":"{GROUP}"' in text
    assert f'"topic":"{TOPIC}"' in text
