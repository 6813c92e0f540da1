"""Figures of the machine and of this process, read from the operating system.

Owns: what is read from /proc and when. Must not know how the figures are shown.

Reading may wait, so `sample` runs in a thread every few seconds, and metrics show the last sample. What a system does
not report is missing.
"""

from __future__ import annotations

import gc
import os
import resource
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Final, TypeVar

from base.dataclass import dataclass
from base.system_calls import SYSTEM_CALLS

MODES: Final = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
"""The columns of a line of /proc/stat."""
SECTOR_SIZE: Final = 512
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_PAGE_SIZE: Final = os.sysconf("SC_PAGE_SIZE")

T = TypeVar("T")


@dataclass(frozen=True)
class FileSystem:
    """The file system of one log directory."""

    size: int
    free_size: int
    inode_count: int
    free_inode_count: int


@dataclass(frozen=True)
class Disk:
    """A block device since the start of the machine."""

    read_size: int
    written_size: int
    busy_s: float
    waited_s: float
    """The sum of the times of all requests."""
    request_count: int


@dataclass(frozen=True)
class Interface:
    """A network interface since the start of the machine."""

    received_size: int
    sent_size: int
    receive_error_count: int
    send_error_count: int


@dataclass(frozen=True)
class HostSample:
    """All figures of one moment."""

    load: tuple[float, ...] = ()
    """Averages over 1, 5 and 15 minutes."""
    cpu_s: Mapping[str, float] = field(default_factory=dict)
    memory: Mapping[str, int] = field(default_factory=dict)
    """Bytes, under the names of /proc/meminfo."""
    file_systems: Mapping[str, FileSystem] = field(default_factory=dict)
    disks: Mapping[str, Disk] = field(default_factory=dict)
    """Those of the log directories."""
    interfaces: Mapping[str, Interface] = field(default_factory=dict)
    open_descriptor_count: int = 0
    descriptor_count_max: int = 0
    resident_size: int = 0
    thread_count: int = 0
    process_cpu_s: float = 0.0
    process_cpu_load: float = 0.0
    """The share of all processors that this process has used since the last sample."""
    taken_s: float = 0.0
    """When the figures were read, by a clock that only rises."""


class Host:
    """The last sample. `sample` may run in any thread, one at a time."""

    def __init__(self, directories: Sequence[str]) -> None:
        self._directories = directories
        self._last_s: tuple[float, float] | None = None
        self.before = HostSample()
        """The sample before the last one."""
        self.last = HostSample()

    def sample(self) -> None:
        """Read all figures."""
        cpu_s = sum(os.times()[:2])
        self.before = self.last
        self.last = HostSample(
            load=_or(os.getloadavg, ()),
            cpu_s=_or(_cpu, {}),
            memory=_or(_memory, {}),
            file_systems=_each(self._directories, _file_system),
            disks=_or(lambda: _disks(self._directories), {}),
            interfaces=_or(_interfaces, {}),
            open_descriptor_count=_or(lambda: len(os.listdir(SYSTEM_CALLS.descriptor_folder)), 0),
            descriptor_count_max=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            resident_size=_or(_resident_size, 0),
            thread_count=threading.active_count(),
            process_cpu_s=cpu_s,
            process_cpu_load=self._load(cpu_s),
            taken_s=time.monotonic(),
        )

    def _load(self, cpu_s: float) -> float:
        now_s = time.monotonic()
        before, self._last_s = self._last_s, (now_s, cpu_s)
        if before is None or now_s <= before[0]:
            return 0.0
        return max(cpu_s - before[1], 0.0) / (now_s - before[0]) / (os.cpu_count() or 1)


class GarbageCollections:
    """Number and duration of Python's collections, by generation."""

    def __init__(self) -> None:
        self.count = [0, 0, 0]
        self.total_s = [0.0, 0.0, 0.0]
        self._began_s = 0.0

    def watch(self) -> Callable[[], None]:
        """Measure collections of this process; return what ends it."""
        gc.callbacks.append(self._note)
        return lambda: gc.callbacks.remove(self._note)

    def _note(self, phase: str, info: Mapping[str, int]) -> None:
        if phase == "start":
            self._began_s = time.perf_counter()
        else:
            self.count[info["generation"]] += 1
            self.total_s[info["generation"]] += time.perf_counter() - self._began_s


def _or(read: Callable[[], T], otherwise: T) -> T:
    try:
        return read()
    except (OSError, ValueError, IndexError, KeyError):
        return otherwise


def _each(paths: Iterable[str], read: Callable[[str], FileSystem]) -> dict[str, FileSystem]:
    found = {}
    for path in paths:
        try:
            found[path] = read(path)
        except OSError:
            continue  # a log directory that has failed
    return found


def _cpu() -> dict[str, float]:
    with open("/proc/stat") as file:
        values = file.readline().split()[1:]
    return {mode: int(value) / _TICKS_PER_S for mode, value in zip(MODES, values, strict=False)}


def _memory() -> dict[str, int]:
    with open("/proc/meminfo") as file:
        lines = (line.split() for line in file)
        return {words[0].rstrip(":"): int(words[1]) * 1024 for words in lines if len(words) == 3}


def _file_system(path: str) -> FileSystem:
    found = os.statvfs(path)
    return FileSystem(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize, found.f_files, found.f_favail)


def _disks(directories: Iterable[str]) -> dict[str, Disk]:
    numbers = {(os.major(device), os.minor(device)) for device in (os.stat(path).st_dev for path in directories)}
    found = {}
    with open("/proc/diskstats") as file:
        for line in file:
            major, minor, name, *values = line.split()
            if (int(major), int(minor)) in numbers:
                reads, _, sectors_read, read_ms, writes, _, sectors_written, write_ms, _, busy_ms, *_ = map(int, values)
                found[name] = Disk(
                    sectors_read * SECTOR_SIZE,
                    sectors_written * SECTOR_SIZE,
                    busy_ms / 1000,
                    (read_ms + write_ms) / 1000,
                    reads + writes,
                )
    return found


def _interfaces() -> dict[str, Interface]:
    found = {}
    with open("/proc/net/dev") as file:
        for line in file:
            name, colon, rest = line.partition(":")
            if colon:
                values = [int(value) for value in rest.split()]
                found[name.strip()] = Interface(values[0], values[8], values[2], values[10])
    return found


def _resident_size() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * _PAGE_SIZE
