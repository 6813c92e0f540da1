"""The JSON of the console's pages with ten thousand topics: no request holds the event loop for long."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from protocol.records.builder import RecordData, build_batch
from tests.broker.console.many_topics import add_topics, commit_all
from tests.broker.console.site import SETTINGS, built_consoles
from tests.broker.handlers.test_produce_and_fetch import produce
from tests.support.in_process import running_broker
from tests.support.loop_thread import Turns, loop_thread

TURN_MAX_S = 0.05
PAGE_MAX_S = 0.3


def test_pages_of_ten_thousand_topics_hold_the_loop_for_short_turns(
    tmp_path: Path, exclude_from_collection: Callable[[], None]
) -> None:
    turns = Turns()
    with (
        turns.measured(),
        built_consoles(),  # none of them takes samples during a measurement
        loop_thread(asyncio.SelectorEventLoop) as thread,
        thread.entered(running_broker(tmp_path, SETTINGS)) as broker,
    ):

        def get(path: str) -> Any:
            """Return the JSON of a resource, and fail if one turn of the loop took too long."""
            turns.reset()
            with urlopen(f"http://127.0.0.1:{broker.metrics_port}/api/v1/{path}") as response:
                body = json.load(response)
            assert turns.longest_s < TURN_MAX_S, f"{path}: one turn of {turns.longest_s * 1000:.0f} ms"
            return body

        real = [f"first-{number:05}" for number in range(5)]
        for name in real:
            thread.run(broker.create_topic(name, 4))
        batch = build_batch([RecordData(1, None, b"x")])
        thread.run(produce(broker, "first-00003", {0: batch}))
        later = [f"later-{number:05}" for number in range(5, 10_000)]
        thread.call(lambda: add_topics(broker, later, larger="later-05000"))
        exclude_from_collection()
        for path, found in (
            (
                "topics",
                lambda page: (
                    page["total"] == 10_000 and len(page["topics"]) == 50 and page["topics"][0]["size_bytes"] == 0
                ),
            ),
            ("overview", lambda page: page["partitions"] == 40_005),
            ("partitions", lambda page: sum(each["replicas"] for each in page["shares"]) == 40_005),
        ):
            page = get(path)
            assert found(page), page
            assert turns.total_s < PAGE_MAX_S, f"{path}: {turns.total_s * 1000:.0f} ms"
        for query, first in (
            ("search=00999", "later-00999"),
            ("search=0", "first-00000"),
            ("sort=size&order=descending", "first-00003"),
            ("sort=partitions&order=descending", "later-05000"),
            ("sort=partitions&order=descending&offset=50", "later-00049"),
        ):
            assert get(f"topics?{query}")["topics"][0]["name"] == first
        thread.run(commit_all(broker, "wide", [*real, *later]))
        exclude_from_collection()  # the 40,000 offsets, too
        assert get("groups")["groups"][0]["lag"] == 1
        get("topics")  # begins to collect the offsets of all groups
        assert get("groups/wide?limit=100")["partition_count"] == 40_005
        assert get("groups/wide?offset=100&limit=100")["partitions"][0]["topic"] == "later-00025"
        largest = get("groups/wide?sort=lag&limit=100")["partitions"][0]
        assert (largest["topic"], largest["partition"], largest["lag"]) == ("first-00003", 0, 1)
