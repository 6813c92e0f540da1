"""How much of what was written waits in memory for its way to the disk.

Owns the reading of the kernel's count and of the limits next to it. Must not know logs, or what is done about it.

Linux lets written pages wait until a tenth of the memory that they may take is dirty (`vm.dirty_background_ratio`).
When half as many again wait, whoever writes is made to wait for the disk. A broker that waits in an append serves
nobody meanwhile, so its pages have to be on their way before that. But a burst that memory takes up whole is better
written when it is over: the disk's work would only slow it down. Half of the kernel's threshold is between the two.

Source: the kernel's admin-guide/sysctl/vm.rst; admin-guide/cgroup-v2.rst, section on writeback.
"""

from __future__ import annotations

import math
import re
import resource
from pathlib import Path
from typing import Final

SHARE_THAT_IS_MANY: Final = 0.5
CGROUP_BACKGROUND_SHARE: Final = 0.1
"""Of the memory of a cgroup; the kernel applies the machine's ratio, of which this is the default, and tells nobody."""

_COUNT: Final = re.compile(r"^nr_dirty (\d+)$", re.MULTILINE)
_THRESHOLD: Final = re.compile(r"^nr_dirty_background_threshold (\d+)$", re.MULTILINE)
_CGROUP: Final = re.compile(r"^0::/(.*)$", re.MULTILINE)


class DirtyPages:
    """Those of this machine, held against its limit and that of this process's cgroup (version 2)."""

    def __init__(self, root: Path = Path("/")) -> None:
        """`root` is where `proc` and `sys` are. The cgroup's limit is looked at once."""
        self._vmstat = root / "proc/vmstat"
        self._cgroup_pages = _cgroup_memory(root) * CGROUP_BACKGROUND_SHARE / resource.getpagesize()

    def are_many(self) -> bool:
        """Whether they have passed half of where the kernel begins to write by itself; True if it does not tell."""
        text = _text_of(self._vmstat)
        count, threshold = _COUNT.search(text), _THRESHOLD.search(text)
        if count is None or threshold is None:
            return True
        return int(count[1]) > SHARE_THAT_IS_MANY * min(int(threshold[1]), self._cgroup_pages)


def _cgroup_memory(root: Path) -> float:
    """Bytes that the cgroup may use before it is held back; infinite without a limit, or without cgroups version 2."""
    group = _CGROUP.search(_text_of(root / "proc/self/cgroup"))
    if group is None:
        return math.inf
    folder = root / "sys/fs/cgroup" / group[1]
    limits = [_text_of(folder / name).strip() for name in ("memory.high", "memory.max")]
    return min((float(limit) for limit in limits if limit.isdecimal()), default=math.inf)


def _text_of(path: Path) -> str:
    """Empty where there is no such file."""
    try:
        return path.read_text(encoding="ascii")
    except OSError:
        return ""
