"""Listener settings: what they mean together, and what is refused."""

import pytest

from config.broker import BrokerConfig
from config.definition import ConfigErrors
from config.listeners import Listener, SecurityProtocol

PLAINTEXT, SSL = SecurityProtocol.PLAINTEXT, SecurityProtocol.SSL
TWO = {
    "listeners": "CLIENT://:9092,BROKER://10.0.0.1:9093",
    "listener.security.protocol.map": "client:ssl, BROKER:PLAINTEXT",
}


def config(**settings: str) -> BrokerConfig:
    return BrokerConfig.from_properties({key.replace("_", "."): value for key, value in settings.items()})


@pytest.mark.parametrize(
    ("text", "listeners"),
    [
        ("PLAINTEXT://:9092", [Listener("PLAINTEXT", "", 9092, PLAINTEXT)]),
        (" plaintext://localhost:0 ", [Listener("PLAINTEXT", "localhost", 0, PLAINTEXT)]),
        ("PLAINTEXT://[::1]:9092", [Listener("PLAINTEXT", "::1", 9092, PLAINTEXT)]),
        (
            "PLAINTEXT://127.0.0.1:9092,SSL://[::1]:9092",
            [Listener("PLAINTEXT", "127.0.0.1", 9092, PLAINTEXT), Listener("SSL", "::1", 9092, SSL)],
        ),
        (
            "PLAINTEXT://:0,SSL://:0",
            [Listener("PLAINTEXT", "", 0, PLAINTEXT), Listener("SSL", "", 0, SSL)],
        ),
    ],
)
def test_listeners_are_read(text: str, listeners: list[Listener]) -> None:
    read = config(listeners=text)
    assert list(read.listeners) == listeners
    assert read.advertised_listeners == read.listeners


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "At least one listener is needed"),
        ("localhost:9092", "Expected NAME://host:port, found 'localhost:9092'"),
        ("PLAINTEXT://localhost", "Expected NAME://host:port, found 'PLAINTEXT://localhost'"),
        ("PLAINTEXT://a_b c:1", "Expected NAME://host:port, found 'PLAINTEXT://a_b c:1'"),
        ("PLAINTEXT://:65536", "Expected a port from 0 to 65535, found 65536"),
        ("PLAINTEXT://:-1", "Expected a port from 0 to 65535, found -1"),
        ("PLAINTEXT://:99999999999999999999", "Expected a port from 0 to 65535, found 99999999999999999999"),
        ("CLIENT://:9092", "No security protocol defined for listener CLIENT"),
        ("PLAINTEXT://:1,PLAINTEXT://:2", "Each listener must have a different name, found PLAINTEXT more than once"),
        ("PLAINTEXT://:1,SSL://:1", "Each listener must have a different port, found 1 more than once"),
        ("PLAINTEXT://a:1,SSL://b:1", "Each listener must have a different port, found 1 more than once"),
        (
            "PLAINTEXT://0.0.0.0:1",
            "Clients cannot reach the address 0.0.0.0; set advertised.listeners to a routable one",
        ),
    ],
)
def test_invalid_listeners_are_rejected(text: str, expected: str) -> None:
    with pytest.raises(ConfigErrors) as failure:
        config(listeners=text)
    assert str(failure.value) == f"Invalid value {text} for configuration listeners: {expected}"


def test_names_have_protocols() -> None:
    read = BrokerConfig.from_properties({**TWO, "inter.broker.listener.name": "broker"})
    assert [listener.security_protocol for listener in read.listeners] == [SSL, PLAINTEXT]
    assert read.inter_broker_listener.host == "10.0.0.1"


def test_the_control_plane_has_a_listener_of_its_own() -> None:
    with_names = {**TWO, "inter.broker.listener.name": "BROKER"}
    assert BrokerConfig.from_properties(with_names).control_plane_listener is None
    read = BrokerConfig.from_properties({**with_names, "control.plane.listener.name": "client"})
    assert read.control_plane_listener == Listener("CLIENT", "", 9092, SSL)


def test_all_addresses_can_be_bound_when_another_is_advertised() -> None:
    read = config(listeners="PLAINTEXT://0.0.0.0:9092", advertised_listeners="PLAINTEXT://broker1:19092")
    assert [str(listener) for listener in read.listeners] == ["PLAINTEXT://0.0.0.0:9092"]
    assert [str(listener) for listener in read.advertised_listeners] == ["PLAINTEXT://broker1:19092"]


def test_ipv6_is_written_in_brackets() -> None:
    assert str(Listener("A", "::1", 1, PLAINTEXT)) == "A://[::1]:1"


