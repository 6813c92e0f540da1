"""Runs are deterministic, and failing ones become smaller."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.sim.run import run_seed
from tests.sim.scripted import Script
from tests.sim.shrink import shrunk

ROOT = Path(__file__).parents[2]
RUNS = ((3, 1), (6, 1), (5, 3), (3608187, 3))
"""Seeds, and how many brokers each has."""
PROGRAM = """
import hashlib, sys
from tests.sim.run import run_seed
from tests.sim.test_run import RUNS
for seed, brokers in RUNS[:: int(sys.argv[1])]:
    trace = run_seed(seed, brokers=brokers, traced=True).trace
    print(hashlib.sha256("\\n".join(trace).encode()).hexdigest(), len(trace))
"""


def trace_hashes(hash_seed: int, step: int) -> list[str]:
    """Return hash and length of the trace of each run, in a new process, in which strings have other hashes.

    The step -1 is for the last run first: what a run allocates has other addresses after other runs.
    """
    environment = os.environ | {"PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-P", "-c", PROGRAM, str(step)]
    done = subprocess.run(command, env=environment, cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.splitlines()


def test_same_seed_gives_the_same_trace_in_other_processes() -> None:
    first = trace_hashes(1, 1)
    assert trace_hashes(2, -1) == first[::-1]
    assert len(set(first)) == len(RUNS)
    assert all(int(line.split()[1]) > 500 for line in first)


def test_traced_run_is_the_run_of_its_seed(caplog: pytest.LogCaptureFixture) -> None:
    untraced = run_seed(6, brokers=1)
    with caplog.at_level(logging.INFO):
        traced = run_seed(6, brokers=1, traced=True)
    assert caplog.records
    assert (traced.counts, traced.virtual_us) == (untraced.counts, untraced.virtual_us)


def test_leaving_out_all_faults_leaves_a_run_without_faults() -> None:
    outcome = run_seed(3, brokers=1, clients=["plain", "reader"], faults=[])
    assert not outcome.violations
    assert not outcome.counts_as_test
    assert outcome.counts["acknowledged records"] > 40


def test_judgement_waits_for_a_broker_that_was_failing_when_faults_ended() -> None:
    """It ends a second later, and starts again once its session has expired."""
    script = Script()
    with script.world:
        script.begin()
        disk = script.cluster.machines[1].disk
        disk.is_failing = True
        script.wait_until(lambda: script.cluster.machines[1].has_failed)
        disk.heal()
        assert not script.cluster.is_running(1)
        assert script.end() == []
        assert script.cluster.is_running(1)


def test_request_that_fails_unexpectedly_is_a_violation() -> None:
    script = Script()
    with script.world:
        script.begin()
        process = script.cluster.machines[1].process
        assert process is not None
        process.server.dispatcher.unexpected_error_count = 1
        assert [violation.rule for violation in script.end()] == ["no exception in a broker"]


def test_shrinking_keeps_only_what_the_failure_needs() -> None:
    tried = []

    def fails(faults: Sequence[int], clients: Sequence[str]) -> bool:
        tried.append((list(faults), list(clients)))
        return 3 in faults and 5 in faults and "b" in clients

    assert shrunk(range(8), ["a", "b", "c"], fails) == ([3, 5], ["b"])
    assert len(tried) < 60
