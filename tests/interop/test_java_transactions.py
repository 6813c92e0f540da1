"""Transactions of Kafka's own Java clients: what commits is read, what aborts is not, and administrators see it all."""

from __future__ import annotations

import pytest

from tests.interop.conftest import RunJava, Server, create_topic

# 3.9.1 is the reference; 4.0 knows transactions with an epoch each, and must do without where the broker has none.
CLIENT_VERSIONS = ("3.9.1", "4.0.0")


@pytest.mark.parametrize("version", CLIENT_VERSIONS)
def test_transactions(server: Server, run_java: RunJava, version: str) -> None:
    topic = f"transactions-{version}"
    create_topic(server.bootstrap, topic)
    assert run_java("Transactions", server.bootstrap, topic, version=version) == [
        "offset 5",
        "fenced ProducerFencedException",
        f"described Ongoing [{topic}-0]",
        "open true",
        "read [committed, newer]",
        "states first=CompleteCommit,hanging=Ongoing",
    ]
