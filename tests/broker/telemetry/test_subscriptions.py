"""What a subscription to metrics of clients may say, with Kafka's codes and texts."""

from __future__ import annotations

import pytest

from broker.telemetry.subscriptions import subscription_of
from protocol.errors import ErrorCode, KafkaError

CLIENT = {
    "client_instance_id": "id",
    "client_id": "billing-1",
    "client_software_name": "apache-kafka-java",
    "client_software_version": "4.1.0",
    "client_source_address": "10.1.2.3",
    "client_source_port": "5000",
}


def test_settings_have_defaults() -> None:
    found = subscription_of("s", {"metrics": "a, b"})
    assert (found.metrics, found.interval_ms, found.match) == (("a", "b"), 300_000, {})


@pytest.mark.parametrize(
    ("match", "is_matched"),
    [
        ("", True),
        ("client_id=billing-.*", True),
        ("client_id=billing", False),
        ("client_software_name=.*java,client_software_version=4\\..*", True),
        ("client_software_name=.*java , client_software_version=3.*", False),
    ],
)
def test_all_patterns_match_whole_texts(match: str, is_matched: bool) -> None:
    assert subscription_of("s", {"match": match}).matches(CLIENT) is is_matched


def test_a_pattern_takes_linear_time() -> None:
    """A backtracking search of this text would not end."""
    exploding = subscription_of("s", {"match": "client_id=(a+)+b"})
    assert not exploding.matches({**CLIENT, "client_id": "a" * 10_000})


def test_what_a_client_lacks_matches_nothing() -> None:
    assert not subscription_of("s", {"match": "client_id=.*"}).matches({**CLIENT, "client_id": None})


@pytest.mark.parametrize(
    ("name", "settings", "code", "text"),
    [
        ("", {}, "INVALID_REQUEST", "Subscription name can't be empty"),
        ("s", {"x": "1"}, "INVALID_REQUEST", "Unknown client metrics configuration: x"),
        ("s", {"interval.ms": "99"}, "INVALID_REQUEST", "Invalid value 99 for interval.ms, interval must be between"),
        ("s", {"interval.ms": "3600001"}, "INVALID_REQUEST", "Invalid value 3600001 for interval.ms"),
        ("s", {"interval.ms": "soon"}, "INVALID_CONFIG", "Invalid value soon for configuration interval.ms"),
        ("s", {"match": "client_id"}, "INVALID_CONFIG", "Illegal client matching pattern: client_id"),
        ("s", {"match": "client_id=a=b"}, "INVALID_CONFIG", "Illegal client matching pattern: client_id=a=b"),
        ("s", {"match": "host=a"}, "INVALID_CONFIG", "Illegal client matching pattern: host=a"),
        ("s", {"match": "client_id=("}, "INVALID_CONFIG", "Illegal client matching pattern: client_id=("),
        ("s", {"match": "client_id=(?!a).*"}, "INVALID_CONFIG", "Illegal client matching pattern: client_id=(?!a)"),
        ("s", {"match": f"client_id={'a' * 1001}"}, "INVALID_CONFIG", "Illegal client matching pattern: "),
    ],
)
def test_invalid_settings_are_refused(name: str, settings: dict[str, str], code: str, text: str) -> None:
    with pytest.raises(KafkaError) as caught:
        subscription_of(name, settings)
    assert caught.value.code is ErrorCode[code]
    assert caught.value.message.startswith(text)
