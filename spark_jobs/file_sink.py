"""Appends the values of topics to one file, a line each: FileStreamSink of Connect.

`--input` names one topic or several, separated by commas. The records of a partition stay in their order. The file is
on the machine of the driver. A record without a value is an empty line.

Delivery: O. Before each batch the file's length is stored beside it, in `FILE.batches`, with the number of the batch. A
repeated batch truncates the file to the length that it began with, and writes its lines again.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery

from base.replaced_file import replace_file
from spark_jobs.skeleton.delivery import refuse_old_batches, start_batch_query
from spark_jobs.skeleton.job import Job
from spark_jobs.skeleton.parameters import JobParameters
from spark_jobs.skeleton.records import read_stream


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSinkParameters(JobParameters):
    file: Path


def build(spark: SparkSession, parameters: FileSinkParameters) -> list[StreamingQuery]:
    """Start the query. Raises JobError if the file has batches of another checkpoint."""
    target = LineFile(parameters.file)
    refuse_old_batches(spark, parameters, target.last_batch, str(target.batches), or_else="another --file")

    def write(rows: DataFrame, batch: int) -> None:
        ordered = rows.orderBy("topic", "partition", "offset")
        target.write(batch, (bytes(row.line) for row in ordered.select("line").toLocalIterator()))

    rows = read_stream(spark, parameters).select(
        "topic", "partition", "offset", f.coalesce("value", f.lit(b"")).alias("line")
    )
    return [start_batch_query(rows, parameters, write)]


class LineFile:
    """The file, and beside it the number of its last batch with the length of the file before."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.batches = path.with_name(f"{path.name}.batches")
        self.last_batch, self._length = -1, 0
        if self.batches.exists():
            stored = json.loads(self.batches.read_text())
            self.last_batch, self._length = stored["batch"], stored["length_bytes"]

    def write(self, batch: int, lines: Iterable[bytes]) -> None:
        """Append the lines of a batch, in place of what an earlier try of the same batch wrote."""
        if batch != self.last_batch:
            self.last_batch, self._length = batch, self._path.stat().st_size if self._path.exists() else 0
            self._store()
        with self._path.open("ab") as target:
            # Lines that someone has removed since then stay removed: truncate would put zero bytes in their place.
            target.truncate(min(self._length, target.tell()))
            target.writelines(line + b"\n" for line in lines)
            target.flush()
            os.fsync(target.fileno())

    def _store(self) -> None:
        replace_file(self.batches, json.dumps({"batch": self.last_batch, "length_bytes": self._length}))


def _add_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("this job").add_argument
    add("--file", type=Path, required=True, help="file to append to, on the machine of the driver")


JOB = Job(
    name="file_sink",
    doc=__doc__,
    parameters=FileSinkParameters,
    build=build,
    input="lines",
    output="",
    add_flags=_add_flags,
)

if __name__ == "__main__":
    sys.exit(JOB.main())