@pytest.mark.parametrize(
    ("settings", "key", "expected"),
    [
        ({"advertised.listeners": "SSL://a:1"}, "advertised.listeners", "Only names of listeners (PLAINTEXT)"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "advertised.listeners", "0.0.0.0"),
        ({"advertised.listeners": ""}, "advertised.listeners", "At least one"),
        ({"advertised.listeners": "PLAINTEXT://a:1,PLAINTEXT://b:1"}, "advertised.listeners", "different name"),
        ({"listener.security.protocol.map": "PLAINTEXT:TLS"}, "listener.security.protocol.map", "PLAINTEXT:TLS"),
        ({"listener.security.protocol.map": "SSL:SSL"}, "listeners", "No security protocol"),
        (TWO, "security.inter.broker.protocol", "found CLIENT, BROKER"),
        ({"inter.broker.listener.name": "OTHER"}, "inter.broker.listener.name", "found PLAINTEXT"),
        (
            {"inter.broker.listener.name": "PLAINTEXT", "security.inter.broker.protocol": "PLAINTEXT"},
            "inter.broker.listener.name",
            "Only one of it and security.inter.broker.protocol may be set",
        ),
        (
            {"control.plane.listener.name": "control"},
            "control.plane.listener.name",
            "Listener with CONTROL defined in control.plane.listener.name not found in listener.security.protocol.map.",
        ),
        (
            {"control.plane.listener.name": "SSL"},
            "control.plane.listener.name",
            (
                "control.plane.listener.name must be a listener name defined in advertised.listeners. "
                "The valid options based on currently configured listeners are PLAINTEXT"
            ),
        ),
        (
            {"control.plane.listener.name": "PLAINTEXT"},
            "control.plane.listener.name",
            (
                "control.plane.listener.name, when defined, should have a different value from the inter broker "
                "listener name. Currently they both have the value PLAINTEXT"
            ),
        ),
        (
            {
                **TWO,
                "inter.broker.listener.name": "BROKER",
                "control.plane.listener.name": "CLIENT",
                "advertised.listeners": "BROKER://b:2",
            },
            "control.plane.listener.name",
            (
                "must be a listener name defined in advertised.listeners. "
                "The valid options based on currently configured listeners are BROKER"
            ),
        ),
    ],
)
def test_names_must_fit_together(settings: dict[str, str], key: str, expected: str) -> None:
    with pytest.raises(ConfigErrors) as failure:
        BrokerConfig.from_properties(settings)
    (error,) = failure.value.errors
    assert error.key == key
    assert expected in str(error)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("listeners", ",".join(f"A{number}://:{number}" for number in range(1, 102))),
        ("listener.security.protocol.map", "A:SSL," * 101),
    ],
)
def test_too_many_elements_are_rejected_without_repeating_them(key: str, value: str) -> None:
    with pytest.raises(ConfigErrors, match="Expected at most 100 elements") as failure:
        BrokerConfig.from_properties({key: value})
    assert len(str(failure.value)) < 500


KRAFT = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "listeners": "SASL_PLAINTEXT://:9092,CONTROLLER://:9093",
    "advertised.listeners": "SASL_PLAINTEXT://broker1:9092,controller://broker1:9093",
    "inter.broker.listener.name": "SASL_PLAINTEXT",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
}


@pytest.mark.parametrize("left_out", [None, "listener.security.protocol.map", "advertised.listeners", "process.roles"])
def test_listeners_of_raft_controllers_are_not_opened(left_out: str | None) -> None:
    read = BrokerConfig.from_properties({key: value for key, value in KRAFT.items() if key != left_out})
    assert [str(listener) for listener in read.listeners] == ["SASL_PLAINTEXT://:9092"]
    assert [listener.name for listener in read.advertised_listeners] == ["SASL_PLAINTEXT"]
    (warning,) = [line for line in read.warnings if "controller.listener.names" in line]
    assert warning.startswith("listener CONTROLLER://:9093 is not opened")


def test_brokers_do_not_reach_each_other_by_a_controllers_listener() -> None:
    with pytest.raises(ConfigErrors, match="found SASL_PLAINTEXT"):
        BrokerConfig.from_properties({**KRAFT, "inter.broker.listener.name": "CONTROLLER"})


def test_a_changed_list_of_listeners_does_not_open_one_of_a_controller() -> None:
    read = BrokerConfig.from_properties(KRAFT)
    read.apply_dynamic(default={}, broker={"listeners": "SASL_PLAINTEXT://:9092,CONTROLLER://:9094"})
    assert [listener.port for listener in read.listeners] == [9092]


@pytest.mark.parametrize(
    ("changed", "key", "expected"),
    [
        (
            {"listeners": "CONTROLLER://:9093"},
            "listeners",
            "At least one listener is needed besides those of controller.listener.names",
        ),
        (
            {"controller.listener.names": " "},
            "controller.listener.names",
            "expected the names of its listeners among SASL_PLAINTEXT, CONTROLLER",
        ),
        ({"process.roles": "controller"}, "process.roles", "Expected broker"),
    ],
)
def test_a_file_of_a_controller_that_would_serve_clients_is_rejected(
    changed: dict[str, str], key: str, expected: str
) -> None:
    with pytest.raises(ConfigErrors) as failure:
        BrokerConfig.from_properties({**KRAFT, **changed})
    (error,) = failure.value.errors
    assert error.key == key
    assert expected in str(error)
