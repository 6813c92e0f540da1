"""Finds transactions above an amount, and sends them to a topic of alerts.

Input: `{"id": "t1", "account": "a1", "amount": 10000.01}`. An alert has the key and value of the transaction.

`--hook PROGRAM` is started once for each batch with alerts, which it reads from its standard input, a line each: a
program that sends mail, for example. If it fails, the batch fails.

Delivery: U. Each alert has the header `record-id`. The hook is called again if a batch is repeated.
"""

import argparse
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery

from spark_jobs.skeleton.delivery import record_id_headers, start_batch_query, write_topic
from spark_jobs.skeleton.errors import JobError
from spark_jobs.skeleton.job import Job
from spark_jobs.skeleton.parameters import JobParameters, checked, number
from spark_jobs.skeleton.records import is_finite, object_rule, read_input, start_dead_letters

_LINE_END = re.compile(r"[\r\n]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class BigTxnParameters(JobParameters):
    threshold: float
    hook: str | None


def build(spark: SparkSession, parameters: BigTxnParameters) -> list[StreamingQuery]:
    rule = object_rule(parameters, "amount double", is_finite("body.amount"), "a transaction with an amount")

    def write(rows: DataFrame, _batch: int) -> None:
        alerts = rows.persist()
        try:
            write_topic(alerts.select("key", "value", "headers"), parameters)
            if parameters.hook is not None:
                call_hook(parameters.hook, [row.text for row in alerts.select("text").toLocalIterator()])
        finally:
            alerts.unpersist()

    alerts = big_transactions(read_input(spark, parameters, rule), parameters.threshold)
    return [start_batch_query(alerts, parameters, write), *start_dead_letters(spark, parameters, rule)]


def big_transactions(records: DataFrame, threshold: float) -> DataFrame:
    """Return the transactions whose amount is larger than `threshold`."""
    return records.where(f.col("body.amount") > threshold).withColumn("headers", record_id_headers())


def call_hook(program: str, alerts: list[str]) -> None:
    """Start `program` with the alerts as its input, unless there are none. Raises JobError."""
    if not alerts:
        return
    text = "".join(f"{_LINE_END.sub(' ', alert)}\n" for alert in alerts)
    done = subprocess.run([program], input=text, encoding="utf-8", errors="replace", capture_output=True, check=False)
    if done.returncode != 0:
        raise JobError(f"--hook: {program} exited with {done.returncode}: {done.stderr.strip()}")


def is_program(text: str) -> bool:
    return shutil.which(text) is not None


def _add_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("this job").add_argument
    add("--threshold", type=number, default=10_000, help="the largest amount that is no alert (default %(default)s)")
    add(
        "--hook",
        type=checked(is_program, "a program"),
        metavar="PROGRAM",
        help="program that reads the alerts of each batch from its standard input",
    )


JOB = Job(
    name="big_txn",
    doc=__doc__,
    parameters=BigTxnParameters,
    build=build,
    input="transactions",
    output="transaction-alerts",
    add_flags=_add_flags,
)

if __name__ == "__main__":
    sys.exit(JOB.main())
