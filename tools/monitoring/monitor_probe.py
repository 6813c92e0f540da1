"""What kafka-monitor has sent and received: availability and latency of each broker.

Owns the counts. Must not know how records are sent. Pure: times are arguments, in monotonic seconds.

Each record has a number and goes to the partition that one broker leads. It is produced if the broker acknowledged
it, and consumed if it came back within the time limit.
"""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from broker.metrics.histogram import Histogram
from broker.metrics.metric import Kind, Metric, Sample

WINDOW_S: Final = 60.0
"""Availability is that of the last minute."""


@dataclass
class _Broker:
    """The records of one broker's partition."""

    produced: int = 0
    failed: int = 0
    consumed: int = 0
    late: int = 0
    recent_sends: deque[tuple[float, bool]] = field(default_factory=deque)
    recent_receipts: deque[tuple[float, bool]] = field(default_factory=deque)
    awaited: dict[int, float] = field(default_factory=dict)
    """When records were sent that have been acknowledged and have not come back, by number."""
    early: dict[int, float] = field(default_factory=dict)
    """When records were sent that came back before their acknowledgement, by number."""


class Probe:
    """All figures. Its methods may be called from several threads."""

    def __init__(self, late_s: float) -> None:
        """A record is lost or late if it does not come back within `late_s`."""
        self._late_s = late_s
        self._lock = threading.Lock()
        self._brokers: dict[int, _Broker] = {}
        self._latency = Histogram(random.Random().random)

    def sent(self, broker_id: int, number: int, sent_s: float, now_s: float, *, is_acknowledged: bool) -> None:
        """Note the outcome of sending one record."""
        with self._lock:
            broker = self._brokers.setdefault(broker_id, _Broker())
            broker.recent_sends.append((now_s, is_acknowledged))
            if is_acknowledged:
                broker.produced += 1
                if broker.early.pop(number, None) is None:
                    broker.awaited[number] = sent_s
            else:
                broker.failed += 1

    def received(self, broker_id: int, number: int, sent_s: float, now_s: float) -> None:
        """Note a record that came back."""
        with self._lock:
            broker = self._brokers.setdefault(broker_id, _Broker())
            latency_s = now_s - sent_s
            if broker.awaited.pop(number, None) is None:
                if latency_s > self._late_s:
                    return  # it has been counted as late
                broker.early[number] = sent_s
            broker.consumed += 1
            broker.recent_receipts.append((now_s, latency_s <= self._late_s))
            self._latency.update(latency_s, now_s)

    def expire(self, now_s: float) -> None:
        """Count the records that did not come back in time, and forget what is older than the window."""
        with self._lock:
            for broker in self._brokers.values():
                for number, sent_s in list(broker.awaited.items()):
                    if now_s - sent_s <= self._late_s:
                        continue
                    del broker.awaited[number]
                    broker.late += 1
                    broker.recent_receipts.append((now_s, False))
                broker.early = {it: sent_s for it, sent_s in broker.early.items() if now_s - sent_s <= self._late_s}
                for recent in (broker.recent_sends, broker.recent_receipts):
                    while recent and recent[0][0] < now_s - WINDOW_S:
                        recent.popleft()

    def keep(self, broker_ids: set[int]) -> None:
        """Forget all other brokers."""
        with self._lock:
            self._brokers = {broker_id: it for broker_id, it in self._brokers.items() if broker_id in broker_ids}

    def metrics(self) -> Iterator[Metric]:
        """Return the metrics."""
        tables: tuple[tuple[Kind, str, str, Callable[[_Broker], float | None]], ...] = (
            (
                Kind.GAUGE,
                "produce_availability",
                "Share of records of the last minute that the broker acknowledged.",
                _produce_availability,
            ),
            (
                Kind.GAUGE,
                "consume_availability",
                "Share of records of the last minute that came back in time.",
                _consume_availability,
            ),
            (Kind.METER, "records_produced", "Records that the broker acknowledged.", lambda it: it.produced),
            (Kind.METER, "records_failed", "Records that the broker did not acknowledge.", lambda it: it.failed),
            (Kind.METER, "records_consumed", "Records that came back.", lambda it: it.consumed),
            (Kind.METER, "records_late", "Acknowledged records that did not come back in time.", lambda it: it.late),
        )
        for kind, name, text, fact in tables:
            yield Metric(kind, "", text, self._each(fact), ("broker",), own_name=f"kafka_monitor_{name}")
        yield Metric(
            Kind.HISTOGRAM,
            "",
            "Time from sending a record to receiving it.",
            self._read_latency,
            own_name="kafka_monitor_end_to_end_latency_seconds",
        )

    def _each(self, fact: Callable[[_Broker], float | None]) -> Callable[[], list[Sample]]:
        def read() -> list[Sample]:
            with self._lock:
                values = ((str(broker_id), fact(it)) for broker_id, it in sorted(self._brokers.items()))
                return [((broker,), value) for broker, value in values if value is not None]

        return read

    def _read_latency(self) -> list[Sample]:
        with self._lock:
            return [((), self._latency.distribution())]


def _produce_availability(broker: _Broker) -> float | None:
    return _share(broker.recent_sends)


def _consume_availability(broker: _Broker) -> float | None:
    """Return the share of records that came back; 0 if none can come back, as the broker acknowledged none."""
    if broker.recent_sends and not broker.recent_receipts and not broker.awaited:
        return 0.0
    return _share(broker.recent_receipts)


def _share(recent: deque[tuple[float, bool]]) -> float | None:
    """Return the share of what went well, None without anything."""
    return sum(is_good for _, is_good in recent) / len(recent) if recent else None
