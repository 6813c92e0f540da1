"""Pairs of offsets at source and target, and the translation of the positions of groups by them.

A pair (source, target) says that the record at `source` has the offset `target`, and that later records have the same
difference, up to the next pair. Before that the source may have offsets without records, which were compacted or belong
to transactions: positions there are the target of the next pair. The pairs are stored in a topic at the target, so that
they survive a restart.
"""

import bisect
import json
import logging
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from operator import attrgetter
from typing import NamedTuple

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
_PAIRS_MAX = 10_000
"""Of a partition in memory. A source with transactions has a pair for each of them."""


class Pair(NamedTuple):
    """An offset at the source, and that of the same record at the target."""

    source: int
    target: int
    is_exact: bool = True  # whether the records up to the next pair have the same difference


class OffsetTranslation:
    """The pairs of each source partition. Pure.

    When there are too many, every second one of the older half is forgotten. Positions up to the next pair are then
    that of the pair itself: readers read some records again.
    """

    def __init__(self) -> None:
        self._pairs: dict[tuple[str, int], list[Pair]] = defaultdict(list)
        self._targets: dict[tuple[str, int], tuple[str, int]] = {}

    def add(self, run: Run) -> bool:
        """Add the pair of a run; return whether it says something new."""
        place = (run.topic, run.partition)
        if self.translate(*place, run.source_offset) == (run.target_topic, run.target_partition, run.target_offset):
            return False
        self._targets[place] = (run.target_topic, run.target_partition)
        pairs = self._pairs[place]
        index = bisect.bisect_left(pairs, run.source_offset, key=_source_of)
        replaces = index < len(pairs) and pairs[index].source == run.source_offset
        end = index + replaces
        # Between older pairs, a new one says as little about those that were forgotten as the one before it.
        is_exact = end in {0, len(pairs)} or pairs[end - 1].is_exact
        pairs[index:end] = [Pair(run.source_offset, run.target_offset, is_exact)]
        if len(pairs) > _PAIRS_MAX:
            half = _PAIRS_MAX // 2
            pairs[:half] = [pair._replace(is_exact=False) for pair in pairs[:half:2]]
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


_source_of = attrgetter("source")


class OffsetSyncs:
    """The pairs in their topic at the target."""

    def __init__(self, target: Mapping[str, str], topic: str, source_alias: str) -> None:
        """`target` is settings of librdkafka's clients. Reads the topic. Raises JobError."""
        self._topic = topic
        self._source_alias = source_alias
        self.translation = OffsetTranslation()
        self._target = target
        self._unstored: list[Run] = []
        self._load()

    def add(self, runs: Iterable[Run]) -> None:
        """Store the pairs that say something new. Raises JobError; the next call stores them, too."""
        self._unstored += [run for run in sorted(runs) if self.translation.add(run)]
        if not self._unstored:
            return
        # One request at a time keeps the order. A retry may store a pair twice, which changes no translation. An
        # idempotent producer would first wait half a second for its id.
        producer = Producer({**self._target, "max.in.flight": 1})
        failures: list[KafkaError] = []

        def on_delivery(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                failures.append(error)

        for run in self._unstored:
            pair = json.dumps(run._asdict())
            producer.produce(self._topic, pair, self._source_alias, partition=0, on_delivery=on_delivery)
        is_late = producer.flush(_TIMEOUT_S) > 0
        if failures:
            raise JobError(f"{self._topic}: offset pairs were not stored: {failures[0].str()}")
        if is_late:
            raise JobError(f"{self._topic}: offset pairs were not acknowledged within {_TIMEOUT_S} s")
        self._unstored.clear()

    def _load(self) -> None:
        for message in stored_messages(self._target, self._topic):
            if message.key() == self._source_alias.encode():
                self.translation.add(Run(**json.loads(message.value())))


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
