"""kafka-features and kafka-metadata-quorum: responses of a cluster without KRaft, as Kafka's; kafka-client-metrics."""

import re
from pathlib import Path

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


def test_features_of_kafka_4_are_described_and_changed(broker: BrokerProcess, run: RunTool) -> None:
    at = ("--bootstrap-server", broker.bootstrap)
    line = (
        "Feature: transaction.version\tSupportedMinVersion: 0\tSupportedMaxVersion: 2\tFinalizedVersionLevel: {}\t"
        "Epoch: {}\n"
    )
    assert run(features.main, *at, "describe") == Outcome(0, line.format(2, 0), "")
    lowered = run(features.main, *at, "downgrade", "--feature", "transaction.version=1")
    assert lowered == Outcome(0, "transaction.version was downgraded to 1.\n", "")
    raised = run(features.main, *at, "upgrade", "--feature", "transaction.version=2")
    assert raised == Outcome(0, "transaction.version was upgraded to 2.\n", "")
    assert run(features.main, *at, "describe") == Outcome(0, line.format(2, 2), "")


def test_levels_are_known_without_a_broker(run: RunTool) -> None:
    assert run(features.main, "version-mapping") == Outcome(0, "metadata.version=21 (3.9-IV0)\n", "")
    older = run(features.main, "version-mapping", "--release-version", "3.3-IV1")
    assert older == Outcome(0, "metadata.version=5 (3.3-IV1)\n", "")
    assert run(features.main, "feature-dependencies", "--feature", "metadata.version=14") == Outcome(
        0, "metadata.version=14 has no dependencies.\n", ""
    )
    assert run(features.main, "feature-dependencies", "--feature", "transaction.version=2") == Outcome(
        0, "transaction.version=2 has no dependencies.\n", ""
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


def test_subscriptions_to_client_metrics_are_altered_described_listed_and_deleted(
    broker: BrokerProcess, run: RunTool
) -> None:
    def printed(*arguments: str) -> str:
        outcome = run(client_metrics.main, "--bootstrap-server", broker.bootstrap, *arguments)
        assert (outcome.status, outcome.stderr) == (0, "")
        return outcome.stdout

    named = ("--name", "billing")
    assert printed("--list") == "\n"
    settings = ("--metrics", "org.apache.kafka.producer.,b", "--interval", "1000", "--match", "client_id=c.*")
    assert printed("--alter", *named, *settings) == "Altered client metrics config for billing.\n"
    shown = "  interval.ms=1000\n  match=client_id=c.*\n  metrics=org.apache.kafka.producer.,b\n"
    assert printed("--describe", *named) == f"Client metrics configs for billing are:\n{shown}"
    assert printed("--describe") == f"Client metrics configs for billing are:\n{shown}"
    printed("--alter", *named, "--interval", "", "--match", "")
    assert printed("--describe", *named).splitlines()[1:] == ["  metrics=org.apache.kafka.producer.,b"]
    assert printed("--list") == "billing\n"
    assert printed("--delete", *named) == "Deleted client metrics config for billing.\n"
    assert printed("--list") == "\n"
    assert re.fullmatch(
        r"Altered client metrics config for [\w-]{22}\.\n", printed("--alter", "--generate-name", "--interval", "100")
    )
    printed("--delete", "--name", printed("--list").strip())


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--interval", "99"), "Invalid value 99 for interval.ms, interval must be between 100 and 3600000 (1 hour)"),
        (("--match", "host=a"), "Illegal client matching pattern: host=a"),
    ],
)
def test_invalid_subscriptions_are_refused(
    broker: BrokerProcess, run: RunTool, arguments: tuple[str, ...], error: str
) -> None:
    outcome = run(client_metrics.main, "--bootstrap-server", broker.bootstrap, "--alter", "--name", "x", *arguments)
    assert outcome == Outcome(1, f"Error while executing client metrics command : {error}\n", "")


@pytest.mark.parametrize("action", ["--list", "--describe"])
def test_brokers_without_client_metrics_are_reported(run: RunTool, tmp_path: Path, action: str) -> None:
    with BrokerProcess(tmp_path, {"advertised.kafka.version": "3.9"}) as broker:
        outcome = run(client_metrics.main, "--bootstrap-server", broker.bootstrap, action)
    error = "The node does not support LIST_CLIENT_METRICS_RESOURCES"
    assert outcome == Outcome(1, f"Error while executing client metrics command : {error}\n", "")


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
