"""How much of what was written waits in memory to go to the disk.

Owns the reading of the kernel's count and of the limits next to it. Must not know logs, or what is done about it.

Linux lets written pages wait: it begins to write them out when they pass a tenth of the memory that it could use for them
(`vm.dirty_background_ratio`), and makes whoever writes wait for the disk half as much later. A broker that waits in an
append serves nobody meanwhile, so it wants them on their way before that; a burst that memory takes up whole is better
written when it is over. Source: the kernel's admin-guide/sysctl/vm.rst and admin-guide/cgroup-v2.rst (writeback).
"""

import resource
from pathlib import Path

SHARE_THAT_IS_MANY = 0.5
CGROUP_BACKGROUND_SHARE = 0.1
"""The kernel applies the ratio of the machine to a cgroup too, and does not tell the result: its default."""

_COUNT = "nr_dirty"
_THRESHOLD = "nr_dirty_background_threshold"


class DirtyPages:
    """The dirty pages of this machine, held against the limit of the machine and of this process's cgroup."""

    def __init__(self, root: Path = Path("/")) -> None:
        """`root` has `proc` and `sys` in it."""
        self._vmstat = root / "proc/vmstat"
        self._limit_pages = _cgroup_limit_bytes(root) * CGROUP_BACKGROUND_SHARE / resource.getpagesize()

    def are_many(self) -> bool:
        """Whether more than half of what makes the kernel begin by itself is waiting. True if the kernel does not tell."""
        try:
            text = self._vmstat.read_text()
        except OSError:
            return True
        counts = dict(line.split(maxsplit=1) for line in text.splitlines())
        if _COUNT not in counts or _THRESHOLD not in counts:
            return True
        threshold_pages = min(float(counts[_THRESHOLD]), self._limit_pages)
        return int(counts[_COUNT]) > threshold_pages * SHARE_THAT_IS_MANY


def _cgroup_limit_bytes(root: Path) -> float:
    """The least of the limits that cgroup v2 sets for this process; infinite without one."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return float("inf")
    paths = [line.removeprefix("0::/") for line in lines if line.startswith("0::/")]
    limits = [float("inf")]
    for path in paths:
        for name in ("memory.max", "memory.high"):
            try:
                text = (root / "sys/fs/cgroup" / path / name).read_text().strip()
            except OSError:
                continue
            limits.append(float("inf") if text == "max" else float(text))
    return min(limits)
