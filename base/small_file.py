"""A small file that the value of a setting names. The value may come from a client, so it may name any file.

Owns which files are read: reading one neither waits for ever nor takes much memory. Must not know their content.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

SIZE_MAX = 1 << 20


class UnsuitableFileError(ValueError):
    """The file is not read. The message names it and what was expected."""


def read_small_file(path: str | Path) -> bytes:
    """Return the content of a regular file of at most `SIZE_MAX` bytes. Raises OSError, UnsuitableFileError."""
    if not stat.S_ISREG(Path(path).stat().st_mode):
        raise UnsuitableFileError(f"{path} is not a regular file")
    with open(path, "rb", opener=_open_without_waiting) as file:
        content = file.read(SIZE_MAX + 1) or b""  # None: a file of /proc may have nothing yet
    if len(content) > SIZE_MAX:
        raise UnsuitableFileError(f"{path} has more than {SIZE_MAX} bytes")
    return content


def _open_without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)
