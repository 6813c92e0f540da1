"""Lines go to the topic that their text demands, in the order of their partition."""

import pytest

from spark_jobs.skeleton.errors import JobError
from spark_jobs.split_errors import JOB
from tests.spark_jobs.conftest import JobRunner, Sent, Topics, record_ids, records

pytestmark = pytest.mark.spark


def test_lines_are_split_and_keep_partition_order_headers_and_place(topics: Topics, job_runner: JobRunner) -> None:
    source, errors, others = topics.create("lines", 2), topics.create("errors", 2), topics.create("others", 1)
    levels = ("INFO", "ERROR", "WARN")
    sent = [
        Sent(f"{levels[number % 3]} {number}".encode(), b"k", number % 2, headers=[("host", b"a")])
        for number in range(60)
    ]
    topics.send(source, sent)
    job_runner.run(
        JOB, "--input", source, "--output", others, "--error-topic", errors, "--pattern", r"^\p{Upper}R\p{L}{3}\b"
    )
    found = topics.read(errors)
    assert [value for _, value in records(found)] == [
        f"ERROR {number}" for parity in (0, 1) for number in range(60) if number % 2 == parity and number % 3 == 1
    ]
    assert all(message.headers()[0] == ("host", b"a") for message in found)
    assert record_ids(found)[0] == f"{source}/0/2"
    by_origin: dict[int, list[int]] = {0: [], 1: []}
    for _, value in records(topics.read(others)):
        number = int(str(value).split()[1])
        by_origin[number % 2].append(number)
    assert sorted(by_origin[0] + by_origin[1]) == [number for number in range(60) if number % 3 != 1]
    assert all(numbers == sorted(numbers) for numbers in by_origin.values())


def test_an_invalid_pattern_is_refused(job_runner: JobRunner) -> None:
    with pytest.raises(JobError, match=r"--pattern: expected a regular expression of Java, not '\(': Unclosed group"):
        job_runner.start(JOB, "--pattern", "(")
