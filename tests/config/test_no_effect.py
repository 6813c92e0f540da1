"""What the log says of settings that have no effect."""

import pytest

from config.broker import BrokerConfig
from config.broker_properties import BROKER_PROPERTIES
from config.definition import ConfigErrors, NoEffect, Visibility
from config.no_effect import LINES_MAX


def warnings(**settings: str) -> list[str]:
    return BrokerConfig.from_properties({key.replace("_", "."): value for key, value in settings.items()}).warnings


def test_each_set_setting_is_named_with_its_reason() -> None:
    assert warnings(num_network_threads="3", controller_quorum_voters="1@a:1", num_partitions="2") == [
        f"num.network.threads has no effect: {NoEffect.ONE_EVENT_LOOP.value}",
        f"controller.quorum.voters has no effect: {NoEffect.KRAFT.value}",
    ]


def test_lines_are_grouped_by_reason() -> None:
    keys = [
        "controller.quorum.fetch.timeout.ms",
        "alter.log.dirs.replication.quota.window.num",
        "controller.quorum.election.timeout.ms",
        "alter.log.dirs.replication.quota.window.size.seconds",
    ]
    lines = BrokerConfig.from_properties(dict.fromkeys(keys, "1000")).warnings
    assert [line.split()[0] for line in lines] == [
        "alter.log.dirs.replication.quota.window.num",
        "alter.log.dirs.replication.quota.window.size.seconds",
        "controller.quorum.election.timeout.ms",
        "controller.quorum.fetch.timeout.ms",
    ]


def test_reporters_in_java_are_not_silently_ignored() -> None:
    with pytest.raises(ConfigErrors, match=r"io.example.Reporter .* metric.reporters: .* package.module:Class"):
        warnings(metric_reporters="io.example.Reporter")
    assert warnings(metric_reporters="org.apache.kafka.common.metrics.JmxReporter") == []


def test_known_reporters_in_java_are_named_in_one_warning() -> None:
    confluent = "io.confluent.metrics.reporter.ConfluentMetricsReporter"
    cruise_control = "com.linkedin.kafka.cruisecontrol.metricsreporter.CruiseControlMetricsReporter"
    strimzi = "io.strimzi.kafka.metrics.YammerPrometheusMetricsReporter"
    jmx = "org.apache.kafka.common.metrics.JmxReporter"
    assert warnings(metric_reporters=f"{confluent},{jmx},{cruise_control}", kafka_metrics_reporters=strimzi) == [
        (
            f"not loaded, because they are Java classes: {confluent}, {cruise_control}, {strimzi}. The metrics are at "
            "metrics.http.listener (docs/metrics.md)"
        )
    ]


def test_overrides_are_named_like_the_file() -> None:
    (line,) = BrokerConfig.from_properties({}, {"num.network.threads": "5"}).warnings
    assert line.startswith("num.network.threads has no effect")


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("listener.name.internal.ssl.provider", NoEffect.JAVA),
        ("listener.name.internal.gssapi.sasl.kerberos.kinit.cmd", NoEffect.KINIT),
        ("listener.name.internal.message.max.bytes", NoEffect.NOT_PER_LISTENER),
        ("rsm.config.bucket", NoEffect.TIERED_STORAGE),
        ("rlmm.config.topic", NoEffect.TIERED_STORAGE),
    ],
)
def test_keys_with_prefixes_are_named(key: str, reason: NoEffect) -> None:
    assert BrokerConfig.from_properties({key: "7"}).warnings == [f"{key} has no effect: {reason.value}"]


def test_more_settings_than_lines_are_all_named() -> None:
    settings = {
        row.name: str(row.default)
        for row in BROKER_PROPERTIES.values()
        if row.no_effect is not None and isinstance(row.default, int) and row.visibility is Visibility.DESCRIBED
    }
    settings = {key: value.lower() for key, value in settings.items()}
    assert len(settings) > LINES_MAX
    lines = BrokerConfig.from_properties(settings).warnings
    assert len(lines) <= LINES_MAX + len(NoEffect)
    assert {key for key in settings if any(key in line for line in lines)} == settings.keys()


def test_values_are_not_logged() -> None:
    lines = warnings(metrics_recording_level="hidden", ssl_provider="hidden", sasl_kerberos_kinit_cmd="hidden")
    assert len(lines) == 3
    assert not any("User:hidden" in line or "hidden" in line for line in lines)


@pytest.mark.parametrize("version", ["0.8.0", "0.9.0", "0.10.2", "0.10.2-IV0"])
def test_an_old_message_format_is_ignored_in_the_words_of_kafka(version: str) -> None:
    because = (
        "because the inter-broker protocol version `3.9-IV0` is greater or equal than 3.0. "
        "This configuration is deprecated and it will be removed in Apache Kafka 4.0."
    )
    (of_broker,) = warnings(log_message_format_version=version)
    assert of_broker == f"Broker configuration log.message.format.version with value `{version}` is ignored {because}"
    config = BrokerConfig.from_properties({})
    (of_topic,) = config.without_effect_on_topic("t", {"message.format.version": f" {version} "})
    assert of_topic == f"Topic configuration message.format.version with value `{version}` is ignored for `t` {because}"


@pytest.mark.parametrize("version", ["0.11.0", "2.8", "3.0-IV1", "3.9"])
def test_a_message_format_that_is_stored_anyway_has_no_effect(version: str) -> None:
    assert warnings(log_message_format_version=version) == [
        f"log.message.format.version has no effect: {NoEffect.RECORD_FORMAT.value}"
    ]
    assert BrokerConfig.from_properties({}).without_effect_on_topic("t", {"message.format.version": version}) == [
        f"message.format.version of topic t has no effect: {NoEffect.RECORD_FORMAT.value}"
    ]


def test_kafkas_warning_is_not_used_with_an_old_protocol_version() -> None:
    lines = warnings(log_message_format_version="0.10.2", inter_broker_protocol_version="2.8")
    assert f"log.message.format.version has no effect: {NoEffect.RECORD_FORMAT.value}" in lines


@pytest.mark.parametrize("version", ["0.7", "9.9", "0.10.2-IV9", "new"])
def test_unknown_message_format_is_rejected(version: str) -> None:
    with pytest.raises(ConfigErrors, match=rf"Version {version} is not a valid version"):
        warnings(log_message_format_version=version)


def test_overrides_of_topics_are_named_if_they_have_no_effect() -> None:
    overrides = {"retention.ms": "1", "local.retention.ms": "1", "message.format.version": "3.9"}
    assert BrokerConfig.from_properties({}).without_effect_on_topic("t", overrides) == [
        f"local.retention.ms of topic t has no effect: {NoEffect.TIERED_STORAGE.value}",
        f"message.format.version of topic t has no effect: {NoEffect.RECORD_FORMAT.value}",
    ]
