"""Metrics reporters: what they receive, and that their failures affect nothing else."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from broker.loop.slices import SlicedWork
from broker.metrics.metric import Kind, Metric
from broker.metrics.registry import Registry
from broker.metrics.reporters import Reporters
from config.broker import BrokerConfig
from tests.support.in_process import reason_not_to_start, running_broker
from tests.support.in_process_cluster import until
from tests.support.manual_clock import ManualClock

LEADERS = "kafka.server:type=ReplicaManager,name=LeaderCount"
SIZE = "kafka.log:type=Log,name=Size"


class Recorder:
    """Records all calls."""

    instances: list[Recorder] = []

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.instances.append(self)

    def configure(self, settings: Mapping[str, str]) -> None:
        self.calls.append(("configure", settings.get("x.y")))

    def init(self, names: Sequence[str]) -> None:
        self.calls.append(("init", list(names)))

    def add(self, name: str) -> None:
        self.calls.append(("add", name))

    def remove(self, name: str) -> None:
        self.calls.append(("remove", name))

    def report(self, metrics: Mapping[str, Mapping[str, object]], now_ms: int) -> None:
        self.calls.append(("report", (dict(metrics), now_ms)))

    def close(self) -> None:
        self.calls.append(("close", None))


class Failing:
    """Fails in every method."""

    def report(self, metrics: Mapping[str, Mapping[str, object]], now_ms: int) -> None:
        raise RuntimeError("no route to the collector")

    def close(self) -> None:
        raise RuntimeError("still no route")


class Waiting:
    """Waits until it is released."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self.count = 0

    def report(self, metrics: Mapping[str, Mapping[str, object]], now_ms: int) -> None:
        self.count += 1
        self.released.wait(10)


class Board:
    """Reporters over a registry with one gauge of changing subjects."""

    def __init__(self, reporters: Mapping[str, Any]) -> None:
        self.sizes = {"a": 1, "b": 2}
        metric = Metric(
            Kind.GAUGE,
            SIZE,
            "Size.",
            lambda: [((topic,), size) for topic, size in self.sizes.items()],
            ("topic",),
            is_per_partition=True,
        )
        broken = Metric(Kind.GAUGE, LEADERS, "Fails.", lambda: [((), 1 // 0)])
        self.shows_partitions = True
        clock = ManualClock()
        self.reporters = Reporters(
            reporters,
            Registry([broken, metric], lambda: 0.0),
            SlicedWork(clock.monotonic_ms),
            ThreadPoolExecutor,
            shows_partitions=lambda: self.shows_partitions,
            now_ms=lambda: 77,
        )

    async def report(self) -> None:
        """Report, and wait until the reporters have returned."""
        await self.reporters.report()
        await asyncio.gather(*(one.busy for one in self.reporters._running if one.busy is not None))


async def test_names_that_come_and_go_are_announced() -> None:
    recorder = Recorder()
    board = Board({"recorder": recorder})
    await board.report()
    del board.sizes["a"]
    board.sizes["c"] = 3
    await board.report()
    board.shows_partitions = False
    await board.report()
    await board.reporters.stop()
    a, b, c = (f"{SIZE},topic={topic}" for topic in "abc")
    assert recorder.calls == [
        ("init", [a, b]),
        ("report", ({a: {"Value": 1}, b: {"Value": 2}}, 77)),
        ("add", c),
        ("remove", a),
        ("report", ({b: {"Value": 2}, c: {"Value": 3}}, 77)),
        ("remove", b),
        ("remove", c),
        ("report", ({}, 77)),
        ("close", None),
    ]


async def test_a_failing_reporter_is_logged_and_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    recorder = Recorder()
    board = Board({"failing": Failing(), "recorder": recorder})
    for _ in range(3):
        await board.report()
    await board.reporters.stop()
    errors = [record for record in caplog.records if "the metrics reporter failing" in record.message]
    assert [bool(record.exc_info) for record in errors] == [True, False, False, True]
    assert [name for name, _ in recorder.calls].count("report") == 3


async def test_a_busy_reporter_misses_reports_and_holds_nobody(caplog: pytest.LogCaptureFixture) -> None:
    waiting, recorder = Waiting(), Recorder()
    board = Board({"waiting": waiting, "recorder": recorder})
    for number in range(1, 4):
        await board.reporters.report()
        await until(lambda number=number: [name for name, _ in recorder.calls].count("report") == number)
        await until(lambda: board.reporters._running[1].busy is None)
    assert waiting.count == 1
    late = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(late) == 1
    waiting.released.set()
    await until(lambda: board.reporters._running[0].busy is None)
    await board.report()
    assert waiting.count == 2
    await board.reporters.stop()


async def test_broker_without_an_endpoint_reports(tmp_path: Path) -> None:
    Recorder.instances.clear()
    settings = {
        "metric.reporters": f"{__name__}:Recorder",
        "kafka.metrics.reporters": f"{__name__}:Recorder,org.apache.kafka.common.metrics.JmxReporter",
        "kafka.metrics.polling.interval.secs": "1",
        "x.y": "z",
    }
    async with running_broker(tmp_path, settings) as broker:
        assert broker.metrics_port is None
        (recorder,) = Recorder.instances
        await broker.create_topic("t", 2)
        reported: Callable[[], list[Any]] = lambda: [value for name, value in recorder.calls if name == "report"]  # noqa: E731
        await until(lambda: reported() and reported()[-1][0].get(LEADERS) == {"Value": 2})
        assert recorder.calls[0] == ("configure", "z")
    assert recorder.calls[-1] == ("close", None)
    assert any(name == "add" and "topic=t" in value for name, value in recorder.calls)


@pytest.mark.parametrize(
    ("name", "text"),
    [("no.such:Class", "No module named"), (f"{__name__}:Board", "cannot be created"), (f"{__name__}:Path", "report")],
)
async def test_reporter_that_cannot_be_used_stops_the_start(tmp_path: Path, name: str, text: str) -> None:
    settings = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path), "metric.reporters": name}
    reason = await reason_not_to_start(BrokerConfig.from_properties(settings))
    assert "metric.reporters" in reason
    assert text in reason
