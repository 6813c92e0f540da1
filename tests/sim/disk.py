"""The disks of simulated machines: files in memory that remember what a power cut would leave of them.

Owns: contents, names, what of both is durable, and the faults of a disk: full, failing, slow. Must not know what the
files contain.

A `SimulatedDisk` belongs to a machine and outlives its processes. `DiskFiles` is the `Files` of one process on it.
When the process is killed, the disk keeps everything that was written, because the page cache belongs to the kernel;
the dead process changes nothing. After a power cut each file holds what was synced, perhaps followed by the
first of the writes after that, of which the last may be torn. Each directory holds the names of its last sync, perhaps
with the first of the changes after that. `PowerCut` decides how many, for each file and directory by itself.

`tests/support/faulty_files.py` serves the tests of storage, on real files. This double is in memory because the
simulator starts thousands of brokers.
"""

from __future__ import annotations

import errno
import mmap
import os
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Final, NoReturn

from storage.disk.files import Buffer, DirectoryEntry, Files, OpenFile, failure
from tests.sim.world import Crashed

EPOCH_MS: Final = 1_795_000_000_000
"""The wall time at which a world begins."""


class PowerCut:
    """What a power cut keeps of what was not synced: nothing."""

    def names_kept(self, count: int) -> int:
        """Return how many of a directory's `count` changes since its last sync are kept."""
        return 0

    def writes_kept(self, count: int) -> int:
        """Return how many of a file's `count` writes and truncations since its last sync are kept."""
        return 0

    def torn(self, data: bytes) -> bytes:
        """Return what is kept of the last write that is kept."""
        return data


