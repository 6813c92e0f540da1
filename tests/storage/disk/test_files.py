"""The seam to the operating system: what the rest of storage relies on, and what its failing double does."""

import contextlib
import ctypes
import errno
import fcntl
import gc
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from base.system_calls import SYSTEM_CALLS
from storage.disk.files import OsFiles
from tests.support.faulty_files import Crashed, FaultyFiles

FILES = OsFiles()


def test_replace_leaves_the_old_or_the_new_content(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    for number in range(20):
        files = FaultyFiles()
        files.crash_at(number, torn_bytes=2)
        path.write_bytes(b"old")
        try:
            files.replace(str(path), b"newer", durable=True)
        except Crashed:
            assert path.read_bytes() in (b"old", b"newer")
        else:
            assert path.read_bytes() == b"newer"
            return
    raise AssertionError("never came to its end")


def test_open_file_is_closed_with_its_last_reference(tmp_path: Path) -> None:
    file = FILES.open(str(tmp_path / "x"), create=True)
    link = Path(f"/proc/self/fd/{file.descriptor}")
    assert link.readlink() == tmp_path / "x"
    del file
    gc.collect()
    assert not link.exists() or link.readlink() != tmp_path / "x"  # a thread may have opened another file meanwhile


def test_open_file_is_readable_after_unlink_and_rename(tmp_path: Path) -> None:
    path = str(tmp_path / "x")
    file = FILES.open(path, create=True)
    FILES.write_all(file, b"content", 0)
    FILES.rename(path, path + ".deleted")
    FILES.unlink(path + ".deleted")
    assert FILES.read(file, 100, 0) == b"content"


def test_cached_read_returns_the_bytes_in_the_page_cache(tmp_path: Path) -> None:
    file = FILES.open(str(tmp_path / "x"), create=True)
    FILES.write_all(file, b"0123456789", 0)
    buffer = bytearray(4)
    # On a file system without this information the result is 0, and the caller reads in a thread.
    assert FILES.read_cached_into(file, buffer, 3) in (0, 4)
    assert bytes(buffer) in (b"3456", bytes(4))
    assert FILES.read_cached_into(file, buffer, 100) == 0


def test_start_writeback_accepts_a_range(tmp_path: Path) -> None:
    file = FILES.open(str(tmp_path / "x"), create=True)
    FILES.write_all(file, bytes(10_000), 0)
    FILES.start_writeback(file, 0, 10_000)
    file.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        FILES.start_writeback(file, 0, 1)


def test_second_lock_in_the_same_process_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    held = FILES.lock(path)
    assert held is not None
    assert FILES.lock(path) is None
    held.close()
    assert FILES.lock(path) is not None


def test_directory_listing_is_sorted_and_has_sizes(tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"12345")
    (tmp_path / "a").mkdir()
    listed = FILES.list_directory(str(tmp_path))
    assert [(entry.name, entry.is_directory) for entry in listed] == [("a", True), ("b", False)]
    assert listed[1].size == 5


def test_modification_time_that_was_set_is_returned(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"")
    FILES.set_modified_ms(str(path), 1_700_000_000_123)
    assert FILES.modified_ms(str(path)) == 1_700_000_000_123


# The double


def test_power_cut_loses_unsynced_bytes_and_names(tmp_path: Path) -> None:
    root = tmp_path / "root"
    files = FaultyFiles()
    files.make_directory(str(root))
    for name in ("synced", "unsynced", "nameless"):
        file = files.open(f"{root}/{name}", create=True)
        files.write_all(file, b"first", 0)
        if name != "unsynced":
            files.sync(file)
        if name == "unsynced":
            files.sync_directory(str(root))
        files.write_all(file, b"second", 5)
    files.lose_unsynced(root)
    assert {path.name: path.read_bytes() for path in root.iterdir()} == {"synced": b"first", "unsynced": b""}


def test_scheduled_call_fails_once(tmp_path: Path) -> None:
    files = FaultyFiles()
    file = files.open(str(tmp_path / "x"), create=True)
    files.fail_call(1, errno.ENOSPC)
    with pytest.raises(OSError, match="No space left") as raised:
        files.write(file, b"x", 0)
    assert raised.value.errno == errno.ENOSPC
    assert files.write(file, b"x", 0) == 1
    assert files.calls == ["create x", "write x", "write x"]


def test_torn_write_leaves_its_beginning(tmp_path: Path) -> None:
    files = FaultyFiles()
    file = files.open(str(tmp_path / "x"), create=True)
    files.crash_at(1, torn_bytes=3)
    with pytest.raises(Crashed):
        files.write(file, b"12345", 0)
    with pytest.raises(Crashed):
        files.read(file, 1, 0)
    assert (tmp_path / "x").read_bytes() == b"123"


@pytest.mark.parametrize(("error", "syncs"), [(errno.ENOSYS, 1), (errno.EINVAL, 1), (errno.EIO, 0)])
def test_finish_writeback_falls_back_to_fdatasync(tmp_path: Path, error: int, syncs: int) -> None:
    def failing(*_: int) -> int:
        ctypes.set_errno(error)
        return -1

    synced: list[int] = []
    files = OsFiles(SYSTEM_CALLS._replace(sync_file_range=failing, sync_data=synced.append))
    file = files.open(str(tmp_path / "x"), create=True)
    with contextlib.nullcontext() if syncs else pytest.raises(OSError, match="Input/output error"):
        files.finish_writeback(file)
    assert synced == [file.descriptor] * syncs


def test_writeback_without_sync_file_range_is_a_sync_at_its_end(tmp_path: Path) -> None:
    synced: list[int] = []
    files = OsFiles(SYSTEM_CALLS._replace(sync_file_range=None, sync_data=synced.append))
    file = files.open(str(tmp_path / "x"), create=True)
    files.start_writeback(file, 0, 1)
    assert not synced
    files.finish_writeback(file)
    assert synced == [file.descriptor]


def test_cached_read_returns_nothing_without_a_flag_for_it(tmp_path: Path) -> None:
    files = OsFiles(SYSTEM_CALLS._replace(cached_read_flag=None))
    file = files.open(str(tmp_path / "x"), create=True)
    files.write_all(file, b"0123456789", 0)
    assert files.read_cached_into(file, bytearray(4), 0) == 0


def test_lock_without_description_locks_excludes_every_other_open_file(tmp_path: Path) -> None:
    files = OsFiles(SYSTEM_CALLS._replace(has_description_locks=False))
    path = str(tmp_path / ".lock")
    lock = files.lock(path)
    assert lock is not None
    assert files.lock(path) is None, "this process has it already"
    program = "import sys; from storage.disk.files import OsFiles\n"
    program += "from base.system_calls import SYSTEM_CALLS as calls\n"
    program += "sys.exit(OsFiles(calls._replace(has_description_locks=False)).lock(sys.argv[1]) is not None)"
    subprocess.run([sys.executable, "-c", program, path], check=True)
    with open(path):
        pass  # closing another descriptor of the file does not release the lock
    assert files.lock(path) is None
    lock.close()
    assert files.lock(path) is not None


@pytest.mark.parametrize(
    ("error", "fsyncs"), [(0, 0), (errno.ENOTSUP, 1), (errno.EINVAL, 1), (errno.ENOTTY, 1), (errno.EIO, 0)]
)
def test_sync_empties_the_cache_of_the_drive_where_fsync_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int, fsyncs: int
) -> None:
    """As on macOS. A file system without this command gets an fsync; after an error of the disk none may hide it."""
    commands: list[tuple[int, int]] = []
    synced: list[int] = []

    def command(descriptor: int, number: int) -> None:
        commands.append((descriptor, number))
        if error:
            raise OSError(error, os.strerror(error))

    monkeypatch.setattr(fcntl, "fcntl", command)
    monkeypatch.setattr(os, "fsync", synced.append)
    files = OsFiles(SYSTEM_CALLS._replace(full_sync_command=51))
    file = files.open(str(tmp_path / "x"), create=True)
    failing = error and not fsyncs
    with pytest.raises(OSError, match="cannot sync") if failing else contextlib.nullcontext():
        files.sync(file)
    with pytest.raises(OSError, match="cannot sync") if failing else contextlib.nullcontext():
        files.sync_directory(str(tmp_path))
    assert commands[0] == (file.descriptor, 51)
    assert len(commands) == 2
    assert synced[:1] == [file.descriptor] * fsyncs
    assert len(synced) == 2 * fsyncs


