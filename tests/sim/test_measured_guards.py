"""The second reader of logs, and the count of seeds until one catches the absence of a guard."""

from __future__ import annotations

from protocol.records.builder import RecordData, build_batch
from protocol.records.control import ControlType, TransactionMarker, build_marker
from storage.producers.producer_snapshots import encode
from storage.producers.producer_state import ProducerEntry
from tests.sim.guards import all_guards, line_of, seeds_until_caught
from tests.sim.plain_log import PlainAborted, batches_of, snapshot_entries, state_of


def data(offset: int, *, sequence: int, is_transactional: bool = False) -> bytes:
    records = [RecordData(timestamp=1, key=None, value=b"v")]
    batch = bytearray(
        build_batch(records, producer_id=7, producer_epoch=1, base_sequence=sequence, is_transactional=is_transactional)
    )
    batch[:8] = offset.to_bytes(8)
    return bytes(batch)


def test_plain_log_derives_producers_and_aborted_transactions() -> None:
    marker = bytearray(build_marker(TransactionMarker(ControlType.ABORT, 3), producer_id=7, producer_epoch=1, now_ms=1))
    marker[:8] = (2).to_bytes(8)
    content = data(0, sequence=0) + data(1, sequence=1, is_transactional=True) + bytes(marker)
    plain = state_of(batches_of(content + data(3, sequence=2)[:-1]))
    assert plain.end == 3
    assert [batch.first_sequence for batch in plain.producers[7].batches] == [0, 1]
    assert plain.producers[7].coordinator_epoch == 3
    assert plain.aborted == [PlainAborted(7, 1, 2, 3)]
    assert plain.last_stable_offset(2) == 1
    assert plain.last_stable_offset(3) == 3


def test_damaged_snapshots_name_no_producer() -> None:
    content = encode([ProducerEntry(7, 1)])
    assert [entry.producer_id for entry in snapshot_entries(content)] == [7]
    assert snapshot_entries(content[:-1] + b"\1") == ()


def test_median_counts_the_seeds_until_the_next_catch() -> None:
    assert list(seeds_until_caught([2, 5], 1, 6)) == [2, 1, 3, 2, 1]
    assert line_of("g", {2: "rule"}, 1, 4) == "| g | 2 | 1 of 4 | rule |"
    assert line_of("g", {}, 1, 4) == "| g | not caught by 4 | | |"


def test_guards_have_different_names() -> None:
    assert len(all_guards()) > 50
