"""A range of an open file: storage returns it in place of records, and the network sends it.

Owns the range. Must not know what the bytes are, or how a file is opened and closed.
"""

from __future__ import annotations

from typing import Any, Protocol


class SlicedFiles(Protocol):
    """What a slice calls of `storage.disk.files.Files`, with the open file that it holds."""

    def read(self, file: Any, size: int, position: int) -> bytes:
        """Return at most `size` bytes from `position` on. Raises OSError."""

    def send(self, file: Any, size: int, position: int, socket_descriptor: int) -> int:
        """Send at most `size` bytes to a socket; return the number sent. Raises OSError."""


class TruncatedError(OSError):
    """A file ends before the end of its slice."""


class FileSlice:
    """A range of a file that the kernel sends to a socket, so that no copy of it is in memory.

    It keeps the file open, so its bytes stay readable after the file is deleted or replaced.
    """

    __slots__ = ("_file", "_files", "_position", "_size")

    def __init__(self, files: SlicedFiles, file: Any, position: int, size: int) -> None:
        self._files = files
        self._file = file
        self._position = position
        self._size = size

    def __len__(self) -> int:
        return self._size

    def read(self) -> bytes:
        """Return the bytes. Raises OSError, and TruncatedError if the file was truncated below their end."""
        content = self._files.read(self._file, self._size, self._position)
        if len(content) < self._size:
            raise TruncatedError
        return content

    def send(self, socket_descriptor: int, start: int, size_max: int) -> int:
        """Send at most `size_max` bytes from byte `start` on; return the number sent, at least one.

        Raises:
            BlockingIOError: the socket's buffer is full.
            OSError: the socket or the disk failed.
            TruncatedError: the file was truncated below these bytes.
        """
        size = min(self._size - start, size_max)
        sent = self._files.send(self._file, size, self._position + start, socket_descriptor)
        if not sent:
            raise TruncatedError
        return sent
