"""How results reach a topic, and why a repeated batch does no harm.

Spark repeats a batch after a crash, with the same id, input and state. Its Kafka sink is at-least-once: the repeated
batch writes its records again. Each job states in its docstring which argument makes that harmless:

- I, idempotent key: the repeated record has the key and value of the first one, and the last value of a key is valid.
  The output topic is compacted.
- U, unique id: each record has the header `record-id`, the place of the record that it came from, as
  `topic/partition/offset`. Readers drop ids that they have seen: `without_duplicates`.
- T, transaction: one Kafka transaction holds the records of a batch and its number in a marker topic; a batch whose
  number is there is skipped. Readers use read_committed: `TransactionalSink`.
- O, output and progress in one place: the batch replaces its own folder, or one database transaction holds both.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery

from spark_jobs.skeleton.clients import LINGER_MS
from spark_jobs.skeleton.errors import JobError
from spark_jobs.skeleton.folders import Folder
from spark_jobs.skeleton.parameters import NO_CONFIG, JobParameters
from spark_jobs.skeleton.stored import stored_messages
from spark_jobs.skeleton.topics import partition_count

RECORD_ID = "record-id"
_STOPPED = "py4j.protocol.Py4JJavaError: An error occurred while calling the batch: java.lang.InterruptedException"
"""By these words Spark recognizes that its own stop has ended a batch. It searches with a regular expression that
overflows the stack in a text of pages, such as the trace of an interrupted call.
"""
_HEADERS = "array<struct<key:string,value:binary>>"
_TIMEOUT_S = 60
_FULL_QUEUE_WAIT_S = 0.1
_POLL_S = 1
_TRANSACTION_TIMEOUT = "transaction.timeout.ms"
# librdkafka would also wait as long for each response.
_LONG_TRANSACTION: Mapping[str, str] = {_TRANSACTION_TIMEOUT: "900000", "socket.timeout.ms": "60000"}
_STOPPED_ABORT_TIMEOUT_S = 5  # the next instance aborts what this one could not


def header(name: str, value: Column) -> Column:
    """Return one header; `value` is text."""
    return f.struct(f.lit(name).alias("key"), value.cast("binary").alias("value"))


def headers_with(*added: Column) -> Column:
    """Return the column `headers` of a record of a Kafka source with further headers at its end."""
    own = f.coalesce(f.col("headers"), f.array().cast(_HEADERS))
    return f.concat(own, f.array(*added).cast(_HEADERS)) if added else own


def record_id_headers() -> Column:
    """Return the headers of a record of a Kafka source with the header `record-id`, its place (argument U).

    A record that has the header keeps it: in a chain of topics the id is the place at its beginning. So duplicates that
    one stage has written have one id after the next stage.
    """
    own = headers_with()
    with_place = headers_with(header(RECORD_ID, _place()))
    return f.when(f.exists(own, lambda each: each["key"] == RECORD_ID), own).otherwise(with_place)


def record_id() -> Column:
    """Return the id of a record of a Kafka source (argument U): its header `record-id`, or its place if it has none.

    A header that is no text counts as none.
    """
    ids = f.filter("headers", lambda each: each["key"] == RECORD_ID)
    return f.coalesce(f.try_validate_utf8(f.get(f.reverse(ids), f.lit(0))["value"].cast("string")), _place())


def _place() -> Column:
    return f.concat_ws("/", "topic", "partition", "offset")


def same_partition(parameters: JobParameters, topic: str) -> Column:
    """Return the partition of a record of a Kafka source, modulo the partitions of `topic`: order is kept."""
    return f.col("partition") % partition_count(parameters.client, topic)


def without_duplicates(records: DataFrame) -> DataFrame:
    """Return the first record of each id, and all without one; `records` come from Spark's source with headers."""
    named = records.withColumn("record_id", record_id())
    first = f.min_by(f.struct(*records.columns), f.struct("partition", "offset")).alias("row")
    return named.groupBy("record_id").agg(first).select("row.*")


