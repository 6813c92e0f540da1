"""A log file that begins anew after a period or at a size.

Owns the names of earlier files, and how many are kept. Must not know what is written.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from config.log4j import Appender


class RollingFile:
    """A log file that is renamed when its period ends or its size is reached."""

    def __init__(self, appender: Appender, keep_count: int, now_s: Callable[[], float] = time.time) -> None:
        """`keep_count`: how many files of earlier periods are kept. Raises OSError."""
        assert appender.file is not None
        self._path = Path(appender.file)
        self._suffix_format = appender.date_suffix
        self._size_max = appender.size_max
        self._keep_count = keep_count if appender.date_suffix else appender.backup_count
        self._now_s = now_s
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._suffix = self._suffix_at(self._path.stat().st_mtime if self._path.exists() else now_s())
        self._file = self._opened()

    def write(self, text: str) -> None:
        """Append a line. Raises OSError."""
        suffix = self._suffix_at(self._now_s())
        if suffix != self._suffix:
            self._roll(f"{self._path}{self._suffix}")
            self._suffix = suffix
        elif self._size_max and self._file.tell() >= self._size_max:
            self._shift()
        self._file.write(text)

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    def _suffix_at(self, time_s: float) -> str:
        return time.strftime(self._suffix_format, time.localtime(time_s)) if self._suffix_format else ""

    def _opened(self) -> TextIO:
        return self._path.open("a", encoding="utf-8", errors="backslashreplace")

    def _roll(self, target: str) -> None:
        self._file.close()
        if self._path.exists():
            os.replace(self._path, target)
        self._file = self._opened()
        dated = sorted(self._path.parent.glob(f"{self._path.name}.[0-9]*"), key=lambda path: path.name)
        for old in dated[: max(len(dated) - self._keep_count, 0)]:
            old.unlink(missing_ok=True)

    def _shift(self) -> None:
        """Rename file.1 to file.2 and so on, and the present file to file.1."""
        self._file.close()
        for number in range(self._keep_count, 0, -1):
            source = Path(f"{self._path}.{number - 1}") if number > 1 else self._path
            if source.exists():
                os.replace(source, f"{self._path}.{number}")
        if not self._keep_count:
            self._path.unlink(missing_ok=True)
        self._file = self._opened()
