"""The machine: its description, and its preparation for repeatable measurements.

Owns all operations on the machine instead of a server. Must not know any case.
"""

from __future__ import annotations

import os
import platform
import resource
import subprocess
import tempfile
import time
from pathlib import Path

from bench.processes import MIB
from tests.support.java import java_executable

OPEN_FILES_SPARE = 1000
SETTLE_S = 0.5
LOG_SUFFIXES = (".log", ".dat")
"""Of the segments of Kafka and Milena, and of kfake."""
MEMORY_AT_HAND = 512 * MIB


def make_memory_ready(byte_count: int, write_size: int) -> None:
    """Prepare that many bytes of free memory, so that the next writes to them have no extra cost.

    Under a hypervisor the first write to a page that the host does not hold costs ten times a later one. The kernel
    charges it to the writing process, so the figures of a server that fills the page cache would depend on its pages.
    Touching all memory once at the beginning is not enough: a guest that reports free pages to its host loses them
    within seconds. So this function writes a file of that size to the page cache and deletes it, right before a
    section. The kernel reuses the pages that were freed last, if the pieces have the same size, which depends on the
    size of the writes: hence `write_size`.
    """
    piece = bytes(write_size)
    with tempfile.TemporaryFile(buffering=0) as scratch:
        for _ in range(byte_count // write_size):
            scratch.write(piece)


def bring_into_memory(partition: Path) -> None:
    """Read the log of one partition into the page cache: some machines drop unused pages early."""
    buffer = bytearray(MIB)
    for path in (path for suffix in LOG_SUFFIXES for path in partition.glob(f"*{suffix}")):
        with path.open("rb", buffering=0) as log:
            while log.readinto(buffer):
                pass


def settle(byte_count: int = 0, write_size: int = 16 * 1024) -> None:
    """Write back the dirty pages of earlier sections, and wait for the servers' background work.

    The next section writes `byte_count` in pieces of `write_size`: this function prepares as much memory.
    """
    os.sync()
    time.sleep(SETTLE_S)
    make_memory_ready(byte_count + MEMORY_AT_HAND, write_size)


def allow_open_files(count: int) -> None:
    """Raise the limit of open files for `count` connections, in this process and the servers that inherit it."""
    wanted = count + OPEN_FILES_SPARE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= wanted or soft == resource.RLIM_INFINITY:
        return
    if hard < wanted and hard != resource.RLIM_INFINITY:
        hard = wanted  # root may do this; for other users it raises ValueError
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def describe() -> dict[str, str | int]:
    """Return the facts about the machine for readers of the results."""
    return {
        "processor": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_mib": _memory_kib("MemTotal") // 1024,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "java": _java_version(),
    }


def _java_version() -> str:
    report = subprocess.run([java_executable(), "-version"], capture_output=True, text=True, check=True).stderr
    return report.splitlines()[0]


def _cpu_model() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def _memory_kib(field: str) -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))
