"""Whether the machine has many dirty pages: pages that are written and not yet on the disk.

Owns reading the kernel's counts and limits. Must not know logs, nor what is done about dirty pages.

Linux starts write-back once a tenth of the available memory is dirty (`vm.dirty_background_ratio`). From halfway
between this threshold and `vm.dirty_ratio` on, it throttles the processes that write. A broker that is throttled in an
append serves no client, so its pages must be written back earlier. But a burst that fits into memory should be written
back after its end, because the work of the disk would slow it down. Therefore pages are many from half of the kernel's
own threshold on.

Source: the kernel's admin-guide/sysctl/vm.rst; admin-guide/cgroup-v2.rst, section on writeback.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

SHARE_THAT_IS_MANY: Final = 0.5
BACKGROUND_PERCENT: Final = 10
"""Assumed if `vm.dirty_background_ratio` is 0 because `vm.dirty_background_bytes` is set instead."""

_MACHINE: Final = r"^nr_dirty (\d+)\n(?:.*\n)*nr_dirty_background_threshold (\d+)$"
_GROUP: Final = r"^file_dirty (\d+)$"
_GROUP_NAME: Final = r"^0::/(.*)$"


class _Group(NamedTuple):
    """A cgroup with a limit."""

    statistics: Path
    many_bytes: float


class DirtyPages:
    """The dirty pages of this machine and of the cgroups (version 2) of this process, each compared with its limit.

    The kernel reports the threshold of the machine, but none for a cgroup: there the same ratio of the memory limit is
    used. The limits of cgroups are read once.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        """`root` is where `proc` and `sys` are."""
        self._vmstat = root / "proc/vmstat"
        self._groups = list(_limited_groups(root))

    def are_many(self) -> bool:
        """Return whether they exceed half of the kernel's threshold for write-back; True if it reports none."""
        counts = re.search(_MACHINE, _text_of(self._vmstat), re.MULTILINE)
        if counts is None or int(counts[1]) > SHARE_THAT_IS_MANY * int(counts[2]):
            return True
        return any(_dirty_bytes(group) > group.many_bytes for group in self._groups)


def _limited_groups(root: Path) -> Iterator[_Group]:
    """Yield this process's cgroup and its ancestors that have a memory limit: the kernel reclaims pages beyond it."""
    percent = _number_in(root / "proc/sys/vm/dirty_background_ratio") or BACKGROUND_PERCENT
    name = re.search(_GROUP_NAME, _text_of(root / "proc/self/cgroup"), re.MULTILINE)
    if name is None:
        return
    for path in (PurePosixPath(name[1]), *PurePosixPath(name[1]).parents):
        folder = root / "sys/fs/cgroup" / path
        limits = [_number_in(folder / file) for file in ("memory.high", "memory.max")]
        if present := [limit for limit in limits if limit is not None]:
            yield _Group(folder / "memory.stat", SHARE_THAT_IS_MANY * min(present) * percent / 100)


def _dirty_bytes(group: _Group) -> int:
    count = re.search(_GROUP, _text_of(group.statistics), re.MULTILINE)
    return 0 if count is None else int(count[1])


def _number_in(path: Path) -> int | None:
    text = _text_of(path).strip()
    return int(text) if text.isdecimal() else None


def _text_of(path: Path) -> str:
    """Return the content of a file, an empty string if it cannot be read."""
    try:
        return path.read_text(encoding="ascii", errors="surrogateescape")
    except OSError:
        return ""
