"""What clients that send as fast as they may get through in ten windows, on virtual time; and with real sockets."""

from __future__ import annotations

import asyncio
import heapq
import time
from pathlib import Path

import pytest

from broker.quotas.client_quotas import QuotaChange
from broker.quotas.enforcement import Key
from controller.coordination.memory_store import MemoryStore
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker.handlers.test_produce_and_fetch import batch_of
from tests.broker.quotas.test_enforcement import Quotas
from tests.support.in_process import running_broker

MB = 1_000_000
WINDOW_MS, WINDOWS = 1000, 10
PERIOD_MS = 11 * WINDOW_MS
"""What is recorded counts for eleven windows."""
TOLERANCE = 0.1


class Load:
    """Connections of one entity that each send the next request when they are read again."""

    def __init__(self, quotas: Quotas, connections: int, size: int, key: Key) -> None:
        self._quotas, self._size, self._key = quotas, size, key
        self._ready = [(0, number) for number in range(connections)]

    def run(self, duration_ms: int) -> float:
        """Return the amount a second in the next `duration_ms`."""
        clock, total = self._quotas.clock, 0
        end_ms = clock.monotonic_ms() + duration_ms
        while self._ready[0][0] < end_ms:
            at_ms, number = heapq.heappop(self._ready)
            clock.advance(max(at_ms - clock.monotonic_ms(), 0))
            throttle_ms = self._quotas.enforced.record("u", f"c{number}", self._key, self._size)
            total += self._size
            heapq.heappush(self._ready, (clock.monotonic_ms() + max(throttle_ms, 1), number))
        clock.advance(max(end_ms - clock.monotonic_ms(), 0))
        return total * 1000 / duration_ms


@pytest.mark.parametrize(
    ("rate", "size"), [(MB, 1000), (MB, 16_384), (10 * MB, 16_384), (10 * MB, 100_000), (100 * MB, MB)]
)
@pytest.mark.parametrize("connections", [1, 7])
async def test_rate_is_within_a_tenth_of_the_quota(store: MemoryStore, rate: int, size: int, connections: int) -> None:
    """A client without any limit of its own sends a burst, then waits until the burst has left the windows.

    So ten windows have one burst or none. Over several periods the rate is that of the quota.
    """
    quotas = Quotas(store)
    await quotas.set([("user", "u")], Key.PRODUCE, rate)
    load = Load(quotas, connections, size, Key.PRODUCE)
    load.run(PERIOD_MS)  # with the burst that the empty windows allow
    parts = [load.run(WINDOW_MS) for _ in range(10 * PERIOD_MS // WINDOW_MS)]
    assert sum(parts) / len(parts) == pytest.approx(rate, rel=TOLERANCE)
    most = max(sum(parts[begin : begin + WINDOWS]) / WINDOWS for begin in range(len(parts) - WINDOWS))
    assert most <= rate * (1 + TOLERANCE) + connections * size * 1000 / (WINDOWS * WINDOW_MS)


async def test_rate_follows_a_change_while_clients_run(store: MemoryStore) -> None:
    quotas = Quotas(store)
    await quotas.set([("user", "u")], Key.PRODUCE, 10 * MB)
    load = Load(quotas, 3, 65_536, Key.PRODUCE)
    for rate in (10 * MB, 2 * MB, 40 * MB):
        await quotas.set([("user", "u")], Key.PRODUCE, rate)
        load.run(10 * PERIOD_MS)  # the throttles that the old quota caused end first
        assert load.run(10 * PERIOD_MS) == pytest.approx(rate, rel=TOLERANCE)


@pytest.mark.soak
@pytest.mark.timeout(300)
@pytest.mark.parametrize("rate", [MB, 10 * MB, 100 * MB])
async def test_real_producers_are_within_a_tenth(tmp_path: Path, rate: int) -> None:
    """Four connections share the quota and try to send half as much again."""
    connections, seconds_between = 4, 0.05
    retention = {"log.retention.check.interval.ms": "5000", "log.initial.task.delay.ms": "5000"}
    async with running_broker(tmp_path, retention) as broker:
        await broker.create_topic("t", retention_bytes=str(256 * MB), segment_bytes=str(64 * MB))
        change = QuotaChange("producer_byte_rate", float(rate))
        await broker.services.client_quotas.alter([("user", "ANONYMOUS")], [change], validate_only=False)
        batch = batch_of(b"x" * int(1.5 * rate * seconds_between / connections))
        data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=batch)])
        request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=[data])
        begin = time.monotonic()
        seconds = 5 * PERIOD_MS / 1000
        sent: list[tuple[float, int]] = []

        async def client() -> None:
            due = begin
            while (now := time.monotonic()) < begin + seconds:
                due = max(due + seconds_between, now)
                response = await broker.ask(request)
                sent.append((time.monotonic() - begin, len(batch)))
                await asyncio.sleep(max(due - time.monotonic(), response.throttle_time_ms / 1000, 0))

        await asyncio.gather(*(client() for _ in range(connections)))
    in_seconds = [sum(size for at, size in sent if second <= at < second + 1) for second in range(int(seconds))]
    measured = in_seconds[PERIOD_MS // 1000 :]  # after the burst that the empty windows allow
    assert sum(measured) / len(measured) == pytest.approx(rate, rel=TOLERANCE)
    most = max(sum(measured[begin : begin + WINDOWS]) / WINDOWS for begin in range(len(measured) - WINDOWS + 1))
    assert most <= rate * (1 + TOLERANCE) + connections * len(batch) / WINDOWS
