"""The name of one log's directory, which changes while other threads use files in it.

Owns the name, the previous name, and the lock under which it changes. Must not know what the directory contains: the
log passes a new name to its parts.

Invariant: the name does not change while a thread holds `unrenamed`. A thread that did not hold it, and found no file
under the old name, tries again under the new one (`has_moved`).
"""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager

from storage.disk.files import Files


class PartitionDirectory:
    """The directory of one log. `path` is for reading."""

    __slots__ = ("_files", "_naming", "_previous_path", "path")

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._naming = threading.Lock()  # held while `path` changes
        self._previous_path: str | None = None
        self.path = path

    def rename(self, path: str, relocate: Callable[[str], None]) -> None:
        """Rename the directory, then call `relocate(path)`, which passes the new name to its users.

        Raises OSError: of the rename, then nothing has changed, or what `relocate` raises.
        """
        with self._naming:
            self._files.rename(self.path, path)
            self._previous_path, self.path = self.path, path
            relocate(path)

    def unrenamed(self) -> AbstractContextManager[object]:
        """Return a context within which the directory keeps its name. Any thread."""
        return self._naming

    def has_moved(self, error: OSError) -> bool:
        """Return whether a file was missing because the directory was renamed; then the caller tries again."""
        with self._naming:
            previous = self._previous_path
        return (
            isinstance(error, FileNotFoundError)
            and previous is not None
            and f"{error.filename}/".startswith(f"{previous}/")
        )
