"""Settings of Java's clients become those of librdkafka, which accepts them."""

from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from spark_jobs.skeleton.clients import client_settings, producer_settings
from spark_jobs.skeleton.errors import JobError
from tests.support.certificates import KEY_PASSWORD, STORE_PASSWORD, Stores

SERVERS = "127.0.0.1:1"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    return Stores(tmp_path_factory.mktemp("stores"))


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ({"client.id": "me", "fetch.max.bytes": "5"}, {"client.id": "me"}),
        ({"ssl.endpoint.identification.algorithm": ""}, {"ssl.endpoint.identification.algorithm": "none"}),
        (
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.jaas.config": f'{SCRAM} required username=\'a\' password="b;\\"c";',
            },
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanisms": "SCRAM-SHA-512",
                "sasl.username": "a",
                "sasl.password": 'b;"c',
            },
        ),
        (
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1:1/token",
                "sasl.jaas.config": f'{OAUTH} required clientId="a" clientSecret="b" scope="c";',
            },
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanisms": "OAUTHBEARER",
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.client.id": "a",
                "sasl.oauthbearer.client.secret": "b",
                "sasl.oauthbearer.scope": "c",
                "sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1:1/token",
            },
        ),
    ],
    ids=["names", "host check", "password", "token"],
)
def test_settings_of_a_client_are_translated(options: dict[str, str], settings: dict[str, str]) -> None:
    found = client_settings(SERVERS, options)
    assert found == {**settings, "bootstrap.servers": SERVERS, "log_level": "5"}
    AdminClient(found)


def test_a_producer_has_the_settings_about_batches_as_well() -> None:
    options = {"compression.type": "lz4", "max.request.size": "2000", "client.id": "me"}
    found = producer_settings(SERVERS, options)
    own = {"compression.type": "lz4", "message.max.bytes": "2000"}
    assert found == {**own, **client_settings(SERVERS, {"client.id": "me"})}
    Producer(found)


@pytest.mark.parametrize("kind", ["PEM", "PKCS12", "JKS"])
def test_stores_of_every_type_become_pem(kind: str, stores: Stores) -> None:
    identity = stores.issue("client", "the client")
    options = {"security.protocol": "SSL", "ssl.keystore.type": kind, "ssl.truststore.type": kind}
    if kind == "PEM":
        options |= {"ssl.keystore.location": str(identity), "ssl.truststore.location": str(stores.ca)}
    else:
        store = stores.pkcs12(identity) if kind == "PKCS12" else stores.jks(identity, KEY_PASSWORD)
        trusted = stores.trust_store(kind)
        options |= {"ssl.keystore.location": str(store), "ssl.keystore.password": STORE_PASSWORD}
        options |= {"ssl.truststore.location": str(trusted), "ssl.truststore.password": STORE_PASSWORD}
        if kind == "JKS":
            options["ssl.key.password"] = KEY_PASSWORD
    found = client_settings(SERVERS, options)
    assert found["ssl.ca.pem"] == stores.ca.read_text().replace("\r", "")
    assert found["ssl.certificate.pem"].startswith("-----BEGIN CERTIFICATE-----\n")
    assert found["ssl.key.pem"].startswith("-----BEGIN PRIVATE KEY-----\n")
    AdminClient(found)


NO_URL = {"sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": f'{OAUTH} required clientId="a" clientSecret="secret";'}
WRONG = {
    "no login": ({}, r"sasl\.jaas\.config: JAAS config property contains 0 login modules"),
    "no user": ({"sasl.jaas.config": f'{PLAIN} required password="secret";'}, r"PlainLoginModule needs username"),
    "no end": ({"sasl.jaas.config": f'{PLAIN} required password="secret"'}, r"expected a semicolon after the options"),
    "no URL": (NO_URL, r"sasl\.oauthbearer\.token\.endpoint\.url is missing"),
}


@pytest.mark.parametrize(("options", "message"), WRONG.values(), ids=WRONG)
def test_a_wrong_login_is_named_without_its_password(options: dict[str, str], message: str) -> None:
    with pytest.raises(JobError, match=message) as raised:
        client_settings(SERVERS, {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", **options})
    assert "secret" not in str(raised.value)


def test_a_store_that_cannot_be_read_is_named(tmp_path: Path, stores: Stores) -> None:
    options = {"security.protocol": "SSL", "ssl.truststore.location": str(tmp_path / "none.jks")}
    with pytest.raises(JobError, match=r"cannot read the JKS store .*none\.jks: No such file"):
        client_settings(SERVERS, options)
    options = {"security.protocol": "SSL", "ssl.keystore.location": str(stores.jks(stores.issue("other", "other")))}
    with pytest.raises(JobError, match=r"the password is wrong, or the store is damaged"):
        client_settings(SERVERS, {**options, "ssl.keystore.password": "secret"})
