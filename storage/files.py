"""The only seam between storage and the operating system.

Owns every system call that storage makes: `Files` is the port, `OsFiles` the machine it runs on. A double in the tests
forgets what was not synced, tears writes and fails the n-th call. Must not know what the files mean.

Invariants:
- A descriptor or map that somebody still holds stays valid: `OpenFile` closes itself when its last reference goes,
  maps are dropped and never closed. So a reader in another thread may outlive a roll, a delete or an idle sweep, and
  no descriptor number is reused under it.
- Every failure is an `OSError` that names the operation and the file. Nothing here retries.
- What a failure means is decided here and nowhere else: a `ShortageError` says that the process or the machine has run
  out of descriptors or memory, so the same call may succeed later; any other `OSError` is an error of the disk.
"""

import ctypes
import errno
import fcntl
import mmap
import os
import struct
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Final, NamedTuple, TypeAlias

from storage import names

Buffer: TypeAlias = bytes | bytearray | memoryview

_SYNC_FILE_RANGE_WRITE: Final = 2
_SYNC_FILE_RANGE_WRITE_AND_WAIT: Final = 1 | 2 | 4
_NO_SYNC_FILE_RANGE: Final = frozenset({errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP})
_LOCK: Final = struct.Struct("hhqqi4x")  # struct flock of 64-bit Linux
_LOCK_IS_HELD: Final = frozenset({errno.EACCES, errno.EAGAIN})
_NOT_WITHOUT_WAITING: Final = frozenset({errno.EAGAIN, errno.EOPNOTSUPP})
_SHORTAGES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN})
_SYNC: Final = "sync"


class DirectoryEntry(NamedTuple):
    name: str
    is_directory: bool
    size: int
    modified_ms: int


class OpenFile:
    """A descriptor that lives as long as somebody refers to it. `close` is for who knows that nobody else does."""

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
    """The process or the machine lacks descriptors or memory. The disk is fine; the same call may succeed later."""


def failure(error: OSError, operation: str, path: str) -> OSError:
    """Return `error` as storage is to see it: classified, with the operation and the path in its text.

    A failed sync is never a shortage: the kernel reports lost pages only once, so that a second sync proves nothing.
    """
    kind = ShortageError if error.errno in _SHORTAGES and operation != _SYNC else OSError
    name = errno.errorcode.get(error.errno or 0, "I/O error")
    return kind(error.errno, f"cannot {operation}: {error.strerror or error} ({name})", path)