def start_topic_query(
    rows: DataFrame,
    parameters: JobParameters,
    *,
    topic: str | None = None,
    name: str | None = None,
    output_mode: str = "append",
) -> StreamingQuery:
    """Start the query that writes `rows` (key, value, headers, topic, partition) to `--output`, or to `topic`.

    A job with several queries gives each but the first a `name`.
    """
    options = parameters.sink_options(topic)
    if "topic" in rows.columns:
        del options["topic"]
    writer = rows.writeStream.format("kafka").options(**options)
    return _start(writer.outputMode(output_mode), parameters, name)


def start_batch_query(
    rows: DataFrame,
    parameters: JobParameters,
    write: Callable[[DataFrame, int], None],
    *,
    name: str | None = None,
    output_mode: str = "append",
) -> StreamingQuery:
    """Start the query that calls `write(rows, number)` for each batch.

    What `write` raises after the query was stopped is no failure.
    """
    started: list[StreamingQuery] = []

    def write_until_stopped(batch_rows: DataFrame, batch: int) -> None:
        try:
            write(batch_rows, batch)
        except Exception:
            if started and not started[0].isActive:
                raise JobError(_STOPPED) from None
            raise

    writer = rows.writeStream.foreachBatch(write_until_stopped).outputMode(output_mode)
    started.append(_start(writer, parameters, name))
    return started[0]


def write_topic(rows: DataFrame, parameters: JobParameters, topic: str | None = None) -> None:
    """Write the rows of one batch to `--output`, or to `topic`."""
    rows.write.format("kafka").options(**parameters.sink_options(topic)).save()


def refuse_foreign_output(
    spark: SparkSession, parameters: JobParameters, folder: str, prefix: str, *, newest_batch: int
) -> None:
    """Raise JobError if the checkpoint is new, but `folder` has output: names that begin with `prefix`.

    So it does if the checkpoint has not begun `newest_batch`, the number of the newest batch there, or -1. The numbers
    of batches belong to a checkpoint. Those of another one would replace batches, or count as written.
    """
    is_new = Folder(spark, parameters.checkpoint).is_new_checkpoint()
    if is_new and any(name.startswith(prefix) for name in Folder(spark, folder).names()):
        raise JobError(
            f"{folder} has batches of another checkpoint than {parameters.checkpoint}, which is new: "
            "name an empty folder, or the --checkpoint that the batches came from"
        )
    refuse_old_batches(spark, parameters, newest_batch, folder, or_else="an empty folder")


def refuse_old_batches(
    spark: SparkSession, parameters: JobParameters, last_batch: int, where: str, *, or_else: str = "a new --app-id"
) -> None:
    """Raise JobError if `where` has the number of a batch that the checkpoint has not begun: new ones would be skipped.

    Spark writes the offsets of a batch before it runs. `or_else` is what the user may name if the checkpoint is lost.
    """
    newest = Folder(spark, parameters.checkpoint).newest_batch()
    if last_batch > newest:
        reason = "is new" if newest < 0 else f"ends at batch {newest}"
        raise JobError(
            f"{where} has batch {last_batch} of {parameters.app_id}, but checkpoint {parameters.checkpoint} {reason}: "
            f"name the --checkpoint that the batch came from, or {or_else}"
        )


def _start(writer: Any, parameters: JobParameters, name: str | None) -> StreamingQuery:
    query = parameters.app_id if name is None else f"{parameters.app_id}-{name}"
    folder = parameters.checkpoint if name is None else f"{parameters.checkpoint}/{name}"
    return writer.queryName(query).option("checkpointLocation", folder).trigger(**parameters.trigger).start()


