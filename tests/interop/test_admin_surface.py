"""All calls of Kafka's admin client to one broker, with the same result as from Kafka in every field and message.

`admin-surface.txt` has the results of Apache Kafka 3.9.1 with ZooKeeper.
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
