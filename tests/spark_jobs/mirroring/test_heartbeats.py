"""Heartbeats in MirrorMaker 2's format, sent at an interval."""

import time

from spark_jobs.mirroring.heartbeats import Emitter, canary, heartbeat
from tests.spark_jobs.conftest import Topics


def test_a_heartbeat_has_mirror_makers_format() -> None:
    key, value = heartbeat("west", "ä", 1_700_000_000_000)
    assert key == b"\x00\x04west\x00\x02\xc3\xa4"
    assert value == b"\x00\x00" + (1_700_000_000_000).to_bytes(8, "big")


def test_a_record_is_sent_at_each_interval_until_the_end(topics: Topics) -> None:
    topic = topics.create("canary", 1)
    emitter = Emitter(topics.client, topic, 0.05, lambda now_ms: canary("a", "b", now_ms))
    deadline = time.monotonic() + 30
    while len(stored := topics.read(topic)) < 3:
        assert time.monotonic() < deadline
    emitter.close()
    assert {message.key() for message in stored} == {b"a->b"}
    times = [int(message.value()) for message in stored]
    assert times == sorted(times)
    assert abs(times[0] - time.time() * 1000) < 60_000
