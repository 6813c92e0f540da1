"""Log segments written by Apache Kafka, each with its decoded content. The small set of the tree is always there."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

_ROOT = Path(__file__).resolve().parents[3]
_FIXTURES = _ROOT / "tests" / "fixtures" / "golden"
_REFERENCE = _ROOT.parent / "shared" / "reference" / "golden"

_PARENTS = ("broker-2", "old-format", "compact-before")


class GoldenLog(NamedTuple):
    name: str
    data: bytes
    batches: list[dict[str, Any]]

    @property
    def magic(self) -> int:
        return int(self.batches[0]["magic"])


def golden_logs() -> list[GoldenLog]:
    """Every segment of the full set where it is present, otherwise of the small one. Never empty."""
    return list(_load(_REFERENCE if _REFERENCE.is_dir() else _FIXTURES))


def _load(folder: Path) -> Iterator[GoldenLog]:
    for description in sorted(folder.glob("*.json")):
        content = json.loads(description.read_text())
        parents = ("compact-before",) if description.stem.endswith(".before") else _PARENTS[:2]
        for file in content["files"]:
            if not file["file"].endswith(".log") or not file["bytes"]:
                continue
            (path,) = (
                found for parent in parents if (found := folder / parent / content["directory"] / file["file"]).exists()
            )
            data = path.read_bytes()
            assert len(data) == file["bytes"]
            yield GoldenLog(f"{description.stem}/{path.name}", data, file["batches"])


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
