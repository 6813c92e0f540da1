"""Prints what the simulated seeds of a test run did, over all workers."""

from __future__ import annotations

from collections import Counter
from typing import Any

SIMULATED = "simulated"
"""The property of a test that holds the counts of its seeds."""


def pytest_terminal_summary(terminalreporter: Any) -> None:
    totals: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, counts in getattr(report, "user_properties", ()):
                if name == SIMULATED and getattr(report, "when", "") == "call":
                    totals.update(counts)
    if totals:
        terminalreporter.section("simulation")
        for name, number in sorted(totals.items()):
            terminalreporter.line(f"{number:9,} {name}")
