"""What Kafka's own admin client can ask of one broker, answered field by field and word by word as Kafka answers.

`admin-surface.txt` is what Apache Kafka 3.9.1 with ZooKeeper says.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.conftest import RunJava, StartServer

EXPECTED = Path(__file__).with_name("admin-surface.txt")


@pytest.mark.soak
def test_every_admin_call_returns_what_kafka_returns(start_server: StartServer, run_java: RunJava) -> None:
    with start_server({}) as server:
        for version in ("3.9.1", "4.1.0"):
            name = f"surface-of-{version.replace('.', '-')}"
            lines = run_java("AdminSurface", server.bootstrap, name, version=version)
            assert [line.replace(name, "NAME") for line in lines] == EXPECTED.read_text().splitlines(), version
