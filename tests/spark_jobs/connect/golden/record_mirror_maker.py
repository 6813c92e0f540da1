"""Records what Kafka 3.9.1's MirrorMaker 2 does with examples, in `tests/fixtures/connect/mirror.json`.

    python -m tests.spark_jobs.connect.golden.record_mirror_maker

It needs a JDK, and fetches MirrorMaker's jars once. The tests compare with what it has written and need neither.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.spark_jobs.connect.golden.record import FIXTURES
from tests.support.apache_kafka import mirror_maker_jars
from tests.support.ivy import CACHE
from tests.support.java import compiled, java_command

SOURCE = Path(__file__).with_name("RecordMirrorMaker.java")
MAIN = f"org.apache.kafka.connect.mirror.{SOURCE.stem}"
FILES = [SOURCE.with_name(f"{name}.properties") for name in ("three-clusters", "two-clusters")]
RESULT = FIXTURES / "mirror.json"
RECORDED_BY = "tests/spark_jobs/connect/golden/record_mirror_maker.py"


def main() -> None:
    libraries = mirror_maker_jars()
    classes = compiled(SOURCE, libraries, CACHE / "classes")
    command = java_command([classes, *libraries.glob("*.jar")], MAIN, map(str, FILES))
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    found = {"recorded by": RECORDED_BY, **json.loads(done.stdout)}
    RESULT.write_text("{\n" + ",\n".join(_entries(found)) + "\n}\n", encoding="utf-8")


def _entries(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield each part, with one line for each of its elements, so that differences can be read."""
    for name, part in found.items():
        if isinstance(part, dict):
            lines = ",\n".join(f"  {_text(key)}: {_text(value)}" for key, value in part.items())
            yield f" {_text(name)}: {{\n{lines}\n }}"
        elif isinstance(part, list):
            lines = ",\n".join(f"  {_text(value)}" for value in part)
            yield f" {_text(name)}: [\n{lines}\n ]"
        else:
            yield f" {_text(name)}: {_text(part)}"


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


if __name__ == "__main__":
    main()
