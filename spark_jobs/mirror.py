"""Copies topics from one cluster to another, as they are, and follows new topics, partitions and settings.

The source is `--bootstrap-servers`, the target `--target-servers`. `--topics` and `--blacklist` are regular
expressions of topic names; at the target a topic keeps its name, gets `--prefix`, or is renamed (`--rename old=new`).
Key, value, headers and timestamp stay. So does the partition, if the target has as many of them; otherwise the key
decides.

Mirrors may run in opposite directions, and in circles: records get a header `mirror.origin` with the `--source-alias`
of each mirror, and a record with the `--target-alias` among them is not copied back.

Offsets: the job stores pairs of offsets in `--offset-syncs` at the target; `--groups` names the consumer groups whose
positions it commits at the target, translated, in topics whose records keep their partitions. With `--exact-offsets`,
offsets at the target are equal instead. That holds if the source has no gaps (no compaction, no transactions, nothing
deleted from the start of a log), the target topics begin empty, and nothing else writes to them; the job fails at the
first record that would get another offset.

Heartbeats in the topic `--heartbeats` at the target, as MirrorMaker 2 writes them, show that the job runs. With
`--canary` the job sends itself a record each minute, through the source, and logs how long it took.

A target that does not respond, or has partitions without a leader, is waited for, without end, and reported; a record
that the target refuses fails the job. So does one whose timestamp is beyond 9,223,372,036,854,775 ms, as are
nanoseconds: Spark cannot read it, and the job names topic, partition and offset.

Delivery: at-least-once; a batch that is repeated after a crash is sent again, with the same header `mirror.place` (U).
Exactly once with `--exact-offsets`, where records that the target has are skipped; and with `--exactly-once` (T), where
the driver sends each batch in one transaction, without pairs of offsets. A batch then has at most 1,000,000 records
unless `--max-offsets-per-trigger` states another number. The target aborts a transaction after 15 minutes; for another
time pass `--target-option transaction.timeout.ms=N`.
"""

import argparse
import logging
import re
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from threading import Lock, Thread

from confluent_kafka import KafkaException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery

from spark_jobs.mirroring.acls import sync_acls
from spark_jobs.mirroring.heartbeats import Emitter, canary, heartbeat
from spark_jobs.mirroring.naming import TopicNames
from spark_jobs.mirroring.offset_syncs import OFFSET_SYNCS_CONFIG, GroupCheckpoints, OffsetSyncs
from spark_jobs.mirroring.outages import TargetOutages
from spark_jobs.mirroring.sending import Mirroring, Run, send, to_record
from spark_jobs.mirroring.target_topics import TargetTopics, warn_unless_compacted
from spark_jobs.skeleton.clients import client_settings, producer_settings
from spark_jobs.skeleton.delivery import TransactionalSink, refuse_old_batches, start_batch_query
from spark_jobs.skeleton.errors import JobError
from spark_jobs.skeleton.java_runtime.java_regex import check_java_regex
from spark_jobs.skeleton.job import COMPACTED, Job
from spark_jobs.skeleton.parameters import (
    JobParameters,
    StoreKeyValue,
    add_client_settings,
    checked,
    is_regex,
    positive,
)
from spark_jobs.skeleton.repeating import Repeater
from spark_jobs.skeleton.topics import TopicSpec, create_topics, topic_names

_LOG = logging.getLogger(__name__)
_SYNC_INTERVAL_S = 30.0
_CANARY_INTERVAL_S = 60.0
_TRANSACTION_RECORDS_MAX = "1000000"  # that the driver sends well within the timeout of a transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorParameters(JobParameters):
    target_servers: str
    topics: str
    blacklist: str | None
    prefix: str
    rename: dict[str, str]
    source_alias: str
    target_alias: str
    mark_origin: bool
    sync_configs: bool
    offset_syncs: str
    groups: str | None
    exact_offsets: bool
    exactly_once: bool
    target_option: dict[str, str]
    sync_acls: bool
    heartbeats: str
    heartbeat_seconds: int
    canary: str | None

    @property
    def names(self) -> TopicNames:
        own = [re.escape(self.offset_syncs), re.escape(self.batches_topic)]
        if (
            self.heartbeats and not self.prefix
        ):  # with a prefix the source's heartbeats get a topic of their own, as by MirrorMaker 2
            own.append(re.escape(self.heartbeats))
        topics = self.topics if self.canary is None else f"{self.topics}|{re.escape(self.canary)}"
        return TopicNames(topics, "|".join(filter(None, [self.blacklist, *own])), self.prefix, self.rename)

    @property
    def batches_topic(self) -> str:
        """The topic with the number of the last batch, for --exactly-once."""
        return f"{self.app_id}-batches"

    def read_topics(self) -> list[str]:
        """Return the topics of the source that match."""
        return [topic for topic in topic_names(self.source) if self.names.includes(topic)]

    @property
    def source(self) -> dict[str, str]:
        """Return the settings of librdkafka's clients of the source."""
        return self.client

    @property
    def target(self) -> dict[str, str]:
        return client_settings(self.target_servers, self.target_option)

    @property
    def target_producer(self) -> dict[str, str]:
        return producer_settings(self.target_servers, self.target_option)


