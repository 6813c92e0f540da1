"""Spark's Kafka sink writes to a topic whose leaders change, because they are killed, elected or reassigned.

The sink is at-least-once. Its producer is idempotent, so a record is stored twice only if Spark repeats a task or a
batch. In local mode Spark does not repeat tasks: a failed one fails the query. It repeats a batch only if the query was
stopped before it had committed the batch. Therefore:

- each row of a committed batch is in the topic;
- a row is in the topic twice only if a stop interrupted its batch;
- without a stop, the rows of each partition are in order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from tests.cluster.conftest import PARTITIONS, create_topic
from tests.cluster.load import Records, assert_in_order, assert_no_duplicates, numbers_of, read_topic
from tests.cluster.test_administration import plan, reassign, replicas_of
from tests.cluster.test_spark import halt_the_leader, kill_the_controller, kill_zookeeper, roll
from tests.cluster.znodes import run_tool
from tests.spark_jobs.conftest import PYSPARK_SOCKETS
from tests.support.cluster import Cluster

pytestmark = [pytest.mark.spark, PYSPARK_SOCKETS]

ROWS_PER_BATCH = 1_500
BATCHES_BETWEEN_CHANGES = 3
OPTIONS: Mapping[str, str | int] = {
    "kafka.acks": "all",
    "kafka.batch.size": 1_000,  # many requests, so that a change meets some of them
    # A request to a halted broker must not outlast the test.
    "kafka.request.timeout.ms": 4_000,
    "kafka.delivery.timeout.ms": 60_000,
}


class Writing:
    """A query that writes 0, 1, 2, ... to a topic, number `n` to partition `n % PARTITIONS`. A context manager.

    Batch `b` has the ROWS_PER_BATCH numbers from `b * ROWS_PER_BATCH`, also when it is repeated. A task writes to one
    partition.
    """

    def __init__(self, spark: SparkSession, cluster: Cluster, topic: str, folder: Path) -> None:
        self._cluster = cluster
        self._checkpoint = folder / "checkpoint"
        numbers = spark.readStream.format("rate-micro-batch").options(
            rowsPerBatch=ROWS_PER_BATCH, numPartitions=PARTITIONS
        )
        rows = numbers.load().selectExpr(
            f"CAST(value % {PARTITIONS} AS INT) AS partition", "CAST(value AS STRING) AS value"
        )
        self._writer = (
            rows.writeStream.format("kafka")
            .options(**{**OPTIONS, "kafka.bootstrap.servers": cluster.bootstrap, "topic": topic})
            .option("checkpointLocation", str(self._checkpoint))
        )
        self._query: StreamingQuery
        self.interrupted: set[int] = set()
        """The ids of the batches that a stop interrupted."""

    def __enter__(self) -> Self:
        self._query = self._writer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._query.stop()
        self.interrupted.add(self.committed())

    def restart(self) -> None:
        """Stop the query in the middle of its batch, and continue from its checkpoint."""
        self.__exit__(None, None, None)
        self.__enter__()

    def committed(self) -> int:
        """Return the number of committed batches."""
        return max((int(path.name) + 1 for path in self._checkpoint.glob("commits/[0-9]*")), default=0)

    def wait_for_batches(self) -> None:
        """Wait until some more batches are committed."""
        wanted = self.committed() + BATCHES_BETWEEN_CHANGES

        def are_committed() -> bool:
            assert self._query.isActive, self._query.exception()
            return self.committed() >= wanted

        self._cluster.wait_until(are_committed, f"{wanted} batches are committed")

    def assert_at_least_once(self, records: Records) -> None:
        """Each row of a committed batch is in the topic. Only batches that a stop interrupted have other records."""
        counts = Counter(numbers_of(records))
        missing = [number for number in range(self.committed() * ROWS_PER_BATCH) if number not in counts]
        assert not missing, f"{len(missing)} of {self.committed() * ROWS_PER_BATCH} rows are lost, as {missing[:5]}"
        repeated = {number // ROWS_PER_BATCH for number, count in counts.items() if count > 1}
        assert repeated <= self.interrupted
        assert {number // ROWS_PER_BATCH for number in counts} - set(range(self.committed())) <= self.interrupted


Change = Callable[[Cluster, str, Writing, Path], None]


def kill_the_leader(cluster: Cluster, topic: str, writing: Writing, folder: Path) -> None:
    leader = cluster.leader(topic)
    cluster.kill(leader)
    assert cluster.leader(topic) != leader
    writing.wait_for_batches()
    cluster.start(leader)


def elect_the_preferred_leader(cluster: Cluster, topic: str, writing: Writing, folder: Path) -> None:
    """Move the leadership back to the preferred replica, after a restart of its broker if it is still the leader."""
    preferred = replicas_of(cluster, topic)[0][0]
    if cluster.leader(topic) == preferred:
        cluster.restart(preferred)
        cluster.wait_until_in_sync(topic)
    assert cluster.leader(topic) != preferred
    run_tool(cluster, "admin.leader_election", "--election-type", "preferred", "--topic", topic, "--partition", "0")
    cluster.wait_until(lambda: cluster.partitions(topic)[0][0] == preferred, "the preferred replica leads")


def reassign_the_leader(cluster: Cluster, topic: str, writing: Writing, folder: Path) -> None:
    """Remove the leader from the replicas, and add it again as the last one."""
    replicas = replicas_of(cluster, topic)
    leader = cluster.leader(topic)
    others = [it for it in replicas[0] if it != leader]
    reassign(cluster, topic, plan(folder, topic, others))
    assert cluster.leader(topic) in others
    writing.wait_for_batches()
    reassign(cluster, topic, plan(folder, topic, [*others, leader]))


def stop_the_query_while_a_leader_is_away(cluster: Cluster, topic: str, writing: Writing, folder: Path) -> None:
    leader = cluster.leader(topic)
    cluster.kill(leader)
    writing.restart()
    assert cluster.leader(topic) != leader
    writing.wait_for_batches()
    cluster.start(leader)


def without_query(fail: Callable[[Cluster, str], None]) -> Change:
    """Return a failure of test_spark.py as a change."""
    return lambda cluster, topic, _writing, _folder: fail(cluster, topic)


def write_during(
    changes: Sequence[Change], cluster: Cluster, spark: SparkSession, folder: Path
) -> tuple[Writing, Records]:
    """Change the leaders of a topic while a query writes to it; return the query, and the topic's records.

    The query commits batches before the first change and after each.
    """
    topic = create_topic(cluster, min_insync_replicas="2")
    with Writing(spark, cluster, topic, folder) as writing:
        writing.wait_for_batches()
        for change in changes:
            change(cluster, topic, writing, folder)
            writing.wait_for_batches()
            cluster.heal(topic)
    return writing, read_topic(cluster.bootstrap, topic, PARTITIONS)


def test_the_sink_loses_and_repeats_nothing_while_leaders_change(
    cluster: Cluster, spark: SparkSession, tmp_path: Path
) -> None:
    writing, records = write_during([kill_the_leader, elect_the_preferred_leader], cluster, spark, tmp_path)
    writing.assert_at_least_once(records)
    assert_no_duplicates(records)
    assert_in_order(records)


@pytest.mark.soak
def test_the_sink_loses_and_repeats_nothing_through_all_changes(
    cluster: Cluster, spark: SparkSession, tmp_path: Path
) -> None:
    changes = [
        kill_the_leader,
        elect_the_preferred_leader,
        reassign_the_leader,
        *map(without_query, (halt_the_leader, kill_the_controller, kill_zookeeper, roll)),
    ]
    writing, records = write_during(3 * changes, cluster, spark, tmp_path)
    writing.assert_at_least_once(records)
    assert_no_duplicates(records)
    assert_in_order(records)


@pytest.mark.soak
def test_the_sink_repeats_only_the_batches_that_a_stop_interrupted(
    cluster: Cluster, spark: SparkSession, tmp_path: Path
) -> None:
    writing, records = write_during(10 * [stop_the_query_while_a_leader_is_away], cluster, spark, tmp_path)
    writing.assert_at_least_once(records)
    assert len(writing.interrupted) > 1