class RandomCut(PowerCut):
    """Keeps nothing, everything or a part, by chance."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def names_kept(self, count: int) -> int:
        return self._random.choice((0, count, self._random.randint(0, count)))

    def writes_kept(self, count: int) -> int:
        return self._random.choice((0, 0, count, self._random.randint(0, count)))

    def torn(self, data: bytes) -> bytes:
        if self._random.random() < 0.5:
            return data
        kept = data[: self._random.randint(0, len(data))]
        return kept if self._random.random() < 0.5 else kept.ljust(len(data), b"\0")


class OldNames(PowerCut):
    """Keeps all writes to files, and no change of a directory."""

    def writes_kept(self, count: int) -> int:
        return count


@dataclass(slots=True, eq=False)
class _File:
    """A file. `content` may be shorter than `size`: the rest is a hole."""

    content: bytearray = field(default_factory=bytearray)
    size: int = 0
    modified_ms: int = EPOCH_MS
    durable: bytes = b""
    """The content as of the last sync."""
    durable_size: int = 0
    unsynced: list[tuple[int, bytes | None]] = field(default_factory=list)
    """What happened since the last sync: writes as (position, bytes), truncations as (size, None)."""
    maps: list[weakref.ref[mmap.mmap]] = field(default_factory=list)
    locked_by: OpenFile | None = None

    def write(self, position: int, data: bytes) -> None:
        _write(self.content, position, data)
        self.size = max(self.size, position + len(data))
        self.unsynced.append((position, data))
        if self.maps:
            for mapped in self._living_maps():
                end = min(position + len(data), len(mapped))
                if end > position:
                    mapped[position:end] = data[: end - position]

    def truncate(self, size: int) -> None:
        del self.content[size:]
        self.size = size
        self.unsynced.append((size, None))

    def read(self, size: int, position: int) -> bytes:
        end = min(position + size, self.size)
        data = bytes(self.content[position:end])
        return data + bytes(max(end - position, 0) - len(data))

    def map(self, size: int) -> mmap.mmap:
        mapped = mmap.mmap(-1, size)
        content = self.content[:size]
        mapped[: len(content)] = bytes(content)
        self.maps.append(weakref.ref(mapped))
        return mapped

    def sync(self) -> None:
        if self.unsynced:
            self.durable, self.durable_size = bytes(self.content), self.size
            self.unsynced.clear()

    def lose_power(self, cut: PowerCut) -> None:
        kept = self.unsynced[: cut.writes_kept(len(self.unsynced))] if self.unsynced else []
        self.content, self.size = bytearray(self.durable), self.durable_size
        for number, (position, data) in enumerate(kept):
            if data is None:
                del self.content[position:]
                self.size = position
                continue
            written = cut.torn(data) if number == len(kept) - 1 else data
            _write(self.content, position, written)
            self.size = max(self.size, position + len(written))
        self.unsynced = []
        self.maps = []
        self.locked_by = None
        self.durable, self.durable_size = bytes(self.content), self.size

    def _living_maps(self) -> Iterator[mmap.mmap]:
        for reference in list(self.maps):
            mapped = reference()
            if mapped is None:
                self.maps.remove(reference)
            else:
                yield mapped


@dataclass(slots=True, eq=False)
class _Directory:
    entries: dict[str, _File | _Directory] = field(default_factory=dict)
    durable: dict[str, _File | _Directory] = field(default_factory=dict)
    """The names as of the last sync."""
    unsynced: list[Mapping[str, _File | _Directory | None]] = field(default_factory=list)
    """The changes since then, each in one step: names with what they stand for, or None."""
    modified_ms: int = EPOCH_MS

    def change(self, change: Mapping[str, _File | _Directory | None]) -> None:
        _apply(change, self.entries)
        self.unsynced.append(change)

    def sync(self) -> None:
        self.durable = dict(self.entries)
        self.unsynced.clear()

    def lose_power(self, cut: PowerCut) -> None:
        self.entries = self.durable
        for change in self.unsynced[: cut.names_kept(len(self.unsynced))] if self.unsynced else ():
            _apply(change, self.entries)
        self.sync()
        for name in sorted(self.entries):
            self.entries[name].lose_power(cut)


class SimulatedDisk:
    """The disk of one machine, and its faults."""

    def __init__(self) -> None:
        self.root = _Directory()
        self.is_full = False
        self.is_failing = False
        self.failing_folder: str | None = None
        """The only directory that fails, if one does: it is another disk in fact."""
        self.delay_us = 0
        """How long each write and sync takes."""
        self.calls = 0
        """How many calls have changed something."""
        self.log_truncations = 0

    def lose_power(self, cut: PowerCut) -> None:
        """Forget what was not synced, but for what `cut` keeps. No process may be running."""
        self.root.lose_power(cut)

    def erase(self) -> None:
        """Replace the disk by an empty one."""
        self.root = _Directory()

    def provide_directory(self, name: str) -> None:
        """Create a durable directory in the root, whatever the state of the disk."""
        path = name.strip("/")
        self.root.durable[path] = self.root.entries.setdefault(path, _Directory())

    def release_locks(self) -> None:
        """Release the locks of a dead process."""
        _release(self.root)

    def heal(self) -> None:
        self.is_full = self.is_failing = False
        self.failing_folder = None
        self.delay_us = 0

    def fails(self, path: str) -> bool:
        """Return whether calls for a path fail."""
        folder = self.failing_folder
        return self.is_failing or (folder is not None and (path == folder or path.startswith(f"{folder}/")))

    def find(self, path: str) -> _File | _Directory | None:
        node: _File | _Directory | None = self.root
        for name in _names(path):
            if not isinstance(node, _Directory):
                return None
            node = node.entries.get(name)
        return node

    def parent_of(self, path: str) -> tuple[_Directory, str]:
        """Return the directory of `path` and the last name. Raises an OSError without it."""
        *above, name = _names(path)
        node: _File | _Directory | None = self.root
        for one in above:
            node = node.entries.get(one) if isinstance(node, _Directory) else None
        if not isinstance(node, _Directory):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return node, name

    def files_below(self, path: str) -> Iterator[tuple[str, bytes]]:
        """Return path and content of all files, in order."""
        node = self.find(path)
        if isinstance(node, _File):
            yield path, node.read(node.size, 0)
        elif node is not None:
            for name in sorted(node.entries):
                yield from self.files_below(f"{path}/{name}")


class _Descriptor(OpenFile):
    """An open file of a simulated process."""

    __slots__ = ("file",)

    def __init__(self, path: str, file: _File) -> None:
        super().__init__(path, 0)
        self.file = file

    def close(self) -> None:
        if self.descriptor >= 0:
            self.descriptor = -1
            if self.file.locked_by is self:
                self.file.locked_by = None


class DiskFiles(Files):
    """`Files` of one process. `stall(us)` makes the calling thread wait; `now_us` includes that."""

    def __init__(self, disk: SimulatedDisk, now_us: Callable[[], int], stall: Callable[[int], None]) -> None:
        self.disk = disk
        self._now_us = now_us
        self._stall = stall
        self._is_dead = False
        self._calls_left = -1
        self._on_crash: Callable[[], None] = lambda: None

    def die(self) -> None:
        """The process is dead: every further call raises `Crashed`."""
        self._is_dead = True
        self.disk.release_locks()

    def crash_after(self, calls: int, on_crash: Callable[[], None]) -> None:
        """Kill the process within the call after that many changing calls; a write is torn."""
        self._calls_left = calls
        self._on_crash = on_crash

    def never_crash(self) -> None:
        self._calls_left = -1

    def _change(self, call: str, path: str, *, if_torn: Callable[[], None] | None = None) -> None:
        """Begin a call that changes something: it may be the last one, slow, or fail."""
        if self._is_dead:
            raise Crashed
        self.disk.calls += 1
        if self._calls_left >= 0:
            if self._calls_left == 0:
                if if_torn is not None:
                    if_torn()
                self._on_crash()
                raise Crashed
            self._calls_left -= 1
        if self.disk.fails(path):
            self._fail(errno.EIO, call, path)

    def _observe(self, call: str, path: str) -> None:
        if self._is_dead:
            raise Crashed
        if self.disk.fails(path):
            self._fail(errno.EIO, call, path)

    @staticmethod
    def _fail(number: int, call: str, path: str) -> NoReturn:
        raise failure(OSError(number, os.strerror(number)), call, path)

    def _find(self, call: str, path: str) -> _File | _Directory:
        found = self.disk.find(path)
        if found is None:
            self._fail(errno.ENOENT, call, path)
        return found

    def _parent(self, call: str, path: str) -> tuple[_Directory, str]:
        try:
            return self.disk.parent_of(path)
        except OSError as error:
            raise failure(error, call, path) from None

    # Files

    def open(self, path: str, *, create: bool = False) -> OpenFile:
        parent, name = self._parent("open", path)
        found = parent.entries.get(name)
        if found is None and create:
            self._change("open", path)
            if self.disk.is_full:
                self._fail(errno.ENOSPC, "open", path)
            found = _File(modified_ms=self._now_ms())
            parent.change({name: found})
        self._observe("open", path)
        if found is None:
            self._fail(errno.ENOENT, "open", path)
        if isinstance(found, _Directory):
            self._fail(errno.EISDIR, "open", path)
        return _Descriptor(path, found)

    def open_for_reading(self, path: str) -> OpenFile:
        return self.open(path)

    def write(self, file: OpenFile, buffer: Buffer, position: int) -> int:
        assert isinstance(file, _Descriptor)
        data = bytes(buffer)
        target = file.file
        self._change("write", file.path, if_torn=lambda: target.write(position, data[: len(data) // 2]))
        if self.disk.delay_us:
            self._stall(self.disk.delay_us)
        if self.disk.is_full and position + len(data) > target.size:
            room = max(target.size - position, 0)
            if not room:
                self._fail(errno.ENOSPC, "write", file.path)
            data = data[:room]
        target.write(position, data)
        target.modified_ms = self._now_ms()
        return len(data)

    def read(self, file: OpenFile, size: int, position: int) -> bytes:
        assert isinstance(file, _Descriptor)
        self._observe("read", file.path)
        return file.file.read(size, position)

    def read_cached_into(self, file: OpenFile, buffer: bytearray | memoryview, position: int) -> int:
        data = self.read(file, len(buffer), position)
        buffer[: len(data)] = data
        return len(data)

    def send(self, file: OpenFile, size: int, position: int, socket_descriptor: int) -> int:
        raise NotImplementedError("simulated connections have no sockets")

    def sync(self, file: OpenFile) -> None:
        assert isinstance(file, _Descriptor)
        self._change("sync", file.path)
        if self.disk.delay_us:
            self._stall(self.disk.delay_us)
        file.file.sync()

    def sync_directory(self, path: str) -> None:
        self._change("sync", path)
        directory = self._find("sync", path)
        assert isinstance(directory, _Directory)
        directory.sync()

    def start_writeback(self, file: OpenFile, position: int, size: int) -> None:
        self._observe("start write-back", file.path)

    def finish_writeback(self, file: OpenFile) -> None:
        self._observe("start write-back", file.path)

    def truncate(self, file: OpenFile, size: int) -> None:
        assert isinstance(file, _Descriptor)
        self._change("truncate", file.path)
        if file.path.endswith(".log") and size < file.file.size:
            self.disk.log_truncations += 1
        if file.file.size != size:
            file.file.truncate(size)
            file.file.modified_ms = self._now_ms()

    def map(self, file: OpenFile, size: int) -> mmap.mmap:
        assert isinstance(file, _Descriptor)
        self._observe("map", file.path)
        if size > file.file.size:
            raise ValueError("mmap length is greater than file size")
        return file.file.map(size)

    def size(self, file: OpenFile) -> int:
        assert isinstance(file, _Descriptor)
        self._observe("stat", file.path)
        return file.file.size

    # Names

    def modified_ms(self, path: str) -> int:
        self._observe("stat", path)
        return self._find("stat", path).modified_ms

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        self._change("set the time", path)
        self._find("set the time", path).modified_ms = modified_ms

    def exists(self, path: str) -> bool:
        self._observe("stat", path)
        return self.disk.find(path) is not None

    def rename(self, old: str, new: str) -> None:
        found = self._find("rename", old)
        target, new_name = self._parent("rename", new)
        self._change("rename", old)
        replaced = target.entries.get(new_name)
        if isinstance(replaced, _Directory) and (replaced.entries or isinstance(found, _File)):
            self._fail(errno.ENOTEMPTY if replaced.entries else errno.EISDIR, "rename", old)
        source, old_name = self._parent("rename", old)
        if source is target:
            source.change({old_name: None, new_name: found})
        else:
            source.change({old_name: None})
            target.change({new_name: found})

    def unlink(self, path: str) -> None:
        found = self._find("unlink", path)
        self._change("unlink", path)
        if isinstance(found, _Directory):
            self._fail(errno.EISDIR, "unlink", path)
        parent, name = self._parent("unlink", path)
        parent.change({name: None})

    def make_directory(self, path: str) -> None:
        self._change("make directory", path)
        if self.disk.find(path) is not None:
            raise failure(FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)), "make directory", path)
        if self.disk.is_full:
            self._fail(errno.ENOSPC, "make directory", path)
        node: _File | _Directory = self.disk.root
        for name in _names(path):
            if not isinstance(node, _Directory):
                self._fail(errno.ENOTDIR, "make directory", path)
            if name not in node.entries:
                node.change({name: _Directory(modified_ms=self._now_ms())})
            node = node.entries[name]

    def remove_directory(self, path: str) -> None:
        found = self._find("remove directory", path)
        self._change("remove directory", path)
        if isinstance(found, _File):
            self._fail(errno.ENOTDIR, "remove directory", path)
        if found.entries:
            self._fail(errno.ENOTEMPTY, "remove directory", path)
        parent, name = self._parent("remove directory", path)
        parent.change({name: None})

    def list_directory(self, path: str) -> list[DirectoryEntry]:
        self._observe("list", path)
        found = self._find("list", path)
        if isinstance(found, _File):
            self._fail(errno.ENOTDIR, "list", path)
        return [
            DirectoryEntry(name, True, 4096, node.modified_ms)
            if isinstance(node, _Directory)
            else DirectoryEntry(name, False, node.size, node.modified_ms)
            for name, node in sorted(found.entries.items())
        ]

    def lock(self, path: str) -> OpenFile | None:
        opened = self.open(path, create=True)
        assert isinstance(opened, _Descriptor)
        if opened.file.locked_by is not None:
            return None
        opened.file.locked_by = opened
        return opened

    # Time

    def monotonic_s(self) -> float:
        return self._now_us() / 1_000_000

    def sleep(self, seconds: float) -> None:
        self._stall(round(seconds * 1_000_000))

    def _now_ms(self) -> int:
        return EPOCH_MS + self._now_us() // 1000


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name]


def _apply(change: Mapping[str, _File | _Directory | None], entries: dict[str, _File | _Directory]) -> None:
    for name, node in change.items():
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node


def _write(content: bytearray, position: int, data: bytes) -> None:
    if position > len(content):
        content += bytes(position - len(content))
    content[position : position + len(data)] = data


def _release(directory: _Directory) -> None:
    for node in directory.entries.values():
        if isinstance(node, _Directory):
            _release(node)
        else:
            node.locked_by = None
