"""Pairs of offsets at source and target, and the translation of the positions of groups by them.

A pair (source, target) says that the record at `source` has the offset `target`, and that later records have the same
difference, up to the next pair. Before that the source may have offsets without records, which were compacted or belong
to transactions: positions there are the target of the next pair.

The pairs survive a restart in a compacted topic at the target. A record has all pairs of one source partition, and
replaces the one before it: memory and topic are bounded by the number of partitions.
"""

import bisect
import json
import logging
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from operator import attrgetter
from typing import Any, NamedTuple

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from spark_jobs.mirroring.sending import Run
from spark_jobs.skeleton.errors import JobError
from spark_jobs.skeleton.stored import stored_messages

_LOG = logging.getLogger(__name__)
_TIMEOUT_S = 30
_PAIRS_MAX = 128
"""Of a partition. A source with transactions has a pair for each of them."""
_THINNED_PAIRS_MAX = 64
"""That are left of too many: enough that a group which is 10**9 offsets behind reads about twice as many at most."""
_FIRST_RATIO = 1.0625  # between the distances of two pairs from the newest one

OFFSET_SYNCS_CONFIG: Mapping[str, str] = {"cleanup.policy": "compact", "segment.bytes": "16777216"}
"""Settings of the topic with the pairs. Only closed segments are compacted, and each start reads all of them."""

Place = tuple[str, int]  # a topic and a partition


class Pair(NamedTuple):
    """An offset at the source, and that of the same record at the target."""

    source: int
    target: int
    is_exact: bool = True  # whether the records up to the next pair have the same difference


class OffsetTranslation:
    """The pairs of each source partition. Pure.

    When there are too many, pairs are forgotten, most of them among the oldest. Positions up to the next pair are then
    that of the pair before: readers read some records again, in proportion to how far they were behind.
    """

    def __init__(self) -> None:
        self._pairs: dict[Place, list[Pair]] = defaultdict(list)
        self._targets: dict[Place, Place] = {}

    def add(self, run: Run) -> bool:
        """Add the pair of a run; return whether it says something new."""
        place, target = (run.topic, run.partition), (run.target_topic, run.target_partition)
        if self.translate(*place, run.source_offset) == (*target, run.target_offset):
            return False
        if self._targets.get(place) != target:
            self._pairs[place].clear()  # they are of another topic
        self._targets[place] = target
        pairs = self._pairs[place]
        index = bisect.bisect_left(pairs, run.source_offset, key=_source_of)
        replaces = index < len(pairs) and pairs[index].source == run.source_offset
        end = index + replaces
        # Between older pairs, a new one says as little about those that were forgotten as the one before it.
        is_exact = end in {0, len(pairs)} or pairs[end - 1].is_exact
        pairs[index:end] = [Pair(run.source_offset, run.target_offset, is_exact)]
        if len(pairs) > _PAIRS_MAX:
            self._pairs[place] = _thinned(pairs)
        return True

    def translate(self, topic: str, partition: int, offset: int) -> tuple[str, int, int] | None:
        """Return topic, partition and offset at the target.

        None before the first pair, unless its record is the first one of the target: then no record is before it.
        """
        pairs = self._pairs.get((topic, partition), [])
        index = bisect.bisect_right(pairs, offset, key=_source_of) - 1
        if index < 0:
            return (*self._targets[topic, partition], 0) if pairs and pairs[0].target == 0 else None
        pair = pairs[index]
        translated = pair.target + offset - pair.source if pair.is_exact else pair.target
        if index + 1 < len(pairs):
            translated = min(translated, pairs[index + 1].target)
        return (*self._targets[topic, partition], translated)

    def to_json(self, place: Place) -> dict[str, Any]:
        """Return all pairs of a source partition as an object for JSON."""
        topic, partition = place
        target_topic, target_partition = self._targets[place]
        return {
            "topic": topic,
            "partition": partition,
            "target_topic": target_topic,
            "target_partition": target_partition,
            "pairs": [[pair.source, pair.target, int(pair.is_exact)] for pair in self._pairs[place]],
        }

    def restore(self, stored: Mapping[str, Any]) -> None:
        """Replace the pairs of a source partition by those of an object of `to_json`."""
        place = (stored["topic"], stored["partition"])
        self._targets[place] = (stored["target_topic"], stored["target_partition"])
        self._pairs[place] = [Pair(source, target, bool(is_exact)) for source, target, is_exact in stored["pairs"]]


_source_of = attrgetter("source")


def _thinned(pairs: Sequence[Pair]) -> list[Pair]:
    """Return at most `_THINNED_PAIRS_MAX` pairs, with the oldest and the newest one.

    The distances of pairs from the newest one grow by a factor, the smallest one that leaves so few.
    """
    ratio = _FIRST_RATIO
    while True:
        kept = _spaced(pairs, ratio)
        if len(kept) <= _THINNED_PAIRS_MAX:
            return kept
        ratio = 1 + 2 * (ratio - 1)


