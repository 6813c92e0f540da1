"""Which dynamic changes are refused, by a table, and what of a stored layer is left out."""

import pytest

from broker.settings.dynamic_config import check_change, contradicting, usable
from config.broker import BrokerConfig
from config.broker_properties import BROKER_PROPERTIES
from config.definition import ConfigError, ConfigErrors, UpdateMode, Visibility
from config.documentation import page
from protocol.errors import ErrorCode, KafkaError

STATIC = {"num.io.threads": "8", "log.cleaner.threads": "1", "background.threads": "3"}

REFUSED = [
    ({"broker.rack": "a"}, True, "Cannot update these configs dynamically: Set(broker.rack)"),
    ({"console.write.enable": "true"}, False, "Cannot update these configs dynamically: Set(console.write.enable)"),
    (
        {"log.retention.hours": "1", "broker.id": "2"},
        True,
        "Cannot update these configs dynamically: Set(broker.id, log.retention.hours)",
    ),
    (
        {"ssl.keystore.location": "/k"},
        True,
        (
            "These security configs can be dynamically updated only per-listener using the listener prefix: "
            "Set(ssl.keystore.location)"
        ),
    ),
    (
        {"listener.name.tls.ssl.keystore.location": "/k"},
        False,
        (
            "Cannot update these configs at default cluster level, broker id must be specified: "
            "Set(listener.name.tls.ssl.keystore.location)"
        ),
    ),
    (
        {"message.max.bytes": "many"},
        True,
        "Invalid value many for configuration message.max.bytes: Not a number of type INT",
    ),
    (
        {"log.cleaner.dedupe.buffer.size": "1048576"},
        False,
        (
            "Invalid value 1048576 for configuration log.cleaner.dedupe.buffer.size: "
            "Value must be more than 1048576 for each of the log.cleaner.threads (1)"
        ),
    ),
    (
        {"num.io.threads": "17"},
        True,
        (
            "Dynamic thread count update validation failed for num.io.threads=17, "
            "value should not be greater than double the current value 8"
        ),
    ),
    (
        {"num.io.threads": "3"},
        True,
        (
            "Dynamic thread count update validation failed for num.io.threads=3, "
            "value should be at least half the current value 8"
        ),
    ),
    (
        {"log.cleaner.threads": "0"},
        True,
        "Dynamic thread count update validation failed for log.cleaner.threads=0, value should be at least 1",
    ),
    (
        {"listeners": "PLAINTEXT://:1"},
        False,
        "Cannot update these configs at default cluster level, broker id must be specified: Set(listeners)",
    ),
    (
        {"sasl.enabled.mechanisms": "PLAIN"},
        True,
        (
            "These configs need a restart of the broker to change, set them in its properties file: "
            "Set(sasl.enabled.mechanisms)"
        ),
    ),
    (
        {"metric.reporters": "os:Path"},
        True,
        "These configs need a restart of the broker to change, set them in its properties file: Set(metric.reporters)",
    ),
    (
        {"listener.name.new.principal.builder.class": "os:Path"},
        True,
        (
            "These configs need a restart of the broker to change, set them in its properties file: "
            "Set(listener.name.new.principal.builder.class)"
        ),
    ),
    (
        {"listener.name.plaintext.sasl.enabled.mechanisms": "PLAIN"},
        True,
        (
            "Configs cannot be updated dynamically for existing listeners, restart the broker or create a new "
            "listener: Set(listener.name.plaintext.sasl.enabled.mechanisms)"
        ),
    ),
    (
        {"listener.security.protocol.map": "PLAINTEXT:SSL"},
        True,
        "Security protocol cannot be updated for existing listener PLAINTEXT",
    ),
]

ACCEPTED = [
    ({}, False),
    ({"num.io.threads": "16"}, True),
    ({"num.io.threads": "4"}, True),
    ({"background.threads": "1"}, True),
    ({"message.max.bytes": "2000000", "log.cleaner.threads": "2"}, False),
    ({"listener.name.tls.ssl.keystore.location": "/k"}, True),
    ({"leader.replication.throttled.rate": "1000"}, True),
    ({"listeners": "PLAINTEXT://:1"}, True),
    ({"listener.name.new.sasl.enabled.mechanisms": "PLAIN"}, True),
    ({"my.plugin.setting": "x"}, False),
    ({"super.users": "User:a", "allow.everyone.if.no.acl.found": "true"}, False),
    ({"authorizer.zookeeper.url": "host:2181", "authorizer.zookeeper.session.timeout.ms": "1000"}, True),
    ({"sasl.kerberos.min.time.before.relogin": "58000"}, True),
    ({"sasl.login.refresh.window.factor": "0.5"}, True),
]

OWN_READ_ONLY = [
    name
    for name, row in BROKER_PROPERTIES.items()
    if row.visibility is Visibility.FOREIGN
    and row.update_mode is UpdateMode.READ_ONLY
    and not name.startswith(("super.users", "allow.everyone.if.no.acl.found", "authorizer.zookeeper."))
]


@pytest.mark.parametrize(("proposed", "per_broker", "message"), REFUSED)
def test_invalid_change_fails_with_invalid_request(proposed: dict[str, str], per_broker: bool, message: str) -> None:
    config = BrokerConfig.from_properties(STATIC)
    with pytest.raises(KafkaError) as refused:
        check_change(config, proposed, per_broker=per_broker)
    assert (refused.value.code, refused.value.message) == (ErrorCode.INVALID_REQUEST, message)


