"""Files that fail, tear writes and lose unsynced data: a double for a failing disk in tests of storage.

`FaultyFiles` works on real files below a temporary folder and counts every call that changes something. Any one call
can be made to fail with an errno, or to be the last one (`Crashed`): everything after it raises too, as in a dead
process. A write that crashes may leave some of its bytes. `lose_unsynced` then turns the folder into what a machine
finds after a power cut: contents as of their last sync, names as of the last sync of their directory, or, as disks do,
something newer.
"""

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

from storage.disk.files import Buffer, OpenFile, OsFiles, failure


class Crashed(BaseException):
    """The process has crashed. Not an Exception: no code may catch it and continue."""


def where_torn(calls: Sequence[str], torn_bytes: int) -> list[int]:
    """Return the numbers of the calls at which a crash depends on `torn_bytes`: only writes are torn."""
    return [number for number, call in enumerate(calls) if not torn_bytes or call.startswith("write ")]


class FaultyFiles(OsFiles):
    """`calls` lists the names of all calls so far: its length is the limit for `n`."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []
        self._fail_at: dict[int, int] = {}
        self._fails_from: tuple[int, int] | None = None
        self._crash_at: int | None = None
        self._torn_bytes = 0
        self._is_crashed = False
        self._locks: list[OpenFile] = []
        self._file_ids: dict[str, int] = {}
        self._next_file_id = 0
        self._durable_contents: dict[int, bytes] = {}
        self._durable_names: dict[str, dict[str, int]] = {}
        self._durable_directories: set[str] = set()

    def fail_call(self, number: int, error: int) -> None:
        """Make call `n` raise OSError; later calls work."""
        self._fail_at[number] = error

    def fail_from(self, number: int, error: int) -> None:
        """Make that call and all later ones raise OSError."""
        self._fails_from = (number, error)

    def crash_at(self, number: int, *, torn_bytes: int = 0) -> None:
        """That call does nothing more, or, if it is a write, puts down `torn_bytes`; then everything raises Crashed."""
        self._crash_at = number
        self._torn_bytes = torn_bytes

    def adopt(self, root: Path) -> None:
        """Treat everything below `root` as synced by an earlier process."""
        for directory, _, file_names in os.walk(root):
            self._durable_names[directory] = {name: self._id_of(f"{directory}/{name}") for name in file_names}
            for name, file_id in self._durable_names[directory].items():
                self._durable_contents[file_id] = Path(directory, name).read_bytes()

    def bury(self) -> None:
        """Release the locks, as the kernel does after a crash."""
        self._is_crashed = True
        self.free_locks()

    def free_locks(self) -> None:
        """Release the locks after a clean stop, before another broker starts on the same files."""
        for lock in self._locks:
            lock.close()
        self._locks.clear()

    def _count(self, call: str, path: str, *, if_torn: Callable[[int], object] | None = None) -> None:
        if self._is_crashed:
            raise Crashed
        number = len(self.calls)
        self.calls.append(f"{call} {os.path.basename(path)}")
        if number == self._crash_at:
            self._is_crashed = True
            if if_torn is not None and self._torn_bytes:
                if_torn(self._torn_bytes)
            raise Crashed
        error = self._fail_at.get(number)
        if error is None and self._fails_from is not None and number >= self._fails_from[0]:
            error = self._fails_from[1]
        if error is not None:
            raise failure(OSError(error, os.strerror(error)), call, path)

    # Calls that change something

    def open(self, path: str, *, create: bool = False) -> OpenFile:
        if create and path not in self._file_ids and not os.path.exists(path):
            self._count("create", path)
        if self._is_crashed:
            raise Crashed
        file = super().open(path, create=create)
        self._id_of(path)
        return file

    def write(self, file: OpenFile, buffer: Buffer, position: int) -> int:
        self._count(
            "write",
            file.path,
            if_torn=lambda size: OsFiles.write(self, file, memoryview(buffer)[:size], position),
        )
        return super().write(file, buffer, position)

    def sync(self, file: OpenFile) -> None:
        self._count("sync", file.path)
        self._durable_contents[self._id_of(self._present_path(file))] = super().read(file, super().size(file), 0)

    def sync_directory(self, path: str) -> None:
        self._count("sync directory", path)
        with os.scandir(path) as entries:
            found = list(entries)
        self._durable_directories |= {path, *(entry.path for entry in found if entry.is_dir())}
        # In one step: another thread may look at the names meanwhile.
        self._durable_names[path] = {entry.name: self._id_of(entry.path) for entry in found if not entry.is_dir()}

    def truncate(self, file: OpenFile, size: int) -> None:
        self._count("truncate", file.path)
        super().truncate(file, size)

    def rename(self, old: str, new: str) -> None:
        if not os.path.exists(old):
            super().rename(old, new)
        self._count("rename", old)
        super().rename(old, new)
        for table in (self._file_ids, self._durable_names):
            for path in [path for path in table if path == old or path.startswith(old + "/")]:
                table[new + path.removeprefix(old)] = table.pop(path)  # type: ignore[index, assignment, attr-defined]

    def unlink(self, path: str) -> None:
        if os.path.exists(path):
            self._count("unlink", path)
        super().unlink(path)
        self._file_ids.pop(path, None)

    def make_directory(self, path: str) -> None:
        self._count("make directory", path)
        super().make_directory(path)

    def remove_directory(self, path: str) -> None:
        self._count("remove directory", path)
        super().remove_directory(path)

    def lock(self, path: str) -> OpenFile | None:
        lock = super().lock(path)
        if lock is not None:
            self._locks.append(lock)
        return lock

    # Calls that only read

    def open_for_reading(self, path: str) -> OpenFile:
        if self._is_crashed:
            raise Crashed
        return super().open_for_reading(path)

    def read(self, file: OpenFile, size: int, position: int) -> bytes:
        if self._is_crashed:
            raise Crashed
        return super().read(file, size, position)

    # After a power cut

    def lose_unsynced(self, root: Path, random: Random | None = None, *, into: Path | None = None) -> None:
        """Rebuild the tree below `root` from the synced data, there or in another folder.

        With `random` each file and directory may contain more than its last sync: a file may hold any prefix of the
        written bytes, or zeros in their place.
        """
        survivors: dict[str, bytes] = {}
        for directory, _, file_names in os.walk(root):
            names = self._durable_names.get(directory, {})
            if random is not None and random.random() < 0.5:
                names = {name: self._id_of(f"{directory}/{name}") for name in file_names}
            for name, file_id in names.items():
                survivors[f"{directory}/{name}"] = self._surviving_content(f"{directory}/{name}", file_id, random)
        target = root if into is None else into
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        for path, content in survivors.items():
            survivor = target / Path(path).relative_to(root)
            survivor.parent.mkdir(parents=True, exist_ok=True)
            survivor.write_bytes(content)

    def _surviving_content(self, path: str, file_id: int, random: Random | None) -> bytes:
        durable = self._durable_contents.get(file_id, b"")
        if random is None or self._file_ids.get(path) != file_id or not os.path.exists(path):
            return durable
        written = Path(path).read_bytes()
        fate = random.randrange(4)
        if fate == 0 or len(written) < len(durable):
            return durable
        if fate == 1:
            return written
        kept = random.randint(len(durable), len(written))
        return written[:kept] + (bytes(len(written) - kept) if fate == 2 else b"")

    def _present_path(self, file: OpenFile) -> str:
        """The file, or a directory above it, may have been renamed since it was opened."""
        inode = os.fstat(file.descriptor).st_ino
        paths = (path for path in (file.path, *self._file_ids) if os.path.exists(path))
        return next((path for path in paths if os.stat(path).st_ino == inode), file.path)

    def _id_of(self, path: str) -> int:
        if path not in self._file_ids:
            self._file_ids[path] = self._next_file_id
            self._next_file_id += 1
        return self._file_ids[path]