def _spaced(pairs: Sequence[Pair], ratio: float) -> list[Pair]:
    """Forget each pair between two others whose distances from the newest one differ by less than `ratio`."""
    newest = pairs[-1]
    kept = [newest]
    skips = False  # whether pairs between this one and the last one that was kept are forgotten
    for index in range(len(pairs) - 2, -1, -1):
        older = pairs[index - 1] if index else None
        if older is not None and newest.source - older.source <= ratio * (newest.source - kept[-1].source):
            skips = True
            continue
        kept.append(pairs[index]._replace(is_exact=False) if skips else pairs[index])
        skips = False
    kept.reverse()
    return kept


class OffsetSyncs:
    """The pairs in their topic at the target."""

    def __init__(self, target: Mapping[str, str], topic: str, source_alias: str) -> None:
        """`target` is settings of librdkafka's clients. Reads the topic. Raises JobError."""
        self._topic = topic
        self._source_alias = source_alias
        self.translation = OffsetTranslation()
        self._target = target
        self._unstored: set[Place] = set()
        self._load()

    def add(self, runs: Iterable[Run]) -> None:
        """Store the pairs of partitions with something new. Raises JobError; the next call stores them, too."""
        self._unstored |= {(run.topic, run.partition) for run in sorted(runs) if self.translation.add(run)}
        if not self._unstored:
            return
        # One request at a time keeps the order. An idempotent producer would first wait half a second for its id.
        producer = Producer({**self._target, "max.in.flight": 1})
        failures: list[KafkaError] = []

        def on_delivery(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                failures.append(error)

        for place in sorted(self._unstored):
            value = json.dumps(self.translation.to_json(place), separators=(",", ":"))
            producer.produce(self._topic, value, self._key(*place), partition=0, on_delivery=on_delivery)
            producer.poll(0)
        is_late = producer.flush(_TIMEOUT_S) > 0
        if failures:
            raise JobError(f"{self._topic}: offset pairs were not stored: {failures[0].str()}")
        if is_late:
            raise JobError(f"{self._topic}: offset pairs were not acknowledged within {_TIMEOUT_S} s")
        self._unstored.clear()

    def _key(self, topic: str, partition: int) -> str:
        return f"{self._source_alias}/{topic}/{partition}"

    def _load(self) -> None:
        for message in stored_messages(self._target, self._topic):
            stored = json.loads(message.value())
            if message.key().decode() == self._key(stored["topic"], stored["partition"]):
                self.translation.restore(stored)


class GroupCheckpoints:
    """Commits the positions of the source's groups at the target, translated."""

    def __init__(self, source: Mapping[str, str], target: Mapping[str, str], groups: str) -> None:
        """`groups` is the regular expression of their names."""
        self._source = source
        self._target = target
        self._groups = re.compile(groups)

    def sync(self, translation: OffsetTranslation, keeps_partitions: Callable[[str], bool]) -> dict[str, int]:
        """Commit what is ahead of the target's positions; return the number of partitions by group.

        Positions in topics whose records do not keep their partitions have no place at the target. A position beyond
        the target's end is its end: records that are mirrored later follow there. Groups that are active at the target
        are left alone: their own commits are valid.
        """
        source, target = AdminClient(dict(self._source)), AdminClient(dict(self._target))
        done = {}
        for group in self._names(source):
            try:
                of_source = [each for each in self._committed(source, group) if keeps_partitions(each.topic)]
                positions = _up_to_end(target, _translated(of_source, translation))
                own = {(each.topic, each.partition): each.offset for each in self._committed(target, group)}
                ahead = [each for each in positions if each.offset > own.get((each.topic, each.partition), -1)]
                if ahead:
                    request = [ConsumerGroupTopicPartitions(group, ahead)]
                    target.alter_consumer_group_offsets(request)[group].result(_TIMEOUT_S)
                    done[group] = len(ahead)
            except KafkaException as error:
                _LOG.info("group %s keeps its positions at the target: %s", group, error.args[0].str())
        return done

    def _names(self, source: AdminClient) -> list[str]:
        listed = source.list_consumer_groups().result(_TIMEOUT_S).valid
        return sorted(each.group_id for each in listed if self._groups.fullmatch(each.group_id))

    @staticmethod
    def _committed(admin: AdminClient, group: str) -> list[TopicPartition]:
        future = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group]
        return [each for each in future.result(_TIMEOUT_S).topic_partitions if each.offset >= 0]


def _translated(positions: Iterable[TopicPartition], translation: OffsetTranslation) -> list[TopicPartition]:
    places = [translation.translate(each.topic, each.partition, each.offset) for each in positions]
    return [TopicPartition(*place) for place in places if place is not None]


def _up_to_end(admin: AdminClient, positions: Sequence[TopicPartition]) -> list[TopicPartition]:
    """Return the positions, at most the ends of their partitions; without those of topics that are gone."""
    requests = {TopicPartition(each.topic, each.partition): OffsetSpec.latest() for each in positions}
    if not requests:
        return []
    futures = admin.list_offsets(requests, request_timeout=_TIMEOUT_S)
    ends = {}
    for place, future in futures.items():
        with suppress(KafkaException):
            ends[place.topic, place.partition] = future.result().offset
    return [
        TopicPartition(each.topic, each.partition, min(each.offset, ends[each.topic, each.partition]))
        for each in positions
        if (each.topic, each.partition) in ends
    ]
