"""Kafka's DumpLogSegments reads a broker's files: every batch is valid, every index entry points at its record."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interop.conftest import RunKafkaTool
from tests.interop.dumped import CODECS, GROUP, RECORDS_PER_CODEC, TOPIC, values

COMPLAINTS = re.compile(
    r"mismatch|out of order|non-consecutive|corrupt|isvalid: false|invalid|exception|not found", re.IGNORECASE
)
RECORD = re.compile(r"^\| offset: (\d+) .*?keySize: (-?\d+) .*?key: (.*) payload: (.*)$")


Dump = Callable[..., list[str]]


@pytest.fixture
def dump(run_kafka_tool: RunKafkaTool) -> Dump:
    """Print the files of a partition: `dump(its folder, option, ...)`."""

    def lines(folder: Path, *arguments: str) -> list[str]:
        files = sorted(
            str(path)
            for path in folder.iterdir()
            if path.suffix in {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}
        )
        return run_kafka_tool("kafka.tools.DumpLogSegments", "--files", ",".join(files), *arguments)

    return lines


def test_segments_and_indexes_have_no_mismatch(dumped_folder: Path, dump: Dump) -> None:
    folder = dumped_folder / f"{TOPIC}-0"
    lines = dump(folder, "--deep-iteration", "--print-data-log")
    assert not [line for line in lines if COMPLAINTS.search(line)]
    records = [match for line in lines if (match := RECORD.match(line))]
    assert [int(record[1]) for record in records] == list(range(RECORDS_PER_CODEC * len(CODECS)))
    assert [(record[3].rpartition(" ")[2], record[4]) for record in records] == values()
    assert len(list(folder.glob("*.log"))) > 3
    assert sum(line.startswith("offset: ") for line in lines) > 50, "entries of the offset indexes"
    assert sum(line.startswith("timestamp: ") for line in lines) > 50, "entries of the time indexes"


def test_the_offsets_topic_can_be_decoded(dumped_folder: Path, dump: Dump) -> None:
    lines = dump(dumped_folder / "__consumer_offsets-0", "--offsets-decoder")
    assert not [line for line in lines if COMPLAINTS.search(line)]
    text = "\n".join(lines)
    assert f'"group":"{GROUP}"' in text
    assert f'"topic":"{TOPIC}"' in text
