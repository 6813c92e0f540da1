"""Key stores and trust stores of every type, made by Java's keytool and OpenSSL's format library."""

from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from base.key_stores.material import InvalidStoreError, StoreSource, read_identity, read_trusted
from base.small_file import SIZE_MAX
from tests.support.certificates import KEY_PASSWORD, STORE_PASSWORD, Stores
from tests.support.parts import need_command, skip_when_unavailable


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    with skip_when_unavailable():
        need_command("keytool", "openjdk-17-jdk-headless")
    return Stores(tmp_path_factory.mktemp("stores"))


@pytest.fixture(scope="module")
def pem(stores: Stores) -> Path:
    return stores.issue("server", "server name")


def test_identity_is_the_same_in_every_type(stores: Stores, pem: Path) -> None:
    expected = read_identity(StoreSource("PEM", str(pem)))
    assert expected.chain[0].subject.rfc4514_string().startswith("CN=server name")
    for store_type, path in (("PKCS12", stores.pkcs12(pem)), ("JKS", stores.jks(pem)), ("JKS", stores.pkcs12(pem))):
        found = read_identity(StoreSource(store_type, str(path), STORE_PASSWORD))
        assert (found.key, found.chain[0]) == (expected.key, expected.chain[0]), path
        assert len(found.chain) == 2, "the authority's certificate is in the chain"


def test_key_in_a_jks_store_may_have_a_password_of_its_own(stores: Stores, pem: Path) -> None:
    path = stores.jks(stores.issue("own-password", "x"), KEY_PASSWORD)
    assert read_identity(StoreSource("JKS", str(path), STORE_PASSWORD, KEY_PASSWORD)).chain
    with pytest.raises(InvalidStoreError, match="password of the key"):
        read_identity(StoreSource("JKS", str(path), STORE_PASSWORD))


@pytest.mark.parametrize("store_type", ["PEM", "PKCS12", "JKS"])
def test_trusted_certificates_are_read(stores: Stores, store_type: str) -> None:
    source = StoreSource(store_type, str(stores.trust_store(store_type)), STORE_PASSWORD)
    (found,) = read_trusted(source)
    assert found.public_bytes(Encoding.PEM) == stores.authority.cert_pem.bytes()


def test_inline_pem_with_an_encrypted_key(stores: Stores, pem: Path) -> None:
    key = load_pem_private_key(pem.read_bytes(), None)
    encrypted = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(KEY_PASSWORD.encode()))
    source = StoreSource(
        "PEM", key_password=KEY_PASSWORD, inline_key=encrypted.decode(), inline_certificates=pem.read_text()
    )
    assert read_identity(source).chain == read_identity(StoreSource("PEM", str(pem))).chain
    assert read_trusted(StoreSource("PEM", inline_certificates=stores.ca.read_text()))


@pytest.mark.parametrize("store_type", ["PKCS12", "JKS"])
def test_wrong_password_is_an_error_that_names_the_store(stores: Stores, pem: Path, store_type: str) -> None:
    path = stores.jks(pem) if store_type == "JKS" else stores.pkcs12(pem)
    for read in (read_identity, read_trusted):
        with pytest.raises(InvalidStoreError) as caught:
            read(StoreSource(store_type, str(path), "wrong"))
        assert str(path) in str(caught.value)
        assert "wrong" not in str(caught.value).replace("password is wrong", "")


def test_jks_trust_store_without_a_password_is_read_without_a_check_of_its_integrity(stores: Stores) -> None:
    path = stores.trust_store("JKS")
    trusted = read_trusted(StoreSource("JKS", str(path), STORE_PASSWORD))
    assert trusted == read_trusted(StoreSource("JKS", str(path)))


def test_unusable_store_is_rejected_with_its_path_and_reason(stores: Stores, pem: Path, tmp_path: Path) -> None:
    nonsense = tmp_path / "nonsense"
    nonsense.write_bytes(b"nonsense" * 10)
    other = stores.issue("other", "other")
    mixed = tmp_path / "mixed.pem"
    mixed.write_bytes(
        pem.read_bytes().partition(b"-----BEGIN CERT")[0] + other.read_bytes().partition(b"KEY-----\n-----")[2]
    )
    for source, word in (
        (StoreSource("JKS", str(tmp_path / "none"), "x"), "No such file"),
        (StoreSource("JKS", str(nonsense), "x"), "nonsense"),
        (StoreSource("PEM", str(nonsense)), "no private key"),
        (StoreSource("PEM", str(stores.ca)), "no private key"),
        (StoreSource("PEM", str(pem), "password"), "store password"),
        (StoreSource("JKS", str(stores.trust_store("JKS")), STORE_PASSWORD), "no private key"),
        (StoreSource("PKCS12", str(stores.trust_store("PKCS12")), STORE_PASSWORD), "no private key"),
    ):
        with pytest.raises(InvalidStoreError, match=word):
            read_identity(source)


@pytest.mark.parametrize("read", [read_identity, read_trusted])
def test_missing_store_is_named_once(read: Callable[[StoreSource], object], tmp_path: Path) -> None:
    missing = tmp_path / "none.pem"
    with pytest.raises(InvalidStoreError) as caught:
        read(StoreSource("PEM", str(missing)))
    assert str(caught.value) == f"cannot read the PEM store {missing}: No such file or directory"


@pytest.mark.parametrize("store_type", ["PEM", "PKCS12", "JKS"])
@pytest.mark.parametrize("read", [read_identity, read_trusted])
def test_store_that_is_no_small_file_is_rejected(
    read: Callable[[StoreSource], object], store_type: str, tmp_path: Path
) -> None:
    large = tmp_path / "large"
    large.write_bytes(bytes(SIZE_MAX + 1))
    for path, reason in (("/dev/null", "is not a regular file"), (str(large), f"has more than {SIZE_MAX} bytes")):
        with pytest.raises(InvalidStoreError) as caught:
            read(StoreSource(store_type, path))
        assert str(caught.value) == f"cannot read the {store_type} store: {path} {reason}"


def test_damaged_jks_store_is_an_error(stores: Stores, pem: Path, tmp_path: Path) -> None:
    data = stores.jks(pem).read_bytes()
    damaged = tmp_path / "damaged.jks"
    for size in (0, 3, 12, 40, len(data) // 2, len(data) - 1):
        damaged.write_bytes(data[:size])
        with pytest.raises(InvalidStoreError):
            read_identity(StoreSource("JKS", str(damaged), STORE_PASSWORD))
