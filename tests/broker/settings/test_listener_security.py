"""Which mechanisms a listener offers, and which settings stop the start."""

import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import TypeVar

import pytest

from broker.network.sasl.exchange import AuthenticationFailed, Login
from broker.network.sasl.session import SaslListener
from broker.settings.client_login import Surroundings
from broker.settings.listener_security import open_listeners, sasl_listeners
from broker.settings.sasl_settings import LOGIN_MODULES, broker_login
from broker.settings.security_sources import InvalidSecurityError, Sources
from config.broker import BrokerConfig
from config.broker_properties import AUTHORIZERS
from protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.support.manual_clock import ManualClock

T = TypeVar("T")

PLAIN = LOGIN_MODULES["PLAIN"]
SCRAM = LOGIN_MODULES["SCRAM-SHA-256"]
USERS = f'{PLAIN} required user_alice="secret";'
JAAS_KEY = "listener.name.secure.plain.sasl.jaas.config"


async def in_place(work: Callable[[], T]) -> T:
    return work()


def of(settings: dict[str, str]) -> dict[str, SaslListener]:
    config = BrokerConfig.from_properties(
        {
            "listeners": "PLAINTEXT://:0,SECURE://:0",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SASL_PLAINTEXT",
            **settings,
        }
    )
    return sasl_listeners(config, Sources(lambda *_: None, Random(1), lambda: 1_000_000, lambda *_: None))


def log_in(listener: SaslListener, token: bytes) -> Login | None:
    return listener.mechanisms["PLAIN"].new_exchange().evaluate(token).login


def test_only_listeners_with_sasl_authenticate() -> None:
    found = of({"sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN", JAAS_KEY: USERS})
    assert found.keys() == {"SECURE"}
    assert list(found["SECURE"].mechanisms) == ["SCRAM-SHA-512", "PLAIN"]
    assert log_in(found["SECURE"], b"\0alice\0secret") == Login("alice")


def test_settings_of_the_listener_win() -> None:
    found = of(
        {
            "sasl.enabled.mechanisms": "GSSAPI",
            "connections.max.reauth.ms": "1",
            "sasl.server.max.receive.size": "10",
            "listener.name.secure.sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
            "listener.name.secure.connections.max.reauth.ms": "2",
            "listener.name.secure.scram-sha-512.connections.max.reauth.ms": "3",
            "listener.name.secure.sasl.server.max.receive.size": "20",
        }
    )["SECURE"]
    assert {name: one.session_ms_max for name, one in found.mechanisms.items()} == {
        "SCRAM-SHA-256": 2,
        "SCRAM-SHA-512": 3,
    }
    assert found.receive_size_max == 20


@pytest.mark.parametrize("section", ["KafkaServer", "secure.KafkaServer"])
def test_users_of_a_jaas_file(tmp_path: Path, section: str) -> None:
    file = tmp_path / "jaas.conf"
    file.write_text(f"{section} {{ {SCRAM} required; {USERS} }};")
    found = of({"sasl.enabled.mechanisms": "PLAIN", "java.security.auth.login.config": str(file)})
    assert log_in(found["SECURE"], b"\0alice\0secret") == Login("alice")


def test_a_user_of_the_broker_itself_is_no_user_of_clients() -> None:
    jaas = f'{PLAIN} required username="admin" password="secret";'
    found = of({"sasl.enabled.mechanisms": "PLAIN", JAAS_KEY: jaas})
    with pytest.raises(AuthenticationFailed):
        log_in(found["SECURE"], b"\0admin\0secret")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, ["GSSAPI", "listener.name.secure.gssapi.sasl.jaas.config", "useKeyTab"]),
        ({"sasl.enabled.mechanisms": ""}, ["sasl.enabled.mechanisms"]),
        ({"sasl.enabled.mechanisms": "plain"}, ["plain", "sasl.enabled.mechanisms"]),
        ({"sasl.enabled.mechanisms": "PLAIN"}, [JAAS_KEY, "user_"]),
        ({"sasl.enabled.mechanisms": "PLAIN", JAAS_KEY: "nonsense SECRET"}, [JAAS_KEY]),
        ({"sasl.enabled.mechanisms": "PLAIN", JAAS_KEY: USERS * 2}, [JAAS_KEY, "2 login modules"]),
        ({"sasl.enabled.mechanisms": "PLAIN", JAAS_KEY: f"{SCRAM} required;"}, [JAAS_KEY, SCRAM, PLAIN]),
        ({"sasl.enabled.mechanisms": "PLAIN", "java.security.auth.login.config": "/no/file"}, ["/no/file"]),
        (
            {"sasl.enabled.mechanisms": "PLAIN", "java.security.auth.login.config": "/dev/null"},
            ["java.security.auth.login.config", "/dev/null is not a regular file"],
        ),
    ],
)
def test_invalid_setting_is_named(settings: dict[str, str], words: list[str]) -> None:
    with pytest.raises(InvalidSecurityError) as caught:
        of(settings)
    assert all(word in str(caught.value) for word in words)
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize(
    "name", ["com.sun.security.auth.module.JndiLoginModule", "com.sun.security.auth.module.LdapLoginModule"]
)
def test_cve_2025_27818_other_login_modules_are_refused(name: str) -> None:
    with pytest.raises(InvalidSecurityError, match="not available"):
        of({"sasl.enabled.mechanisms": "PLAIN", JAAS_KEY: f'{name} required user.provider.url="ldap://x";'})


