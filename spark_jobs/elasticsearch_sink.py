"""Indexes JSON objects in Elasticsearch or OpenSearch: ElasticsearchSink of Connect.

`--input` names one topic or several, separated by commas; the index is the name of the topic in lower case. The id of a
document is the key of the record, and a record without a value deletes it. With `--ignore-keys` the id is
`topic+partition+offset`.

Delivery: I. A repeated batch writes the same documents with the same ids. The tasks send in the order of the
partitions.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery

from spark_jobs.skeleton.delivery import start_batch_query
from spark_jobs.skeleton.errors import JobError
from spark_jobs.skeleton.job import Job
from spark_jobs.skeleton.parameters import JobParameters, positive
from spark_jobs.skeleton.records import InputRule, read_input, start_dead_letters
from spark_jobs.skeleton.schemas import value_text

_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticsearchSinkParameters(JobParameters):
    url: str
    ignore_keys: bool
    bulk_records: int


def build(spark: SparkSession, parameters: ElasticsearchSinkParameters) -> list[StreamingQuery]:
    rule = document_rule(parameters)
    rows = read_input(spark, parameters, rule).select("topic", "document_id", "text")
    send_part = partial(send, url=parameters.url, bulk_records=parameters.bulk_records)

    def write(batch_rows: DataFrame, _batch: int) -> None:
        batch_rows.foreachPartition(send_part)

    return [start_batch_query(rows, parameters, write), *start_dead_letters(spark, parameters, rule)]


def document_rule(parameters: ElasticsearchSinkParameters) -> InputRule:
    """Return the rule that accepts objects with an id, and deletions by key."""
    place = f.concat_ws("+", "topic", "partition", "offset")
    document_id = place if parameters.ignore_keys else f.col("key").cast("string")

    def read(records: DataFrame) -> DataFrame:
        return records.withColumn("text", value_text(parameters)).withColumn("document_id", document_id)

    is_object = "json_object_keys(text) IS NOT NULL"
    accepts = is_object if parameters.ignore_keys else f"document_id IS NOT NULL AND (value IS NULL OR {is_object})"
    return InputRule(read, accepts, "an object with a key")


def send(rows: Iterable[Any], url: str, bulk_records: int) -> None:
    """Send the rows of one task. Raises JobError if a document is refused or the server does not respond."""
    iterator = iter(rows)
    while part := list(islice(iterator, bulk_records)):
        body = "".join(f"{line}\n" for row in part for line in actions(row))
        request = Request(f"{url}/_bulk", body.encode(), {"Content-Type": "application/x-ndjson"})
        try:
            with urlopen(request, timeout=_TIMEOUT_S) as response:
                reply = json.load(response)
        except HTTPError as error:
            raise JobError(f"--url: {url} responds {error.code}: {error.read().decode(errors='replace')}") from error
        except URLError as error:
            raise JobError(f"--url: {url} does not respond: {error.reason}") from error
        if reply.get("errors"):
            refused = [result for item in reply["items"] for result in item.values() if "error" in result]
            raise JobError(f"{len(refused)} documents were refused: {json.dumps(refused[0])}")


def actions(row: Any) -> Iterator[str]:
    """Yield the lines of one document in the body of a bulk request."""
    target = {"_index": row.topic.lower(), "_id": row.document_id}
    if row.text is None:
        yield json.dumps({"delete": target})
    else:
        yield json.dumps({"index": target})
        yield json.dumps(json.loads(row.text))  # on one line


def _add_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("this job").add_argument
    add("--url", required=True, help="the server, such as http://localhost:9200")
    add("--ignore-keys", action="store_true", help="take the place of a record as its id")
    add("--bulk-records", type=positive, default=1000, metavar="N", help="records of a request (default %(default)s)")


JOB = Job(
    name="elasticsearch_sink",
    doc=__doc__,
    parameters=ElasticsearchSinkParameters,
    build=build,
    input="documents",
    output="",
    add_flags=_add_flags,
)

if __name__ == "__main__":
    sys.exit(JOB.main())
