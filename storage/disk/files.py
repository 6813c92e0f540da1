"""The only interface between storage and the operating system.

Owns every system call that storage makes: `Files` is the port, `OsFiles` its implementation for Unix. The tests
replace it with one that forgets what was not synced, tears writes and fails the n-th call. Must not know what the files
contain, or on which system it runs: `base.system_calls` has the table of the calls that some systems lack.

Invariants:
- A descriptor or map stays valid while a reference to it exists: `OpenFile` closes itself when its last reference is
  gone, and maps are never closed explicitly. So a reader in another thread can finish after a roll, a deletion or the
  release of an idle segment, and no descriptor number is reused before it has.
- Every failure is an `OSError` that names the operation and the file. Nothing here retries.
- Only this module classifies failures: a `ShortageError` means that the process or the machine has no descriptors or
  memory left, so the same call may succeed later; any other `OSError` is an error of the disk.
"""

import ctypes
import errno
import fcntl
import math
import mmap
import os
import struct
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import Final, NamedTuple, TypeAlias

from base.system_calls import SYSTEM_CALLS, SystemCalls
from storage.disk import names

Buffer: TypeAlias = bytes | bytearray | memoryview

_SYNC_FILE_RANGE_WRITE: Final = 2
_SYNC_FILE_RANGE_WRITE_AND_WAIT: Final = 1 | 2 | 4
_NO_SYNC_FILE_RANGE: Final = frozenset({errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP})
_LOCK: Final = struct.Struct("hhqqi4x")  # struct flock of 64-bit Linux
_LOCK_IS_HELD: Final = frozenset({errno.EACCES, errno.EAGAIN})
_WOULD_WAIT: Final = frozenset({errno.EAGAIN, errno.EOPNOTSUPP})
_SHORTAGES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN})
_SYNC: Final = "sync"


class DirectoryEntry(NamedTuple):
    name: str
    is_directory: bool
    size: int
    modified_ms: int


class OpenFile:
    """A descriptor that is closed with its last reference. Call `close` only if no other reference exists."""

    __slots__ = ("descriptor", "path")

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self.descriptor = descriptor

    def close(self) -> None:
        if self.descriptor >= 0:
            descriptor, self.descriptor = self.descriptor, -1
            os.close(descriptor)

    def __del__(self) -> None:
        self.close()


class ShortageError(OSError):
    """The process or the machine lacks descriptors or memory. The disk works; the same call may succeed later."""


def failure(error: OSError, operation: str, path: str) -> OSError:
    """Return `error` as an OSError or a ShortageError whose text names the operation and the path.

    A failed sync is never a shortage: the kernel reports lost pages only once, so a second sync would prove nothing.
    """
    kind = ShortageError if error.errno in _SHORTAGES and operation != _SYNC else OSError
    name = errno.errorcode.get(error.errno or 0, "I/O error")
    return kind(error.errno, f"cannot {operation}: {error.strerror or error} ({name})", path)


class _FailuresOf:
    """A context manager that converts an OSError with `failure`."""

    __slots__ = ("_operation", "_path")

    def __init__(self, operation: str, path: str) -> None:
        self._operation = operation
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, OSError):
            raise failure(error, self._operation, self._path) from None


