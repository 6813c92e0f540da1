"""What the writer of a log appends after a rotation is read, before the successor is."""

from collections.abc import Iterator
from io import FileIO
from pathlib import Path

import pytest

from spark_jobs.skeleton.followed_file import FollowedFile

QUIET_S = 5.0


class Log:
    """A log with a reader, whose time passes when a test says so."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "app.log"
        self.writer = self.path.open("ab", buffering=0)
        self.now_s = 0.0
        self.late = b""
        self.followed = FollowedFile(self.path, QUIET_S, lambda: self.now_s)

    def rotate(self, *, create: bool) -> None:
        """Rename the file, as logrotate does; the writer keeps it."""
        self.path.rename(self.path.with_suffix(".1"))
        if create:
            self.path.touch()

    def reopen(self) -> None:
        self.writer.close()
        self.writer = self.path.open("ab", buffering=0)

    def read(self, after_s: float = 0.2) -> bytes:
        self.now_s += after_s
        return self.followed.read(self._read_part)

    def _read_part(self, content: FileIO) -> bytes:
        part = content.read()
        if self.late:
            late, self.late = self.late, b""
            self.writer.write(late)
        return part


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    found = Log(tmp_path)
    yield found
    found.followed.close()
    found.writer.close()


@pytest.mark.parametrize("create", [True, False])
def test_a_replaced_file_is_read_until_it_was_quiet_for_some_seconds(log: Log, create: bool) -> None:
    log.writer.write(b"1")
    assert log.read() == b"1"
    log.rotate(create=create)
    assert log.read() == b""
    log.writer.write(b"2")
    assert log.read(QUIET_S - 1) == b"2"
    assert log.read() == b""
    log.writer.write(b"3")
    assert log.read(QUIET_S - 1) == b"3"
    log.reopen()
    log.writer.write(b"4")
    assert log.read() == b""
    assert log.read(QUIET_S) == b"4"


def test_what_is_written_between_an_empty_read_and_the_rotation_is_read(log: Log) -> None:
    assert log.read() == b""
    log.rotate(create=True)
    assert log.read() == b""
    log.late = b"late"
    assert log.read(QUIET_S) == b"late"


def test_a_file_that_is_missing_for_a_time_is_read_as_soon_as_it_has_the_name(log: Log) -> None:
    log.path.unlink()
    assert log.read() == b""
    log.reopen()
    log.writer.write(b"1")
    assert log.read() == b"1"
