"""What is read from the disks of machines, whatever has happened to them."""

from __future__ import annotations

from protocol.records.builder import RecordData, build_batch
from tests.sim.cluster import FOLDER, FOLDERS
from tests.sim.disk import DiskFiles, SimulatedDisk
from tests.sim.history import History, Partition
from tests.sim.inspection import has_offset, moves_in

P = Partition("t", 0)


def test_records_behind_a_damaged_batch_do_not_count() -> None:
    disk = SimulatedDisk()
    disk.provide_directory(FOLDER)
    files = DiskFiles(disk, lambda: 0, lambda duration_us: None)
    files.make_directory(f"{FOLDER}/{P}")
    segment = files.open(f"{FOLDER}/{P}/{0:020}.log", create=True)
    batch = build_batch([RecordData(timestamp=1, key=None, value=b"v")])
    files.write(segment, batch, 0)
    files.write(segment, bytes(len(batch)), len(batch))
    assert has_offset(disk, P, 0)
    assert not has_offset(disk, P, 1)
    assert not has_offset(disk, P, 5, is_cleaned=True)
    files.open(f"{FOLDER}/{P}/{9:020}.log", create=True)
    assert has_offset(disk, P, 5, is_cleaned=True)
    assert not has_offset(disk, P, 5)


def test_copies_of_replicas_on_their_way_to_another_directory_are_found() -> None:
    disk = SimulatedDisk()
    files = DiskFiles(disk, lambda: 0, lambda duration_us: None)
    for folder in FOLDERS:
        disk.provide_directory(folder)
        files.make_directory(f"{folder}/{P}")
    twice = [f"{folder}/{P}" for folder in FOLDERS]
    assert moves_in(disk) == twice
    copy = f"{FOLDERS[1]}/{P}.{'0' * 32}-future"
    files.rename(twice[1], copy)
    assert moves_in(disk) == [copy]


def test_topics_of_one_name_are_told_apart_by_their_ids() -> None:
    history = History()
    assert history.incarnations("t") == ["t"]
    assert [history.incarnation("t", topic_id) for topic_id in ("a", "b", "a", None)] == ["t", "t#2", "t", "t#2"]
    assert history.incarnations("t") == ["t", "t#2"]
    assert history.incarnation("other", "b") == "other"