class Files(ABC):
    """The operations that storage needs. A `position` is a byte offset in a file; sizes are in bytes."""

    @abstractmethod
    def open(self, path: str, *, create: bool = False) -> OpenFile:
        """Open a file for reading and writing. Raises FileNotFoundError if it is missing and `create` is False."""

    @abstractmethod
    def open_for_reading(self, path: str) -> OpenFile: ...

    @abstractmethod
    def write(self, file: OpenFile, buffer: Buffer, position: int) -> int:
        """Write once; return the number of bytes written, which may be fewer than given."""

    @abstractmethod
    def read(self, file: OpenFile, size: int, position: int) -> bytes:
        """Read once; the result is shorter than `size` only at the end of the file."""

    @abstractmethod
    def read_cached_into(self, file: OpenFile, buffer: bytearray | memoryview, position: int) -> int:
        """Read only from the page cache, without waiting for the disk; return the number of bytes, which may be 0.

        Always 0 if the system or the file system cannot do this; the caller then reads in a thread.
        """

    @abstractmethod
    def send(self, file: OpenFile, size: int, position: int, socket_descriptor: int) -> int:
        """Send bytes to a socket with sendfile; return the number sent, 0 at the end of the file.

        Waits for the disk if the bytes are not in the page cache. Raises BlockingIOError if the socket's buffer is
        full.
        """

    @abstractmethod
    def sync(self, file: OpenFile) -> None:
        """Make the content of a file durable: after the return it survives a loss of power."""

    @abstractmethod
    def sync_directory(self, path: str) -> None:
        """Make the names in a directory durable: creations, renames and removals."""

    @abstractmethod
    def start_writeback(self, file: OpenFile, position: int, size: int) -> None:
        """Start the kernel's write-back of a range, where the system can. Guarantees no durability."""

    @abstractmethod
    def finish_writeback(self, file: OpenFile) -> None:
        """Write all dirty pages and wait for the end. Raises OSError if a write-back failed since the file was opened.

        This is no sync, because it writes no metadata. Call it before closing a file that is synced later: the kernel
        reports a failed write-back only to descriptors that are open at that moment.
        """

    @abstractmethod
    def truncate(self, file: OpenFile, size: int) -> None:
        """Set the size of a file. An added range is a hole."""

    @abstractmethod
    def map(self, file: OpenFile, size: int) -> mmap.mmap:
        """Map a file of at least `size` bytes for reading. Never close a map; drop its references."""

    @abstractmethod
    def size(self, file: OpenFile) -> int: ...

    @abstractmethod
    def modified_ms(self, path: str) -> int: ...

    @abstractmethod
    def set_modified_ms(self, path: str, modified_ms: int) -> None: ...

    @abstractmethod
    def exists(self, path: str) -> bool: ...

    @abstractmethod
    def rename(self, old: str, new: str) -> None:
        """Rename a file; replaces `new` if it exists."""

    @abstractmethod
    def unlink(self, path: str) -> None: ...

    @abstractmethod
    def make_directory(self, path: str) -> None:
        """Make a directory and its missing parents. Raises FileExistsError if `path` exists."""

    @abstractmethod
    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""

    @abstractmethod
    def list_directory(self, path: str) -> list[DirectoryEntry]:
        """Return the entries, sorted by name, without those that are removed during the call."""

    @abstractmethod
    def lock(self, path: str) -> OpenFile | None:
        """Lock a file until the returned `OpenFile` is closed. None if it is locked already, even by this process."""

    @abstractmethod
    def monotonic_s(self) -> float:
        """Return the seconds since an arbitrary start, to measure how long calls take."""

    def undelayed_s(self) -> float:
        """Return `monotonic_s` less the time for which the calling thread has waited for a processor, if that is known.

        Takes several microseconds. Only values of one thread can be compared. NaN if the time cannot be read now.
        """
        return self.monotonic_s()

    @abstractmethod
    def sleep(self, seconds: float) -> None:
        """Wait before a call is repeated. Only for threads that may wait for the disk."""

    def read_whole(self, path: str) -> bytes:
        file = self.open_for_reading(path)
        try:
            return self.read(file, self.size(file), 0)
        finally:
            file.close()

    def replace(self, path: str, content: Buffer, *, durable: bool) -> None:
        """Replace the file at `path` atomically: a crash of the process leaves the old or the new content.

        With `durable`, waits for the disk, and a crash of the machine leaves the old or the new content too. Without
        it, a crash of the machine may leave an empty or an older file.
        """
        temporary = path + names.TEMPORARY
        file = self.open(temporary, create=True)
        try:
            self.truncate(file, 0)
            self.write_all(file, content, 0)
            if durable:
                self.sync(file)
        finally:
            file.close()
        self.rename(temporary, path)
        if durable:
            self.sync_directory(os.path.dirname(path))

    def write_all(self, file: OpenFile, content: Buffer, position: int) -> None:
        """Write all of `content`. After a short write it writes the rest, which raises the error that cut it short."""
        rest = memoryview(content)
        while rest:
            written = self.write(file, rest, position)
            rest = rest[written:]
            position += written

    def sync_path(self, path: str) -> None:
        """Sync a file that is not open. A missing file needs no sync."""
        try:
            file = self.open_for_reading(path)
        except FileNotFoundError:
            return
        try:
            self.sync(file)
        finally:
            file.close()

    def unlink_if_exists(self, path: str) -> bool:
        try:
            self.unlink(path)
        except FileNotFoundError:
            return False
        return True


_DELAYS = "/proc/thread-self/schedstat"
"""Of the thread that opens it: its time on a processor and its time of waiting for one, both in nanoseconds."""


class _Delays:
    """How long the thread that created it has waited for a processor. Raises OSError."""

    def __init__(self) -> None:
        self._descriptor = os.open(_DELAYS, os.O_RDONLY | os.O_CLOEXEC)

    def delay_s(self) -> float:
        return int(os.pread(self._descriptor, 64, 0).split()[1]) / 1e9

    def __del__(self) -> None:
        if hasattr(self, "_descriptor"):
            os.close(self._descriptor)


