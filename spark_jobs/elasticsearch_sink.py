"""Indexes JSON objects in Elasticsearch or OpenSearch: ElasticsearchSink of Connect.

`--input` names one topic or several, separated by commas; the index is the name of the topic in lower case. The id of a
document is the key of the record, a text of 1 to 512 bytes, and a record without a value deletes it. With
`--ignore-keys` the id is `topic+partition+offset`.

A login is read from a file (`--login FILE`) with the properties `username` and `password`, or `api-key`; otherwise from
the variables ELASTICSEARCH_USERNAME and ELASTICSEARCH_PASSWORD, or ELASTICSEARCH_API_KEY. The server's certificate must
be of an authority that the system trusts, or of one in the file that the variable SSL_CERT_FILE names.

A server that is busy (429 or 503, for the request or for a document) gets the same documents again: after the time that
it names in Retry-After, otherwise after growing intervals. If it takes no document for five
minutes, or names a longer time, the job fails.

Delivery: I. A repeated batch writes the same documents with the same ids. The tasks send in the order of the
partitions.
"""

import argparse
import base64
import json
import os
import random
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.message import Message
from email.utils import parsedate_to_datetime
from functools import partial
from http import HTTPStatus
from http.client import HTTPException
from itertools import islice
from typing import IO, Any
from urllib.error import HTTPError, URLError
from urllib.request import HTTPRedirectHandler, Request, build_opener

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery

from spark_jobs.skeleton.delivery import start_batch_query
from spark_jobs.skeleton.errors import JobError
from spark_jobs.skeleton.formats.schemas import is_json_object, value_text
from spark_jobs.skeleton.job import Job
from spark_jobs.skeleton.parameters import JobParameters, positive, properties_file, web_url
from spark_jobs.skeleton.records import InputRule, read_input, start_dead_letters

_ID_SIZE_MAX = 512  # bytes, of Elasticsearch and OpenSearch
_TIMEOUT_S = 60
_BUSY = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
_FIRST_WAIT_S = 0.5
_WAIT_MAX_S = 30.0
_RETRY_MAX_S = 300.0
_REASON_LENGTH_MAX = 300

_VARIABLES: Mapping[str, str] = {
    "username": "ELASTICSEARCH_USERNAME",
    "password": "ELASTICSEARCH_PASSWORD",
    "api-key": "ELASTICSEARCH_API_KEY",
}


@dataclass(frozen=True, slots=True)
class Login:
    """The value of the header Authorization, which no message contains."""

    authorization: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticsearchSinkParameters(JobParameters):
    url: str
    login: Login | None
    ignore_keys: bool
    bulk_records: int


def build(spark: SparkSession, parameters: ElasticsearchSinkParameters) -> list[StreamingQuery]:
    """Start the query. Raises JobError for a login in the environment that is not complete, or a shared index."""
    _refuse_shared_index(parameters.input.split(","))
    rule = document_rule(parameters)
    rows = read_input(spark, parameters, rule).select("topic", "document_id", "text")
    server = Server(parameters.url, parameters.login or login_of_environment())
    send_part = partial(send, server=server, bulk_records=parameters.bulk_records)

    def write(batch_rows: DataFrame, _batch: int) -> None:
        batch_rows.foreachPartition(send_part)

    return [start_batch_query(rows, parameters, write), *start_dead_letters(spark, parameters, rule)]


def _refuse_shared_index(topics: Sequence[str]) -> None:
    """Raise JobError if two topics have the same index: documents of one would replace those of the other."""
    topic_of: dict[str, str] = {}
    for topic in topics:
        other = topic_of.setdefault(topic.lower(), topic)
        if other != topic:
            raise JobError(f"--input: {other} and {topic} have the same index, {topic.lower()}")


def document_rule(parameters: ElasticsearchSinkParameters) -> InputRule:
    """Return the rule that accepts objects with an id, and deletions by key."""
    place = f.concat_ws("+", "topic", "partition", "offset")
    document_id = place if parameters.ignore_keys else f.try_validate_utf8(f.col("key").cast("string"))

    def read(records: DataFrame) -> DataFrame:
        return (
            records.withColumn("text", value_text(parameters))
            .withColumn("is_object", f.udf(is_json_object, "boolean")("text"))
            .withColumn("document_id", document_id)
        )

    if parameters.ignore_keys:
        return InputRule(read, "is_object", "an object")
    has_id = f"octet_length(document_id) BETWEEN 1 AND {_ID_SIZE_MAX}"
    return InputRule(
        read, f"{has_id} AND (value IS NULL OR is_object)", f"an object with a key of 1 to {_ID_SIZE_MAX} bytes of text"
    )


def send(rows: Iterable[Any], server: "Server", bulk_records: int) -> None:
    """Send the rows of one task. Raises JobError if a document is refused, or the server does not take it in time."""
    iterator = iter(rows)
    while part := list(islice(iterator, bulk_records)):
        server.send(["".join(f"{line}\n" for line in actions(row)) for row in part])


