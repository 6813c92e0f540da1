"""CPU time and resident memory of a process and its descendants, from the kernel.

Owns reading /proc. Must not know what a process does.
"""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path

CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
MIB = 1024 * 1024


def process_tree(root: int) -> list[int]:
    """Return `root` and all its descendants."""
    children: defaultdict[int, list[int]] = defaultdict(list)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat_fields(int(entry.name))):
            children[int(fields[1])].append(int(entry.name))
    tree = [root]
    for pid in tree:
        tree += children[pid]
    return tree


def cpu_seconds(root: int) -> float:
    """Return user and system time of the tree so far, including that of children that were waited for."""
    ticks = 0
    for pid in process_tree(root):
        if fields := _stat_fields(pid):
            ticks += sum(int(field) for field in fields[11:15])
    return ticks / CLOCK_TICKS


def resident_mib(root: int) -> float:
    """Return the resident memory of the tree; shared pages count once per process."""
    return sum(_status_kib(pid, "VmRSS") for pid in process_tree(root)) / 1024


def anonymous_mib(root: int) -> float:
    """Return its anonymous memory: heap and stacks, without mapped indexes and libraries."""
    return sum(_status_kib(pid, "RssAnon") for pid in process_tree(root)) / 1024


class PeakMemory:
    """The highest resident memory of one process since `reset`, as recorded by the kernel."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.reset()

    def reset(self) -> None:
        Path(f"/proc/{self._pid}/clear_refs").write_text("5")

    def mib(self) -> float:
        return _status_kib(self._pid, "VmHWM") / 1024


def open_files(root: int) -> int:
    """Return the number of open descriptors of the tree, including sockets."""
    return sum(len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in process_tree(root))


def _stat_fields(pid: int) -> list[str]:
    """Return the fields after the command name: state, parent, ... (from 3 on in proc(5)); none after its end."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def _status_kib(pid: int, field: str) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{field}:")), 0)