class _Doing:
    """Passes an OSError of its block through `failure`."""

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
    """What storage asks of an operating system. Offsets inside a file are `position`s; sizes are bytes."""

    @abstractmethod
    def open(self, path: str, *, create: bool = False) -> OpenFile:
        """For reading and writing. FileNotFoundError when missing and not to be created."""

    @abstractmethod
    def open_for_reading(self, path: str) -> OpenFile: ...

    @abstractmethod
    def write(self, file: OpenFile, buffer: Buffer, position: int) -> int:
        """One write; returns how many bytes were taken, which may be fewer."""

    @abstractmethod
    def read(self, file: OpenFile, size: int, position: int) -> bytes:
        """One read; shorter only at the end of the file."""

    @abstractmethod
    def read_cached_into(self, file: OpenFile, buffer: bytearray | memoryview, position: int) -> int:
        """Reads only what memory holds and never waits for a disk; returns how many bytes, 0 when there are none."""

    @abstractmethod
    def send(self, file: OpenFile, size: int, position: int, socket_descriptor: int) -> int:
        """Hands bytes to a socket without copying them here; returns how many it took, 0 at the end of the file.

        BlockingIOError when the socket takes none now. What memory does not hold is waited for.
        """

    @abstractmethod
    def sync(self, file: OpenFile) -> None: ...

    @abstractmethod
    def sync_directory(self, path: str) -> None:
        """Makes the names in a directory durable: creations, renames and removals."""

    @abstractmethod
    def start_writeback(self, file: OpenFile, position: int, size: int) -> None:
        """Asks the kernel to begin writing a range to the disk. Promises nothing about durability."""

    @abstractmethod
    def finish_writeback(self, file: OpenFile) -> None:
        """Writes all content out and waits for it. A write-back that failed since the file was opened is an error.

        Without metadata this is no sync. It is for a file that is closed before its sync: the kernel reports a failed
        write-back to the descriptors that are open at that moment, and to nobody if there is none.
        """

    @abstractmethod
    def truncate(self, file: OpenFile, size: int) -> None:
        """Cuts or enlarges; what is added is a hole."""

    @abstractmethod
    def map(self, file: OpenFile, size: int) -> mmap.mmap:
        """For reading; the file must be at least that long. Never close a map: drop it."""

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
        """Replaces `new` when it is there."""

    @abstractmethod
    def unlink(self, path: str) -> None: ...

    @abstractmethod
    def make_directory(self, path: str) -> None:
        """With its parents; FileExistsError when `path` is there."""

    @abstractmethod
    def remove_directory(self, path: str) -> None:
        """Must be empty."""

    @abstractmethod
    def list_directory(self, path: str) -> list[DirectoryEntry]:
        """Sorted by name. An entry that vanishes meanwhile is left out."""

    @abstractmethod
    def lock(self, path: str) -> OpenFile | None:
        """An exclusive lock that lives as long as the file is held; None when somebody, in this process too, has it."""

    def read_whole(self, path: str) -> bytes:
        file = self.open_for_reading(path)
        try:
            return self.read(file, self.size(file), 0)
        finally:
            file.close()

    def replace(self, path: str, content: Buffer, *, durable: bool) -> None:
        """Puts `content` at `path` in one step: a crash leaves the old or the new file.

        Without `durable` nothing waits for the disk, and a crash of the machine may leave an empty or older file too.
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
        """Goes on after a short write, so that the error that caused it comes out."""
        rest = memoryview(content)
        while rest:
            taken = self.write(file, rest, position)
            rest = rest[taken:]
            position += taken

    def sync_path(self, path: str) -> None:
        """For files that are not held open; one that is gone needs no syncing."""
        try:
            file = self.open_for_reading(path)
        except FileNotFoundError:
            return
        try:
            self.sync(file)
        finally:
            file.close()

    def unlink_if_there(self, path: str) -> bool:
        try:
            self.unlink(path)
        except FileNotFoundError:
            return False
        return True


class TruncatedError(OSError):
    """A file ends within a slice of it."""


class FileSlice:
    """Bytes that stay in their file: the kernel sends them to a socket, and nobody has to hold a copy meanwhile.

    It keeps the file open, so that what was deleted or replaced since is still what was found.
    """

    __slots__ = ("_file", "_files", "_position", "_size")

    def __init__(self, files: Files, file: OpenFile, position: int, size: int) -> None:
        self._files = files
        self._file = file
        self._position = position
        self._size = size

    def __len__(self) -> int:
        return self._size

    def read(self) -> bytes:
        """The bytes. Raises OSError, TruncatedError when they are no longer all there."""
        content = self._files.read(self._file, self._size, self._position)
        if len(content) < self._size:
            raise TruncatedError
        return content

    def send(self, socket_descriptor: int, start: int, size_max: int) -> int:
        """Send at most `size_max` bytes from byte `start` on; how many the socket took, at least one.

        Raises BlockingIOError when it takes none now, OSError when the socket or the disk has failed, TruncatedError.
        """
        size = min(self._size - start, size_max)
        sent = self._files.send(self._file, size, self._position + start, socket_descriptor)
        if not sent:
            raise TruncatedError
        return sent


class OsFiles(Files):
    """Linux. Kafka runs elsewhere too; RWF_NOWAIT and open-file-description locks do not."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.sync_file_range.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]

    def open(self, path: str, *, create: bool = False) -> OpenFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return self._open(path, flags)

    def open_for_reading(self, path: str) -> OpenFile:
        return self._open(path, os.O_RDONLY | os.O_CLOEXEC)

    def _open(self, path: str, flags: int) -> OpenFile:
        with _Doing("open", path):
            return OpenFile(path, os.open(path, flags, 0o644))

    # The calls that requests make have a plain try, which costs nothing as long as they succeed.

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
        try:
            return os.preadv(file.descriptor, [buffer], position, os.RWF_NOWAIT)
        except OSError as error:
            if error.errno in _NOT_WITHOUT_WAITING:
                return 0
            raise failure(error, "read", file.path) from None

    def send(self, file: OpenFile, size: int, position: int, socket_descriptor: int) -> int:
        return os.sendfile(socket_descriptor, file.descriptor, position, size)

    def sync(self, file: OpenFile) -> None:
        with _Doing(_SYNC, file.path):
            os.fsync(file.descriptor)

    def sync_directory(self, path: str) -> None:
        directory = self._open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with _Doing(_SYNC, path):
                os.fsync(directory.descriptor)
        finally:
            directory.close()

    def start_writeback(self, file: OpenFile, position: int, size: int) -> None:
        self._sync_file_range(file, position, size, _SYNC_FILE_RANGE_WRITE)

    def finish_writeback(self, file: OpenFile) -> None:
        try:
            self._sync_file_range(file, 0, 0, _SYNC_FILE_RANGE_WRITE_AND_WAIT)  # a size of 0 is all
        except OSError as error:
            if error.errno not in _NO_SYNC_FILE_RANGE:
                raise
            os.fdatasync(file.descriptor)

    def _sync_file_range(self, file: OpenFile, position: int, size: int, flags: int) -> None:
        if self._libc.sync_file_range(file.descriptor, position, size, flags) != 0:
            number = ctypes.get_errno()
            raise failure(OSError(number, os.strerror(number)), "start write-back", file.path)

    def truncate(self, file: OpenFile, size: int) -> None:
        with _Doing("truncate", file.path):
            os.ftruncate(file.descriptor, size)

    def map(self, file: OpenFile, size: int) -> mmap.mmap:
        with _Doing("map", file.path):
            return mmap.mmap(file.descriptor, size, access=mmap.ACCESS_READ)

    def size(self, file: OpenFile) -> int:
        with _Doing("stat", file.path):
            return os.fstat(file.descriptor).st_size

    def modified_ms(self, path: str) -> int:
        with _Doing("stat", path):
            return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        with _Doing("set the time", path):
            os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def rename(self, old: str, new: str) -> None:
        with _Doing("rename", old):
            os.replace(old, new)

    def unlink(self, path: str) -> None:
        with _Doing("unlink", path):
            os.unlink(path)

    def make_directory(self, path: str) -> None:
        with _Doing("make directory", path):
            os.makedirs(path)

    def remove_directory(self, path: str) -> None:
        with _Doing("remove directory", path):
            os.rmdir(path)

    def list_directory(self, path: str) -> list[DirectoryEntry]:
        found = []
        with _Doing("list", path), os.scandir(path) as entries:
            for entry in entries:
                try:
                    status = entry.stat(follow_symlinks=not _is_dangling(entry))
                except FileNotFoundError:
                    continue
                found.append(
                    DirectoryEntry(entry.name, entry.is_dir(), status.st_size, status.st_mtime_ns // 1_000_000)
                )
        return sorted(found)

    def lock(self, path: str) -> OpenFile | None:
        # An open-file-description lock: it shuts out the POSIX lock that Kafka's JVM takes on the same file, and unlike
        # a POSIX lock it also shuts out a second broker in this process and survives the closing of another descriptor.
        file = self.open(path, create=True)
        try:
            fcntl.fcntl(file.descriptor, fcntl.F_OFD_SETLK, _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
        except OSError as error:
            file.close()
            if error.errno in _LOCK_IS_HELD:
                return None
            raise failure(error, "lock", path) from None
        return file


def _is_dangling(entry: os.DirEntry[str]) -> bool:
    return entry.is_symlink() and not os.path.exists(entry.path)
