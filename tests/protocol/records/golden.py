"""Log segments written by Apache Kafka, each with its decoded content."""

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from tests.support.recorded import DECODED_LOGS, LOGS, read_lines


class GoldenLog(NamedTuple):
    name: str
    """`DIRECTORY/FILE`"""
    data: bytes
    batches: list[dict[str, Any]]

    @property
    def magic(self) -> int:
        return int(self.batches[0]["magic"])


@cache
def golden_logs() -> list[GoldenLog]:
    """Return every segment of the fixtures that holds a batch."""
    return list(_load())


def _load() -> Iterator[GoldenLog]:
    for content in read_lines(DECODED_LOGS):
        for file in content["files"]:
            name = f"{content['directory']}/{file['file']}"
            data = (LOGS / name).read_bytes()
            assert len(data) == file["bytes"]
            if data:
                yield GoldenLog(name, data, file["batches"])


def expected_records(batch: dict[str, Any]) -> list[tuple[Any, ...]]:
    """(offset, timestamp, key, value, headers) of each record."""
    return [
        (
            record["offset"],
            record["timestamp"],
            _unhex(record["keyHex"]),
            _unhex(record["valueHex"]),
            [(name, _unhex(value)) for name, value in record.get("headers", [])],
        )
        for record in batch["records"]
    ]


def _unhex(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)
