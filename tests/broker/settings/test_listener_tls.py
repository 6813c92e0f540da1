"""When a listener reads its stores again, and which settings stop the start."""

import ssl
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO

import pytest

from base.system_calls import SYSTEM_CALLS
from broker.network.tls import TlsError, check_handshake, openssl_name
from broker.settings.listener_tls import ListenerTls
from broker.settings.security_sources import InvalidSecurityError
from config.broker import BrokerConfig
from tests.support.certificates import Stores

GCM = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    return Stores(tmp_path_factory.mktemp("stores"))


def config(stores: Stores, **settings: str) -> BrokerConfig:
    return BrokerConfig.from_properties(
        {
            "listeners": "SSL://:0,SASL_SSL://:0",
            "security.inter.broker.protocol": "SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(stores.folder / "server.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(stores.ca),
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
    )


@pytest.fixture
def server(stores: Stores) -> Path:
    return stores.issue("server", "server")


def test_unchanged_stores_are_not_read_again(stores: Stores, server: Path) -> None:
    tls = ListenerTls(config(stores))
    before = tls.listeners["SSL"].context
    tls.reload(config(stores))
    assert tls.listeners["SSL"].context is before


def test_key_is_encrypted_where_openssl_cannot_read_it_from_memory(
    stores: Stores, server: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kept(prefix: str) -> IO[bytes]:
        return NamedTemporaryFile(prefix=prefix, dir=tmp_path, delete=False)

    monkeypatch.setattr("broker.network.tls.SYSTEM_CALLS", SYSTEM_CALLS._replace(has_memory_files=False))
    monkeypatch.setattr("tempfile.NamedTemporaryFile", kept)
    ListenerTls(config(stores))  # which performs a handshake
    files = list(tmp_path.iterdir())
    assert files
    for file in files:
        assert file.stat().st_mode & 0o077 == 0
        content = file.read_bytes()
        assert content.count(b"PRIVATE KEY-----") == content.count(b"ENCRYPTED PRIVATE KEY-----") == 2
        assert b"BEGIN CERTIFICATE" in content


def test_changed_file_is_read_again(stores: Stores, server: Path) -> None:
    tls = ListenerTls(config(stores))
    before = tls.listeners["SSL"].context
    stores.issue("server", "server")
    tls.reload(config(stores))
    assert tls.listeners["SSL"].context is not before


@pytest.mark.parametrize("allowed", [True, False])
def test_another_owner_is_taken_only_if_allowed(stores: Stores, server: Path, allowed: bool) -> None:
    settings = config(stores, ssl_allow_dn_changes=str(allowed).lower())
    tls = ListenerTls(settings)
    before = tls.listeners["SSL"].context
    stores.issue("server", "another")
    tls.reload(settings)
    assert (tls.listeners["SSL"].context is not before) == allowed


def test_a_listener_may_refuse_another_owner_that_others_take(stores: Stores, server: Path) -> None:
    own = {"ssl.allow.dn.changes": "true", "listener.name.sasl_ssl.ssl.allow.dn.changes": "false"}
    settings = BrokerConfig.from_properties({**config(stores).static, **own})
    tls = ListenerTls(settings)
    before = {name: one.context for name, one in tls.listeners.items()}
    stores.issue("server", "another")
    tls.reload(settings)
    assert {name: one.context is not before[name] for name, one in tls.listeners.items()} == {
        "SSL": True,
        "SASL_SSL": False,
    }
    assert settings.warnings == []


def test_broken_file_keeps_the_old_store(stores: Stores, server: Path, caplog: pytest.LogCaptureFixture) -> None:
    tls = ListenerTls(config(stores))
    before = tls.listeners["SSL"].context
    server.write_text("nonsense")
    tls.reload(config(stores))
    assert tls.listeners["SSL"].context is before
    assert "keeps its key store" in caplog.text
    with pytest.raises(InvalidSecurityError, match="no private key"):
        tls.check(config(stores))


def test_client_certificates_count_with_sasl_only_by_the_listeners_own_setting(stores: Stores, server: Path) -> None:
    tls = ListenerTls(config(stores, ssl_client_auth="required"))
    assert tls.listeners["SSL"].context.verify_mode is ssl.CERT_REQUIRED
    assert tls.listeners["SASL_SSL"].context.verify_mode is ssl.CERT_NONE
    own = BrokerConfig.from_properties({**config(stores).static, "listener.name.sasl_ssl.ssl.client.auth": "requested"})
    assert ListenerTls(own).listeners["SASL_SSL"].context.verify_mode is ssl.CERT_OPTIONAL


def test_key_store_of_brokers_must_be_trusted_by_them(stores: Stores, server: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidSecurityError, match="handshake"):
        ListenerTls(config(stores, ssl_truststore_location=str(Stores(tmp_path).ca)))


OF_CLIENTS_ALONE = {"listeners": "PLAINTEXT://:0,SSL://:0", "security.inter.broker.protocol": "PLAINTEXT"}


def test_certificate_signed_with_sha1_is_served_with_a_warning_that_names_it(
    stores: Stores, caplog: pytest.LogCaptureFixture
) -> None:
    weak, authority = stores.issue_with_sha1("weak", "old.example")
    settings = {**config(stores).static, **OF_CLIENTS_ALONE, "ssl.keystore.location": str(weak)}
    context = ListenerTls(BrokerConfig.from_properties(settings)).listeners["SSL"].context
    client = ssl.create_default_context(cafile=str(authority))
    with pytest.raises(TlsError, match="CERTIFICATE_VERIFY_FAILED"):
        check_handshake(context, client)
    client.set_ciphers("DEFAULT:@SECLEVEL=0")
    check_handshake(context, client)
    assert f"the PEM store {weak}: the certificate of CN=old.example" in caplog.text
    assert "replace it by a certificate" in caplog.text
    suites = {suite["name"] for suite in context.get_ciphers()}
    assert suites == {suite["name"] for suite in ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).get_ciphers()}


@pytest.mark.parametrize(
    "further",
    [{**OF_CLIENTS_ALONE, "ssl.client.auth": "required"}, {"listeners": "SSL://:0"}],
    ids=["client certificates", "other brokers"],
)
def test_certificate_signed_with_sha1_is_refused_where_peers_are_verified(
    stores: Stores, further: dict[str, str]
) -> None:
    weak, _ = stores.issue_with_sha1("weak", "old.example")
    settings = {**config(stores).static, "ssl.keystore.location": str(weak), **further}
    with pytest.raises(
        InvalidSecurityError,
        match=r"weak\.pem: the certificate of CN=old\.example,.* is signed with SHA-1; replace it by",
    ):
        ListenerTls(BrokerConfig.from_properties(settings))


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"ssl_keystore_location": "/no/file"}, "No such file"),
        ({"ssl_keystore_type": "XYZ"}, "ssl.keystore.type"),
        ({"ssl_enabled_protocols": "TLSv7"}, "TLSv7"),
        ({"ssl_enabled_protocols": "TLSv1.3", "ssl_protocol": "TLSv1.2"}, "no version"),
        ({"ssl_cipher_suites": "TLS_NONSENSE"}, "cipher"),
        ({"ssl_cipher_suites": f"{GCM},TLS_NONSENSE"}, "NONSENSE"),
        ({"ssl_enabled_protocols": "TLSv1.1,TLSv1.3"}, "without TLSv1.2"),
        ({"ssl_endpoint_identification_algorithm": "nonsense"}, "expected https or an empty value"),
        ({"ssl_cipher_suites": GCM, "ssl_enabled_protocols": "TLSv1.3"}, "none of the cipher suites"),
        ({"ssl_principal_mapping_rules": "nonsense"}, "ssl.principal.mapping.rules"),
    ],
)
def test_invalid_setting_is_named(stores: Stores, server: Path, settings: dict[str, str], word: str) -> None:
    with pytest.raises(InvalidSecurityError, match=word):
        ListenerTls(config(stores, **settings))


