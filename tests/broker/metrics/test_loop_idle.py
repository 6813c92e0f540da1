"""How the idle share follows from processor time."""

import pytest

from broker.metrics.loop_idle import LoopIdle, idle_metrics


def test_a_loop_that_computes_nothing_is_idle() -> None:
    idle = LoopIdle()
    for second in range(5):
        idle.update(second, 1.0)
    assert (idle.share, idle.idle_s) == (1.0, 4.0)


def test_the_share_follows_within_minutes() -> None:
    idle = LoopIdle()
    for second in range(301):
        idle.update(second, second * 0.75)
    assert idle.share == pytest.approx(0.25, abs=0.01)
    assert idle.idle_s == pytest.approx(75.0)


def test_processor_time_beyond_the_elapsed_time_is_no_negative_idle_time() -> None:
    idle = LoopIdle()
    idle.update(0.0, 0.0)
    idle.update(1.0, 1.5)
    idle.update(1.0, 1.5)
    assert 0.0 <= idle.share < 1.0
    assert idle.idle_s == 0.0


def test_handlers_and_network_have_the_same_share() -> None:
    idle = LoopIdle()
    idle.update(0.0, 0.0)
    idle.update(2.0, 0.0)
    values = [sample[1] for metric in idle_metrics(idle) for sample in metric.read() if sample]
    assert values == [1.0, 1.0, 1.0, 2_000_000_000, 2_000_000_000, 1.0]
