"""A scrape of many partitions: no turn of the event loop is long, so that requests are served in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from urllib.request import urlopen

from broker.metrics.prometheus import SAMPLES_PER_PIECE
from tests.support.in_process import InProcessBroker, running_broker
from tests.support.loop_thread import Turns, loop_thread

PARTITIONS = 1_000
TURN_MAX_S = 0.005


def test_a_scrape_is_served_in_short_turns(tmp_path: Path, exclude_from_collection: Callable[[], None]) -> None:
    turns = Turns()
    settings = {"metrics.http.listener": "127.0.0.1:0"}

    async def create(broker: InProcessBroker) -> None:
        for number in range(PARTITIONS // 100):
            await broker.create_topic(f"topic-{number}", 100)

    with (
        turns.measured(),
        loop_thread(asyncio.SelectorEventLoop) as thread,
        thread.entered(running_broker(tmp_path, settings)) as broker,
    ):
        thread.run(create(broker))
        exclude_from_collection()
        turns.reset()
        with urlopen(f"http://127.0.0.1:{broker.metrics_port}/metrics") as response:
            lines = [line for line in response.read().splitlines() if not line.startswith(b"#")]
    assert len(lines) > 10 * PARTITIONS
    assert turns.count > len(lines) // SAMPLES_PER_PIECE
    assert turns.longest_s < TURN_MAX_S, f"one turn of {1000 * turns.longest_s:.1f} ms"