@pytest.mark.parametrize(
    ("settings", "versions"),
    [
        ({}, {"TLSv1.2", "TLSv1.3"}),
        ({"ssl_cipher_suites": "TLS_AES_256_GCM_SHA384"}, {"TLSv1.3"}),
        ({"ssl_cipher_suites": GCM}, {"TLSv1.2"}),
        ({"ssl_cipher_suites": f"{GCM},TLS_AES_256_GCM_SHA384"}, {"TLSv1.2", "TLSv1.3"}),
    ],
)
def test_versions_are_those_that_are_enabled_and_have_a_suite(
    stores: Stores, server: Path, settings: dict[str, str], versions: set[str]
) -> None:
    context = ListenerTls(config(stores, **settings)).listeners["SSL"].context
    agreed = set()
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        client = ssl.create_default_context(cafile=str(stores.ca))
        client.minimum_version = client.maximum_version = version
        try:
            check_handshake(context, client)
        except TlsError:
            continue
        agreed.add(version.name.replace("_", "."))
    assert agreed == versions


@pytest.mark.parametrize(("algorithm", "checks"), [("https", True), ("HTTPS", True), ("", False)])
def test_the_name_of_other_brokers_is_checked_unless_that_is_switched_off(
    stores: Stores, server: Path, algorithm: str, checks: bool
) -> None:
    tls = ListenerTls(config(stores, ssl_endpoint_identification_algorithm=algorithm))
    assert tls.broker_context("SSL").check_hostname is checks


def test_changed_check_of_names_is_in_force_with_unchanged_stores(stores: Stores, server: Path) -> None:
    tls = ListenerTls(config(stores))
    with pytest.raises(InvalidSecurityError, match="expected https or an empty value"):
        tls.check(config(stores, ssl_endpoint_identification_algorithm="nonsense"))
    for algorithm, checks in (("", False), ("https", True)):
        tls.reload(config(stores, ssl_endpoint_identification_algorithm=algorithm))
        assert tls.broker_context("SSL").check_hostname is checks


def test_listener_without_a_key_store_is_an_error() -> None:
    bare = BrokerConfig.from_properties({"listeners": "SSL://:0", "security.inter.broker.protocol": "SSL"})
    with pytest.raises(InvalidSecurityError, match=r"ssl\.keystore\.location"):
        ListenerTls(bare)


@pytest.mark.parametrize(
    ("java", "openssl"),
    [
        ("TLS_AES_256_GCM_SHA384", ""),
        ("TLS_CHACHA20_POLY1305_SHA256", ""),
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "ECDHE-ECDSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
        ("TLS_DHE_RSA_WITH_AES_128_GCM_SHA256", "DHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384", "ECDHE-RSA-AES256-SHA384"),
        ("TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA", "ECDHE-RSA-AES128-SHA"),
        ("TLS_RSA_WITH_AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
    ],
)
def test_suites_of_java_have_a_name_in_openssl(java: str, openssl: str) -> None:
    known = {cipher["name"] for cipher in ssl.create_default_context().get_ciphers()}
    assert openssl_name(java) == openssl
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if openssl:
        context.set_ciphers(openssl)
        assert openssl in {cipher["name"] for cipher in context.get_ciphers()}
    else:
        assert java in known
