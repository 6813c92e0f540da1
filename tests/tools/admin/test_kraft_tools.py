"""kafka-features, kafka-metadata-quorum and kafka-client-metrics: responses of a cluster without KRaft, as Kafka's."""

import re

import pytest

from tests.support.broker import BrokerProcess
from tests.tools.conftest import Outcome, RunTool
from tools.admin import client_metrics, features, metadata_quorum

NOT_SUPPORTED = "Could not apply finalized feature update because the provided feature is not supported."
NOT_FINALIZED = "Can not delete non-existing finalized feature."
FAILED = "1 out of 1 operation(s) failed.\n"


@pytest.mark.parametrize(
    ("arguments", "stdout"),
    [
        (
            ["upgrade", "--feature", "metadata.version=20"],
            f"Could not upgrade metadata.version to 20. {NOT_SUPPORTED}\n",
        ),
        (["upgrade", "--metadata", "3.9-IV0"], f"Could not upgrade metadata.version to 21. {NOT_SUPPORTED}\n"),
        (["upgrade", "--release-version", "3.7"], f"Could not upgrade metadata.version to 19. {NOT_SUPPORTED}\n"),
        (["downgrade", "--feature", "x=0", "--dry-run"], f"Can not downgrade x to 0. {NOT_FINALIZED}\n"),
        (["disable", "--feature", "metadata.version"], f"Could not disable metadata.version. {NOT_FINALIZED}\n"),
    ],
)
def test_changes_of_features_fail_as_in_kafka(
    broker: BrokerProcess, run: RunTool, arguments: list[str], stdout: str
) -> None:
    outcome = run(features.main, "--bootstrap-server", broker.bootstrap, *arguments)
    assert outcome == Outcome(1, stdout, FAILED)


def test_no_feature_is_finalized(broker: BrokerProcess, run: RunTool) -> None:
    assert run(features.main, "--bootstrap-server", broker.bootstrap, "describe") == Outcome(0, "", "")


def test_levels_are_known_without_a_broker(run: RunTool) -> None:
    assert run(features.main, "version-mapping") == Outcome(0, "metadata.version=21 (3.9-IV0)\n", "")
    older = run(features.main, "version-mapping", "--release-version", "3.3-IV1")
    assert older == Outcome(0, "metadata.version=5 (3.3-IV1)\n", "")
    assert run(features.main, "feature-dependencies", "--feature", "metadata.version=14") == Outcome(
        0, "metadata.version=14 has no dependencies.\n", ""
    )


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ([], ""),
        (["--bootstrap-server", "h:1"], "kafka-features: error: too few arguments"),
        (["--bootstrap-server", "h:1", "nonsense"], "argument COMMAND: invalid choice: 'nonsense'"),
        (["describe"], "kafka-features: error: one of the arguments --bootstrap-server --bootstrap-controller"),
        (["--bootstrap-controller", "h:1", "describe"], "kafka-features: error: --bootstrap-controller needs KRaft"),
        (["--bootstrap-server", "h:1", "upgrade"], "You must specify at least one feature to upgrade"),
        (["--bootstrap-server", "h:1", "upgrade", "--feature", "x"], "Can't parse feature=level string x"),
        (["--bootstrap-server", "h:1", "upgrade", "--feature", "x=1", "--feature", "x=2"], "Feature x was specified"),
        (["--bootstrap-server", "h:1", "upgrade", "--metadata", "9.9"], "Unknown metadata.version '9.9'"),
        (["version-mapping", "--release-version", "x"], "Unknown metadata.version 'x'"),
        (["feature-dependencies", "--feature", "y=1"], "Unknown feature: y"),
        (["feature-dependencies", "--feature", "metadata.version=99"], "No metadata.version with level 99"),
    ],
)
def test_bad_command_lines_of_features(run: RunTool, arguments: list[str], error: str) -> None:
    outcome = run(features.main, *arguments)
    assert outcome.status == 1
    assert error in outcome.stderr.splitlines()[0]


def test_there_is_no_quorum_but_a_controller(broker: BrokerProcess, run: RunTool) -> None:
    outcome = run(metadata_quorum.main, "--bootstrap-server", broker.bootstrap, "describe", "--status")
    assert (outcome.status, outcome.stdout) == (1, "")
    assert "the node does not support DESCRIBE_QUORUM" in outcome.stderr
    assert re.search(r"Broker \d+ is the controller; `zookeeper-shell ADDRESS get /controller_epoch`", outcome.stderr)
    neither = run(metadata_quorum.main, "--bootstrap-server", broker.bootstrap, "describe")
    assert neither.stderr.startswith("kafka-metadata-quorum: error: expected one of --status and --replication\n")


@pytest.mark.parametrize(
    ("arguments", "stdout"),
    [
        (["--list"], "The node does not support LIST_CLIENT_METRICS_RESOURCES"),
        (["--describe"], "The node does not support LIST_CLIENT_METRICS_RESOURCES"),
        (["--delete", "--name", "x"], "Config type client-metrics is only supported on KRaft clusters"),
        (
            ["--alter", "--name", "x", "--metrics", "a", "--interval", "1000"],
            "AlterConfigs is only supported for topics and brokers, but resource type is CLIENT_METRICS",
        ),
        (
            ["--alter", "--generate-name"],
            "AlterConfigs is only supported for topics and brokers, but resource type is CLIENT_METRICS",
        ),
    ],
)
def test_client_metrics_are_refused_as_by_kafka(
    broker: BrokerProcess, run: RunTool, arguments: list[str], stdout: str
) -> None:
    outcome = run(client_metrics.main, "--bootstrap-server", broker.bootstrap, *arguments)
    assert outcome == Outcome(1, f"Error while executing client metrics command : {stdout}\n", "")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--bootstrap-server", "h:1"], "Command must include exactly one action"),
        (["--bootstrap-server", "h:1", "--list", "--describe"], "Command must include exactly one action"),
        (["--bootstrap-server", "h:1", "--alter"], "A client metrics resource name must be specified with --alter."),
        (
            ["--bootstrap-server", "h:1", "--list", "--metrics", "a"],
            'Option "[list]" can\'t be used with option "[metr',
        ),
        (["--list"], 'Missing required argument "[bootstrap-server]"'),
    ],
)
def test_bad_command_lines_of_client_metrics(run: RunTool, arguments: list[str], error: str) -> None:
    outcome = run(client_metrics.main, *arguments)
    assert outcome.status == 1
    assert outcome.stderr.startswith(error)
