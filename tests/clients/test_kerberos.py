"""GSSAPI with a key distribution center: clients of 0.9, names of users, and credentials that are not accepted."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.network.sasl.clients import ServerNotTrusted
from broker.network.sasl.gssapi import GssapiClient
from broker.security.kerberos import KerberosError, KeyTab, Renewal, TicketSource, new_acceptor
from protocol.errors import ErrorCode
from protocol.messages.metadata import MetadataRequest
from protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.support.broker import server_command
from tests.support.kerberos import REALM, need_kerberos
from tests.support.manual_clock import ManualClock
from tests.support.parts import skip_when_unavailable
from tests.support.secured import SERVICE, USER, SecuredBroker
from tests.support.wire_client import WireClient

MODULE = "com.sun.security.auth.module.Krb5LoginModule"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with skip_when_unavailable():
        need_kerberos()
    settings = {"sasl.kerberos.principal.to.local.rules": r"RULE:[1:$1@$0](banned@.*),RULE:[1:$1]/L,DEFAULT"}
    with SecuredBroker(tmp_path_factory.mktemp("kerberos"), settings) as running:
        yield running


def tickets(keytab: Path, principal: str = USER, clock: ManualClock | None = None) -> TicketSource:
    now_ms = (clock or ManualClock()).monotonic_ms
    return TicketSource(
        KeyTab(f"{principal}@{REALM}", str(keytab)), None, now_ms, lambda: 1.0, lambda: Renewal(0.5, 0.1, 10)
    )


def client_of(source: TicketSource) -> GssapiClient:
    return GssapiClient(source.new_context(SERVICE, "localhost"))


def alice(secured: SecuredBroker) -> GssapiClient:
    assert secured.keytab is not None
    return client_of(tickets(secured.keytab))


def log_in(secured: SecuredBroker, login: GssapiClient, wire: WireClient) -> ErrorCode:
    """Return the code of the last response."""
    wire.ask(SaslHandshakeRequest(mechanism="GSSAPI"), 1)
    token: bytes | None = login.first()
    code = ErrorCode.NONE
    while token is not None and not code:
        response = wire.ask(SaslAuthenticateRequest(auth_bytes=token), 2)
        code = ErrorCode(response.error_code)
        token = None if code else login.respond(bytes(response.auth_bytes))
    return code


@pytest.mark.parametrize("begins_with_handshake", [False, True])
def test_clients_of_0_9_send_bare_tokens(secured: SecuredBroker, begins_with_handshake: bool) -> None:
    """The last token has no response, so the next request may follow immediately."""
    login = alice(secured)
    with WireClient(secured.ports["SASL_PLAINTEXT"]) as wire:
        if begins_with_handshake:
            wire.ask(SaslHandshakeRequest(mechanism="GSSAPI"), 0)
        response = wire.exchange_frame(login.first())
        response = wire.exchange_frame(login.respond(response) or b"")
        choice = login.respond(response)
        assert choice is not None
        wire.send_frame(choice)
        assert wire.ask(MetadataRequest(topics=[]), 1).brokers


def test_first_byte_of_a_token_is_no_login(secured: SecuredBroker) -> None:
    with WireClient(secured.ports["SASL_PLAINTEXT"]) as wire, pytest.raises(ConnectionError):
        wire.exchange_frame(b"\x60" * 100)


def test_key_that_was_changed_is_rejected(secured: SecuredBroker) -> None:
    assert secured.center is not None
    keytab = secured.center.keytab("bob", ["bob"])
    with WireClient(secured.ports["SASL_PLAINTEXT"]) as wire:
        assert log_in(secured, client_of(tickets(keytab, "bob")), wire) == ErrorCode.NONE
    secured.center.change_key("bob")
    with pytest.raises(KerberosError, match="no ticket for kafka@localhost"):
        client_of(tickets(keytab, "bob")).first()


def test_principal_without_a_simple_name_is_rejected(secured: SecuredBroker) -> None:
    assert secured.center is not None
    keytab = secured.center.keytab("deep", ["deep/er"])
    with WireClient(secured.ports["SASL_PLAINTEXT"]) as wire:
        assert log_in(secured, client_of(tickets(keytab, "deep/er")), wire) == ErrorCode.NONE, "DEFAULT applies"
    keytab = secured.center.keytab("banned", ["banned"])
    with WireClient(secured.ports["SASL_PLAINTEXT"]) as wire:
        code = log_in(secured, client_of(tickets(keytab, "banned")), wire)
    assert code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_ticket_for_another_service_is_rejected(secured: SecuredBroker) -> None:
    assert secured.center is not None
    assert secured.keytab is not None
    secured.center.keytab("other", ["other/localhost"])
    login = GssapiClient(tickets(secured.keytab).new_context("other", "localhost"))
    with WireClient(secured.ports["SASL_PLAINTEXT"]) as wire:
        assert log_in(secured, login, wire) == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_replayed_token_is_rejected(secured: SecuredBroker) -> None:
    token = alice(secured).first()
    for expected in (ErrorCode.NONE, ErrorCode.SASL_AUTHENTICATION_FAILED):
        with WireClient(secured.ports["SASL_PLAINTEXT"]) as wire:
            wire.ask(SaslHandshakeRequest(mechanism="GSSAPI"), 1)
            response = wire.ask(SaslAuthenticateRequest(auth_bytes=token), 2)
            assert response.error_code == expected
    assert response.error_message == (
        "Authentication failed during authentication due to invalid credentials with SASL mechanism GSSAPI"
    )


def test_ticket_is_renewed_after_its_share_of_life(secured: SecuredBroker) -> None:
    assert secured.keytab is not None
    clock = ManualClock()
    source = tickets(secured.keytab, clock=clock)
    first = source._ticket()
    life_ms = first.lifetime * 1000
    clock.advance(life_ms * 0.59)
    assert source._ticket() is first
    clock.advance(life_ms * 0.02)
    assert source._ticket() is not first
    client_of(source).first()


def test_login_from_a_ticket_cache(secured: SecuredBroker) -> None:
    assert secured.center is not None
    assert secured.keytab is not None
    cache = secured.center.cache(secured.keytab, USER)
    source = TicketSource(None, str(cache), lambda: 0, lambda: 0.0, Renewal)
    with WireClient(secured.ports["SASL_PLAINTEXT"]) as wire:
        assert log_in(secured, client_of(source), wire) == ErrorCode.NONE
    missing = TicketSource(None, str(cache) + "-none", lambda: 0, lambda: 0.0, Renewal)
    with pytest.raises((KerberosError, ServerNotTrusted)):
        client_of(missing).first()


@pytest.mark.parametrize("principal", [f"kafka/elsewhere@{REALM}", "kafka/localhost@OTHER.ORG"])
def test_keytab_without_the_principal_is_reported(secured: SecuredBroker, principal: str) -> None:
    assert secured.center is not None
    with pytest.raises(KerberosError, match=f"no key of {principal} in .*server.keytab"):
        new_acceptor(KeyTab(principal, str(secured.center.folder / "server.keytab")))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            'useKeyTab="true" keyTab="/nowhere" principal="kafka/localhost@X"',
            ["/nowhere", "no key of kafka/localhost@X"],
        ),
        ('useKeyTab="false"', ["without a keytab", "useKeyTab"]),
    ],
)
def test_invalid_keytab_stops_the_start(tmp_path: Path, options: str, words: list[str]) -> None:
    with skip_when_unavailable():
        need_kerberos()
    settings = tmp_path / "server.properties"
    settings.write_text(
        f"broker.id=0\nlog.dirs={tmp_path}/data\nlisteners=SASL_PLAINTEXT://127.0.0.1:0\n"
        "security.inter.broker.protocol=SASL_PLAINTEXT\n"
        f"listener.name.sasl_plaintext.gssapi.sasl.jaas.config={MODULE} required {options};\n"
    )
    done = subprocess.run(server_command(settings), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert all(word in done.stderr for word in [*words, "listener.name.sasl_plaintext.gssapi.sasl.jaas.config"])
