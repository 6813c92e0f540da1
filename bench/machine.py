"""The machine: what it is, and what has to be done to it before it measures evenly."""

from __future__ import annotations

import mmap
import os
import platform
import resource
import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.support.java import java_executable

PAGE = 4096
CHUNK = 256 * 1024 * 1024
OPEN_FILES_SPARE = 1000


def touch_free_memory(share: float, on_progress: Callable[[float], None]) -> None:
    """Write once to every page of `share` of the free memory, and give it back.

    On a fresh virtual machine the first write to a page that was never used costs ten times a later one, and which
    server meets such pages is chance.
    """
    chunk_count = int(_memory_kib("MemAvailable") * 1024 * share) // CHUNK
    filler = bytes(CHUNK)
    chunks: list[mmap.mmap] = []
    for number in range(chunk_count):
        chunk = mmap.mmap(-1, CHUNK)
        chunk.write(filler)
        chunks.append(chunk)
        on_progress((number + 1) / chunk_count)
    for chunk in chunks:
        chunk.close()


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
