"""A broker's settings: layers, overrides, warnings, and all errors reported together."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from base import properties
from config import broker_properties as rows
from config.broker import BrokerConfig, base_row
from config.broker_properties import BROKER_PROPERTIES
from config.definition import ConfigErrors, Password
from config.old_names import RENAMED

SAMPLES = Path(__file__).parents[2] / "config"


def test_defaults_are_those_of_kafka() -> None:
    config = BrokerConfig.from_properties({})
    assert config[rows.BROKER_ID] == -1
    assert config[rows.LOG_RETENTION_HOURS] == 168
    assert config[rows.LOG_RETENTION_MS] is None
    assert config[rows.SSL_ENABLED_PROTOCOLS] == ("TLSv1.2", "TLSv1.3")
    assert config.log_dirs == ["/tmp/kafka-logs"]
    assert config.warnings == []
    assert not config.is_set(rows.BROKER_ID)


def test_overrides_win_over_the_file_and_are_named() -> None:
    config = BrokerConfig.from_properties(
        {"broker.id": "1", "log.dirs": "/a"}, {"broker.id": "2", "ssl.key.password": "secret", "plug.in": "secret"}
    )
    assert config[rows.BROKER_ID] == 2
    assert config[rows.SSL_KEY_PASSWORD] == Password("secret")
    assert "set by overrides: broker.id=2, ssl.key.password=[hidden], plug.in=[hidden]" in config.notices


def test_log_dirs_overrides_log_dir() -> None:
    assert BrokerConfig.from_properties({"log.dir": "/a"}).log_dirs == ["/a"]
    assert BrokerConfig.from_properties({"log.dir": "/a", "log.dirs": " /b, /c ,"}).log_dirs == ["/b", "/c"]


def test_all_errors_are_reported_together() -> None:
    with pytest.raises(ConfigErrors) as failure:
        BrokerConfig.from_properties(
            {
                "log.segment.bytes": "1g",
                "num.io.threads": "0",
                "broker.id": "7000",
                "listeners": "nonsense",
                "node.id": "1",
                "create.topic.policy.class.name": "com.example.Policy",
            }
        )
    assert {error.key for error in failure.value.errors} == {
        "log.segment.bytes",
        "num.io.threads",
        "broker.id",
        "listeners",
        "node.id",
        "create.topic.policy.class.name",
    }
    assert "Invalid value 1g for configuration log.segment.bytes: Not a number of type INT" in str(failure.value)
    assert len(str(failure.value).splitlines()) == 6


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("log.segment.byte", "log.segment.bytes"),
        ("num.partition", "num.partitions"),
        ("listener", "listeners"),
        ("log.cleaner.min.cleanable.dirty.ratio", "log.cleaner.min.cleanable.ratio"),
    ],
)
def test_unknown_key_is_kept_with_a_warning_that_names_the_nearest(key: str, nearest: str) -> None:
    config = BrokerConfig.from_properties({key: "1"})
    assert config.static[key] == "1"
    (warning,) = config.warnings
    assert key in warning
    assert warning.endswith(f" {nearest}")


@pytest.mark.parametrize(
    "key",
    [
        "confluent.license.topic",
        "confluent.metrics.reporter.bootstrap.servers",
        "kafka.rest.enable",
        "log.cleanup.interval.mins",
        "x",
    ],
)
def test_unknown_key_without_a_similar_one_gets_no_suggestion(key: str) -> None:
    assert BrokerConfig.from_properties({key: "1"}).warnings == [
        f"Unknown key {key} is kept, but the broker does not read it"
    ]


@pytest.mark.parametrize("key", ["config.providers.x.param.y", "listener.name.plaintext.max.connections"])
def test_keys_with_a_known_prefix_are_known(key: str) -> None:
    assert BrokerConfig.from_properties({key: "1"}).warnings == []


def test_listener_settings_are_checked_as_well() -> None:
    with pytest.raises(ConfigErrors) as failure:
        BrokerConfig.from_properties({"listener.name.internal.max.connections": "many"})
    assert [error.key for error in failure.value.errors] == ["listener.name.internal.max.connections"]


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("broker.id", "broker.id"),
        ("listener.name.internal.ssl.keystore.location", "ssl.keystore.location"),
        ("listener.name.internal.scram-sha-256.sasl.jaas.config", "sasl.jaas.config"),
        ("listener.name.internal", None),
        ("listener.name.internal.nothing", None),
        ("nothing", None),
    ],
)
def test_base_row_finds_the_setting_behind_a_key(key: str, name: str | None) -> None:
    row = base_row(key)
    assert (row.name if row else None) == name


def test_node_id_is_broker_id() -> None:
    for settings in ({"node.id": "3"}, {"broker.id": "3"}, {"broker.id": "3", "node.id": " 3"}):
        config = BrokerConfig.from_properties(settings)
        assert (config[rows.BROKER_ID], config[rows.NODE_ID]) == (3, 3)
    with pytest.raises(ConfigErrors, match=r"the same as broker.id"):
        BrokerConfig.from_properties({"broker.id": "3", "node.id": "4"})


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (
            {"authorizer.class.name": "a.B"},
            (
                "Other authorizers are not supported yet, expected one of kafka.security.authorizer.AclAuthorizer, "
                "kafka.security.auth.SimpleAclAuthorizer, "
                "org.apache.kafka.metadata.authorizer.StandardAuthorizer; see docs/not-yet.md"
            ),
        ),
        (
            {"create.topic.policy.class.name": "a.B"},
            "Expected a Python class as package.module:Class; Java classes cannot be loaded",
        ),
        (
            {"alter.config.policy.class.name": "a.B"},
            "Expected a Python class as package.module:Class; Java classes cannot be loaded",
        ),
        (
            {"client.quota.callback.class": "B"},
            "Expected a Python class as package.module:Class; Java classes cannot be loaded",
        ),
        (
            {"principal.builder.class": "a.B"},
            "Expected a Python class as package.module:Class; Java classes cannot be loaded",
        ),
        (
            {"ssl.engine.factory.class": "a.B"},
            (
                "Other factories of TLS engines are not supported yet, expected one of "
                "org.apache.kafka.common.security.ssl.DefaultSslEngineFactory; see docs/not-yet.md"
            ),
        ),
        (
            {"listener.name.client.ssl.trustmanager.algorithm": "Revocation"},
            (
                "Trust managers with rules of their own are not supported yet, expected one of PKIX, SunPKIX, X509, "
                "X.509, SunX509, IbmPKIX, IbmX509; see docs/not-yet.md"
            ),
        ),
        (
            {"sasl.login.class": "a.B"},
            (
                "SASL is supported; classes of your own for the logins between brokers are not supported yet, expected "
                "no class; see docs/not-yet.md"
            ),
        ),
        (
            {"remote.log.storage.system.enable": "true"},
            "Expected false; tiered storage is not supported, see docs/not-yet.md",
        ),
        (
            {"zookeeper.metadata.migration.enable": "true"},
            "Expected false; migration to KRaft is not supported",
        ),
    ],
)
def test_a_missing_feature_is_named(settings: dict[str, str], expected: str) -> None:
    ((key, value),) = settings.items()
    with pytest.raises(ConfigErrors) as failure:
        BrokerConfig.from_properties(settings)
    assert str(failure.value) == f"Invalid value {value} for configuration {key}: {expected}"


def test_embedded_store_is_announced() -> None:
    assert any("embedded store" in notice for notice in BrokerConfig.from_properties({}).notices)
    with_zookeeper = BrokerConfig.from_properties({"zookeeper.connect": "localhost:2181"})
    assert not any("embedded store" in notice for notice in with_zookeeper.notices)


def test_effective_values_hide_passwords() -> None:
    values = dict(BrokerConfig.from_properties({"ssl.key.password": "secret", "broker.id": "4"}).effective_values())
    assert values["ssl.key.password"] == "[hidden]"
    assert values["broker.id"] == "4"
    assert values["broker.rack"] is None
    assert list(values) == sorted(values)


NAMES = st.sampled_from([*BROKER_PROPERTIES, *RENAMED, "port", "listener.name.a.ssl.key.password", "no.such.key"])
VALUES = st.one_of(
    st.text(max_size=20),
    st.integers().map(str),
    st.sampled_from(["true", "PLAINTEXT://:1", "a,b", "${env:HOME}", "SSL://[::1]:0", "A:SSL,B:PLAINTEXT"]),
)


@given(st.dictionaries(NAMES, VALUES, max_size=6))
def test_any_settings_give_a_broker_or_config_errors(settings: dict[str, str]) -> None:
    try:
        config = BrokerConfig.from_properties(settings)
    except ConfigErrors as failure:
        lines, count = str(failure).splitlines(), len(failure.errors)
    else:
        lines, count = [], 0
        assert config.listeners
        assert config.inter_broker_listener in config.advertised_listeners
    assert len(lines) == count


class TestDynamicLayers:
    """Values that change while the broker runs."""

    def test_dynamic_broker_value_overrides_cluster_default_overrides_file(self) -> None:
        config = BrokerConfig.from_properties({"log.cleaner.threads": "2", "message.max.bytes": "1000"})
        config.apply_dynamic(
            default={"log.cleaner.threads": "3", "message.max.bytes": "2000"}, broker={"log.cleaner.threads": "4"}
        )
        assert config[rows.LOG_CLEANER_THREADS] == 4
        assert config[rows.MESSAGE_MAX_BYTES] == 2000
        config.apply_dynamic(default={}, broker={})
        assert config[rows.LOG_CLEANER_THREADS] == 2
        assert config[rows.MESSAGE_MAX_BYTES] == 1000

    def test_invalid_change_changes_nothing(self) -> None:
        config = BrokerConfig.from_properties({})
        config.apply_dynamic(default={"message.max.bytes": "2000"}, broker={})
        with pytest.raises(ConfigErrors):
            config.apply_dynamic(default={}, broker={"message.max.bytes": "3000", "num.io.threads": "0"})
        with pytest.raises(ConfigErrors):
            config.apply_dynamic(default={}, broker={"listeners": "nonsense"})
        assert config[rows.MESSAGE_MAX_BYTES] == 2000
        assert config.dynamic_default == {"message.max.bytes": "2000"}

    def test_dynamic_listeners_replace_the_configured_ones(self) -> None:
        config = BrokerConfig.from_properties({})
        config.apply_dynamic(default={}, broker={"listeners": "PLAINTEXT://:7"})
        assert [listener.port for listener in config.listeners] == [7]


@pytest.mark.parametrize(
    ("static", "overrides", "folders", "is_warned"),
    [
        ({"log.dir": "/a"}, {}, ["/a"], False),
        ({"log.dir": "/a", "log.dirs": "/b,/c"}, {}, ["/b", "/c"], True),
        ({"log.dir": "/a"}, {"log.dirs": "/b"}, ["/b"], False),
        ({"log.dirs": "/b"}, {"log.dir": "/a"}, ["/b"], True),
        ({"log.dir": "/a", "log.dirs": "/b"}, {"log.dirs": "/c"}, ["/c"], False),
        ({}, {"log.dir": "/a", "log.dirs": "/b"}, ["/b"], True),
    ],
)
def test_a_folder_that_does_not_count_is_named(
    static: dict[str, str], overrides: dict[str, str], folders: list[str], is_warned: bool
) -> None:
    config = BrokerConfig.from_properties(static, overrides)
    assert config.log_dirs == folders
    assert config.warnings == (["log.dir is ignored, because log.dirs is set"] if is_warned else [])


class TestSamples:
    """The files that are shipped."""

    @pytest.mark.parametrize("key", ["log.dir", "log.dirs"])
    def test_lines_that_quick_starts_append_to_server_properties_count(self, key: str) -> None:
        text = (SAMPLES / "server.properties").read_text()
        appended = f"\nbroker.id=1\nport=9093\n{key}=/tmp/kafka-logs-1\n"
        config = BrokerConfig.from_properties(properties.parse(text + appended))
        assert (config[rows.BROKER_ID], config.log_dirs) == (1, ["/tmp/kafka-logs-1"])
        assert [listener.port for listener in config.listeners] == [9093]

    def test_server_properties_is_a_single_broker(self) -> None:
        config = BrokerConfig.from_properties(properties.load(SAMPLES / "server.properties"))
        assert config.warnings == []
        assert config[rows.BROKER_ID] == 0
        assert config.log_dirs == ["var/data"]  # not a folder that every user of the machine shares
        assert config[rows.OFFSETS_TOPIC_REPLICATION_FACTOR] == 1
        assert config[rows.TRANSACTION_STATE_LOG_REPLICATION_FACTOR] == 1
        assert config[rows.TRANSACTION_STATE_LOG_MIN_ISR] == 1
        assert config[rows.GROUP_INITIAL_REBALANCE_DELAY_MS] == 0

    @pytest.mark.parametrize(
        "overrides",
        [
            {"broker.id": "1", "port": "9093", "log.dir": "/tmp/kafka-logs-1"},
            {"broker.id": "1", "listeners": "PLAINTEXT://:9093", "log.dirs": "/tmp/kafka-logs-1"},
        ],
    )
    def test_quick_start_overrides_work(self, overrides: dict[str, str]) -> None:
        config = BrokerConfig.from_properties(properties.load(SAMPLES / "server.properties"), overrides)
        assert [listener.port for listener in config.listeners] == [9093]

    @pytest.mark.parametrize(
        ("changed", "retired"),
        [
            ({}, 4),
            # Kafka 0.9 renamed the interval of the cleaner's checks and dropped the limit of messages.
            ({"log.cleanup.interval.mins": None, "replica.lag.max.messages": None, "log.cleaner.enable": "false"}, 2),
        ],
        ids=["0.8", "0.9"],
    )
    def test_production_settings_of_old_releases_load_with_warnings_only(
        self, changed: dict[str, str | None], retired: int
    ) -> None:
        settings = {
            "num.replica.fetchers": "4",
            "replica.fetch.max.bytes": "1048576",
            "replica.fetch.wait.max.ms": "500",
            "replica.high.watermark.checkpoint.interval.ms": "5000",
            "replica.socket.timeout.ms": "30000",
            "replica.socket.receive.buffer.bytes": "65536",
            "replica.lag.time.max.ms": "10000",
            "replica.lag.max.messages": "4000",
            "controller.socket.timeout.ms": "30000",
            "controller.message.queue.size": "10",
            "num.partitions": "8",
            "message.max.bytes": "1000000",
            "auto.create.topics.enable": "true",
            "log.index.interval.bytes": "4096",
            "log.index.size.max.bytes": "10485760",
            "log.retention.hours": "168",
            "log.flush.interval.ms": "10000",
            "log.flush.interval.messages": "20000",
            "log.flush.scheduler.interval.ms": "2000",
            "log.roll.hours": "168",
            "log.cleanup.interval.mins": "30",
            "log.segment.bytes": "1073741824",
            "zookeeper.connection.timeout.ms": "1000000",
            "zookeeper.sync.time.ms": "2000",
            "num.io.threads": "8",
            "num.network.threads": "8",
            "socket.request.max.bytes": "104857600",
            "socket.receive.buffer.bytes": "1048576",
            "socket.send.buffer.bytes": "1048576",
            "queued.max.requests": "16",
            "fetch.purgatory.purge.interval.requests": "100",
            "producer.purgatory.purge.interval.requests": "100",
        }
        settings = {key: value for key, value in {**settings, **changed}.items() if value is not None}
        config = BrokerConfig.from_properties(settings)
        assert config[rows.NUM_PARTITIONS] == 8
        without_effect = [warning for warning in config.warnings if "has no effect" in warning]
        known = [rows.BROKER_PROPERTIES[key] for key in settings if key in rows.BROKER_PROPERTIES]
        assert len(without_effect) == sum(row.no_effect is not None for row in known)
        assert len(config.warnings) - len(without_effect) == retired

    def test_sample_of_3_9_loads(self) -> None:
        settings = {
            "broker.id": "0",
            "num.network.threads": "3",
            "num.io.threads": "8",
            "socket.send.buffer.bytes": "102400",
            "socket.receive.buffer.bytes": "102400",
            "socket.request.max.bytes": "104857600",
            "log.dirs": "/tmp/kafka-logs",
            "num.partitions": "1",
            "num.recovery.threads.per.data.dir": "1",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "log.retention.hours": "168",
            "log.retention.check.interval.ms": "300000",
            "zookeeper.connect": "localhost:2181",
            "zookeeper.connection.timeout.ms": "18000",
            "group.initial.rebalance.delay.ms": "0",
        }
        (warning,) = BrokerConfig.from_properties(settings).warnings
        assert warning.startswith("num.network.threads has no effect")

    def test_a_wrong_broker_id_is_reported_under_the_name_that_was_set(self) -> None:
        for key in ("broker.id", "node.id"):
            with pytest.raises(ConfigErrors) as failure:
                BrokerConfig.from_properties({key: "many"})
            assert [error.key for error in failure.value.errors] == [key]
