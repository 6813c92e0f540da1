"""The file that has a name, across rotations: a log that is renamed, and whose successor gets the name.

After a rotation the writer of a log keeps the old file until a signal makes it open the new one. So the old file is
read until it has been quiet for some seconds since the rotation was noticed.

Owns the descriptor and the notice of rotation. Must not know lines or positions.
"""

import os
import time
from collections.abc import Callable
from io import FileIO
from pathlib import Path

QUIET_S = 5.0
"""How long the writer of a rotated log may take to write its last lines; logrotate signals it within a second."""


class FollowedFile:
    """Reads the file of a name; continues with its successor when it is quiet."""

    def __init__(self, path: Path, quiet_s: float, now: Callable[[], float] = time.monotonic) -> None:
        """`quiet_s` is how long a replaced file has to return nothing before its successor is read."""
        self._path = path
        self._quiet_s = quiet_s
        self._now = now
        self._content: FileIO | None = None
        self._quiet_since_s: float | None = None
        """Since when the replaced file has returned nothing; None if it is not replaced, or has just returned some."""

    def read(self, read_part: Callable[[FileIO], bytes]) -> bytes:
        """Return what `read_part` returns of the file: its next part, empty if there is none yet."""
        if self._content is None and not self._open():
            return b""
        assert self._content is not None
        part = read_part(self._content)
        if not part and self._is_replaced(self._content):
            part = read_part(self._content)  # what was written between the read and the rotation
            if not part and self._was_quiet():
                self.close()
                return read_part(self._content) if self._open() else b""
        if part:
            self._quiet_since_s = None
        return part

    def close(self) -> None:
        if self._content is not None:
            self._content.close()
            self._content = None

    def _open(self) -> bool:
        self._quiet_since_s = None
        try:
            self._content = self._path.open("rb", buffering=0)  # a buffer would keep what is no longer in the file
        except FileNotFoundError:
            return False
        return True

    def _was_quiet(self) -> bool:
        """Whether the replaced file, which has just returned nothing, has done so for long enough."""
        now_s = self._now()
        if self._quiet_since_s is None:
            self._quiet_since_s = now_s
        return now_s - self._quiet_since_s >= self._quiet_s

    def _is_replaced(self, content: FileIO) -> bool:
        """Whether the name is that of another file; while it is missing, the old one is kept."""
        try:
            return not os.path.samestat(self._path.stat(), os.fstat(content.fileno()))
        except FileNotFoundError:
            return False
