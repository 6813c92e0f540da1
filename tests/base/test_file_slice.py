from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

import pytest

from base.file_slice import FileSlice, TruncatedError
from storage.disk.files import OsFiles


def test_slice_is_sent_and_read_unchanged_after_its_file_is_replaced(tmp_path: Path) -> None:
    content = bytes(range(256)) * 64
    path = tmp_path / "a"
    path.write_bytes(content)
    files = OsFiles()
    piece = FileSlice(files, files.open_for_reading(str(path)), 100, 5000)
    path.unlink()
    receiving, sending = socket.socketpair()
    with receiving, sending:
        sending.setblocking(False)
        assert len(piece) == 5000
        assert piece.send(sending.fileno(), 0, 100) == 100
        assert receiving.recv(100) == content[100:200]
        assert piece.send(sending.fileno(), 0, 9000) == 5000
        assert receiving.recv(10_000) == content[100:5100] == piece.read()
        assert piece.send(sending.fileno(), 4990, 9000) == 10
        assert receiving.recv(10_000) == content[5090:5100]
        sending.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        with contextlib.suppress(BlockingIOError):
            sending.send(bytes(1 << 20))
        with pytest.raises(BlockingIOError):
            piece.send(sending.fileno(), 0, 9000)


def test_slice_of_a_truncated_file_sends_the_rest_and_then_raises(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(bytes(1000))
    files = OsFiles()
    piece = FileSlice(files, files.open_for_reading(str(path)), 0, 1000)
    os.truncate(path, 600)
    receiving, sending = socket.socketpair()
    with receiving, sending:
        assert piece.send(sending.fileno(), 0, 9000) == 600
        with pytest.raises(TruncatedError):
            piece.send(sending.fileno(), 600, 9000)
    with pytest.raises(TruncatedError):
        piece.read()
