"""When a dead server starts again, and the order in which servers stop."""

from __future__ import annotations

import signal

from tools.launch.supervision import DELAY_MAX_S, FIRST_DELAY_S, STABLE_AFTER_S, Supervision


def supervision(*names: str, now_s: float = 0.0) -> Supervision:
    """Servers that have all been started."""
    servers = Supervision(names)
    for name in servers.due(now_s):
        servers.started(name, now_s)
    return servers


def test_all_servers_start_in_order() -> None:
    servers = Supervision(["zookeeper", "b1", "b2"])
    assert servers.due(0.0) == ["zookeeper", "b1", "b2"]
    servers.started("zookeeper", 0.0)
    assert servers.due(0.0) == ["b1", "b2"]


def test_killed_server_starts_again_after_the_delay() -> None:
    servers = supervision("b1", "b2")
    assert servers.ended("b1", -signal.SIGKILL, 10.0) == FIRST_DELAY_S
    assert servers.due(10.0 + FIRST_DELAY_S - 0.01) == []
    assert servers.due(10.0 + FIRST_DELAY_S) == ["b1"]


def test_delay_doubles_up_to_a_maximum_and_is_reset_by_a_stable_run() -> None:
    servers = supervision("b1")
    now_s, delays = 0.0, []
    for _ in range(7):
        delay_s = servers.ended("b1", 1, now_s)
        assert delay_s is not None
        delays.append(delay_s)
        now_s += delay_s
        servers.started("b1", now_s)
    assert delays == [1.0, 2.0, 4.0, 8.0, 16.0, DELAY_MAX_S, DELAY_MAX_S]
    assert servers.ended("b1", 1, now_s + STABLE_AFTER_S) == FIRST_DELAY_S


def test_server_that_was_stopped_by_someone_else_stays_stopped() -> None:
    servers = supervision("b1", "b2")
    assert servers.ended("b1", 0, 5.0) is None
    assert servers.due(1e9) == []
    assert servers.is_over(["b1"])
    assert not servers.is_over(["b1", "b2"])


def test_stop_begins_with_the_last_started_and_leaves_out_dead_ones() -> None:
    servers = supervision("zookeeper", "b1", "b2", "b3")
    servers.ended("b2", -signal.SIGKILL, 5.0)
    assert list(servers.stop()) == ["b3", "b1", "zookeeper"]
    assert servers.due(1e9) == [], "a server that waits for its next start does not start any more"
