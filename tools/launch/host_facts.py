"""Reads what `tools.launch.host_checks` checks: from /proc, from the file systems, and from the kernel's clock.

Owns the files and calls of the operating system. Must not know what is expected. What a system does not report, or a
container hides, is None or missing.
"""

from __future__ import annotations

import ctypes
import os
import re
import resource
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from broker.metrics.host import FileSystem, Host
from storage.disk.names import LOG
from tools.launch.host_checks import PARAMETERS, Directory, HostFacts

_CLOCK_UNSYNCHRONISED: Final = 5  # TIME_ERROR of adjtimex(2)
_MEMORY_LIMITS: Final = ("memory.max", "memory/memory.limit_in_bytes")
"""The files of cgroups 2 and 1. A container sees its own limits at the root."""
_TIMEX_SIZE: Final = 512  # larger than struct timex of any architecture


class Mount(NamedTuple):
    """A mounted file system."""

    point: str
    kind: str
    options: frozenset[str]


def read_facts(
    log_dirs: Sequence[str] | None,
    application_logs: str | None,
    *,
    proc: Path = Path("/proc"),
    cgroups: Path = Path("/sys/fs/cgroup"),
) -> HostFacts:
    """Return the facts of this host.

    Args:
        log_dirs: The log directories, which need not exist yet; None if they are not known.
        application_logs: The folder of the broker's own log files, if it writes any.
        proc: Where the kernel shows its values.
        cgroups: Where it shows the limits of this container.
    """
    directories = {path: _existing(path) for path in log_dirs or ()}
    host = Host(list(directories.values()))
    host.sample()
    memory, file_systems = host.last.memory, host.last.file_systems
    mounts = _mounts(proc)
    return HostFacts(
        descriptors_max=resource.getrlimit(resource.RLIMIT_NOFILE)[1],
        kernel=_kernel(proc),
        swap_size=memory.get("SwapTotal"),
        swap_used_size=memory["SwapTotal"] - memory["SwapFree"] if {"SwapTotal", "SwapFree"} <= memory.keys() else None,
        available_memory_size=min(
            (size for size in (memory.get("MemAvailable"), _memory_limit(cgroups)) if size is not None), default=None
        ),
        clock_is_synchronised=_clock_is_synchronised(),
        directories=[
            _directory(path, existing, mount_of(mounts, existing), file_systems.get(existing), application_logs)
            for path, existing in directories.items()
        ],
        segment_count=None if log_dirs is None else sum(map(_segment_count, log_dirs)),
    )


def parse_mounts(text: str) -> list[Mount]:
    """Return the mounts of a /proc/self/mountinfo; lines of another form are left out."""
    found = []
    for line in text.splitlines():
        left, separator, right = line.partition(" - ")
        words, kinds = left.split(), right.split()
        if separator and len(words) >= 6 and kinds:
            found.append(Mount(_unescaped(words[4]), kinds[0], frozenset(words[5].split(","))))
    return found


def mount_of(mounts: Iterable[Mount], path: str) -> Mount | None:
    """Return the mount that an absolute path without symbolic links belongs to. Later ones cover earlier ones."""
    candidates = [mount for mount in mounts if os.path.commonpath([mount.point, path]) == mount.point]
    return max(reversed(candidates), key=lambda mount: len(mount.point), default=None)


def _existing(path: str) -> str:
    """Return the directory without symbolic links, or the nearest one above it that exists."""
    found = os.path.realpath(path)
    while not os.path.isdir(found) and found != os.path.dirname(found):
        found = os.path.dirname(found)
    return found


def _mounts(proc: Path) -> list[Mount]:
    try:
        return parse_mounts((proc / "self/mountinfo").read_text(errors="replace"))
    except OSError:
        return []


def _unescaped(text: str) -> str:
    r"""Return a path of mountinfo, which writes a blank as `\040`."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def _kernel(proc: Path) -> Mapping[str, tuple[int, ...]]:
    found = {}
    for parameter in PARAMETERS:
        try:
            values = (proc / "sys" / parameter.replace(".", "/")).read_text().split()
            found[parameter] = tuple(map(int, values))
        except (OSError, ValueError):
            continue  # a container may hide it
    return {parameter: values for parameter, values in found.items() if values}


def _memory_limit(cgroups: Path) -> int | None:
    """Return the memory that a container may use, in bytes; None without a limit."""
    for name in _MEMORY_LIMITS:
        try:
            return int((cgroups / name).read_text())
        except (OSError, ValueError):
            continue  # the other version of cgroups, or `max`
    return None


def _directory(
    path: str, existing: str, mount: Mount | None, space: FileSystem | None, application_logs: str | None
) -> Directory:
    return Directory(
        path,
        None if mount is None else mount.kind,
        frozenset() if mount is None else mount.options,
        None if space is None else _share(space.free_size, space.size),
        None if space is None else _share(space.free_inode_count, space.inode_count),
        application_logs is not None and _is_same_device(existing, _existing(application_logs)),
    )


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _is_same_device(one: str, other: str) -> bool:
    try:
        return os.stat(one).st_dev == os.stat(other).st_dev
    except OSError:
        return False


def _segment_count(log_dir: str) -> int:
    """Return how many segments the partitions of a log directory have."""
    count = 0
    try:
        with os.scandir(log_dir) as entries:
            partitions = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
        for partition in partitions:
            count += sum(name.endswith(LOG) for name in os.listdir(partition))
    except OSError:
        pass  # it does not exist yet, or its partitions are being deleted
    return count


def _clock_is_synchronised() -> bool | None:
    """Return whether the kernel regards its clock as synchronised; None if it does not say."""
    try:
        state: int = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_TIMEX_SIZE))
    except (OSError, AttributeError):
        return None
    return None if state < 0 else state != _CLOCK_UNSYNCHRONISED
