"""Three loads of Spark on a topic, in a process of its own, which writes a line before and after each.

    python -m bench.spark_loads BOOTSTRAP TOPIC TARGET

Each load reads the whole topic: a batch that sums the sizes of its values, a streaming aggregation by minute and
partition with a watermark, and a streaming copy to the topic TARGET. A small scan comes first and is not measured:
Spark's first query loads most of its classes.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from spark_jobs.skeleton.clients import sink_options, source_options
from spark_jobs.skeleton.session import spark_session

PARTITIONS = 8
LOADS = ("scan", "aggregation", "mirror")


def run(bootstrap: str, topic: str, target: str, folder: Path, report: Callable[[str], None]) -> None:
    """Run the loads; reports `begin LOAD` and `end LOAD RECORDS`."""
    spark = spark_session("bench", {})
    spark.sparkContext.setLogLevel("ERROR")
    options = {**source_options(bootstrap, {}), "subscribe": topic, "startingOffsets": "earliest"}
    warm_up = {"endingOffsets": json.dumps({topic: {str(partition): 1 for partition in range(PARTITIONS)}})}
    _sizes(spark.read.format("kafka").options(**options, **warm_up).load())
    report("begin scan")
    report(f"end scan {_sizes(spark.read.format('kafka').options(**options).load())}")
    stream = spark.readStream.format("kafka").options(**options).load()
    counts = (
        stream.withWatermark("timestamp", "1 minute").groupBy(f.window("timestamp", "1 minute"), "partition").count()
    )
    report("begin aggregation")
    report(f"end aggregation {_drain(spark, counts.select('count'), folder / 'aggregation', None, bootstrap)}")
    report("begin mirror")
    report(f"end mirror {_drain(spark, stream.select('key', 'value'), folder / 'mirror', target, bootstrap)}")
    spark.stop()


def _sizes(records: DataFrame) -> int:
    row = records.select(f.length("value").alias("size")).agg(f.count("*").alias("n"), f.sum("size")).collect()[0]
    return int(row.n)


def _drain(spark: SparkSession, rows: DataFrame, checkpoint: Path, target: str | None, bootstrap: str) -> int:
    """Write what there is to nowhere, or to a topic; return the number of records read."""
    writer = rows.writeStream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    if target is None:
        writer = writer.format("noop").outputMode("update")
    else:
        writer = writer.format("kafka").options(**sink_options(bootstrap, {}), topic=target)
    query = writer.start()
    query.awaitTermination()
    return sum(batch["numInputRows"] for batch in query.recentProgress)


def main() -> None:
    bootstrap, topic, target = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="bench-spark-") as folder:
        run(bootstrap, topic, target, Path(folder), lambda line: print(line, flush=True))


if __name__ == "__main__":
    main()
