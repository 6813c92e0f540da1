"""Kafka's DumpLogSegments reads cleaned segments, markers and aborted transactions of the storage layer."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

import pytest

from protocol.records.builder import RecordData, build_batch
from protocol.records.compression import Compression
from protocol.records.control import ControlType
from storage.log.log import Log
from tests.interop.conftest import RunKafkaTool
from tests.storage.builders import NOW_MS, append, append_marker, marker
from tests.storage.cleaning.test_cleaner import Broker, commit_and_roll
from tests.support.apache_kafka import jars
from tests.support.parts import skip_when_unavailable

PRODUCERS = (5, 6)
# Cleaning leaves gaps in the offsets; any other finding would be damage.
COMPLAINTS = re.compile(r"mismatch|out of order|corrupt|isvalid: false|invalid|exception|not found", re.IGNORECASE)


@pytest.fixture(scope="module", autouse=True)
def _kafka() -> None:
    with skip_when_unavailable():
        jars()


def write(log: Log, random: Random, sequences: dict[int, int]) -> None:
    """Batches of all codecs, plain and transactional, tombstones among them; every transaction ends."""
    for number in range(60):
        producer_id = random.choice((-1, *PRODUCERS))
        count = random.randint(1, 5)
        records = [
            RecordData(
                NOW_MS + number, f"key-{random.randrange(40)}".encode(), None if random.random() < 0.1 else b"v" * 80
            )
            for _ in range(count)
        ]
        if producer_id < 0:
            built = build_batch(records, compression=random.choice(list(Compression)))
        else:
            sequence = sequences.get(producer_id, 0)
            sequences[producer_id] = sequence + count
            built = build_batch(
                records,
                compression=random.choice(list(Compression)),
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=sequence,
                is_transactional=True,
            )
        append(log, memoryview(bytearray(built)))
    for producer_id in PRODUCERS:
        append_marker(log, marker(random.choice(list(ControlType)), producer_id))


def test_files_of_a_cleaned_log_have_no_mismatch(tmp_path: Path, run_kafka_tool: RunKafkaTool) -> None:
    broker, random, sequences = Broker(tmp_path), Random(1), dict[int, int]()
    log = broker.log()
    for _ in range(3):
        write(log, random, sequences)
        commit_and_roll(log)
        assert broker.clean()
    write(log, random, sequences)
    log.close(NOW_MS)
    files = [str(path) for path in sorted(log.directory.iterdir()) if path.name[0] == "0"]
    lines = run_kafka_tool("kafka.tools.DumpLogSegments", "--deep-iteration", "--files", ",".join(files))
    assert not [line for line in lines if COMPLAINTS.search(line)]
    assert sum("isvalid: true" in line for line in lines) > 50
    assert any("endTxnMarker: ABORT" in line for line in lines)
    assert any("deleteHorizonMs: OptionalLong[" in line for line in lines)
