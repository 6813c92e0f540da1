"""Python classes that supply what brokers log in to each other with."""

from __future__ import annotations

import random

import pytest

from broker.network.sasl.broker_login import BrokerLogin
from broker.network.sasl.clients import ServerNotTrusted
from broker.security.token_source import unsecured_token
from broker.settings.client_login import Surroundings
from broker.settings.plug_ins import plug_in_problems
from broker.settings.sasl_settings import broker_login
from broker.settings.security_sources import InvalidSecurityError
from config.broker import BrokerConfig

HERE = "tests.broker.settings.test_own_credentials"
LOGIN, CLIENT = "sasl.login.callback.handler.class", "sasl.client.callback.handler.class"


class Vault:
    def configure(self, settings: dict[str, str]) -> None:
        self.is_sealed = settings.get("vault.sealed") == "true"

    def credentials(self) -> tuple[str, str]:
        if self.is_sealed:
            raise LookupError("sealed")
        return "broker", "secret"

    def token(self) -> str:
        if self.is_sealed:
            raise LookupError("sealed")
        return unsecured_token({"unsecuredLoginStringClaim_sub": "broker"}, 0)


def config(mechanism: str, **further: str) -> BrokerConfig:
    return BrokerConfig.from_properties(
        {
            "listeners": "SASL_PLAINTEXT://:0",
            "security.inter.broker.protocol": "SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": mechanism,
            "sasl.mechanism.inter.broker.protocol": mechanism,
            **further,
        }
    )


def login_of(config: BrokerConfig) -> BrokerLogin:
    login = broker_login(config, Surroundings(random.Random(1), lambda: 0), lambda work: work())  # type: ignore[arg-type,return-value]
    assert login is not None
    return login


@pytest.mark.parametrize(
    ("mechanism", "row", "sent"),
    [
        ("PLAIN", CLIENT, b"\0broker\0secret"),
        ("SCRAM-SHA-256", CLIENT, b"n=broker"),
        ("OAUTHBEARER", LOGIN, b"auth=Bearer "),
        ("PLAIN", f"listener.name.sasl_plaintext.plain.{CLIENT}", b"\0broker\0secret"),
    ],
)
def test_class_supplies_what_a_broker_logs_in_with(mechanism: str, row: str, sent: bytes) -> None:
    assert sent in login_of(config(mechanism, **{row: f"{HERE}:Vault"}))._new_client("host").first()


@pytest.mark.parametrize(("mechanism", "row"), [("PLAIN", CLIENT), ("OAUTHBEARER", LOGIN)])
def test_failure_of_the_class_fails_the_login(mechanism: str, row: str) -> None:
    login = login_of(config(mechanism, **{row: f"{HERE}:Vault", "vault.sealed": "true"}))
    with pytest.raises(ServerNotTrusted, match="sealed"):
        login._new_client("host")


@pytest.mark.parametrize(
    ("mechanism", "row", "name", "words"),
    [
        ("OAUTHBEARER", CLIENT, "Vault", "expected it for PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
        ("PLAIN", LOGIN, "Vault", "expected it for OAUTHBEARER"),
        ("PLAIN", CLIENT, "config", "is not a class"),
        ("PLAIN", CLIENT, "BrokerConfig", "cannot be created"),
    ],
)
def test_unusable_class_is_reported(mechanism: str, row: str, name: str, words: str) -> None:
    with pytest.raises(InvalidSecurityError, match=words):
        login_of(config(mechanism, **{row: f"{HERE}:{name}"}))


@pytest.mark.parametrize("row", [CLIENT, LOGIN])
def test_check_names_a_missing_class(row: str) -> None:
    (problem,) = plug_in_problems(config("PLAIN", **{row: f"{HERE}:Missing"}))
    assert "Missing" in str(problem)
