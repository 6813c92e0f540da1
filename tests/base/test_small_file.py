"""Which files that settings name are read."""

import os
from pathlib import Path

import pytest

from base.small_file import SIZE_MAX, UnsuitableFileError, read_small_file


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


@pytest.mark.parametrize("size", [0, SIZE_MAX])
def test_regular_file_is_read_through_a_link(tmp_path: Path, size: int) -> None:
    (tmp_path / "file").write_bytes(bytes(size))
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "file")
    assert read_small_file(link) == read_small_file(str(link)) == bytes(size)


def test_file_above_the_limit_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(SIZE_MAX + 1))
    with pytest.raises(UnsuitableFileError, match=rf"{tmp_path}/file has more than {SIZE_MAX} bytes"):
        read_small_file(tmp_path / "file")


def test_other_kinds_of_files_are_refused_without_being_opened(tmp_path: Path, pipe: Path) -> None:
    for path in (pipe, tmp_path, Path("/dev/zero")):
        with pytest.raises(UnsuitableFileError, match=rf"{path} is not a regular file"):
            read_small_file(path)


def test_pipe_that_takes_the_place_of_a_file_is_not_waited_for(pipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("base.small_file.stat.S_ISREG", lambda mode: True)
    assert read_small_file(pipe) == b""
    writer = os.open(pipe, os.O_RDWR)
    try:
        assert read_small_file(pipe) == b"", "its writer has written nothing yet"
    finally:
        os.close(writer)
