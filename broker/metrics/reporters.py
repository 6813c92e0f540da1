"""The plug-ins of `metric.reporters` and `kafka.metrics.reporters`, which push metrics to other systems.

A reporter is a Python class without arguments. It has `report(metrics, now_ms)`, and may have `configure(settings)`,
`init(names)`, `add(name)`, `remove(name)` and `close()`. Metrics have the object names and attributes that Kafka gives
its MBeans.

Owns the snapshots, and what is called when. Must not know any particular metric, or how classes are loaded. Snapshots
are taken on the event loop in slices; each reporter runs in a thread of its own, so that one which waits or fails
disturbs neither the broker nor other reporters. There is at most one snapshot per reporter: while a reporter is still
busy with one, it does not get the next.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import field
from typing import Any

from base.dataclass import dataclass
from base.pause import Pause
from broker.loop.slices import SlicedWork
from broker.metrics.beans import beans, families
from broker.metrics.registry import SAMPLES_PER_STEP, Registry

CLOSE_TIMEOUT_S = 5.0
"""How long a stop waits for reporters that are still busy."""

Snapshot = Mapping[str, Mapping[str, object]]
"""The attributes of each metric by object name."""

logger = logging.getLogger("kafka.server.MetricsReporters")


@dataclass(eq=False)
class _Running:
    """One reporter with its thread. `names` are the names reported to it; only its thread uses them."""

    name: str
    reporter: Any
    thread: Executor
    names: set[str] | None = None
    busy: asyncio.Future[None] | None = None
    is_late: bool = False
    failed: set[str] = field(default_factory=set)

    def deliver(self, snapshot: Snapshot, now_ms: int) -> None:
        """Call the reporter, in its thread."""
        names = set(snapshot)
        if self.names is None:
            self.call("init", sorted(names))
        else:
            for name in sorted(names - self.names):
                self.call("add", name)
            for name in sorted(self.names - names):
                self.call("remove", name)
        self.names = names
        self.call("report", snapshot, now_ms)

    def call(self, method: str, *arguments: object) -> None:
        """Call a method if the reporter has it. A failure is logged, with its traceback the first time."""
        function = getattr(self.reporter, method, None)
        if function is None:
            return
        try:
            function(*arguments)
        except Exception as error:
            if method in self.failed:
                logger.error("the metrics reporter %s failed again in %s: %r", self.name, method, error)
            else:
                self.failed.add(method)
                logger.exception("the metrics reporter %s failed in %s", self.name, method)


class Reporters:
    """All reporters of one broker."""

    def __init__(
        self,
        reporters: Mapping[str, Any],
        registry: Registry,
        sliced_work: SlicedWork,
        new_threads: Callable[[int, str], Executor],
        *,
        shows_partitions: Callable[[], bool],
        now_ms: Callable[[], int],
    ) -> None:
        """`reporters` are the configured plug-ins by name; `now_ms()` is the wall clock."""
        self._running: Sequence[_Running] = [
            _Running(name, reporter, new_threads(1, "metrics reporter")) for name, reporter in reporters.items()
        ]
        self._registry = registry
        self._sliced_work = sliced_work
        self._shows_partitions = shows_partitions
        self._now_ms = now_ms

    async def report(self) -> None:
        """Give all idle reporters a snapshot. Returns before they have processed it."""
        pause = self._sliced_work.pause
        idle = [one for one in self._running if one.busy is None]
        for one in self._running:
            if one.busy is not None and not one.is_late:
                one.is_late = True
                logger.warning("the metrics reporter %s is still busy: it misses reports until it returns", one.name)
        if not idle:
            return
        now_ms = self._now_ms()
        snapshot = await _snapshot(self._registry, pause, with_partitions=self._shows_partitions())
        for one in idle:
            self._start(one, snapshot, now_ms)

    def _start(self, one: _Running, snapshot: Snapshot, now_ms: int) -> None:
        def done(_: asyncio.Future[None]) -> None:
            one.busy, one.is_late = None, False

        one.busy = asyncio.get_running_loop().run_in_executor(one.thread, one.deliver, snapshot, now_ms)
        one.busy.add_done_callback(done)

    async def stop(self) -> None:
        """Close the reporters. Those that do not return in time are left behind."""
        loop = asyncio.get_running_loop()
        closing = {loop.run_in_executor(one.thread, one.call, "close"): one for one in self._running}
        if closing:
            _, pending = await asyncio.wait(closing, timeout=CLOSE_TIMEOUT_S)
            for late in pending:
                logger.warning("the metrics reporter %s did not close in %.0f s", closing[late].name, CLOSE_TIMEOUT_S)
        for one in self._running:
            one.thread.shutdown(wait=False, cancel_futures=True)


async def _snapshot(registry: Registry, pause: Pause, *, with_partitions: bool) -> Snapshot:
    """Read all metrics. One that cannot be read is logged and left out."""
    found: dict[str, Mapping[str, object]] = {}
    for family in families(registry, with_partitions=with_partitions):
        try:
            for number, bean in enumerate(beans(registry, family)):
                if bean is not None:
                    found[bean[0]] = {name: _own(value) for name, value in bean[1].items()}
                if bean is None or number % SAMPLES_PER_STEP == 0:
                    await pause()
        except Exception:
            logger.exception("cannot read the metric %s", family.bean)
    return found


def _own(value: object) -> object:
    """Return a value that does not change while a reporter reads it."""
    return dict(value) if isinstance(value, Mapping) else value
