"""How many connections leave enough file descriptors for files, and what a process does about its own limit."""

import os
import resource
import subprocess
import sys

import pytest

from base.system_calls import SYSTEM_CALLS
from broker.network.descriptors import DescriptorBudget, open_count, raise_limit
from tests.support.broker import ROOT

INFINITE = 2**63 - 1
"""RLIM_INFINITY of macOS."""


class Process:
    """What is open besides connections; -1 cannot be counted."""

    def __init__(self, others: int = 50) -> None:
        self.others = others
        self.connections = 0
        self.count = 0

    def open(self) -> int:
        self.count += 1
        if self.others < 0:
            raise OSError
        return self.others + self.connections


def accepted(budget: DescriptorBudget, process: Process, *, now_s: float = 0, is_protected: bool = False) -> int:
    """Connections that are open once no more are accepted."""
    while budget.has_room(process.connections, now_s, is_protected=is_protected):
        process.connections += 1
    return process.connections


@pytest.mark.parametrize(
    ("limit", "others", "is_protected", "expected"),
    [
        (1024, 50, False, 1024 - 50 - 128),
        (1024, 50, True, 1024 - 50 - 64),
        (20_000, 50, False, 20_000 - 50 - 2500),
        (1024, 700, False, 1024 - 700 - 128),
        (1024, 850, False, 128),  # a few are served whatever files need
        (1024, 1000, False, 8),  # and the last descriptors are for files
        (100, 20, False, 30),
    ],
)
def test_connections_leave_a_reserve(limit: int, others: int, is_protected: bool, expected: int) -> None:
    process = Process(others)
    assert accepted(DescriptorBudget(limit, process.open), process, is_protected=is_protected) == expected


def test_newly_opened_files_are_counted_within_one_or_ten_seconds() -> None:
    process = Process()
    budget = DescriptorBudget(1024, process.open)
    process.connections = 100
    assert budget.has_room(100, 0)
    process.others = 900 - 100
    assert budget.has_room(100, 9.9)
    process.connections = 130
    assert not budget.has_room(130, 10)
    process.others = 50
    assert budget.has_room(130, 11)
    assert process.count == 3


@pytest.mark.parametrize(("connections", "again_s"), [(461, 10), (462, 1)])
def test_descriptors_are_counted_often_once_half_of_them_are_open(connections: int, again_s: float) -> None:
    process = Process(50)
    process.connections = connections
    budget = DescriptorBudget(1024, process.open)
    budget.has_room(connections, 0)
    budget.has_room(connections, again_s - 0.01)
    assert process.count == 1
    budget.has_room(connections, again_s)
    assert process.count == 2


def test_last_count_is_used_if_descriptors_cannot_be_counted() -> None:
    process = Process(50)
    budget = DescriptorBudget(1024, process.open)
    budget.has_room(0, 0)
    process.others = -1
    assert accepted(budget, process, now_s=100) == 1024 - 50 - 128


@pytest.mark.parametrize(
    ("others", "connections", "expected"),
    [
        (50, 846, 0),
        (50 + 64, 846, 64),
        (50 + 63, 846, 0),
        (50 + 128, 846, 128),
        (900, 150, 22),  # some stay, whatever files need
        (1000, 100, 0),
    ],
)
def test_connections_are_closed_for_the_descriptors_of_files(others: int, connections: int, expected: int) -> None:
    process = Process(others)
    process.connections = connections
    assert DescriptorBudget(1024, process.open).excess(connections, 0) == expected


def test_count_is_that_of_this_process() -> None:
    before = open_count()
    with open("/dev/null"):
        assert open_count() == before + 1


def test_count_without_proc_is_read_from_dev_fd(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = SYSTEM_CALLS._replace(descriptor_folder="/dev/fd")
    monkeypatch.setattr("broker.network.descriptors.SYSTEM_CALLS", calls)
    before = open_count()
    with open("/dev/null"):
        assert open_count() == before + 1


@pytest.mark.parametrize(("soft", "expected"), [(256, [INFINITE, 10_240]), (20_000, [INFINITE])])
def test_limit_is_raised_as_far_as_macos_allows(
    monkeypatch: pytest.MonkeyPatch, soft: int, expected: list[int]
) -> None:
    """Its hard limit is infinite, but it rejects a soft limit above OPEN_MAX."""
    asked: list[int] = []

    def setrlimit(_: int, limits: tuple[int, int]) -> None:
        assert limits[1] == INFINITE
        asked.append(limits[0])
        if limits[0] > 10_240:
            raise ValueError("current limit exceeds maximum limit")

    monkeypatch.setattr(resource, "setrlimit", setrlimit)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, INFINITE))
    raise_limit()
    assert asked == expected


def test_a_process_raises_its_limit_and_reports_it_in_one_line() -> None:
    script = (
        "import logging, resource\n"
        "from broker.network.descriptors import raise_limit, soft_limit\n"
        "logging.basicConfig(level=logging.INFO)\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (200, 800))\n"
        "raise_limit()\n"
        "assert soft_limit() == 800\n"
        "raise_limit()\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    first, second = done.stderr.splitlines()
    assert first.endswith("limit of file descriptors: 800 (was 200), of which connections leave at least 128 to files")
    assert "800 (was 800)" in second