class OsFiles(Files):
    """The files of this machine."""

    def __init__(self, calls: SystemCalls = SYSTEM_CALLS) -> None:
        """`calls` is what the system has; each missing call has a portable form."""
        self._calls = calls
        self._are_delays_known = os.path.exists(_DELAYS)
        self._of_thread = threading.local()

    def open(self, path: str, *, create: bool = False) -> OpenFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return self._open(path, flags)

    def open_for_reading(self, path: str) -> OpenFile:
        return self._open(path, os.O_RDONLY | os.O_CLOEXEC)

    def _open(self, path: str, flags: int) -> OpenFile:
        with _FailuresOf("open", path):
            return OpenFile(path, os.open(path, flags, 0o644))

    # The calls on the request path use a plain try, which costs nothing as long as they succeed.

    def write(self, file: OpenFile, buffer: Buffer, position: int) -> int:
        try:
            return os.pwrite(file.descriptor, buffer, position)
        except OSError as error:
            raise failure(error, "write", file.path) from None

    def read(self, file: OpenFile, size: int, position: int) -> bytes:
        try:
            return os.pread(file.descriptor, size, position)
        except OSError as error:
            raise failure(error, "read", file.path) from None

    def read_cached_into(self, file: OpenFile, buffer: bytearray | memoryview, position: int) -> int:
        flag = self._calls.cached_read_flag
        if flag is None:
            return 0
        try:
            return os.preadv(file.descriptor, [buffer], position, flag)
        except OSError as error:
            if error.errno in _WOULD_WAIT:
                return 0
            raise failure(error, "read", file.path) from None

    def send(self, file: OpenFile, size: int, position: int, socket_descriptor: int) -> int:
        return os.sendfile(socket_descriptor, file.descriptor, position, size)

    def sync(self, file: OpenFile) -> None:
        with _FailuresOf(_SYNC, file.path):
            self._calls.sync(file.descriptor)

    def sync_directory(self, path: str) -> None:
        directory = self._open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with _FailuresOf(_SYNC, path):
                self._calls.sync(directory.descriptor)
        finally:
            directory.close()

    def start_writeback(self, file: OpenFile, position: int, size: int) -> None:
        if self._calls.sync_file_range is not None:
            self._sync_file_range(self._calls.sync_file_range, file, position, size, _SYNC_FILE_RANGE_WRITE)

    def finish_writeback(self, file: OpenFile) -> None:
        if self._calls.sync_file_range is not None:
            try:  # a size of 0 means up to the end
                self._sync_file_range(self._calls.sync_file_range, file, 0, 0, _SYNC_FILE_RANGE_WRITE_AND_WAIT)
            except OSError as error:
                if error.errno not in _NO_SYNC_FILE_RANGE:
                    raise
            else:
                return
        with _FailuresOf(_SYNC, file.path):
            self._calls.sync_data(file.descriptor)

    @staticmethod
    def _sync_file_range(
        call: Callable[[int, int, int, int], int], file: OpenFile, position: int, size: int, flags: int
    ) -> None:
        if call(file.descriptor, position, size, flags) != 0:
            number = ctypes.get_errno()
            raise failure(OSError(number, os.strerror(number)), "start write-back", file.path)

    def truncate(self, file: OpenFile, size: int) -> None:
        with _FailuresOf("truncate", file.path):
            os.ftruncate(file.descriptor, size)

    def map(self, file: OpenFile, size: int) -> mmap.mmap:
        with _FailuresOf("map", file.path):
            return mmap.mmap(file.descriptor, size, access=mmap.ACCESS_READ)

    def size(self, file: OpenFile) -> int:
        with _FailuresOf("stat", file.path):
            return os.fstat(file.descriptor).st_size

    def modified_ms(self, path: str) -> int:
        with _FailuresOf("stat", path):
            return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        with _FailuresOf("set the time", path):
            os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def rename(self, old: str, new: str) -> None:
        with _FailuresOf("rename", old):
            os.replace(old, new)

    def unlink(self, path: str) -> None:
        with _FailuresOf("unlink", path):
            os.unlink(path)

    def make_directory(self, path: str) -> None:
        with _FailuresOf("make directory", path):
            os.makedirs(path)

    def remove_directory(self, path: str) -> None:
        with _FailuresOf("remove directory", path):
            os.rmdir(path)

    def list_directory(self, path: str) -> list[DirectoryEntry]:
        found = []
        with _FailuresOf("list", path), os.scandir(path) as entries:
            for entry in entries:
                try:
                    status = entry.stat(follow_symlinks=not _is_dangling(entry))
                except FileNotFoundError:
                    continue
                found.append(
                    DirectoryEntry(entry.name, entry.is_dir(), status.st_size, status.st_mtime_ns // 1_000_000)
                )
        return sorted(found)

    monotonic_s = staticmethod(time.perf_counter)  # without a frame of its own: appends call it twice

    def undelayed_s(self) -> float:
        if not self._are_delays_known:
            return self.monotonic_s()
        own = self._of_thread
        try:
            if not hasattr(own, "delays"):
                own.delays = _Delays()
            delay_s = own.delays.delay_s()
        except OSError:
            return math.nan
        return self.monotonic_s() - float(delay_s)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def lock(self, path: str) -> OpenFile | None:
        # An open-file-description lock conflicts with the POSIX lock that Kafka's JVM acquires on the same file. Unlike
        # a POSIX lock, it also conflicts with a second broker in this process, and it is not released when another
        # descriptor of the file is closed. On BSD kernels, and so on macOS, flock has these three properties too.
        file = self.open(path, create=True)
        try:
            if self._calls.has_description_locks:
                fcntl.fcntl(file.descriptor, fcntl.F_OFD_SETLK, _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
            else:
                fcntl.flock(file.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.close()
            if error.errno in _LOCK_IS_HELD:
                return None
            raise failure(error, "lock", path) from None
        return file


def _is_dangling(entry: os.DirEntry[str]) -> bool:
    return entry.is_symlink() and not os.path.exists(entry.path)