def build(spark: SparkSession, parameters: MirrorParameters) -> list[StreamingQuery]:
    """Start the query. Raises JobError if flags contradict each other, or a topic cannot be made."""
    _check(parameters)
    check_java_regex(spark, "--topics and --blacklist", parameters.names.spark_pattern())
    mirror = _Mirror(parameters)
    refuse_old_batches(spark, parameters, mirror.last_batch, parameters.batches_topic)
    records = spark.readStream.format("kafka").options(**source_options(parameters)).load()
    rows = records.select(
        "topic", "partition", "offset", "key", "value", "headers", f.unix_millis("timestamp").alias("timestamp_ms")
    )
    query = mirror.query = start_batch_query(rows, parameters, mirror.write)
    refresher = Repeater("refresher of the mirror", _SYNC_INTERVAL_S, mirror.refresh)
    companions = [*_emitters(parameters), refresher, mirror]
    Thread(target=_close_after, args=(query, companions), name="end of the mirror", daemon=True).start()
    return [query]


def source_options(parameters: MirrorParameters) -> dict[str, str]:
    """Return the options of Spark's Kafka source."""
    options = {
        **parameters.source_options(),
        "includeHeaders": "true",
        "subscribePattern": parameters.names.spark_pattern(),
    }
    del options["subscribe"]
    options.setdefault("kafka.isolation.level", "read_committed")
    if parameters.exactly_once:
        options.setdefault("maxOffsetsPerTrigger", _TRANSACTION_RECORDS_MAX)
    return options


def _close_after(query: StreamingQuery, parts: "list[Emitter | Repeater | _Mirror]") -> None:
    """Stop the heartbeats and the refresher with the query, as they are to show that it runs; then its client."""
    with suppress(Exception):  # the query reports its failure itself
        query.awaitTermination()
    for part in parts:
        part.close()


