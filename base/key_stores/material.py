"""Keys and certificates from PEM, PKCS#12 and JKS stores, as PEM for the TLS library.

Owns which store holds what, and the texts of errors, which name the file and never a password. Must not know settings.
As Java does, a store of type JKS or PKCS12 is read by its content: JKS begins with its magic number.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_der_private_key,
    load_pem_private_key,
    pkcs12,
)

from base.dataclass import dataclass
from base.key_stores import jks
from base.small_file import UnsuitableFileError, read_small_file

PEM, JKS, PKCS12 = "PEM", "JKS", "PKCS12"
TYPES = (JKS, PKCS12, PEM)

_DIGEST_SIZE_MIN, _RSA_BITS_MIN = 28, 2048
_KEY_BLOCK = re.compile(rb"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----.*?-----END (?:[A-Z]+ )*PRIVATE KEY-----", re.DOTALL)


class InvalidStoreError(ValueError):
    """A store cannot be used. The message names it and states why."""


@dataclass(frozen=True, slots=True)
class StoreSource:
    """Where a store is: a file, or PEM text in settings."""

    type: str
    location: str | None = None
    password: str | None = None
    key_password: str | None = None
    inline_key: str | None = None
    inline_certificates: str | None = None

    @property
    def is_given(self) -> bool:
        return self.location is not None or self.inline_key is not None or self.inline_certificates is not None

    def __str__(self) -> str:
        return f"{self.type} store {self.location}" if self.location is not None else f"inline {self.type} store"


@dataclass(frozen=True, slots=True)
class Identity:
    """A private key (PKCS#8 in PEM, not encrypted) with its certificate chain, the owner's first."""

    key: bytes
    chain: Sequence[x509.Certificate]

    def __repr__(self) -> str:
        return f"Identity({self.chain[0].subject.rfc4514_string()})"  # the key is a secret

    @property
    def pem(self) -> bytes:
        """The key and the chain."""
        return self.key + b"".join(certificate.public_bytes(Encoding.PEM) for certificate in self.chain)


def read_identity(source: StoreSource) -> Identity:
    """Return the private key and chain of a key store. Raises InvalidStoreError."""
    try:
        if source.type == PEM:
            return _identity_of_pem(source)
        data = _content(source)
        if _is_jks(data):
            return _identity_of_jks(data, source)
        return _identity_of_pkcs12(data, source)
    except InvalidStoreError:
        raise
    except Exception as error:
        raise InvalidStoreError(f"cannot read the {source}: {error}") from error


def read_trusted(source: StoreSource) -> list[x509.Certificate]:
    """Return the certificates of a trust store. Raises InvalidStoreError."""
    try:
        certificates = _trusted(source)
    except InvalidStoreError:
        raise
    except Exception as error:
        raise InvalidStoreError(f"cannot read the {source}: {error}") from error
    if not certificates:
        raise InvalidStoreError(f"the {source} has no trusted certificate")
    return certificates


def weaknesses(identity: Identity) -> list[str]:
    """Return what is weak in the chain: signatures with SHA-1 or MD5, and RSA keys of less than 2048 bits."""
    found = []
    for certificate in identity.chain:
        name, algorithm = certificate.subject.rfc4514_string(), certificate.signature_hash_algorithm
        is_self_signed = certificate.issuer == certificate.subject
        if algorithm is not None and algorithm.digest_size < _DIGEST_SIZE_MIN and not is_self_signed:
            found.append(f"the certificate of {name} is signed with {algorithm.name.upper().replace('SHA', 'SHA-')}")
        key = certificate.public_key()
        if isinstance(key, RSAPublicKey) and key.key_size < _RSA_BITS_MIN:
            found.append(f"the key of {name} has {key.key_size} bits")
    return found


def as_pem(certificates: Iterable[x509.Certificate]) -> str:
    """Return certificates as PEM text."""
    return "".join(certificate.public_bytes(Encoding.PEM).decode() for certificate in certificates)


def _trusted(source: StoreSource) -> list[x509.Certificate]:
    if source.type == PEM:
        text = source.inline_certificates
        data = _content(source) if text is None else text.encode()
        return x509.load_pem_x509_certificates(data)
    data = _content(source)
    if _is_jks(data):
        return [x509.load_der_x509_certificate(one) for one in jks.read_jks(data, source.password).trusted]
    store = pkcs12.load_pkcs12(data, (source.password or "").encode())
    own = [] if store.key is not None or store.cert is None else [store.cert]
    return [entry.certificate for entry in (*own, *store.additional_certs)]


def _content(source: StoreSource) -> bytes:
    if source.location is None:
        raise InvalidStoreError(f"the {source} needs a location")
    try:
        return read_small_file(source.location)
    except OSError as error:
        raise InvalidStoreError(f"cannot read the {source}: {error.strerror}") from error
    except UnsuitableFileError as error:
        raise InvalidStoreError(f"cannot read the {source.type} store: {error}") from error


def _is_jks(data: bytes) -> bool:
    if data.startswith(jks.JCEKS_MAGIC):
        raise ValueError("stores of type JCEKS are not supported, expected JKS, PKCS12 or PEM")
    return data.startswith(jks.MAGIC)


def _identity_of_pem(source: StoreSource) -> Identity:
    if source.inline_key is not None or source.inline_certificates is not None:
        if source.inline_key is None or source.inline_certificates is None:
            raise InvalidStoreError(f"the {source} needs a private key and a certificate chain")
        key_text, chain_text = source.inline_key.encode(), source.inline_certificates.encode()
    else:
        if source.password is not None:
            raise InvalidStoreError(
                f"the {source} has a store password; a PEM store has none, expected ssl.key.password at most"
            )
        key_text = chain_text = _content(source)
    block = _KEY_BLOCK.search(key_text)
    if block is None:
        raise InvalidStoreError(f"the {source} has no private key")
    password = None if source.key_password is None else source.key_password.encode()
    return _identity(load_pem_private_key(block[0], password), x509.load_pem_x509_certificates(chain_text), source)


def _identity_of_jks(data: bytes, source: StoreSource) -> Identity:
    password = source.password or ""
    store = jks.read_jks(data, password)
    if not store.keys:
        raise InvalidStoreError(f"the {source} has no private key")
    entry = store.keys[0]
    key = jks.decrypted_key(entry, password if source.key_password is None else source.key_password)
    chain = [x509.load_der_x509_certificate(one) for one in entry.chain]
    return _identity(load_der_private_key(key, None), chain, source)


def _identity_of_pkcs12(data: bytes, source: StoreSource) -> Identity:
    store = pkcs12.load_pkcs12(data, (source.password or "").encode())
    if store.key is None or store.cert is None:
        raise InvalidStoreError(f"the {source} has no private key")
    others = [entry.certificate for entry in store.additional_certs]
    return _identity(store.key, _in_order(store.cert.certificate, others), source)


def _identity(key: PrivateKeyTypes, chain: Sequence[x509.Certificate], source: StoreSource) -> Identity:
    if not chain:
        raise InvalidStoreError(f"the {source} has no certificate for its private key")
    if chain[0].public_key() != key.public_key():
        raise InvalidStoreError(f"the first certificate of the {source} does not belong to its private key")
    return Identity(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), chain)


def _in_order(own: x509.Certificate, others: Sequence[x509.Certificate]) -> list[x509.Certificate]:
    """Return the chain of `own`: each certificate is followed by that of its issuer."""
    chain = [own]
    while chain[-1].issuer != chain[-1].subject:
        issuer = next((one for one in others if one.subject == chain[-1].issuer and one not in chain), None)
        if issuer is None:
            break
        chain.append(issuer)
    return chain