@pytest.mark.parametrize("per_broker", [True, False])
@pytest.mark.parametrize("key", OWN_READ_ONLY)
def test_own_setting_that_needs_a_restart_is_refused_and_ignored_if_it_was_stored(key: str, per_broker: bool) -> None:
    config = BrokerConfig.from_properties(STATIC)
    with pytest.raises(KafkaError) as refused:
        check_change(config, {key: "1"}, per_broker=per_broker)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert refused.value.message == f"Cannot update these configs dynamically: Set({key})"
    assert usable({key: "1"}, per_broker=per_broker) == ({}, [f"{key} does not change without a restart"])
    assert "| restart |" in row_of_page(key)


@pytest.mark.parametrize(("proposed", "per_broker"), ACCEPTED)
def test_valid_change_is_accepted_and_not_applied(proposed: dict[str, str], per_broker: bool) -> None:
    config = BrokerConfig.from_properties(STATIC)
    check_change(config, proposed, per_broker=per_broker)
    assert not config.dynamic_broker
    assert not config.dynamic_default


def test_the_layer_that_is_not_changed_counts_as_well() -> None:
    config = BrokerConfig.from_properties(STATIC)
    config.apply_dynamic(default={}, broker={"log.cleaner.threads": "4"})
    with pytest.raises(KafkaError, match=r"log\.cleaner\.threads \(4\)"):
        check_change(config, {"log.cleaner.dedupe.buffer.size": "3000000"}, per_broker=False)


@pytest.mark.parametrize(
    ("key", "text", "per_broker", "is_kept"),
    [
        ("message.max.bytes", "5", False, True),
        ("message.max.bytes", "many", True, False),
        ("broker.rack", "a", True, False),
        ("ssl.keystore.location", "/k", True, False),
        ("leader.replication.throttled.rate", "5", True, True),
        ("leader.replication.throttled.rate", "5", False, False),
        ("advertised.listeners", "PLAINTEXT://h:1", True, True),
        ("sasl.enabled.mechanisms", "PLAIN", True, False),
        ("listener.name.new.sasl.enabled.mechanisms", "PLAIN", True, True),
        ("metric.reporters", "os:Path", False, False),
        ("num.io.threads", "4000", True, True),
        ("my.plugin.setting", "x", True, True),
        ("super.users", "User:a", False, True),
    ],
)
def test_stored_setting_that_is_not_dynamic_is_dropped_with_a_problem(
    key: str, text: str, per_broker: bool, is_kept: bool
) -> None:
    kept, problems = usable({key: text, "compression.type": "gzip"}, per_broker=per_broker)
    assert kept == ({key: text} if is_kept else {}) | {"compression.type": "gzip"}
    assert [key in problem for problem in problems] == ([] if is_kept else [True])


@pytest.mark.parametrize(
    ("default", "broker", "left_out"),
    [
        ({"log.cleaner.threads": "200", "log.retention.ms": "-1"}, {}, {"log.cleaner.threads"}),
        (
            {"log.cleaner.threads": "4"},
            {"log.cleaner.dedupe.buffer.size": "3000000", "log.cleaner.io.buffer.size": "9999"},
            {"log.cleaner.threads", "log.cleaner.dedupe.buffer.size"},
        ),
        ({}, {"listeners": "INTERNAL://:1", "message.max.bytes": "9"}, {"listeners"}),
        ({"log.cleaner.threads": "many"}, {"message.max.bytes": "9"}, {"log.cleaner.threads"}),
    ],
)
def test_settings_that_take_part_in_a_contradiction(
    default: dict[str, str], broker: dict[str, str], left_out: set[str]
) -> None:
    with pytest.raises(ConfigErrors) as failure:
        BrokerConfig(STATIC, default, broker)
    assert contradicting(failure.value.errors, default, broker).keys() == left_out


def test_contradiction_that_names_no_dynamic_setting_leaves_out_one_layer() -> None:
    default, broker = {"log.retention.ms": "-1"}, {"message.max.bytes": "9"}
    errors = [ConfigError("broker.id", "5", "something else")]
    assert contradicting(errors, default, broker).keys() == broker.keys()
    assert contradicting(errors, default, {}).keys() == default.keys()


def row_of_page(key: str) -> str:
    return next(line for line in page().splitlines() if line.startswith(f"| `{key}` |"))


@pytest.mark.parametrize(("key", "value"), [("metric.reporters", "a:B"), ("sasl.enabled.mechanisms", "PLAIN")])
def test_page_of_settings_says_which_changes_are_refused_and_why(key: str, value: str) -> None:
    config = BrokerConfig.from_properties({"listeners": "PLAINTEXT://:0"})
    with pytest.raises(KafkaError):
        check_change(config, {key: value}, per_broker=key.startswith("sasl."))
    assert "| restart |" in row_of_page(key)
    assert "**Restart**, unlike in Kafka: " in row_of_page(key)


def test_page_of_settings_says_which_changes_of_sasl_are_applied() -> None:
    config = BrokerConfig.from_properties({"listeners": "PLAINTEXT://:0"})
    check_change(config, {"sasl.login.refresh.window.factor": "0.7"}, per_broker=True)
    assert "| broker |" in row_of_page("sasl.login.refresh.window.factor")
