"""How long clients that retry immediately wait for acks=all when leaders change or topics begin, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import pairwise

import pytest

from tests.sim.clients.admin import Admin
from tests.sim.clients.base import Retry, SimulatedClient
from tests.sim.clients.producer import VERSION, batch_of, produce_request
from tests.sim.history import Partition
from tests.sim.scripted import Script

PARTITIONS = 6
GAP_MS_MAX = 200.0
"""The simulated ZooKeeper may report that a broker has gone 100 ms late."""
PAUSE_S = 0.02
"""Between requests; a client without it would make the simulator slow. It is a part of the measured gaps."""
KAFKAS_DEFAULTS = {
    "replica.fetch.wait.max.ms": "500",
    "replica.fetch.backoff.ms": "1000",
    "replica.lag.time.max.ms": "30000",
    "controlled.shutdown.retry.backoff.ms": "5000",
}


class ImpatientProducer(SimulatedClient):
    """Sends one record after the other to a partition with acks=all, and asks for the leader again after a failure."""

    def __init__(self, around: Script, partition: Partition) -> None:
        super().__init__(f"producer-{partition.index}", around)
        self.partition = partition
        self.acknowledged_us = [self.now_us()]

    def longest_gap_ms(self) -> float:
        """Return the longest time without an acknowledgement, the time since the last one included."""
        moments = [*self.acknowledged_us, self.now_us()]
        return max(later - earlier for earlier, later in pairwise(moments)) / 1000

    async def run(self) -> None:
        while True:
            try:
                leader, _ = await self.leader_of(self.partition)
                request = produce_request(self.partition, batch_of(["value"], self.now_us()))
                response = await self.ask(leader, request, VERSION)
                self.expect(response.responses[0].partition_responses[0].error_code)
            except Retry:
                self.forget_cluster()
            else:
                self.acknowledged_us.append(self.now_us())
            await asyncio.sleep(PAUSE_S)


@pytest.fixture(params=[1, 2])
def script(request: pytest.FixtureRequest) -> Iterator[Script]:
    """Three brokers without any traffic: the requests of followers wait at their leaders."""
    script = Script(request.param, KAFKAS_DEFAULTS)
    with script.world:
        script.begin()
        script.wait(1)
        yield script


def producers_of_new_topic(script: Script) -> list[ImpatientProducer]:
    """Create a topic whose leaders are spread over the brokers, and produce to it immediately."""
    creator = Admin("creator of many", script, [], count=0, replication_factor=3)
    script.do(creator.create("many", PARTITIONS))
    producers = [ImpatientProducer(script, Partition("many", index)) for index in range(PARTITIONS)]
    for producer in producers:
        producer.start()
    return producers


def gaps_ms(script: Script, producers: list[ImpatientProducer]) -> dict[int, float]:
    """Let a second pass; return the longest gap of each partition."""
    script.wait(1)
    return {it.partition.index: it.longest_gap_ms() for it in producers}


def test_new_topic_is_acknowledged_at_once(script: Script) -> None:
    gaps = gaps_ms(script, producers_of_new_topic(script))
    assert max(gaps.values()) <= GAP_MS_MAX, gaps


@pytest.mark.parametrize("is_busy", [True, False])
def test_clean_stop_of_a_leader_is_hardly_noticed(script: Script, is_busy: bool) -> None:
    """The stopped broker leads a third of the partitions, and follows the others. Idle partitions begin after it."""
    producers = producers_of_new_topic(script)
    script.wait(0.5)
    stopped = script.leader(producers[0].partition)
    assert any(script.leader(it.partition) != stopped for it in producers)
    if not is_busy:
        for producer in producers:
            producer.task.cancel()
        script.wait(1)
    script.cluster.stop(stopped)
    if not is_busy:
        script.wait_until(lambda: all(script.leader(it.partition) != stopped for it in producers))
        for producer in producers:
            producer.acknowledged_us = [producer.now_us()]
            producer.start()
    gaps = gaps_ms(script, producers)
    assert not script.cluster.is_running(stopped)
    assert max(gaps.values()) <= GAP_MS_MAX, gaps
