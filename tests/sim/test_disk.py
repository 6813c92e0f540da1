"""The simulated disk: what a kill and a power cut leave, and its faults. It behaves like the files of Linux."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from storage.disk.files import Files, OsFiles
from tests.sim.disk import DiskFiles, RandomCut, SimulatedDisk
from tests.sim.world import Crashed


def files_on(disk: SimulatedDisk) -> DiskFiles:
    return DiskFiles(disk, lambda: 0, lambda us: None)


def with_folder() -> tuple[SimulatedDisk, DiskFiles]:
    disk = SimulatedDisk()
    files = files_on(disk)
    files.make_directory("/d")
    return disk, files


def script(files: Files, folder: str) -> list[object]:
    """Use every kind of call; return the results."""
    results: list[object] = []

    def tell(work: Callable[[], object]) -> None:
        try:
            results.append(work())
        except OSError as error:
            results.append((type(error), error.errno))

    files.make_directory(f"{folder}/a/b")
    file = files.open(f"{folder}/a/x", create=True)
    tell(lambda: files.write(file, b"hello world", 3))
    tell(lambda: files.read(file, 100, 0))
    tell(lambda: files.read(file, 5, 100))
    tell(lambda: files.truncate(file, 64))
    mapped = files.map(file, 64)
    tell(lambda: files.write(file, b"JELLO", 3))
    tell(lambda: mapped[:20])
    tell(lambda: files.truncate(file, 6))
    tell(lambda: files.read_whole(f"{folder}/a/x"))
    tell(lambda: files.write(file, b"z", 9))
    tell(lambda: files.read_whole(f"{folder}/a/x"))
    tell(lambda: files.open(f"{folder}/missing"))
    tell(lambda: files.open(f"{folder}/missing/x", create=True))
    tell(lambda: files.make_directory(f"{folder}/a"))
    tell(lambda: files.remove_directory(f"{folder}/a"))
    tell(lambda: files.unlink(f"{folder}/missing"))
    tell(lambda: files.rename(f"{folder}/missing", f"{folder}/a/x"))
    files.replace(f"{folder}/a/y", b"new", durable=True)
    tell(lambda: files.rename(f"{folder}/a/y", f"{folder}/a/x"))
    tell(lambda: files.rename(f"{folder}/a", f"{folder}/c"))
    tell(lambda: [(entry.name, entry.is_directory) for entry in files.list_directory(f"{folder}/c")])
    tell(lambda: files.read_whole(f"{folder}/c/x"))
    tell(lambda: files.size(file))  # still the file before its replacement
    lock = files.lock(f"{folder}/.lock")
    assert lock is not None
    tell(lambda: files.lock(f"{folder}/.lock"))
    lock.close()
    tell(lambda: files.lock(f"{folder}/.lock") is not None)
    tell(lambda: files.unlink_if_exists(f"{folder}/c/x"))
    tell(lambda: files.exists(f"{folder}/c/x"))
    files.set_modified_ms(f"{folder}/c", 1000)
    tell(lambda: files.modified_ms(f"{folder}/c"))
    return results


def test_calls_have_the_results_of_the_operating_system(tmp_path: Path) -> None:
    _, files = with_folder()
    assert script(files, "/d") == script(OsFiles(), str(tmp_path))


def test_kill_keeps_what_was_written_and_the_dead_process_changes_nothing() -> None:
    disk, files = with_folder()
    file = files.open("/d/x", create=True)
    files.lock("/d/.lock")
    files.write(file, b"abc", 0)
    files.die()
    with pytest.raises(Crashed):
        files.write(file, b"late", 0)
    with pytest.raises(Crashed):
        files.read_whole("/d/x")
    assert files_on(disk).read_whole("/d/x") == b"abc"
    assert files_on(disk).lock("/d/.lock") is not None


def test_closing_a_file_of_a_dead_process_does_not_release_a_later_lock() -> None:
    disk, files = with_folder()
    old = files.lock("/d/.lock")
    assert old is not None
    files.die()
    new = files_on(disk).lock("/d/.lock")
    old.close()
    assert new is not None
    assert files_on(disk).lock("/d/.lock") is None


def test_power_loss_keeps_what_was_synced() -> None:
    found = set()
    for seed in range(60):
        disk, files = with_folder()
        files.sync_directory("/")
        files.replace("/d/x", b"synced", durable=True)
        file = files.open("/d/x")
        files.write(file, b" and not", 6)
        files.open("/d/new", create=True)
        disk.lose_power(RandomCut(Random(seed)))
        after = files_on(disk)
        content = after.read_whole("/d/x")
        assert content.startswith(b"synced")
        found.add((content, after.exists("/d/new")))
    assert {True, False} == {exists for _, exists in found}
    contents = {content for content, _ in found}
    assert {b"synced", b"synced and not"} < contents  # nothing, all, and torn ones


def test_file_whose_directory_was_never_synced_may_be_gone() -> None:
    survived = set()
    for seed in range(20):
        disk, _ = with_folder()
        disk.lose_power(RandomCut(Random(seed)))
        survived.add(disk.find("/d") is not None)
    assert survived == {True, False}


def test_process_dies_within_a_call_and_its_write_is_torn() -> None:
    disk, files = with_folder()
    file = files.open("/d/x", create=True)
    died = []
    files.crash_after(1, lambda: (died.append(True), files.die()))  # type: ignore[func-returns-value]
    files.write(file, b"12345678", 0)
    with pytest.raises(Crashed):
        files.write(file, b"abcdefgh", 8)
    assert died
    assert files_on(disk).read_whole("/d/x") == b"12345678abcd"


def test_full_disk_refuses_growth_and_failing_disk_everything() -> None:
    disk, files = with_folder()
    file = files.open("/d/x", create=True)
    files.write(file, b"abc", 0)
    disk.is_full = True
    assert files.write(file, b"XYZ", 1) == 2  # it overwrites without growing
    with pytest.raises(OSError, match="ENOSPC"):
        files.write(file, b"more", 3)
    disk.heal()
    disk.is_failing = True
    with pytest.raises(OSError, match="EIO") as caught:
        files.sync(file)
    assert caught.value.errno == errno.EIO


def test_failing_directory_leaves_others_alone() -> None:
    disk, files = with_folder()
    disk.provide_directory("/d2")
    disk.failing_folder = "/d"
    with pytest.raises(OSError, match="EIO"):
        files.open("/d/x", create=True)
    files.write(files.open("/d2/x", create=True), b"abc", 0)
    disk.heal()
    files.open("/d/x", create=True)


def test_slow_disk_stalls_the_caller() -> None:
    disk, _ = with_folder()
    stalled: list[int] = []
    files = DiskFiles(disk, lambda: 0, stalled.append)
    file = files.open("/d/x", create=True)
    disk.delay_us = 7000
    files.write(file, b"abc", 0)
    files.sync(file)
    assert stalled == [7000, 7000]
