"""Records what Kafka 3.9.1 does with the cases of `tests/fixtures/connect/cases.jsonl`, in `results.jsonl` beside it.

    python -m tests.spark_jobs.connect.golden.record

must run after a case was added. It needs a JDK, and fetches Kafka's jars once. The tests compare with the results and
need neither.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.apache_kafka import jars
from tests.support.ivy import CACHE
from tests.support.java import compiled, java_command

SOURCE = Path(__file__).with_name("ConnectGolden.java")
FIXTURES = Path(__file__).parents[3] / "fixtures" / "connect"
CASES = FIXTURES / "cases.jsonl"
RESULTS = FIXTURES / "results.jsonl"
RECORDED_BY = "tests/spark_jobs/connect/golden/record.py"


def cases() -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield each case with its result, `{"result": …}` or `{"error": …}`."""
    with CASES.open(encoding="utf-8") as given, RESULTS.open(encoding="utf-8") as recorded:
        assert json.loads(next(recorded)) == {"recorded by": RECORDED_BY}
        for line, result in zip(given, recorded, strict=True):
            yield json.loads(line), json.loads(result)


def main() -> None:
    libraries = jars()
    classes = compiled(SOURCE, libraries, CACHE / "classes")
    # Kafka formats some times in the zone of the JVM.
    command = java_command([classes, *libraries.glob("*.jar")], SOURCE.stem, properties={"user.timezone": "UTC"})
    given = CASES.read_bytes()
    done = subprocess.run(command, input=given, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    header = json.dumps({"recorded by": RECORDED_BY}).encode()
    RESULTS.write_bytes(header + b"\n" + done.stdout)
    assert len(done.stdout.splitlines()) == len(given.splitlines())


if __name__ == "__main__":
    main()
