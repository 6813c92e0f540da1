"""Records the bytes of Kafka 3.9.1's Connect workers in `tests/fixtures/connect/group.json`.

    python -m tests.spark_jobs.connect.golden.record_group

It needs a JDK, and fetches Kafka's jars once. The tests compare with what it has written and need neither.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.spark_jobs.connect.golden.record import FIXTURES
from tests.support.apache_kafka import jars
from tests.support.ivy import CACHE
from tests.support.java import compiled, java_command

SOURCE = Path(__file__).with_name("RecordGroup.java")
RESULT = FIXTURES / "group.json"
RECORDED_BY = "tests/spark_jobs/connect/golden/record_group.py"


def recorded(part: str) -> list[dict[str, Any]]:
    """Return the examples of one part, `assignments` or `files`."""
    found = json.loads(RESULT.read_text(encoding="utf-8"))
    assert found["recorded by"] == RECORDED_BY
    return list(found[part])


def main() -> None:
    libraries = jars()
    classes = compiled(SOURCE, libraries, CACHE / "classes")
    command = java_command([classes, *libraries.glob("*.jar")], SOURCE.stem)
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    found = {"recorded by": RECORDED_BY, **json.loads(done.stdout)}
    RESULT.write_text(json.dumps(found, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
