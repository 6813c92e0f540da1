"""Clients with every permission cannot change how others log in, nor make the broker fetch an address."""

import socket
import threading
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from protocol.errors import ErrorCode
from protocol.messages.metadata import MetadataRequest
from protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.support.identity_provider import encoded
from tests.support.secured import DEADLINE_S, SecuredBroker
from tests.support.wire_client import WireClient

LDAP = "com.sun.security.auth.module.LdapLoginModule"
JNDI = "com.sun.security.auth.module.JndiLoginModule"


class Listener:
    """Counts the connections to a port."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}/keys"

    def _accept(self) -> None:
        try:
            while True:
                self._socket.accept()[0].close()
                self.connections += 1
        except OSError:
            return

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    settings = {"password.encoder.secret": "secret of the encoder"}  # without it no password can be altered
    with SecuredBroker(tmp_path_factory.mktemp("login-settings"), settings, kerberos=False) as running:
        yield running


@pytest.fixture
def attacker() -> Iterator[Listener]:
    listener = Listener()
    yield listener
    listener.close()


def alter(secured: SecuredBroker, key: str, value: str) -> None:
    """Raises KafkaException."""
    admin = AdminClient({"bootstrap.servers": secured.bootstrap("PLAINTEXT")})
    entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.BROKER, "0", incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(DEADLINE_S)


@pytest.mark.parametrize("prefix", ["", "listener.name.sasl_ssl.", "listener.name.sasl_ssl.oauthbearer."])
@pytest.mark.parametrize("setting", ["sasl.oauthbearer.jwks.endpoint.url", "sasl.oauthbearer.token.endpoint.url"])
def test_cve_2025_27817_addresses_of_providers_cannot_be_altered(
    secured: SecuredBroker, attacker: Listener, prefix: str, setting: str
) -> None:
    with pytest.raises(KafkaException) as refused:
        alter(secured, prefix + setting, attacker.url)
    assert refused.value.args[0].code() in (ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_CONFIG)
    assert attacker.connections == 0


def test_cve_2025_27817_addresses_in_a_token_are_not_fetched(secured: SecuredBroker, attacker: Listener) -> None:
    header = f'{{"alg":"RS256","kid":"rsa","jku":"{attacker.url}","x5u":"{attacker.url}"}}'
    claims = f'{{"sub":"alice","iss":"{attacker.url}","aud":"kafka","exp":4102444800}}'
    token = f"{encoded(header.encode())}.{encoded(claims.encode())}.{encoded(bytes(256))}"
    with WireClient(secured.ports["SASL_PLAINTEXT"]) as client:
        client.ask(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
        first = f"n,,\x01auth=Bearer {token}\x01\x01".encode()
        assert client.ask(SaslAuthenticateRequest(auth_bytes=first), 2).auth_bytes == b'{"status":"invalid_token"}'
        last = client.ask(SaslAuthenticateRequest(auth_bytes=b"\x01"), 2)
        assert last.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert attacker.connections == 0


@pytest.mark.parametrize("key", ["sasl.jaas.config", "listener.name.sasl_plaintext.plain.sasl.jaas.config"])
@pytest.mark.parametrize("module", [LDAP, JNDI])
def test_cve_2025_27818_login_modules_cannot_be_altered(
    secured: SecuredBroker, attacker: Listener, key: str, module: str
) -> None:
    with pytest.raises(KafkaException) as refused:
        alter(secured, key, f'{module} required user.provider.url="{attacker.url}";')
    assert refused.value.args[0].code() in (ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_CONFIG)
    assert attacker.connections == 0
    with WireClient(secured.ports["SASL_PLAINTEXT"]) as client:
        client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        token = b"\0alice\0correct horse, battery=staple"
        assert client.ask(SaslAuthenticateRequest(auth_bytes=token), 2).error_code == ErrorCode.NONE
        assert client.ask(MetadataRequest(topics=[]), 1).brokers
