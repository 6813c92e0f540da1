"""The console at scale: how long its pages take, and how long they hold up the broker's event loop.

    PYTHONPATH=. python -m bench.console [--topics 10000] [--partitions-of-each 4]

Owns the load and the report. It starts a broker of its own in a temporary folder, creates the topics, produces to a
topic of 100 partitions, then asks for each page several times: first after the creation, then with warm caches. The stall
is the longest time that a timer in the broker's process was late while the page was served. It prints one line a page.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import aiohttp

from broker.environment import environment_of_this_machine
from broker.server import Server
from config.broker import BrokerConfig
from controller.state_store import StateStore
from protocol.messages.create_topics import CreatableTopic
from protocol.records.builder import RecordData, build_batch

TOPICS_PER_REQUEST = 200
BATCH_RECORDS = 20
BATCHES_PER_PARTITION = 10
ROUNDS = 9
TICK_S = 0.001

PAGES: Sequence[tuple[str, str]] = (
    ("first page of topics", "/topics"),
    ("topics by search", "/topics?search=99"),
    ("last page of topics", "/topics?offset=9950"),
    ("topics by size", "/topics?sort=size&order=descending"),
    ("overview", "/overview"),
    ("partitions", "/partitions"),
    ("newest 100 of 100 partitions", "/topics/wide/records?limit=100"),
    ("newest 500 of 100 partitions", "/topics/wide/records?limit=500"),
    ("groups", "/groups"),
    ("requests", "/requests"),
)


class Stall:
    """The longest time that a timer was late since the last question."""

    def __init__(self) -> None:
        self._longest_s = 0.0

    async def watch(self) -> None:
        """Measure until cancelled."""
        while True:
            due_s = time.monotonic() + TICK_S
            await asyncio.sleep(TICK_S)
            self._longest_s = max(self._longest_s, time.monotonic() - due_s)

    def longest_ms(self) -> float:
        """Return the longest delay, and begin anew."""
        longest_s, self._longest_s = self._longest_s, 0.0
        return 1000 * longest_s


async def _create(server: Server, count: int, partitions: int) -> None:
    topics = server.services.topics
    for first in range(0, count, TOPICS_PER_REQUEST):
        wanted = [
            CreatableTopic(
                name=f"topic-{number:05d}", num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
            )
            for number in range(first, min(first + TOPICS_PER_REQUEST, count))
        ]
        results = await topics.create(wanted, validate_only=False, timeout_ms=120_000)
        assert not any(each.error_code for each in results), results[0]
    wide = CreatableTopic(name="wide", num_partitions=100, replication_factor=1, assignments=[], configs=[])
    await topics.create([wide], validate_only=False, timeout_ms=60_000)


async def _produce(server: Server, address: str) -> None:
    """Fill the topic of 100 partitions, whose timestamps take turns."""
    now_ms = server.services.clock.now_ms()
    for batch in range(BATCHES_PER_PARTITION):
        for number in range(100):
            partition = server.services.replica_manager.find("wide", number)
            assert partition is not None
            first_ms = now_ms - 1_000_000 + batch * 10_000 + number
            records = [
                RecordData(first_ms + 100 * each, b"key", b'{"number": %d, "text": "%s"}' % (each, b"x" * 200))
                for each in range(BATCH_RECORDS)
            ]
            partition.log.append(memoryview(bytearray(build_batch(records))), leader_epoch=partition.leader_epoch)
            partition.log.high_watermark = partition.log.log_end_offset


async def _measure(server: Server, title: str, address: str) -> None:
    stall = Stall()
    watching = asyncio.create_task(stall.watch())
    await asyncio.sleep(0.2)
    stall.longest_ms()
    times: list[float] = []
    stalls: list[float] = []
    async with aiohttp.ClientSession() as session:
        for _ in range(ROUNDS):
            began_s = time.monotonic()
            async with session.get(address) as response:
                size = len(await response.read())
                assert response.status == 200, await response.text()
            times.append(1000 * (time.monotonic() - began_s))
            stalls.append(stall.longest_ms())
            await asyncio.sleep(0.05)
            stall.longest_ms()
    watching.cancel()
    print(
        f"{title:32} first {times[0]:7.1f} ms  median {statistics.median(times):7.1f} ms  longest {max(times):7.1f} ms  "
        f"stall: median {statistics.median(stalls):5.1f} ms, longest {max(stalls):5.1f} ms  {size:8d} bytes",
        flush=True,
    )
