"""Spark reads each acknowledged record once and in order, while brokers are killed, halted and replaced."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import StreamingQuery

from tests.cluster.conftest import PARTITIONS
from tests.cluster.load import NumberedLoad, Records, assert_exactly_once
from tests.spark_jobs.conftest import PYSPARK_SOCKETS, KafkaReader
from tests.support.cluster import Cluster

pytestmark = [pytest.mark.spark, PYSPARK_SOCKETS]

Failure = Callable[[Cluster, str], None]

READ_TIMEOUT_S = 60.0
RECORDS_BETWEEN_FAILURES = 50
# Requests to a halted broker must not outlast the test.
OPTIONS = {
    "startingOffsets": "earliest",
    "maxOffsetsPerTrigger": 500,
    "fetchOffset.numRetries": 20,
    "fetchOffset.retryIntervalMs": 100,
    "kafka.request.timeout.ms": 4_000,
    "kafka.default.api.timeout.ms": 30_000,
    "kafkaConsumer.pollTimeoutMs": 60_000,
}


class Reading:
    """A query over a topic that keeps partition, offset and number of each record, in the order of the rows."""

    def __init__(
        self,
        spark: SparkSession,
        bootstrap: str,
        topic: str,
        folder: Path,
        options: Mapping[str, object] | None = None,
    ) -> None:
        self._batches: dict[int, list[Row]] = {}
        stream = KafkaReader(spark, bootstrap).stream({"subscribe": topic, **OPTIONS, **(options or {})})
        self.query: StreamingQuery = (
            stream.selectExpr("partition", "offset", "CAST(CAST(value AS STRING) AS BIGINT) AS number")
            .writeStream.foreachBatch(self._keep)
            .option("checkpointLocation", str(folder / "checkpoint"))
            .start()
        )

    def _keep(self, batch: DataFrame, batch_id: int) -> None:
        assert batch_id not in self._batches
        self._batches[batch_id] = batch.collect()

    def wait_for_records(self) -> None:
        """Wait until the query has read what is in the topic now, and then some that came later."""
        end = self._count()
        deadline = time.monotonic() + READ_TIMEOUT_S
        while self._count() < end + RECORDS_BETWEEN_FAILURES:
            assert time.monotonic() < deadline, f"no records after {end}: {self.query.status}"
            assert self.query.isActive, self.query.exception()
            time.sleep(0.05)

    def _count(self) -> int:
        return sum(map(len, list(self._batches.values())))

    def finish(self) -> Records:
        """Read to the present end; return all records in the order in which Spark has read them."""
        self.query.processAllAvailable()
        records: Records = {index: [] for index in range(PARTITIONS)}
        for _, rows in sorted(self._batches.items()):
            for row in rows:
                records[row.partition].append((row.offset, row.number))
        return records


def kill_the_leader(cluster: Cluster, topic: str) -> None:
    leader = cluster.leader(topic)
    cluster.kill(leader)
    assert cluster.leader(topic) != leader
    cluster.start(leader)


def kill_a_follower(cluster: Cluster, topic: str) -> None:
    follower = cluster.follower(topic)
    cluster.kill(follower)
    cluster.start(follower)


def kill_the_controller(cluster: Cluster, topic: str) -> None:
    controller = cluster.controller()
    cluster.kill(controller)
    assert cluster.controller() != controller
    cluster.start(controller)


def halt_the_leader(cluster: Cluster, topic: str) -> None:
    leader = cluster.leader(topic)
    with cluster.halted(leader):
        assert cluster.leader(topic) != leader


def kill_zookeeper(cluster: Cluster, topic: str) -> None:
    cluster.zookeeper.kill()
    cluster.zookeeper.start()


def roll(cluster: Cluster, topic: str) -> None:
    for broker_id in cluster.brokers:
        cluster.restart(broker_id)
        cluster.wait_until_in_sync(topic)


def kill_all(cluster: Cluster, topic: str) -> None:
    cluster.kill(*cluster.brokers)
    cluster.start(*cluster.brokers)


def replace_a_disk(cluster: Cluster, topic: str) -> None:
    leader = cluster.leader(topic)
    cluster.kill(leader)
    assert cluster.leader(topic) != leader
    cluster.wipe(leader)
    cluster.start(leader)


def read_during(failures: Sequence[Failure], cluster: Cluster, topic: str, spark: SparkSession, folder: Path) -> None:
    """Produce and read while failures follow each other; compare what was acknowledged with what Spark has read."""
    with NumberedLoad(cluster.bootstrap, topic, PARTITIONS) as load:
        reading = Reading(spark, cluster.bootstrap, topic, folder)
        try:
            reading.wait_for_records()
            for fail in failures:
                fail(cluster, topic)
                load.wait_for(RECORDS_BETWEEN_FAILURES)
                reading.wait_for_records()
                cluster.heal(topic)
        except BaseException:
            reading.query.stop()
            raise
    try:
        records = reading.finish()
    finally:
        reading.query.stop()
    for pairs in records.values():
        assert [offset for offset, _ in pairs] == sorted({offset for offset, _ in pairs}), "offsets repeat or go back"
    assert_exactly_once(load, records)


@pytest.mark.soak  # it has hung once between the kill and the restart, and the cause is not known yet
def test_records_are_read_once_while_their_leader_is_killed_and_restarted(
    cluster: Cluster, topic: str, spark: SparkSession, tmp_path: Path
) -> None:
    read_during([kill_the_leader], cluster, topic, spark, tmp_path)


@pytest.mark.soak
def test_records_are_read_once_through_all_failures(
    cluster: Cluster, topic: str, spark: SparkSession, tmp_path: Path
) -> None:
    failures = [
        kill_the_leader,
        kill_a_follower,
        kill_the_controller,
        halt_the_leader,
        kill_zookeeper,
        roll,
        replace_a_disk,
        kill_all,
    ]
    read_during(3 * failures, cluster, topic, spark, tmp_path)
