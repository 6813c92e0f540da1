"""Seeds of the simulator: whole clusters with faults, judged by all checkers. See docs/simulation.md.

Ten are run each time: of the defects for which the page has a median, all but two are found by at most nine
seeds, and scripted cases (`test_guards`) or unit tests find all of them.
`SIM_SEEDS=A-B` chooses others; `SIM_MINUTES` sets how long the soak test runs new seeds.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import pytest

from tests.sim.conftest import SIMULATED
from tests.sim.run import BROKERS, Outcome, run_alone

FIRST, _, LAST = os.environ.get("SIM_SEEDS", "1-10").partition("-")
PORTION = 5
"""How many seeds one test runs, so that workers share them."""

Record = Callable[[str, object], None]


def judge(outcomes: list[Outcome], brokers: int, record: Record) -> None:
    totals = sum((outcome.counts for outcome in outcomes), start=outcomes[0].counts.__class__())
    record(SIMULATED, dict(totals) | {"seeds": len(outcomes)})
    failures = [
        f"seed {outcome.seed}: {violation.rule}: {violation.text}"
        for outcome in outcomes
        for violation in outcome.violations[:1]
    ]
    failed = [outcome.seed for outcome in outcomes if outcome.violations]
    assert not failures, (
        "\n".join(failures) + f"\nreplay: python -m tests.sim --seed {failed[0]} --brokers {brokers} --trace"
    )
    assert any(outcome.counts_as_test for outcome in outcomes)


@pytest.mark.parametrize("first", range(int(FIRST), int(LAST or FIRST) + 1, PORTION))
def test_cluster_keeps_its_promises(first: int, record_property: Record) -> None:
    judge([run_alone(BROKERS, seed) for seed in range(first, first + PORTION)], BROKERS, record_property)


def test_single_broker_keeps_its_promises(record_property: Record) -> None:
    judge([run_alone(1, seed) for seed in range(1, 6)], 1, record_property)


@pytest.mark.parametrize(("first", "last"), [(1, 3), pytest.param(4, 10, marks=pytest.mark.soak)])
def test_moves_that_are_cancelled_or_replaced_keep_all_promises(first: int, last: int, record_property: Record) -> None:
    """More brokers than replicas, so that a move has replicas to add."""
    judge([run_alone(5, seed) for seed in range(first, last + 1)], 5, record_property)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_new_seeds_keep_all_promises_for_minutes(record_property: Record) -> None:
    end_s = time.monotonic() + 60 * float(os.environ.get("SIM_MINUTES", "5"))
    seed = time.time_ns() // 1_000_000
    outcomes: list[Outcome] = []
    while time.monotonic() < end_s and not (outcomes and outcomes[-1].violations):
        outcomes.append(run_alone(BROKERS, seed))
        seed += 1
    judge(outcomes, BROKERS, record_property)
