"""The worked examples of the format pages are what the code, and Kafka, writes."""

import re
from pathlib import Path

from protocol.ids import parse_id
from storage.disk import checkpoints, meta_properties
from storage.disk.checkpoints import EpochStart
from storage.disk.meta_properties import MetaProperties
from storage.disk.names import LOG, OFFSET_INDEX, PRODUCER_SNAPSHOT, TIME_INDEX, TRANSACTION_INDEX, segment_file
from tests.storage.builders import NOW_MS, QuickFiles, append
from tests.storage.compacted import Broker, commit_and_roll, keyed

ROOT = Path(__file__).resolve().parents[3]
FORMATS = ROOT / "docs" / "formats"
GOLDEN = ROOT / "tests" / "fixtures" / "logs" / "golden-0"
TWO_BATCHES = bytes.fromhex(
    "0000000000000000000000390000000a02abffe19300000000000000000174fd4eb4ee00000174fd4eb4eeffffffffffffffffffffffffffff"
    "000000010e000000010261000000000000000001000000480000001202c29deed10000000000010000017507bb36a30000017507bb394affff"
    "ffffffffffffffffffffffff000000021400000001086a617661001600ce0a0201086d616e6f00"
)


def blocks(page: str) -> list[str]:
    return re.findall(r"^```\n(.*?)^```", (FORMATS / page).read_text(), re.DOTALL | re.MULTILINE)


def content(block: str) -> bytes:
    """In each line what stands before a gap of three spaces or more."""
    return bytes.fromhex("".join(re.split(r" {3,}", line.strip())[0] for line in block.splitlines()))


def in_golden(base_offset: int, suffix: str, block: str) -> bool:
    return (GOLDEN / segment_file(base_offset, suffix)).read_bytes().startswith(content(block))


def test_documented_indexes_and_snapshot_equal_those_that_kafka_wrote() -> None:
    for page, base_offset, suffix in (
        ("offset-index.md", 0, OFFSET_INDEX),
        ("time-index.md", 0, TIME_INDEX),
        ("transaction-index.md", 40, TRANSACTION_INDEX),
        ("producer-snapshot.md", 37, PRODUCER_SNAPSHOT),
    ):
        (block,) = blocks(page)
        assert in_golden(base_offset, suffix, block), page


def test_documented_segment_is_what_storage_writes() -> None:
    page = (FORMATS / "segment.md").read_text()
    cells = re.findall(r"^\| (\d+) \| `([0-9a-f]+)` \|", page, re.MULTILINE)
    assert len(cells) == 8
    for position, text in cells:
        assert TWO_BATCHES[int(position) :].hex().startswith(text), position


def test_documented_files_of_a_log_directory_are_the_ones_written(tmp_path: Path) -> None:
    path, files = str(tmp_path / "file"), QuickFiles()
    _, meta, offsets, epochs, topic = blocks("log-directory.md")
    meta_properties.write(files, path, MetaProperties(1, "7ym0r3ycTc-XAnwnQmXzjg"))
    assert files.read_whole(path).decode() == meta
    checkpoints.write_offsets(files, path, {("orders", 0): 4711, ("orders", 1): 12})
    assert files.read_whole(path).decode() == offsets
    checkpoints.write_leader_epochs(files, path, [EpochStart(10, 0), EpochStart(18, 1)])
    assert files.read_whole(path).decode() == epochs
    topic_id = parse_id("krjTCcBgSvyOjmyBm_Pb-g")
    checkpoints.write_partition_metadata(files, path, topic_id)
    assert files.read_whole(path).decode() + "\n" == topic


def test_documented_compaction_is_what_the_cleaner_does(tmp_path: Path) -> None:
    written, stamped, expired = map(content, blocks("compaction.md"))
    broker = Broker(tmp_path)
    log = broker.log()
    path = log.directory / segment_file(0, LOG)
    append(log, keyed(("a", "1"), ("b", "1"), ("a", "2"), ("b", None)))
    commit_and_roll(log)
    assert path.read_bytes() == written
    assert broker.clean(NOW_MS + 1000)
    assert path.read_bytes() == stamped
    append(log, keyed(("c", "1")))
    commit_and_roll(log)
    assert broker.clean(NOW_MS + 1000 + log.config.delete_retention_ms)
    assert path.read_bytes()[: len(expired)] == expired
