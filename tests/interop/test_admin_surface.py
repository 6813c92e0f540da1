"""All calls of Kafka's admin client to one broker, with the same result as from Kafka in every field and message.

`admin-surface.txt` has the results of Apache Kafka 3.9.1 with ZooKeeper.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.conftest import RunJava, StartServer
from tests.support.broker import BrokerProcess

EXPECTED = Path(__file__).with_name("admin-surface.txt")
OF_A_BROKER_OF_ITS_OWN = {
    "client metrics": "{}",
    "set client metrics": "null",
    "list client metrics": "true",
}
"""What Milena returns instead: it has subscriptions to metrics of clients, as Kafka without ZooKeeper."""


@pytest.mark.soak
def test_every_admin_call_returns_what_kafka_returns(start_server: StartServer, run_java: RunJava) -> None:
    expected = EXPECTED.read_text().splitlines()
    with start_server({}) as server:
        if isinstance(server, BrokerProcess):
            expected = [_of_milena(line) for line in expected]
        for version in ("3.9.1", "4.1.0"):
            name = f"surface-of-{version.replace('.', '-')}"
            lines = run_java("AdminSurface", server.bootstrap, name, version=version)
            assert [line.replace(name, "NAME") for line in lines] == expected, version


def _of_milena(line: str) -> str:
    question = line.partition(": ")[0]
    return f"{question}: {OF_A_BROKER_OF_ITS_OWN[question]}" if question in OF_A_BROKER_OF_ITS_OWN else line
