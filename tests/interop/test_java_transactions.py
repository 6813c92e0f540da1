"""Transactions of Kafka's own Java clients: committed records are read, aborted ones are not; admins list them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.interop.conftest import KAFKA_4, RunJava, Server, create_topic
from tests.support.broker import BrokerProcess
from tests.support.parts import skip_when_unavailable
from tests.support.processes import ServerProcess

# 3.9.1 is the reference; 4.0 knows transactions with an epoch each, and does without where the broker has none.
CLIENT_VERSIONS = ("3.9.1", "4.0.0")
# Transactions came with 0.11.
TRANSACTION_VERSIONS = ("1.1.1", "2.8.2", "3.9.1", "4.1.0")


@pytest.mark.parametrize("version", CLIENT_VERSIONS)
def test_committed_and_aborted_transactions_are_read_as_with_kafka(
    server: Server, run_java: RunJava, version: str
) -> None:
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


@pytest.mark.parametrize("version", TRANSACTION_VERSIONS)
def test_clients_of_any_version_commit_and_abort(server: Server, run_java: RunJava, version: str) -> None:
    topic = f"transaction-{version}"
    create_topic(server.bootstrap, topic, partitions=2)
    # Each marker has an offset, and aborted records keep theirs.
    assert run_java("OneTransaction", server.bootstrap, topic, f"{topic}-group", version=version) == [
        "read 0:kept 4:kept-too",
        "position 7",
    ]


@pytest.mark.parametrize("version", ["3.9.1", "4.1.0"])
def test_each_transaction_of_a_newer_client_has_its_own_epoch(server: Server, run_java: RunJava, version: str) -> None:
    check_epochs(server.bootstrap, run_java, version, has_version_2=isinstance(server, BrokerProcess))


@pytest.mark.soak
@pytest.mark.parametrize("version", ["3.9.1", "4.1.0"])
def test_each_transaction_has_its_own_epoch_with_kafka_4(
    shared_newer_server: Callable[[str], ServerProcess], run_java: RunJava, version: str
) -> None:
    with skip_when_unavailable():
        node = shared_newer_server(KAFKA_4)
    check_epochs(node.bootstrap, run_java, version, has_version_2=True)


def check_epochs(bootstrap: str, run_java: RunJava, version: str, *, has_version_2: bool) -> None:
    topic = f"epochs-{version}"
    create_topic(bootstrap, topic, partitions=2)
    feature, epochs, *copied = run_java("TransactionEpochs", bootstrap, topic, version=version)
    is_version_2 = feature == "feature 2" and version == "4.1.0"
    assert has_version_2 == (feature == "feature 2")
    assert epochs == (
        "epochs [1, 2, 3, 4] without records 4" if is_version_2 else "epochs [0, 0, 0, 0] without records 0"
    )
    assert copied == ["fenced ProducerFencedException", "copied [a, b, c]", "written [a, b, b, c]"]
