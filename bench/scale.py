"""The scales of cases: of a published run and of a quick run.

Owns: the numbers. Must not know the cases.
"""

from __future__ import annotations

from dataclasses import dataclass

from bench.processes import MIB


@dataclass(frozen=True)
class Scale:
    """The scale of a run. Sections are long compared with the 10 ms in which the kernel counts CPU time.

    A server is under mixed load for `warm_up_s` before its first measured case, and runs each case once uncounted.
    `part` is the share of a case's connections, partitions or members: less than 1 only proves that the case works.
    Before its memory is measured, a server stays idle for `idle_s`.
    `bulk_bytes` are produced in `bulk_sections` of equal size; the result is their median.
    """

    rounds: int
    warm_up_s: float
    lead_in_s: float
    section_s: float
    bulk_bytes: int
    bulk_sections: int
    fetch_bytes: int
    memory_bytes: int
    idle_s: float = 2.0
    part: float = 1.0

    def count(self, whole: int) -> int:
        """Return the scaled number of connections, partitions or members, at least one."""
        return max(1, int(whole * self.part))


FULL = Scale(
    rounds=5,
    warm_up_s=90,
    lead_in_s=0.5,
    section_s=4,
    bulk_bytes=1280 * MIB,
    bulk_sections=5,
    fetch_bytes=512 * MIB,
    memory_bytes=2000 * MIB,
)
QUICK = Scale(
    rounds=1,
    warm_up_s=8,
    lead_in_s=0.2,
    section_s=1,
    bulk_bytes=128 * MIB,
    bulk_sections=1,
    fetch_bytes=64 * MIB,
    memory_bytes=256 * MIB,
)
