"""kafka-storage repair: damage is shown, and cut out only where a coordinator serves the same without it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

import pytest

from broker.groups.machine.consumer.records import (
    CurrentKey,
    CurrentValue,
    StoredPartitions,
    encode_key,
    encode_value,
)
from broker.groups.machine.records import OffsetAndMetadata, offset_key, offset_value
from broker.share.machine.records import ShareKey, ShareSnapshotValue, snapshot_key, snapshot_value
from broker.transactions.machine.records import write_key, write_value
from protocol.records.batch import batches
from protocol.records.builder import RecordData, build_batch
from protocol.records.control import ControlType, TransactionMarker, build_marker
from storage.disk.files import OsFiles
from tests.broker.transactions.test_loading import metadata
from tests.tools.conftest import RunTool
from tools.files import storage_tool

LOG = "00000000000000000000.log"


def commit(group: str, offset: int, producer_id: int = -1) -> bytes:
    value = offset_value(OffsetAndMetadata(offset=offset, metadata="", commit_timestamp_ms=0))
    return build_batch(
        [RecordData(0, offset_key(group, "t", 0), value)],
        producer_id=producer_id,
        is_transactional=producer_id >= 0,
    )


def marker(producer_id: int) -> bytes:
    return build_marker(TransactionMarker(ControlType.COMMIT, 0), producer_id=producer_id, producer_epoch=0, now_ms=0)


def state(transactional_id: str) -> bytes:
    return build_batch([RecordData(0, write_key(transactional_id), write_value(metadata(5)))])


def assignment(member_id: str, epoch: int, *partitions: int) -> bytes:
    """What a member of the group `g` of the consumer protocol has."""
    value = CurrentValue(
        member_epoch=epoch,
        previous_member_epoch=epoch - 1,
        state=0,
        assigned_partitions=[StoredPartitions(topic_id=UUID(int=7), partitions=list(partitions))],
        partitions_pending_revocation=[],
    )
    return build_batch([RecordData(0, encode_key(CurrentKey(group_id="g", member_id=member_id)), encode_value(value))])


def share_state(group: str, start_offset: int) -> bytes:
    value = ShareSnapshotValue(
        snapshot_epoch=start_offset,
        state_epoch=0,
        leader_epoch=0,
        start_offset=start_offset,
        create_timestamp=0,
        write_timestamp=0,
        state_batches=[],
    )
    return build_batch([RecordData(0, snapshot_key(ShareKey(group, UUID(int=7), 0)), snapshot_value(value))])


class Folders:
    def __init__(self, folder: Path) -> None:
        self.data, self.keep = folder / "data", folder / "keep"
        self.config = folder / "server.properties"
        self.config.write_text(f"broker.id=0\nlog.dirs={self.data}\n")

    def write(self, partition: str, all_batches: Sequence[bytes], *, damaged: int) -> Path:
        """Write a segment with indexes, and flip a byte in the value of a batch."""
        folder = self.data / partition
        folder.mkdir(parents=True)
        content = bytearray()
        for offset, batch in enumerate(all_batches):
            patched = bytearray(batch)
            patched[:8] = offset.to_bytes(8, "big")
            if offset == damaged:
                patched[-6] ^= 0x20
            content += patched
        (folder / LOG).write_bytes(content)
        for suffix in (".index", ".timeindex"):
            (folder / LOG).with_suffix(suffix).write_bytes(b"")
        return folder / LOG


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    return Folders(tmp_path)


def offsets(log: Path) -> list[int]:
    return [header.base_offset for _, header in batches(log.read_bytes())]


def test_damage_is_shown_and_nothing_changed_without_a_folder(run: RunTool, folders: Folders) -> None:
    log = folders.write("__consumer_offsets-0", [commit("a", 1), commit("b", 2), commit("a", 3)], damaged=0)
    before = log.read_bytes()
    shown = run(storage_tool.main, "repair", "--config", str(folders.config))
    assert (shown.status, shown.stdout) == (1, f"{log} position 0 offset 0: the CRC is wrong\n")
    assert log.read_bytes() == before


@pytest.mark.parametrize(
    ("partition", "records"),
    [
        ("__consumer_offsets-0", [commit("a", 1), commit("b", 2), commit("b", 3), commit("a", 4)]),
        ("__consumer_offsets-0", [commit("a", 1), commit("b", 2), commit("a", 3)]),
        ("__transaction_state-7", [state("a"), state("b"), state("a"), state("b")]),
    ],
    ids=["later commits", "an older commit is served in any case", "later states"],
)
def test_damage_without_effect_is_cut_out_and_kept(
    run: RunTool, folders: Folders, partition: str, records: list[bytes]
) -> None:
    log = folders.write(partition, records, damaged=1)
    content = log.read_bytes()
    (begin, end) = [position for position, _ in batches(content)][1:3]
    done = run(storage_tool.main, "repair", "-c", str(folders.config), "--keep", str(folders.keep))
    assert (done.status, done.stderr) == (0, "")
    assert f"{log.parent}: cut out the damage in 1 places" in done.stdout
    assert offsets(log) == [offset for offset in range(len(records)) if offset != 1]
    assert (folders.keep / f"{partition}-{LOG}-{begin}").read_bytes() == content[begin:end]
    assert sorted(path.name for path in log.parent.iterdir()) == [LOG]
    again = run(storage_tool.main, "repair", "-c", str(folders.config))
    assert (again.status, again.stdout) == (0, "")


def test_lost_commit_is_named(run: RunTool, folders: Folders) -> None:
    folders.write("__consumer_offsets-0", [commit("a", 1), commit("a", 2), commit("b", 3)], damaged=1)
    done = run(storage_tool.main, "repair", "-c", str(folders.config), "-k", str(folders.keep))
    assert done.status == 0
    assert "the last commit of group a for t-0 is lost, offset 1 of an older commit is served" in done.stdout


def test_a_commit_that_another_replica_may_have_is_not_given_up(run: RunTool, folders: Folders) -> None:
    """The coordinator reads it from an in-sync follower, as long as its own copy is damaged."""
    with folders.config.open("a") as file:
        file.write("zookeeper.connect=127.0.0.1:1\n")
    log = folders.write("__consumer_offsets-0", [commit("a", 1), commit("a", 2), commit("b", 3)], damaged=1)
    before = log.read_bytes()
    arguments = ("repair", "-c", str(folders.config), "-k", str(folders.keep))
    refused = run(storage_tool.main, *arguments)
    assert refused.status == 1
    assert "another replica may still have what is lost in this copy: the last commit of group a" in refused.stderr
    assert log.read_bytes() == before
    assert run(storage_tool.main, *arguments, "--only-copy").status == 0
    assert offsets(log) == [0, 2]


def test_the_state_of_a_share_group_is_named(run: RunTool, folders: Folders) -> None:
    folders.write("__share_group_state-0", [share_state("g", 5), share_state("g", 6), share_state("h", 1)], damaged=1)
    done = run(storage_tool.main, "repair", "-c", str(folders.config), "-k", str(folders.keep))
    assert (done.status, done.stderr) == (0, "")
    assert "the last state of share group g in partition 0 of topic" in done.stdout


@pytest.mark.parametrize(
    ("partition", "records", "damaged"),
    [
        ("__transaction_state-7", [state("a"), state("a"), state("other")], 1),
        ("__consumer_offsets-0", [assignment("m1", 1, 0, 1), assignment("m1", 2, 0), assignment("m2", 2, 1)], 1),
        ("__consumer_offsets-0", [commit("a", 1, 7), marker(7), commit("b", 2, 7), marker(7), commit("c", 3)], 1),
        ("__consumer_offsets-0", [commit("a", 1), commit("a", 2)], 1),
    ],
    ids=["the state of an id", "a member of the consumer protocol", "a marker", "the last batch"],
)
def test_damage_whose_removal_would_change_what_is_served_stays(
    run: RunTool, folders: Folders, partition: str, records: list[bytes], damaged: int
) -> None:
    log = folders.write(partition, records, damaged=damaged)
    before = log.read_bytes()
    refused = run(storage_tool.main, "repair", "-c", str(folders.config), "-k", str(folders.keep))
    assert refused.status == 1
    assert partition in refused.stderr
    assert log.read_bytes() == before
    assert not folders.keep.exists()


def test_directory_of_a_running_broker_is_not_repaired(run: RunTool, folders: Folders) -> None:
    log = folders.write("__consumer_offsets-0", [commit("a", 1), commit("a", 2)], damaged=0)
    before = log.read_bytes()
    locked = OsFiles().lock(str(folders.data / ".lock"))
    assert locked is not None
    refused = run(storage_tool.main, "repair", "-c", str(folders.config), "-k", str(folders.keep))
    assert (refused.status, refused.stderr) == (1, f"{folders.data} is in use: stop the broker\n")
    assert log.read_bytes() == before
    locked.close()
