"""Lines of a file that grows, and of the standard input.

A line ends with LF, CR or CR LF, as for Java's readers; one without its end waits for it, and so does a CR that is the
last byte, because LF may follow. Bytes that are not UTF-8 become replacement characters.

A file may be a log that is rotated, and be missing for a time. One that is shorter than before, or whose first 1024
bytes differ, is read from its start, after the old one was read until it was quiet (`followed_file`). A reader that
starts at a stored position compares the length only.

Owns positions within a file. Must not know records or where positions are stored.
"""

from __future__ import annotations

import logging
import os
import select
import sys
from abc import ABC, abstractmethod
from io import FileIO
from pathlib import Path

from spark_jobs.connect.base.errors import ConnectError
from spark_jobs.skeleton.followed_file import FollowedFile

_LOG = logging.getLogger(__name__)
_CHUNK_BYTES = 1 << 20
_BEGINNING_BYTES = 1024  # by which a file is recognised


class LineReader(ABC):
    """Reads parts and returns their lines, a number at a time."""

    def __init__(self, position: int | None) -> None:
        """`position` is that of the first line; None if the source has no positions."""
        self._position = position
        self._lines: list[bytes] = []
        self._next = 0

    def read(self, count: int) -> list[tuple[str, int | None]]:
        """Return at most `count` lines, each with the position behind it; none if there are no new ones."""
        if self._next == len(self._lines):
            self._lines, self._next = self._load().splitlines(keepends=True), 0
        taken = self._lines[self._next : self._next + count]
        self._next += len(taken)
        found: list[tuple[str, int | None]] = []
        for line in taken:
            if self._position is not None:
                self._position += len(line)
            found.append((line.rstrip(b"\r\n").decode(errors="replace"), self._position))
        return found

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def _load(self) -> bytes:
        """Return the next complete lines, with their ends; set the position if it is not behind the last ones."""


class FileTail(LineReader):
    """The lines of a file, from a position on; follows its name to other files."""

    def __init__(self, path: Path, position: int, line_bytes_max: int, quiet_s: float) -> None:
        """`quiet_s` is how long a replaced file has to be quiet before its successor is read."""
        super().__init__(position)
        self._path = path
        self._line_bytes_max = line_bytes_max
        self._content = FollowedFile(path, quiet_s)
        self._offset = position  # of the next part
        self._beginning: bytes | None = None  # the bytes before the offset, at most the first 1024; None: not known

    def close(self) -> None:
        self._content.close()

    def _load(self) -> bytes:
        return self._content.read(self._read_part)

    def _read_part(self, content: FileIO) -> bytes:
        content.seek(0)
        beginning = content.read(min(self._offset, _BEGINNING_BYTES))
        is_shorter = os.fstat(content.fileno()).st_size < self._offset
        if is_shorter or self._beginning not in (None, beginning):
            _LOG.warning("%s is another file than before: it is read from its start", self._path)
            self._offset, beginning = 0, b""
        self._position = self._offset
        content.seek(self._offset)
        part = content.read(_CHUNK_BYTES)
        while not (end := _end_of_lines(part)) and (more := content.read(_CHUNK_BYTES)):
            part += more
            if len(part) > self._line_bytes_max:
                raise ConnectError(
                    f"{self._path}: the line at byte {self._offset} is longer than the {self._line_bytes_max} bytes of"
                    " line.max.bytes"
                )
        self._offset += end
        self._beginning = (beginning + part[:end])[:_BEGINNING_BYTES]
        return part[:end]


class StandardInput(LineReader):
    """The lines of the standard input, which have no positions."""

    def __init__(self, line_bytes_max: int) -> None:
        super().__init__(None)
        self._line_bytes_max = line_bytes_max
        self._descriptor = sys.stdin.fileno()
        self._rest = b""

    def close(self) -> None:
        """The standard input remains open for others."""

    def _load(self) -> bytes:
        if not select.select([self._descriptor], [], [], 0)[0]:
            return b""
        content = self._rest + os.read(self._descriptor, _CHUNK_BYTES)
        end = _end_of_lines(content)
        self._rest = content[end:]
        if len(self._rest) > self._line_bytes_max:
            raise ConnectError(
                f"standard input: a line is longer than the {self._line_bytes_max} bytes of line.max.bytes"
            )
        return content[:end]


def _end_of_lines(content: bytes) -> int:
    """Return the number of bytes up to the end of the last complete line."""
    return max(content.rfind(b"\n"), content.rfind(b"\r", 0, max(len(content) - 1, 0))) + 1
