"""Headers of mirrored records."""

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Producer

from spark_jobs.mirroring import sending
from spark_jobs.mirroring.naming import TopicNames
from spark_jobs.mirroring.sending import Mirroring, send, to_record
from spark_jobs.skeleton.errors import JobError


def hop(row: Any, source: str, target: str) -> Any:
    """Return the record at the target of a mirror as a row of Spark's source, or None if it is not copied."""
    mirroring = Mirroring({}, TopicNames(".*"), {"t": 1}, {"t": 1}, source, target, mark_origin=True)
    record = to_record(row, mirroring)
    if record is None:
        return None
    headers = [SimpleNamespace(key=key, value=value) for key, value in record["headers"]]
    return SimpleNamespace(**{**vars(row), "headers": headers, "offset": row.offset + 10})


def test_a_record_that_the_client_refuses_is_named() -> None:
    target = {"bootstrap.servers": "127.0.0.1:9", "message.max.bytes": "1000", "log_level": "0"}
    mirroring = Mirroring(target, TopicNames(".*"), {"t": 1}, {"t": 1}, "A", "B", mark_origin=True)
    row = SimpleNamespace(topic="t", partition=0, offset=7, key=None, value=b"x" * 2_000, headers=None, timestamp_ms=1)
    with pytest.raises(JobError, match=r"t-0 offset 7 cannot be sent to the target: .*size too large"):
        list(send([row], mirroring))


def test_records_that_wait_for_a_slow_target_are_bounded_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    class IsFullError(Exception): ...

    producers = []

    class FullProducer(Producer):
        def __init__(self, settings: dict[str, Any]) -> None:
            super().__init__(settings)
            producers.append(self)

        def poll(self, timeout_s: float) -> int:
            if timeout_s > 0:  # after BufferError
                raise IsFullError
            return 0

    monkeypatch.setattr(sending, "Producer", FullProducer)
    target = {"bootstrap.servers": "127.0.0.1:9", "log_level": "0"}
    mirroring = Mirroring(target, TopicNames(".*"), {"t": 1}, {"t": 1}, "A", "B", mark_origin=True)
    row = SimpleNamespace(
        topic="t", partition=0, offset=7, key=None, value=b"x" * 900_000, headers=None, timestamp_ms=1
    )
    with pytest.raises(IsFullError):
        list(send([row] * 80, mirroring))  # 72 MB
    assert len(producers.pop()) == 0


def test_a_record_passes_each_cluster_once_and_keeps_its_first_place() -> None:
    at_a = SimpleNamespace(topic="t", partition=0, offset=0, key=None, value=b"x", headers=None, timestamp_ms=1)
    at_c = hop(hop(at_a, "A", "B"), "B", "C")
    assert [(header.key, header.value) for header in at_c.headers] == [
        ("mirror.origin", b"A"),
        ("mirror.place", b"t/0/0"),
        ("mirror.origin", b"B"),
    ]
    assert [hop(at_c, "C", target) is None for target in "ABD"] == [True, True, False]
