"""kafka-configs: topics and brokers with a real broker, quotas and credentials with a scripted one."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from config.group import GROUP_PROPERTIES
from protocol.errors import ErrorCode
from protocol.messages import alter_client_quotas, describe_client_quotas
from protocol.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    ValueData,
)
from protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from protocol.messages.metadata import MetadataResponse, MetadataResponseBroker
from tests.support.broker import BrokerProcess
from tests.tools.conftest import Outcome, RunTool
from tests.tools.scripted_broker import ScriptedBroker
from tools.admin import configs, topics
from tools.admin.configs import parse_configs
from tools.base.command_line import UsageError


@pytest.fixture
def kafka_configs(broker: BrokerProcess, run: RunTool) -> RunTool:
    def run_configs(*arguments: str) -> Outcome:
        return run(configs.main, "--bootstrap-server", broker.bootstrap, *arguments)

    return run_configs


def create(broker: BrokerProcess, topic: str) -> None:
    topics.main(["--bootstrap-server", broker.bootstrap, "--create", "--if-not-exists", "--topic", topic])


def test_topic_config_is_set_described_and_deleted(broker: BrokerProcess, kafka_configs: RunTool) -> None:
    create(broker, "configured-topic")
    altered = kafka_configs(
        "--alter", "--topic", "configured-topic", "--add-config", "retention.ms=7200000,cleanup.policy=[compact,delete]"
    )
    assert altered == Outcome(0, "Completed updating config for topic configured-topic.\n", "")
    described = kafka_configs("--describe", "--entity-type", "topics", "--entity-name", "configured-topic")
    assert described == Outcome(
        0,
        "Dynamic configs for topic configured-topic are:\n"
        "  cleanup.policy=compact,delete sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact,delete, "
        "DEFAULT_CONFIG:log.cleanup.policy=delete}\n"
        "  retention.ms=7200000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=7200000}\n",
        "",
    )
    deleted = kafka_configs("--alter", "--topic", "configured-topic", "--delete-config", "retention.ms,cleanup.policy")
    assert deleted.status == 0
    left = kafka_configs("--describe", "--topic", "configured-topic")
    assert left.stdout == "Dynamic configs for topic configured-topic are:\n"
    everything = kafka_configs("--describe", "--topic", "configured-topic", "--all").stdout.splitlines()
    assert everything[0] == "All configs for topic configured-topic are:"
    assert len(everything) == 37
    assert everything[1:] == sorted(everything[1:])


def test_configs_are_read_from_a_file(broker: BrokerProcess, kafka_configs: RunTool, tmp_path: Path) -> None:
    create(broker, "filed-topic")
    path = tmp_path / "topic.properties"
    path.write_text("retention.ms = 5\ncleanup.policy = compact,delete\n")
    assert kafka_configs("--alter", "--topic", "filed-topic", "--add-config-file", str(path)).status == 0
    assert "  cleanup.policy=compact,delete " in kafka_configs("--describe", "--topic", "filed-topic").stdout


def test_broker_configs_are_set_and_described(kafka_configs: RunTool) -> None:
    assert kafka_configs("--alter", "--broker-defaults", "--add-config", "message.max.bytes=1500000").stdout == (
        "Completed updating default config for brokers in the cluster.\n"
    )
    assert kafka_configs("--alter", "--broker", "0", "--add-config", "log.cleaner.threads=2").stdout == (
        "Completed updating config for broker 0.\n"
    )
    assert kafka_configs("--describe", "--entity-type", "brokers").stdout == (
        "Dynamic configs for broker 0 are:\n"
        "  log.cleaner.threads=2 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG:log.cleaner.threads=2, "
        "DEFAULT_CONFIG:log.cleaner.threads=1}\n"
        "Default configs for brokers in the cluster are:\n"
        "  message.max.bytes=1500000 sensitive=false "
        "synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:message.max.bytes=1500000}\n"
    )
    assert kafka_configs("--alter", "--broker", "0", "--delete-config", "log.cleaner.threads").status == 0
    assert kafka_configs("--alter", "--broker-defaults", "--delete-config", "message.max.bytes").status == 0
    assert kafka_configs("--describe", "--broker", "0").stdout == "Dynamic configs for broker 0 are:\n"


def test_all_shows_the_defaults_of_a_broker(kafka_configs: RunTool) -> None:
    lines = kafka_configs("--describe", "--broker", "0", "--all").stdout.splitlines()
    assert lines[0] == "All configs for broker 0 are:"
    assert "  ssl.key.password=null sensitive=true synonyms={}" in lines
    assert "  broker.rack=null sensitive=false synonyms={}" in lines


def test_logger_levels_are_set_and_described(kafka_configs: RunTool) -> None:
    lines = kafka_configs("--describe", "--broker-logger", "0").stdout.splitlines()
    assert lines[0] == "Dynamic configs for broker-logger 0 are:"
    assert all(line.endswith(" sensitive=false synonyms={}") for line in lines[1:])


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (
            ("--topic", "configured-topic", "--add-config", "nosuch.key=1"),
            "org.apache.kafka.common.errors.InvalidConfigurationException: Unknown topic config name: nosuch.key",
        ),
        (
            ("--topic", "configured-topic", "--add-config", "retention.ms=abc"),
            "Invalid value abc for configuration retention.ms: Not a number of type LONG",
        ),
        (
            ("--broker", "0", "--add-config", "broker.rack=zz"),
            "InvalidRequestException: Cannot update these configs dynamically: Set(broker.rack)",
        ),
        (("--topic", "nope", "--add-config", "retention.ms=1"), "UnknownTopicOrPartitionException"),
    ],
)
def test_rejected_configs_are_reported(
    broker: BrokerProcess, kafka_configs: RunTool, arguments: tuple[str, ...], reason: str
) -> None:
    create(broker, "configured-topic")
    outcome = kafka_configs("--alter", *arguments)
    assert (outcome.status, outcome.stdout) == (1, "")
    first, second = outcome.stderr.splitlines()
    given = " ".join(("--bootstrap-server", broker.bootstrap, "--alter", *arguments))
    assert first == f"Error while executing config command with args '{given}'"
    assert reason in second


def test_unknown_topic_shows_its_heading_first(kafka_configs: RunTool) -> None:
    outcome = kafka_configs("--describe", "--topic", "nope")
    assert (outcome.status, outcome.stdout) == (1, "Dynamic configs for topic nope are:\n")


def test_key_that_is_not_set_cannot_be_deleted(broker: BrokerProcess, kafka_configs: RunTool) -> None:
    create(broker, "configured-topic")
    outcome = kafka_configs("--alter", "--topic", "configured-topic", "--delete-config", "segment.ms")
    assert outcome == Outcome(1, "", "Invalid config(s): segment.ms\n")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--topic", "t"), "Command must include exactly one action: --describe, --alter"),
        (("--alter", "--describe", "--topic", "t"), "Command must include exactly one action: --describe, --alter"),
        (("--describe",), "At least one entity type must be specified"),
        (("--alter", "--topic", "t"), "At least one of --add-config, --add-config-file, or --delete-config"),
        (
            ("--alter", "--entity-type", "topics", "--add-config", "a=b"),
            "an entity name must be specified with --alter of topics",
        ),
        (
            ("--alter", "--topic", "t", "--add-config", "a=b", "--add-config-file", "f"),
            "Only one of --add-config or --add-config-file must be specified",
        ),
        (("--describe", "--topic", "t", "--nosuch"), "nosuch is not a recognized option"),
    ],
)
def test_invalid_options_are_usage_errors(run: RunTool, arguments: tuple[str, ...], text: str) -> None:
    outcome = run(configs.main, "--bootstrap-server", "127.0.0.1:1", *arguments)
    assert (outcome.status, outcome.stdout) == (1, "")
    assert outcome.stderr.startswith(text)


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("", {}),
        ("a=1", {"a": "1"}),
        (" a = 1 , b=2,", {"a": "1", "b": "2"}),
        ("a=[1,2],b=", {"a": "1,2", "b": ""}),
        ("SCRAM-SHA-256=[iterations=8192,password=x=y]", {"SCRAM-SHA-256": "iterations=8192,password=x=y"}),
    ],
)
def test_configs_to_add_are_parsed(text: str, parsed: dict[str, str]) -> None:
    assert parse_configs(text) == parsed


@pytest.mark.parametrize("text", ["a", "a=1,b", "=1"])
def test_config_without_a_value_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match="all configs to be added must be in the format"):
        parse_configs(text)


class TestQuotas:
    """Quotas of users, clients and addresses, with a scripted broker."""

    ALICE: tuple[dict[str, str | None], dict[str, float]] = (
        {"user": "alice"},
        {"producer_byte_rate": 1048576.0, "consumer_byte_rate": 2097152.0},
    )

    @staticmethod
    def scripted(
        *quotas: tuple[dict[str, str | None], dict[str, float]],
        credentials: dict[str, list[tuple[int, int]]] | None = None,
    ) -> ScriptedBroker:
        def respond(request: object) -> object:
            match request:
                case DescribeClientQuotasRequest():
                    entries = [
                        describe_client_quotas.EntryData(
                            entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
                            values=[ValueData(key=key, value=value) for key, value in values.items()],
                        )
                        for entity, values in quotas
                    ]
                    return DescribeClientQuotasResponse(error_message=None, entries=entries)
                case AlterClientQuotasRequest():
                    results = [alter_client_quotas.EntryResult(error_message=None, entity=request.entries[0].entity)]
                    return AlterClientQuotasResponse(entries=results)
                case DescribeUserScramCredentialsRequest():
                    found = [
                        DescribeUserScramCredentialsResult(
                            user=user,
                            error_code=0 if infos else ErrorCode.RESOURCE_NOT_FOUND,
                            error_message=None,
                            credential_infos=[
                                CredentialInfo(mechanism=kind, iterations=count) for kind, count in infos
                            ],
                        )
                        for user, infos in (credentials or {}).items()
                    ]
                    return DescribeUserScramCredentialsResponse(error_message=None, results=found)
                case AlterUserScramCredentialsRequest():
                    names = {change.name for change in (*request.upsertions, *request.deletions)}
                    altered = [AlterUserScramCredentialsResult(user=name, error_message=None) for name in names]
                    return AlterUserScramCredentialsResponse(results=altered)
                case _:
                    node = MetadataResponseBroker(node_id=0, host="127.0.0.1", port=broker.port)
                    return MetadataResponse(brokers=[node], controller_id=0, topics=[])

        broker = ScriptedBroker(respond)
        return broker

    def run_on(self, broker: ScriptedBroker, run: RunTool, *arguments: str) -> Outcome:
        with broker:
            return run(configs.main, "--bootstrap-server", f"127.0.0.1:{broker.port}", *arguments)

    def test_quotas_of_users_are_described(self, run: RunTool) -> None:
        broker = self.scripted(
            ({"user": None}, {"controller_mutation_rate": 10.0}),
            self.ALICE,
            credentials={"bob": [(2, 8192)], "alice": [(1, 4096), (2, 4096)], "carol": []},
        )
        assert self.run_on(broker, run, "--describe", "--entity-type", "users") == Outcome(
            0,
            "Quota configs for the default user-principal are controller_mutation_rate=10.0\n"
            "Quota configs for user-principal 'alice' are consumer_byte_rate=2097152.0, producer_byte_rate=1048576.0\n"
            "SCRAM credential configs for user-principal 'alice' are SCRAM-SHA-256=iterations=4096, "
            "SCRAM-SHA-512=iterations=4096\n"
            "SCRAM credential configs for user-principal 'bob' are SCRAM-SHA-512=iterations=8192\n",
            "",
        )

    def test_quotas_of_users_with_clients_are_described(self, run: RunTool) -> None:
        broker = self.scripted(
            ({"client-id": "app1", "user": None}, {"producer_byte_rate": 131072.0}),
            ({"client-id": None, "user": "alice"}, {"producer_byte_rate": 0.001}),
        )
        outcome = self.run_on(broker, run, "--describe", "--entity-type", "users", "--entity-type", "clients")
        assert outcome.stdout == (
            "Quota configs for the default user-principal, client-id 'app1' are producer_byte_rate=131072.0\n"
            "Quota configs for user-principal 'alice', the default client-id are producer_byte_rate=0.001\n"
        )
        (request,) = broker.requests
        assert isinstance(request, DescribeClientQuotasRequest)
        assert [(part.entity_type, part.match_type, part.match) for part in request.components] == [
            ("user", 2, None),
            ("client-id", 2, None),
        ]
        assert request.strict

    def test_quotas_are_set_and_deleted(self, run: RunTool) -> None:
        broker = self.scripted(self.ALICE)
        changes = ("--add-config", "consumer_bytes_rate=5", "--delete-config", "producer_byte_rate")
        outcome = self.run_on(broker, run, "--alter", "--user", "alice", "--client-defaults", *changes)
        assert (outcome.status, outcome.stdout) == (0, "Completed updating config for user alice.\n")
        assert "consumer_bytes_rate is a misprint of consumer_byte_rate" in outcome.stderr
        request = broker.requests[-1]
        assert isinstance(request, AlterClientQuotasRequest)
        (entry,) = request.entries
        assert [(part.entity_type, part.entity_name) for part in entry.entity] == [
            ("user", "alice"),
            ("client-id", None),
        ]
        assert [(op.key, op.value, op.remove) for op in entry.ops] == [
            ("consumer_byte_rate", 5.0, False),
            ("producer_byte_rate", 0.0, True),
        ]

    def test_quotas_of_the_default_entity_are_set(self, run: RunTool) -> None:
        outcome = self.run_on(
            self.scripted(), run, "--alter", "--ip-defaults", "--add-config", "connection_creation_rate=100"
        )
        assert outcome.stdout == "Completed updating default config for ips in the cluster.\n"

    def test_scram_credentials_are_set_and_deleted(self, run: RunTool) -> None:
        broker = self.scripted()
        outcome = self.run_on(
            broker,
            run,
            *("--alter", "--user", "alice"),
            *("--add-config", "SCRAM-SHA-256=[iterations=8192,password=a,b]"),
            *("--delete-config", "SCRAM-SHA-512"),
        )
        assert outcome == Outcome(0, "Completed updating config for user alice.\n", "")
        request = broker.requests[-1]
        assert isinstance(request, AlterUserScramCredentialsRequest)
        (upsertion,) = request.upsertions
        assert (upsertion.name, upsertion.mechanism, upsertion.iterations) == ("alice", 1, 8192)
        assert upsertion.salted_password == hashlib.pbkdf2_hmac("sha256", b"a,b", upsertion.salt, 8192)
        assert [(deletion.name, deletion.mechanism) for deletion in request.deletions] == [("alice", 2)]

    @pytest.mark.parametrize(
        ("arguments", "text"),
        [
            (
                ("--user", "a", "--add-config", "nosuch=1"),
                "Only quota and SCRAM credential configs can be added for 'users'",
            ),
            (
                ("--ip", "10.0.0.1", "--add-config", "producer_byte_rate=1"),
                "Only connection quota configs can be added for 'ips'",
            ),
            (("--client", "c", "--add-config", "SCRAM-SHA-256=[password=x]"), "Only quota configs can be added"),
            (("--user", "a", "--add-config", "producer_byte_rate=fast"), "Cannot parse quota configuration value"),
            (
                ("--user", "a", "--add-config", "producer_byte_rate=1,SCRAM-SHA-256=[password=x]"),
                "Cannot alter both quota and SCRAM credential configs simultaneously",
            ),
            (("--user-defaults", "--add-config", "SCRAM-SHA-256=[password=x]"), "is not allowed with User SCRAM"),
            (("--user", "a", "--add-config", "SCRAM-SHA-256=[iterations=1,password=x]"), "Iterations 1 is less than"),
            (("--user", "a", "--add-config", "SCRAM-SHA-256=[secret=x]"), "Invalid credential for SCRAM-SHA-256"),
        ],
    )
    def test_invalid_changes_are_reported(self, run: RunTool, arguments: tuple[str, ...], text: str) -> None:
        outcome = self.run_on(self.scripted(), run, "--alter", *arguments)
        assert (outcome.status, outcome.stdout) == (1, "")
        assert text in outcome.stderr.splitlines()[0]

    def test_quota_that_is_not_set_cannot_be_deleted(self, run: RunTool) -> None:
        outcome = self.run_on(self.scripted(), run, "--alter", "--user", "a", "--delete-config", "producer_byte_rate")
        assert outcome == Outcome(1, "", "Invalid config(s): producer_byte_rate\n")


def test_subscriptions_to_client_metrics_are_changed_and_described(kafka_configs: RunTool) -> None:
    entity = ("--entity-type", "client-metrics", "--entity-name", "of-configs")
    altered = kafka_configs("--alter", *entity, "--add-config", "interval.ms=5000,metrics=[a,b]")
    assert altered == Outcome(0, "Completed updating config for client-metric of-configs.\n", "")
    described = kafka_configs("--describe", "--entity-type", "client-metrics")
    assert described.stdout.splitlines() == [
        "Dynamic configs for client-metric of-configs are:",
        "  interval.ms=5000 sensitive=false synonyms={}",
        "  metrics=a,b sensitive=false synonyms={}",
    ]
    deleted = kafka_configs("--alter", *entity, "--delete-config", "interval.ms,metrics")
    assert (deleted.status, deleted.stderr) == (0, "")
    assert kafka_configs("--describe", "--entity-type", "client-metrics").stdout == ""


def test_settings_of_groups_are_changed_and_described(kafka_configs: RunTool) -> None:
    altered = kafka_configs("--alter", "--group", "g", "--add-config", "consumer.heartbeat.interval.ms=6000")
    assert altered == Outcome(0, "Completed updating config for group g.\n", "")
    described = kafka_configs("--describe", "--entity-type", "groups")
    own = "consumer.heartbeat.interval.ms=6000"
    assert described.stdout.splitlines() == [
        "Dynamic configs for group g are:",
        f"  {own} sensitive=false synonyms={{GROUP_CONFIG:{own}}}",
    ]
    assert len(kafka_configs("--describe", "--group", "g", "--all").stdout.splitlines()) == 1 + len(GROUP_PROPERTIES)
    deleted = kafka_configs("--alter", "--group", "g", "--delete-config", "consumer.heartbeat.interval.ms")
    assert (deleted.status, deleted.stderr) == (0, "")
    assert kafka_configs("--describe", "--entity-type", "groups").stdout == ""


def test_a_missing_file_is_named_once(kafka_configs: RunTool) -> None:
    outcome = kafka_configs("--alter", "--topic", "t", "--add-config-file", "/nope")
    assert (outcome.status, outcome.stderr.splitlines()[0]) == (1, "Cannot read /nope: No such file or directory")