class TransactionalSink:
    """Writes each batch to a topic in one transaction, exactly once (argument T).

    The transaction also writes the number of the batch to the compacted topic `marker_topic`, keyed by the job's name.
    A new instance fences the producer of an old one, then reads the last number. The driver writes all records, so this
    suits batches that fit through one process, within the producer's `transaction.timeout.ms`: by default 15 minutes,
    the most that brokers permit by default.
    """

    def __init__(
        self,
        client: Mapping[str, str],
        app_id: str,
        marker_topic: str,
        producer: Mapping[str, str] = NO_CONFIG,
        *,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        """`client` has the settings of a client (`client_settings`), `producer` further ones of the producer.

        A batch that waits for the broker is given up when `is_stopped` returns true. Raises JobError if the broker does
        not permit the timeout of the transaction.
        """
        if _TRANSACTION_TIMEOUT not in producer:
            producer = {**producer, **_LONG_TRANSACTION}
        self._timeout_ms = int(producer[_TRANSACTION_TIMEOUT])
        self._app_id = app_id
        self._marker_topic = marker_topic
        self._is_stopped = is_stopped
        self._producer = Producer(
            {
                "partitioner": "murmur2_random",
                "linger.ms": LINGER_MS,
                **producer,
                **client,
                "transactional.id": f"spark-job-{app_id}",
            }
        )
        try:
            self._producer.init_transactions(_TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.INVALID_TRANSACTION_TIMEOUT:
                raise
            raise JobError(
                f"{_TRANSACTION_TIMEOUT}={self._timeout_ms} exceeds transaction.max.timeout.ms of the broker"
            ) from error
        self.last_batch = self._read_marker(client)

    def write(self, batch: int, records: Iterable[Mapping[str, Any]]) -> bool:
        """Write the records (arguments of `Producer.produce`) of a batch; returns False if it was written before.

        Raises JobError if the broker refuses a record or the transaction; nothing of the batch is visible then, and
        the job must start again with a new instance.
        """
        if batch <= self.last_batch:
            return False
        failures: list[KafkaError] = []

        def on_delivery(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                failures.append(error)

        began_s = time.monotonic()
        self._producer.begin_transaction()
        try:
            for record in records:
                self._enqueue({**record, "on_delivery": on_delivery})
            marker = {"topic": self._marker_topic, "key": self._app_id, "value": str(batch), "partition": 0}
            self._enqueue({**marker, "on_delivery": on_delivery})
            self._flush(failures)
            if failures:
                raise JobError(f"batch {batch}: {len(failures)} records were refused: {_reason(failures)}")
            self._commit()
        except (JobError, KafkaException, SystemError) as error:
            cause: BaseException | None = error
            if isinstance(error, SystemError):
                # The client raises a fatal error before it calls on_delivery, which Python reports as a SystemError. It
                # never releases that one, whose traceback refers to the producer, and so to the threads of the client.
                cause, error.__traceback__ = error.__cause__, None
            with suppress(KafkaException, SystemError):  # a fenced producer cannot abort: its successor has
                self._producer.abort_transaction(_STOPPED_ABORT_TIMEOUT_S if self._is_stopped() else _TIMEOUT_S)
            if time.monotonic() - began_s >= self._timeout_ms / 1000:
                raise JobError(
                    f"batch {batch} was aborted: it took longer than {_TRANSACTION_TIMEOUT}={self._timeout_ms}, so "
                    "start again with a longer one. --max-offsets-per-trigger limits the batches after it"
                ) from error
            raise JobError(f"batch {batch} was aborted: {cause}") from error
        self.last_batch = batch
        return True

    def _enqueue(self, record: Mapping[str, Any]) -> None:
        while True:
            try:
                self._producer.produce(**record)
                return
            except BufferError:
                self._producer.poll(_FULL_QUEUE_WAIT_S)
                self._check_stopped()

    def _flush(self, failures: list[KafkaError]) -> None:
        """Return when the broker has responded to all records, or the first one has failed. Raises JobError."""
        while self._producer.flush(_POLL_S) and not failures:
            self._check_stopped()

    def _commit(self) -> None:
        """Commit the transaction. Raises KafkaException, and JobError if stopped."""
        deadline_s = time.monotonic() + _TIMEOUT_S
        while True:
            try:
                self._producer.commit_transaction(_POLL_S)
                return
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline_s:
                    raise
            self._check_stopped()

    def _check_stopped(self) -> None:
        if self._is_stopped():
            raise JobError("the query was stopped")

    def _read_marker(self, client: Mapping[str, str]) -> int:
        """Return the number of the last batch that is in the marker topic, or -1."""
        last = -1
        for message in stored_messages(client, self._marker_topic):
            if message.key() == self._app_id.encode():
                last = int(message.value())
        return last


def _reason(failures: list[KafkaError]) -> str:
    """Return why the first record was refused; after that the client removes others from its queue."""
    purged = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)
    return str(next((error for error in failures if error.code() not in purged), failures[0]).str())
