"""The line about an error of Spark states the innermost cause."""

import pytest

from spark_jobs.skeleton.errors import cause_of

STREAM = "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: "
STAGE = "Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times, most recent failure: Lost task 0.0 in "
RECORD = "[USER_RAISED_EXCEPTION] record at t-0 offset 1 is not a flight SQLSTATE: P0001\n\tat org.apache.X(Y.scala:1)"
TOO_LARGE = "RecordTooLargeException: The message is 5 bytes.\n\tat a.b(C.java:1)\n\nDriver stacktrace: SQLSTATE: XXKST"
PYTHON = """Traceback (most recent call last):
  File "x.py", line 1, in f
    g()
ValueError: no such table: flights

 SQLSTATE: XXKST"""
TASK = "stage 1.0 (TID 2) (localhost executor driver): "
ERRORS = {
    "a record": (
        f"{STREAM}{STAGE}{TASK}org.apache.spark.SparkRuntimeException: {RECORD}",
        "record at t-0 offset 1 is not a flight",
    ),
    "a Java error in a task": (f"{STREAM}{STAGE}{TASK}org.apache.kafka.{TOO_LARGE}", "The message is 5 bytes."),
    "a Python error": (
        f"{STREAM}[FOREACH_BATCH] An exception was raised: {PYTHON}",
        "ValueError: no such table: flights",
    ),
    "a Java cause": (
        "java.lang.A: outer\n\tat x\nCaused by: java.lang.B: middle\n\tat y\nCaused by: java.lang.C: inner\n\tat z",
        "inner",
    ),
    "a Java error in the driver": (
        "An error occurred while calling o65.connect.\n: java.sql.SQLException: Access denied\n\tat x",
        "Access denied",
    ),
    "anything else": ("first line\nsecond line", "first line"),
    "nothing": ("", "RuntimeError"),
}


@pytest.mark.parametrize(("text", "cause"), ERRORS.values(), ids=ERRORS)
def test_the_innermost_message_is_returned_without_sql_state(text: str, cause: str) -> None:
    assert cause_of(RuntimeError(text)) == cause


def test_an_incompatible_state_comes_with_a_hint() -> None:
    text = f"{STREAM}[STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE] Provided key schema does not match. SQLSTATE: 42K06"
    assert cause_of(RuntimeError(text)).startswith("[STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE] Provided key schema")
    assert "bin/spark-job reset" in cause_of(RuntimeError(text))


@pytest.mark.parametrize("end", [". SQLSTATE: XXKST\n=== Streaming Query ===", ".\n\tat a.b(C.java:1)"])
def test_the_records_that_a_topic_no_longer_has_are_named_with_a_hint(end: str) -> None:
    text = f"""{STREAM}Some data may have been lost because they are not available in Kafka any more;
either the data was aged out by Kafka or the topic may have been deleted before all the data in the
topic was processed.
If you don't want your streaming query to fail on such cases, set the source option failOnDataLoss to false.
Reason: Could not read records in offset [3, 9) for topic partition t-0
with consumer group g{end}"""
    assert cause_of(RuntimeError(text)) == (
        "Could not read records in offset [3, 9) for topic partition t-0 with consumer group g; "
        "the topic no longer has the records at which the checkpoint continues: "
        "start with a new --app-id, --checkpoint and --output, or remove it with bin/spark-job reset"
    )