class _Mirror:
    """Writes the batches, on the driver; what it knows survives in the target."""

    def __init__(self, parameters: MirrorParameters) -> None:
        self._parameters = parameters
        self._topics = TargetTopics(
            parameters.source,
            parameters.target,
            parameters.names,
            replication_factor=parameters.replication_factor,
            sync_configs=parameters.sync_configs,
        )
        if parameters.canary is not None:
            create_topics(parameters.source, [TopicSpec(parameters.canary, 1, parameters.replication_factor)])
        self._partitions = self._sync()
        self._synced_s = time.monotonic()
        create_topics(
            parameters.target,
            [_internal_topic(parameters, name) for name in (parameters.offset_syncs, parameters.heartbeats) if name],
        )
        self.query: StreamingQuery | None = None  # known soon after the first batch has begun
        self._outages = TargetOutages(parameters.target, self._is_stopped)
        self._sink: TransactionalSink | None = None
        self._syncs: OffsetSyncs | None = None
        self._groups: GroupCheckpoints | None = None
        self._without_positions: set[str] = set()  # topics that a warning has named
        if parameters.exactly_once:
            create_topics(parameters.target, [_internal_topic(parameters, parameters.batches_topic)])
            self._sink = self._new_sink()
        else:
            self._syncs = OffsetSyncs(parameters.target, parameters.offset_syncs, parameters.source_alias)
            warn_unless_compacted(parameters.target, parameters.offset_syncs)
        if parameters.groups is not None:
            self._groups = GroupCheckpoints(parameters.source, parameters.target, parameters.groups)
        self._lock = Lock()  # of batches and `refresh`
        self.refresh()  # a run with --trigger availableNow may end before the refresher has begun

    @property
    def last_batch(self) -> int:
        """The number of the last batch that the target has, with --exactly-once; otherwise -1."""
        return -1 if self._sink is None else self._sink.last_batch

    def close(self) -> None:
        """Give up the producer of transactions: while it exists, it connects to the target."""
        self._sink = None

    def write(self, rows: DataFrame, batch: int) -> None:
        """Send one batch; then store the pairs of offsets and translate the positions of groups.

        It waits for a target that does not respond, until the query is stopped.
        """
        with self._lock, self._outages.watched(batch):
            self._write(rows, batch)

    def refresh(self) -> None:
        """Compare topics and translate the positions of groups, also while the source has no new records.

        A failure is logged: the next time may succeed.
        """
        try:
            with self._lock:
                self._sync_topics(set())
                self._sync_groups()
        except (JobError, KafkaException, OSError) as error:
            _LOG.warning("topics and groups were not compared: %s", str(error) or "no response")

    def _sync_groups(self) -> None:
        if self._groups is None or self._syncs is None:
            return
        mirroring = self._mirroring()
        mirrored = filter(self._parameters.names.includes, mirroring.source_partitions)
        others = {topic for topic in mirrored if not mirroring.keeps_partitions(topic)}
        if news := sorted(others - self._without_positions):
            _LOG.warning(
                "the positions of groups are not translated for %s: the target has another number of partitions",
                ", ".join(news),
            )
        self._without_positions = others
        self._groups.sync(self._syncs.translation, mirroring.keeps_partitions)

    def _write(self, rows: DataFrame, batch: int) -> None:
        rows = rows.persist()
        try:
            partitions = {(row.topic, row.partition) for row in rows.select("topic", "partition").distinct().collect()}
            self._outages.repeat(partial(self._sync_topics, partitions))
            mirroring = self._mirroring()
            self._outages.expect_leaders(self._written_to(mirroring, partitions))
            if self._parameters.exactly_once:
                self._outages.repeat(partial(self._send_in_transaction, rows, mirroring, batch))
            else:
                runs: list[Run] = self._outages.repeat(
                    rows.rdd.mapPartitions(partial(send, mirroring=mirroring)).collect
                )
            if any(topic == self._parameters.canary for topic, _ in partitions):
                self._report_canaries(rows)
        finally:
            rows.unpersist()
        if self._syncs is not None:
            kept = [run for run in runs if mirroring.keeps_partitions(run.topic)]
            self._outages.repeat(partial(self._syncs.add, kept))
            self._outages.repeat(self._sync_groups)

    def _send_in_transaction(self, rows: DataFrame, mirroring: Mirroring, batch: int) -> None:
        """Send a batch from the driver. After a failure, the next call asks a new sink what was committed."""
        if self._sink is None:
            self._sink = self._new_sink()
        records = (to_record(row, mirroring) for row in rows.toLocalIterator())
        try:
            self._sink.write(batch, (record for record in records if record is not None))
        except Exception:
            self._sink = None
            raise

    def _new_sink(self) -> TransactionalSink:
        parameters = self._parameters
        return TransactionalSink(
            parameters.target,
            parameters.app_id,
            parameters.batches_topic,
            parameters.target_producer,
            is_stopped=self._is_stopped,
        )

    def _is_stopped(self) -> bool:
        return self.query is not None and not self.query.isActive

    def _written_to(self, mirroring: Mirroring, partitions: set[tuple[str, int]]) -> set[tuple[str, int]]:
        """Return the partitions of the target that a batch with these partitions of the source is written to."""
        parameters = self._parameters
        found = {(parameters.batches_topic if parameters.exactly_once else parameters.offset_syncs, 0)}
        for topic, partition in partitions:
            name = mirroring.names.target(topic)
            kept = mirroring.keeps_partitions(topic)
            found |= {(name, each) for each in ([partition] if kept else range(mirroring.partitions[name]))}
        return found

    def _report_canaries(self, rows: DataFrame) -> None:
        """Log how long the last canary of the batch took; its copy is stored at the target."""
        sent = rows.where(f.col("topic") == self._parameters.canary).agg(f.max("timestamp_ms").alias("ms")).collect()[0]
        _LOG.info("%s: %d ms from source to target", self._parameters.canary, time.time_ns() // 1_000_000 - sent.ms)

    def _sync_topics(self, partitions: set[tuple[str, int]]) -> None:
        """Compare the topics of both clusters from time to time, and immediately if a topic or partition is new."""
        known = self._topics.source_partitions  # all that the target has, too
        is_known = all(partition < known.get(topic, 0) for topic, partition in partitions)
        now = time.monotonic()
        if not is_known or now - self._synced_s >= _SYNC_INTERVAL_S:
            self._partitions = self._sync()
            self._synced_s = now
        if gone := {topic for topic, _ in partitions} - self._topics.source_partitions.keys():
            raise JobError(f"{min(gone)} is missing at the source: it was deleted after its records were read")

    def _sync(self) -> dict[str, int]:
        """Make the target's topics like the source's; return their numbers of partitions by name at the target."""
        partitions = self._topics.sync()
        if self._parameters.sync_acls:
            sync_acls(self._parameters.source, self._parameters.target, self._parameters.names)
        return partitions

    def _mirroring(self) -> Mirroring:
        parameters = self._parameters
        return Mirroring(
            target=parameters.target,
            producer=parameters.target_producer,
            names=parameters.names,
            partitions=self._partitions,
            source_partitions=self._topics.source_partitions,
            source_alias=parameters.source_alias,
            target_alias=parameters.target_alias,
            mark_origin=parameters.mark_origin,
            exact_offsets=parameters.exact_offsets,
        )


def _emitters(parameters: MirrorParameters) -> list[Emitter]:
    aliases = (parameters.source_alias, parameters.target_alias)
    interval_s = parameters.heartbeat_seconds
    found = []
    if parameters.heartbeats:
        found.append(Emitter(parameters.target, parameters.heartbeats, interval_s, partial(heartbeat, *aliases)))
    if parameters.canary is not None:
        found.append(Emitter(parameters.source, parameters.canary, _CANARY_INTERVAL_S, partial(canary, *aliases)))
    return found


def _internal_topic(parameters: MirrorParameters, name: str) -> TopicSpec:
    config = OFFSET_SYNCS_CONFIG if name == parameters.offset_syncs else COMPACTED
    return TopicSpec(name, 1, parameters.replication_factor, config)


def _check(parameters: MirrorParameters) -> None:
    if parameters.exactly_once and (parameters.exact_offsets or parameters.groups):
        raise JobError("--exactly-once: not allowed with --exact-offsets or --groups")
    if parameters.source_alias == parameters.target_alias:
        raise JobError(f"--source-alias and --target-alias are both {parameters.source_alias!r}: expected two names")


def _add_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("this job").add_argument
    regex = checked(is_regex, "a regular expression of Python, and for topics of Java as well")
    add("--target-servers", required=True, metavar="HOST:PORT,...", help="brokers of the target to connect to first")
    add("--topics", type=regex, default=".*", metavar="REGEX", help="topics to copy (default all but internal ones)")
    add("--blacklist", type=regex, metavar="REGEX", help="topics not to copy")
    add("--prefix", default="", help="put before the names at the target, such as 'A.' (default: none)")
    add("--rename", action=StoreKeyValue, default={}, metavar="OLD=NEW", help="name at the target; may be given often")
    add("--source-alias", default="source", help="name of the source in headers and pairs (default %(default)s)")
    add("--target-alias", default="target", help="name of the target: its own records are skipped (default target)")
    add("--no-origin", dest="mark_origin", action="store_false", help="add no headers; then nothing stops a loop")
    add("--sync-configs", action="store_true", help="set the settings of the source's topics at the target")
    add("--offset-syncs", default="mirror-offset-syncs", metavar="TOPIC", help="pairs of offsets (default %(default)s)")
    add("--groups", type=regex, metavar="REGEX", help="groups whose positions are committed at the target")
    add("--sync-acls", action="store_true", help="add the ACLs of the source's topics at the target, but no Write")
    add("--heartbeats", default="heartbeats", metavar="TOPIC", help="heartbeats at the target, none if empty")
    add("--heartbeat-seconds", type=positive, default=1, metavar="N", help="time between them (default %(default)s)")
    add("--canary", metavar="TOPIC", help="topic at the source that gets a record a minute, whose delay is logged")
    add("--exact-offsets", action="store_true", help="fail unless offsets at the target are those of the source")
    add("--exactly-once", action="store_true", help="send each batch in one transaction, from the driver")
    add_client_settings(add, "target", "the target's clients")


JOB = Job(
    name="mirror",
    doc=__doc__,
    parameters=MirrorParameters,
    build=build,
    input="",
    output="",
    add_flags=_add_flags,
)

if __name__ == "__main__":
    sys.exit(JOB.main())
