"""The machine: what it is, and what has to be done to it before it measures evenly.

Owns whatever is done to the machine and not to a server. Must not know any case.
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
MEMORY_AT_HAND = 512 * MIB


def make_memory_ready(byte_count: int, write_size: int) -> None:
    """Have that many bytes of free memory next in line that cost nothing extra to write to.

    Under a hypervisor the first write to a page that the host does not hold costs ten times a later one. It is charged
    to whoever writes, so that a server which fills the page cache would be measured by the pages it happens to meet. To
    touch all memory once at the beginning is not enough where the guest tells its host which pages are free: it loses
    them again within seconds. So a file of that size is written to the page cache and deleted right before a section.
    The kernel hands out next what was freed last, if the request is for pieces of the same size, and that follows from
    the size of the writes: hence `write_size`.
    """
    piece = bytes(write_size)
    with tempfile.TemporaryFile(buffering=0) as scratch:
        for _ in range(byte_count // write_size):
            scratch.write(piece)


def bring_into_memory(partition: Path) -> None:
    """Have the log of one partition in the page cache: some machines drop early what nobody has read for a while."""
    buffer = bytearray(MIB)
    for path in partition.glob("*.log"):
        with path.open("rb", buffering=0) as log:
            while log.readinto(buffer):
                pass


def settle(byte_count: int = 0, write_size: int = 16 * 1024) -> None:
    """Let the disk write what earlier sections left dirty and the servers finish what they do on the side.

    `byte_count` is what comes next in writes of `write_size`: so much memory is made ready for it.
    """
    os.sync()
    time.sleep(SETTLE_S)
    make_memory_ready(byte_count + MEMORY_AT_HAND, write_size)


def allow_open_files(count: int) -> None:
    """Raise this process's limit, and by inheritance its servers', to `count` connections."""
    wanted = count + OPEN_FILES_SPARE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= wanted or soft == resource.RLIM_INFINITY:
        return
    if hard < wanted and hard != resource.RLIM_INFINITY:
        hard = wanted  # root may; anyone else is told so by the ValueError
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def describe() -> dict[str, str | int]:
    """What a reader of the results wants to know."""
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