class BusyError(Exception):
    """The server did not take documents, from `first` on, because it is busy."""

    def __init__(self, status: int, first: int, retry_after_s: float | None) -> None:
        self.status = status
        self.first = first
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True)
class Server:
    """The bulk call of one server. It is sent to the executors."""

    url: str
    login: Login | None = None

    def send(self, documents: Sequence[str]) -> None:
        """Send documents, each as the lines of its action; repeat those that a busy server did not take.

        All documents after the first of these are repeated, too: among them may be a later one with the same id, which
        has to stay the last one. Raises JobError, which names the URL.
        """
        wait_s, give_up_s = _FIRST_WAIT_S, time.monotonic() + _RETRY_MAX_S
        while True:
            try:
                return self._send(documents)
            except BusyError as busy:
                if busy.first > 0:
                    documents = documents[busy.first :]
                    wait_s, give_up_s = _FIRST_WAIT_S, time.monotonic() + _RETRY_MAX_S
                # The tasks of a batch must not all come back at the same time.
                pause_s = busy.retry_after_s if busy.retry_after_s is not None else wait_s * random.uniform(0.5, 1)
                if time.monotonic() + pause_s > give_up_s:
                    raise JobError(
                        f"--url: {self.url} responds {busy.status} and does not take {len(documents)} documents: "
                        f"the next try would be in {pause_s:.0f} s, after more than {_RETRY_MAX_S:.0f} s in all"
                    ) from busy
                time.sleep(pause_s)
                wait_s = min(2 * wait_s, _WAIT_MAX_S)

    def _send(self, documents: Sequence[str]) -> None:
        headers = {"Content-Type": "application/x-ndjson"}
        if self.login is not None:
            headers["Authorization"] = self.login.authorization
        request = Request(f"{self.url}/_bulk", "".join(documents).encode(), headers)
        try:
            with build_opener(_NoRedirects).open(request, timeout=_TIMEOUT_S) as response:
                items = [_result(*action) for item in json.load(response)["items"] for action in item.items()]
        except HTTPError as error:
            with error:
                if error.code in _BUSY:
                    raise BusyError(error.code, 0, retry_after_s(error.headers.get("Retry-After"))) from error
                raise JobError(f"--url: {self.url} responds {error.code}: {_reason(error)}") from error
        except URLError as error:
            raise JobError(f"--url: {self.url} does not respond: {error.reason}") from error
        except (OSError, HTTPException) as error:
            raise JobError(f"--url: {self.url} does not respond: {error}") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise JobError(f"--url: {self.url} responds with no result of a bulk request") from error
        refused = [result for result in items if "error" in result and result.get("status") not in _BUSY]
        if refused:
            raise JobError(f"--url: {self.url} refused {len(refused)} documents: {json.dumps(refused[0])}")
        for number, result in enumerate(items):
            if "error" in result:
                raise BusyError(result["status"], number, None)


def _result(action: str, result: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the result of one action; if its index does not exist, a deletion has nothing to do, which is no error."""
    is_needless = action == "delete" and result.get("error", {}).get("type") == "index_not_found_exception"
    return {} if is_needless else result


class _NoRedirects(HTTPRedirectHandler):
    """Makes a redirect an error: the login must not reach another server, and a bulk request would become a GET."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> Request | None:
        return None


def _reason(error: HTTPError) -> str:
    try:
        text = error.read().decode(errors="replace").strip()
    except (OSError, HTTPException):
        text = ""
    return text[:_REASON_LENGTH_MAX] or str(error.reason)


def retry_after_s(header: str | None) -> float | None:
    """Return the seconds of a header Retry-After, a number or a date (RFC 9110); None without a valid one."""
    if header is None:
        return None
    if header.strip().isdecimal():
        return float(header)
    try:
        return max(0.0, (parsedate_to_datetime(header) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return None


def actions(row: Any) -> Iterator[str]:
    """Yield the lines of one document in the body of a bulk request."""
    target = {"_index": row.topic.lower(), "_id": row.document_id}
    if row.text is None:
        yield json.dumps({"delete": target})
    else:
        yield json.dumps({"index": target})
        yield json.dumps(json.loads(row.text))  # on one line


def to_login(values: Mapping[str, str]) -> Login:
    """Return the login of properties or variables. Raises ValueError; its text contains none of the values."""
    if values.keys() == {"username", "password"}:
        pair = f"{values['username']}:{values['password']}".encode()
        return Login(f"Basic {base64.b64encode(pair).decode()}")
    key = values.get("api-key", "")
    if values.keys() == {"api-key"} and key.isascii() and key.isprintable():
        return Login(f"ApiKey {key}")
    raise ValueError("expected username and password, or api-key in its encoded form, and nothing else")


def login_of_environment() -> Login | None:
    """Return the login of the variables; None if there are none. Raises JobError."""
    values = {name: os.environ[variable] for name, variable in _VARIABLES.items() if variable in os.environ}
    try:
        return to_login(values) if values else None
    except ValueError as error:
        raise JobError(f"{', '.join(_VARIABLES[name] for name in values)}: {error}") from error


def _login_of_file(path: str) -> Login:
    try:
        return to_login(properties_file(path))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{path}: {error}") from error


def _add_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("this job").add_argument
    add("--url", type=web_url, required=True, help="the server, such as http://localhost:9200")
    add("--login", type=_login_of_file, metavar="FILE", help="properties username and password, or api-key")
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
