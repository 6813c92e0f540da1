"""The calls of the operating system that not every Unix has, decided once for the process.

Owns the table of these calls: whether this system has one, and under which number. Each caller has a portable form for
the case that it is missing, so macOS needs no other code than this table. Must not know what the calls are used for.
"""

import ctypes
import errno
import fcntl
import os
import select
import socket
import sys
from collections.abc import Callable
from typing import Final, NamedTuple

PROC_DESCRIPTORS: Final = "/proc/self/fd"
_NO_FULL_SYNC: Final = frozenset({errno.ENOTSUP, errno.EINVAL, errno.ENOTTY})


class SystemCalls(NamedTuple):
    """What a system has; None, False or 0 if it is missing."""

    cached_read_flag: int | None
    """`RWF_NOWAIT` of preadv: read only what is in the page cache."""
    sync_file_range: Callable[[int, int, int, int], int] | None
    """Write a range of a file back: descriptor, position, size, flags. Returns -1 with ctypes' errno set on failure."""
    sync_data: Callable[[int], None]
    """fdatasync, or fsync."""
    full_sync_command: int | None
    """`F_FULLFSYNC` of fcntl. Where it exists, fsync leaves the data in the volatile cache of the drive."""
    has_description_locks: bool
    """`F_OFD_SETLK` of fcntl, with the struct flock of 64-bit Linux."""
    has_epoll: bool
    more_flag: int
    """`MSG_MORE` of send: the next bytes follow at once."""
    tcp_info_option: int | None
    """`TCP_INFO` of getsockopt, with the struct tcp_info of Linux."""
    has_memory_files: bool
    """memfd_create, and /proc/self/fd to open such a file by name."""
    descriptor_folder: str
    """Lists the open descriptors of this process."""

    def sync(self, descriptor: int) -> None:
        """Return when a file or directory is on the drive, and not only in its volatile cache. Raises OSError."""
        if self.full_sync_command is not None:
            try:
                fcntl.fcntl(descriptor, self.full_sync_command)
            except OSError as error:
                if error.errno not in _NO_FULL_SYNC:  # a network file system may have none
                    raise
            else:
                return
        os.fsync(descriptor)


def system_calls() -> SystemCalls:
    """Return the table of this system."""
    is_linux = sys.platform == "linux"  # the layouts of structs are those of Linux
    has_proc = os.path.isdir(PROC_DESCRIPTORS)
    full_sync_command: int | None = getattr(fcntl, "F_FULLFSYNC", None)
    tcp_info_option: int | None = getattr(socket, "TCP_INFO", None)
    return SystemCalls(
        cached_read_flag=getattr(os, "RWF_NOWAIT", None),
        sync_file_range=_sync_file_range(),
        sync_data=getattr(os, "fdatasync", os.fsync),
        full_sync_command=full_sync_command,
        has_description_locks=is_linux and hasattr(fcntl, "F_OFD_SETLK"),
        has_epoll=hasattr(select, "epoll"),
        more_flag=getattr(socket, "MSG_MORE", 0),
        tcp_info_option=tcp_info_option if is_linux else None,
        has_memory_files=hasattr(os, "memfd_create") and has_proc,
        descriptor_folder=PROC_DESCRIPTORS if has_proc else "/dev/fd",
    )


def _sync_file_range() -> Callable[[int, int, int, int], int] | None:
    try:
        function = ctypes.CDLL(None, use_errno=True).sync_file_range
    except AttributeError:
        return None
    function.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
    call: Callable[[int, int, int, int], int] = function
    return call


SYSTEM_CALLS: Final = system_calls()
