"""Seeds in which every disk is slow, so that leaders and followers append in the threads of their directories."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from storage.log.log_appends import LogAppends
from tests.sim.faults import SECOND_US, Fault
from tests.sim.run import run_seed

BROKERS = (1, 2, 3)


def slow_disks(random: Random) -> list[Fault]:
    """Return slow disks on all brokers, and changes of leaders and truncations in between."""
    faults = [Fault(0, "slow disk", broker, "", 14 * SECOND_US, 12_000) for broker in BROKERS]
    for kind in random.sample(["kill", "pause", "power loss", "expired session", "clean stop", "kill"], 4):
        at_us = SECOND_US + random.randrange(11 * SECOND_US)
        faults.append(Fault(at_us, kind, random.choice(BROKERS), "", 2 * SECOND_US))
    return sorted(faults, key=lambda fault: fault.at_us)


@pytest.mark.parametrize("seed", range(1, 5))
def test_slow_disks_keep_all_promises(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    planned: Counter[str] = Counter()
    plan_replicated = LogAppends._plan_replicated

    def counted(appends: LogAppends, *arguments: object) -> None:
        planned["appends of followers"] += 1
        plan_replicated(appends, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(LogAppends, "_plan_replicated", counted)
    outcome = run_seed(seed, faults=slow_disks(Random(seed)))
    assert [(it.rule, it.text) for it in outcome.violations] == []
    assert outcome.counts_as_test
    assert planned["appends of followers"] > 10
