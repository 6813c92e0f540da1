"""The worked examples of the format pages are what the code writes."""

import re
from pathlib import Path

from protocol.records.batch import Record
from protocol.records.builder import RecordData, build_batch
from protocol.records.legacy import build_message_set

FORMATS = Path(__file__).resolve().parents[3] / "docs" / "formats"


def example(page: str) -> bytes:
    """The bytes of the page's first code block: in each line what stands before a gap of three spaces or more."""
    (block,) = re.findall(r"^```\n(.*?)^```", (FORMATS / page).read_text(), re.DOTALL | re.MULTILINE)
    return bytes.fromhex("".join(re.split(r" {3,}", line.strip())[0] for line in block.splitlines()))


def test_documented_record_batch_is_read_and_written() -> None:
    rows = [RecordData(1_700_000_000_000, b"k", b"java", [("h", None)]), RecordData(1_700_000_000_070, None, None)]
    assert example("record-batch.md") == build_batch(rows, base_offset=1, leader_epoch=18)


def test_documented_message_set_is_read_and_written() -> None:
    assert example("message-set.md") == build_message_set([Record(7, 1_700_000_000_000, b"k", b"v", [])], magic=1)
