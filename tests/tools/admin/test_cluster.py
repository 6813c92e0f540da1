"""kafka-cluster with a real broker."""

import pytest
from confluent_kafka.admin import AdminClient

from tests.support.broker import BrokerProcess
from tests.tools.conftest import Outcome, RunTool
from tools.admin import cluster


def test_cluster_id_is_that_of_other_clients(broker: BrokerProcess, run: RunTool) -> None:
    expected = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=20).cluster_id
    assert len(expected) == 22
    outcome = run(cluster.main, "cluster-id", "--bootstrap-server", broker.bootstrap)
    assert outcome == Outcome(0, f"Cluster ID: {expected}\n", "")


def test_unregister_is_not_supported(broker: BrokerProcess, run: RunTool) -> None:
    outcome = run(cluster.main, "unregister", "--bootstrap-server", broker.bootstrap, "--id", "0")
    assert outcome == Outcome(0, "The target cluster does not support the broker unregistration API.\n", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("cluster-id",), "bootstrap-server"),
        (("nosuch", "--bootstrap-server", "h:1"), "cluster-id or unregister, found 'nosuch'"),
        (("--bootstrap-server", "h:1"), "cluster-id or unregister, found None"),
        (("unregister", "--bootstrap-server", "h:1"), "[id]"),
        (("unregister", "--bootstrap-server", "h:1", "--config", "/nosuch/file", "--id", "0", "--id", "1"), "id"),
    ],
)
def test_invalid_command_lines_are_named(run: RunTool, arguments: tuple[str, ...], message: str) -> None:
    outcome = run(cluster.main, *arguments)
    assert outcome.status == 1
    assert message in outcome.stderr.splitlines()[0]


def test_settings_of_the_client_are_read_under_both_names(broker: BrokerProcess, run: RunTool) -> None:
    for option in ("--config", "--command-config"):
        outcome = run(cluster.main, "cluster-id", "--bootstrap-server", broker.bootstrap, option, "/nosuch/file")
        assert outcome.status == 1
        assert "Cannot read /nosuch/file" in outcome.stderr