def test_missing_kerberos_library_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    module = f'{LOGIN_MODULES["GSSAPI"]} required useKeyTab="true" keyTab="/k" principal="kafka/host";'
    with pytest.raises(InvalidSecurityError, match=r"offers GSSAPI.*requirements-kerberos\.lock"):
        of({"listener.name.secure.gssapi.sasl.jaas.config": module})


@pytest.mark.parametrize(
    ("settings", "count"),
    [({}, 1), ({"authorizer.class.name": AUTHORIZERS[0]}, 0), ({"listeners": "SECURE://:0,PLAINTEXT://:0"}, 1)],
)
def test_open_listeners_are_named(settings: dict[str, str], count: int) -> None:
    config = BrokerConfig.from_properties(
        {"listeners": "PLAINTEXT://:0", "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SSL", **settings}
    )
    lines = open_listeners(config)
    assert len(lines) == count
    assert all("PLAINTEXT://:0 is open" in line and "bin/milena-certs" in line for line in lines)


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({}, "sasl.mechanism.inter.broker.protocol"),
        ({"sasl.mechanism.inter.broker.protocol": "PLAIN"}, "expected one of the mechanisms"),
        ({"sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256"}, "username and password"),
    ],
)
def test_login_of_the_broker_itself_needs_a_mechanism_and_a_user(settings: dict[str, str], word: str) -> None:
    config = BrokerConfig.from_properties(
        {
            "listeners": "SASL_PLAINTEXT://:0",
            "security.inter.broker.protocol": "SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "SCRAM-SHA-256",
            **settings,
        }
    )
    with pytest.raises(InvalidSecurityError, match=word):
        broker_login(config, Surroundings(Random(1), lambda: 0), in_place)


OAUTH_MODULE = LOGIN_MODULES["OAUTHBEARER"]
OAUTH_JAAS_KEY = "listener.name.secure.oauthbearer.sasl.jaas.config"


async def test_changed_time_of_renewal_counts_from_the_next_token_on() -> None:
    config = BrokerConfig.from_properties(
        {
            "listeners": "SECURE://:0",
            "listener.security.protocol.map": "SECURE:SASL_PLAINTEXT",
            "inter.broker.listener.name": "SECURE",
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
            "sasl.login.refresh.window.jitter": "0",
            OAUTH_JAAS_KEY: f'{OAUTH_MODULE} required unsecuredLoginStringClaim_sub="broker";',
        }
    )
    clock = ManualClock()
    login = broker_login(config, Surroundings(Random(1), clock.now_ms), in_place)
    assert login is not None
    tokens: list[bytes] = []

    async def ask(request: object, version: int) -> object:
        if isinstance(request, SaslHandshakeRequest):
            return SaslHandshakeResponse(mechanisms=["OAUTHBEARER"])
        assert isinstance(request, SaslAuthenticateRequest)
        tokens.append(bytes(request.auth_bytes))
        return SaslAuthenticateResponse(auth_bytes=b"")

    async def is_new_after(seconds: int) -> bool:
        before = tokens[-1:]
        clock.advance(seconds * 1000)
        await login(ask, "host")
        return tokens[-1:] != before

    await login(ask, "host")
    assert [await is_new_after(s) for s in (2_800, 100)] == [False, True], "after 0.8 of an hour"
    config.apply_dynamic(default={}, broker={"sasl.login.refresh.window.factor": "0.5"})
    assert [await is_new_after(s) for s in (2_900, 1_700, 150)] == [True, False, True]


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({}, "jwks.endpoint.url"),
        ({OAUTH_JAAS_KEY: f"{OAUTH_MODULE} required;"}, "allowUnsecuredTokens"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "ftp://x"}, "expected an address"),
    ],
)
def test_tokens_are_not_accepted_unverified_by_accident(settings: dict[str, str], word: str) -> None:
    with pytest.raises(InvalidSecurityError, match=word):
        of({"sasl.enabled.mechanisms": "OAUTHBEARER", **settings})


def test_unsecured_tokens_for_development() -> None:
    found = of(
        {
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            OAUTH_JAAS_KEY: f'{OAUTH_MODULE} required allowUnsecuredTokens="true";',
        }
    )
    token = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbGljZSIsImV4cCI6MjAwMH0."
    exchange = found["SECURE"].mechanisms["OAUTHBEARER"].new_exchange()
    step = exchange.evaluate(f"n,,\x01auth=Bearer {token}\x01\x01".encode())
    assert step.login == Login("alice", expires_ms=2_000_000)
