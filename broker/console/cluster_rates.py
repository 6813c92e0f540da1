"""Records per second of the whole cluster: counted by this broker, and by growth of offsets where others lead.

Owns which end offsets are asked for, and how often. Must not know HTTP.

A page of topics asks for the end offsets of its partitions anyway. Totals and orders of all topics need those of every
partition; they are asked for at most once per `INTERVAL_MS`, and only up to `PARTITIONS_ASKED_MAX` partitions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from base.topic_partition import TopicPartition
from broker.cluster.metadata_cache import NO_LEADER, TopicState
from broker.console.cluster_client import LATEST, FoundOffset
from broker.console.console import Console
from broker.console.offset_growth import INTERVAL_MS

PARTITIONS_ASKED_MAX: Final = 2_000
STEP_SIZE: Final = 200


class LedElsewhere(NamedTuple):
    """The topics with partitions that other brokers lead, as far as the console's principal may know them."""

    topics: list[TopicState]
    are_too_many: bool


def records_in(console: Console, topic: TopicState) -> float | None:
    """Return the records per second of a topic in the cluster.

    None if the growth of partitions that other brokers lead is not known.
    """
    here = console.rates.rate_of(topic.name)[0]
    if not _led_elsewhere(console, topic):
        return here
    elsewhere = console.growth.per_second(topic.name, console.services.clock.monotonic_ms())
    return None if elsewhere is None else here + elsewhere


async def end_offsets(
    console: Console, topics: Iterable[TopicState], partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, FoundOffset]:
    """Return the end offsets of partitions, and sample those topics of which other brokers responded all."""
    asked_ms = console.services.clock.monotonic_ms()  # a broker that does not respond delays the others' offsets
    ends = await console.client.offsets(partitions, LATEST)
    samples: dict[str, dict[int, int]] = {}
    for topic in topics:
        numbers = _led_elsewhere(console, topic)
        found = {each: ends[topic.name, each].offset for each in numbers if (topic.name, each) in ends}
        if numbers and len(found) == len(numbers):
            samples[topic.name] = found
    console.growth.record(samples, asked_ms)
    return ends


async def sample_all(console: Console) -> LedElsewhere:
    """Sample all topics that other brokers lead partitions of, at most once per `INTERVAL_MS`, and return them.

    Asks for nothing if they have more than `PARTITIONS_ASKED_MAX` such partitions.
    """
    return await console.remembered("growth of all topics", INTERVAL_MS, lambda: _sample_all(console))


async def total_elsewhere(console: Console) -> float | None:
    """Return the growth per second of all partitions that other brokers lead; None if it is not known."""
    led_elsewhere = await sample_all(console)
    if led_elsewhere.are_too_many:
        return None
    now_ms = console.services.clock.monotonic_ms()
    total = 0.0
    for topic in led_elsewhere.topics:
        growth = console.growth.per_second(topic.name, now_ms)
        if growth is None:
            return None
        total += growth
    return total


async def _sample_all(console: Console) -> LedElsewhere:
    found = await _topics_elsewhere(console)
    if found.topics:
        wanted = [(topic.name, number) for topic in found.topics for number in _led_elsewhere(console, topic)]
        await end_offsets(console, found.topics, wanted)
    return found


async def _topics_elsewhere(console: Console) -> LedElsewhere:
    pause = console.pause
    found: list[TopicState] = []
    count = steps = 0
    for topic in list(console.services.metadata_cache.topics.values()):
        steps += len(topic.partitions)
        if steps >= STEP_SIZE:
            steps = 0
            await pause()
        led = len(_led_elsewhere(console, topic))
        if led and console.may_describe(topic.name):
            found.append(topic)
            count += led
            if count > PARTITIONS_ASKED_MAX:
                return LedElsewhere([], are_too_many=True)
    return LedElsewhere(found, are_too_many=False)


def _led_elsewhere(console: Console, topic: TopicState) -> list[int]:
    here = console.services.broker_id
    return [number for number, one in topic.partitions.items() if one.leader not in (here, NO_LEADER)]