def test_time_of_waiting_for_a_processor_is_left_out() -> None:
    """Two threads that compute share one processor, so each waits for half of the time."""
    program = """
import os, sys, threading, time
from storage.disk.files import OsFiles
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
if os.fork() == 0:
    end_s = time.monotonic() + 1.0
    while time.monotonic() < end_s:
        pass
    os._exit(0)
files = OsFiles()
started_s, undelayed_s, computed_s = time.monotonic(), files.undelayed_s(), time.thread_time()
while time.monotonic() < started_s + 0.5:
    pass
print(time.thread_time() - computed_s, files.undelayed_s() - undelayed_s, time.monotonic() - started_s)
os.wait()
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    computed_s, undelayed_s, passed_s = map(float, done.stdout.split())
    assert computed_s < 0.9 * passed_s
    assert undelayed_s == pytest.approx(computed_s, abs=0.05)


def test_a_thread_that_has_ended_keeps_no_file_of_its_delays() -> None:
    def open_count() -> int:
        folder = "/proc/self/fd"
        links = [os.path.join(folder, name) for name in os.listdir(folder)]
        return sum(os.readlink(link).endswith("schedstat") for link in links if os.path.lexists(link))

    files = OsFiles()
    files.undelayed_s()
    before = open_count()
    assert before > 0
    for _ in range(5):
        thread = threading.Thread(target=files.undelayed_s)
        thread.start()
        thread.join()
    assert open_count() == before
