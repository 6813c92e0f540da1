"""How much of what was written waits in memory for its way to the disk.

Owns the reading of the kernel's counts and of the limits next to them. Must not know logs, or what is done about it.

Linux lets written pages wait until a tenth of the memory that they may take is dirty (`vm.dirty_background_ratio`).
When half as many again wait (halfway to `vm.dirty_ratio`), whoever writes is made to wait for the disk. A broker that
waits in an append serves nobody meanwhile, so its pages have to be on their way before that. But a burst that memory
takes up whole is better written when it is over: the disk's work would only slow it down. Half of where the kernel
begins by itself is between the two.

Source: the kernel's admin-guide/sysctl/vm.rst; admin-guide/cgroup-v2.rst, section on writeback.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

SHARE_THAT_IS_MANY: Final = 0.5
BACKGROUND_PERCENT: Final = 10
"""Where `vm.dirty_background_ratio` is not set, as bytes are told instead."""

_MACHINE: Final = re.compile(r"^nr_dirty (\d+)\n(?:.*\n)*nr_dirty_background_threshold (\d+)$", re.MULTILINE)
_GROUP: Final = re.compile(r"^file_dirty (\d+)$", re.MULTILINE)
_GROUP_NAME: Final = re.compile(r"^0::/(.*)$", re.MULTILINE)


class _Group(NamedTuple):
    """A cgroup with a limit."""

    statistics: Path
    many_bytes: float


class DirtyPages:
    """Those of this machine and those of the cgroups (version 2) that this process is in, each held against its limit.

    The kernel tells where it begins for the machine, not for a cgroup: there the same ratio of the whole limit stands
    for it. The limits of cgroups are looked at once.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        """`root` is where `proc` and `sys` are."""
        self._vmstat = root / "proc/vmstat"
        self._groups = list(_limited_groups(root))

    def are_many(self) -> bool:
        """Whether they have passed half of where the kernel begins to write by itself; True if it does not tell."""
        told = _MACHINE.search(_text_of(self._vmstat))
        if told is None or int(told[1]) > SHARE_THAT_IS_MANY * int(told[2]):
            return True
        return any(_dirty_bytes(group) > group.many_bytes for group in self._groups)


def _limited_groups(root: Path) -> Iterator[_Group]:
    """This process's cgroup and those above it, as far as they have a limit: memory beyond it is taken back."""
    percent = _number_in(root / "proc/sys/vm/dirty_background_ratio") or BACKGROUND_PERCENT
    name = _GROUP_NAME.search(_text_of(root / "proc/self/cgroup"))
    if name is None:
        return
    for path in (PurePosixPath(name[1]), *PurePosixPath(name[1]).parents):
        folder = root / "sys/fs/cgroup" / path
        limits = [_number_in(folder / file) for file in ("memory.high", "memory.max")]
        if told := [limit for limit in limits if limit is not None]:
            yield _Group(folder / "memory.stat", SHARE_THAT_IS_MANY * min(told) * percent / 100)


def _dirty_bytes(group: _Group) -> int:
    told = _GROUP.search(_text_of(group.statistics))
    return 0 if told is None else int(told[1])


def _number_in(path: Path) -> int | None:
    text = _text_of(path).strip()
    return int(text) if text.isdecimal() else None


def _text_of(path: Path) -> str:
    """Empty where there is no such file."""
    try:
        return path.read_text(encoding="ascii", errors="surrogateescape")
    except OSError:
        return ""
