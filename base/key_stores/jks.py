"""Java's own key store format, JKS.

Owns the format. Must not know what a store is used for, or files. All integers are big-endian:

    magic FEEDFEED | version 1 or 2 | count | entries | SHA-1 of (password in UTF-16, "Mighty Aphrodite", all before)
    entry: 1 | alias | date ms | encrypted key | count | certificates        a private key with its chain
           2 | alias | date ms | certificate                                 a trusted certificate
    certificate: type (version 2) | DER

A key is protected by a stream of SHA-1 digests: `salt | key XOR stream | SHA-1(password, key)`.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from typing import NamedTuple

MAGIC = b"\xfe\xed\xfe\xed"
JCEKS_MAGIC = b"\xce\xce\xce\xce"

_DIGEST_SIZE = 20
_WHITENER = b"Mighty Aphrodite"
_KEY_ENTRY, _CERTIFICATE_ENTRY = 1, 2
_FIRST_VERSION_WITH_TYPES = 2
_KEY_PROTECTOR_OID = bytes.fromhex("060a2b060104012a02110101")  # 1.3.6.1.4.1.42.2.17.1.1


class JksError(ValueError):
    """The store cannot be read. The message states why, and names no password."""


class KeyEntry(NamedTuple):
    """A private key, still protected by its password, and its certificate chain in DER."""

    alias: str
    protected_key: bytes
    chain: list[bytes]


class JksStore(NamedTuple):
    """The entries of a store. Trusted certificates are in DER."""

    keys: list[KeyEntry]
    trusted: list[bytes]


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def take(self, size: int) -> bytes:
        end = self._position + size
        if end > len(self._data):
            raise JksError("the store is cut short")
        piece = self._data[self._position : end]
        self._position = end
        return piece

    def number(self, layout: str) -> int:
        return int(struct.unpack(f">{layout}", self.take(struct.calcsize(layout)))[0])

    def text(self) -> str:
        return self.take(self.number("H")).decode("utf-8", "replace")

    def piece(self) -> bytes:
        return self.take(self.number("I"))


def read_jks(data: bytes, password: str | None) -> JksStore:
    """Return the entries of a store after checking its integrity. Raises JksError.

    As in Java, the integrity of a store is not checked without a password.
    """
    body, digest = data[:-_DIGEST_SIZE], data[-_DIGEST_SIZE:]
    if password is not None:
        expected = hashlib.sha1(_utf16(password) + _WHITENER + body, usedforsecurity=False).digest()
        if not hmac.compare_digest(expected, digest):
            raise JksError("the password is wrong, or the store is damaged")
    reader = _Reader(body)
    if reader.take(len(MAGIC)) != MAGIC:
        raise JksError("this is no JKS store")
    version = reader.number("I")
    if version not in (1, 2):
        raise JksError(f"version {version} of JKS is unknown, expected 1 or 2")
    store = JksStore([], [])
    for _ in range(reader.number("I")):
        tag, alias = reader.number("I"), reader.text()
        reader.number("Q")  # the date of its creation
        if tag == _KEY_ENTRY:
            protected = reader.piece()
            chain = [_certificate(reader, version) for _ in range(reader.number("I"))]
            store.keys.append(KeyEntry(alias, protected, chain))
        elif tag == _CERTIFICATE_ENTRY:
            store.trusted.append(_certificate(reader, version))
        else:
            raise JksError(f"an entry of the unknown kind {tag}")
    return store


def decrypted_key(entry: KeyEntry, password: str) -> bytes:
    """Return a private key in PKCS#8 DER. Raises JksError."""
    protected = _protected_data(entry.protected_key)
    salt, sealed, check = protected[:_DIGEST_SIZE], protected[_DIGEST_SIZE:-_DIGEST_SIZE], protected[-_DIGEST_SIZE:]
    secret = _utf16(password)
    stream = bytearray()
    previous = salt
    while len(stream) < len(sealed):
        previous = hashlib.sha1(secret + previous, usedforsecurity=False).digest()
        stream += previous
    key = bytes(a ^ b for a, b in zip(sealed, stream, strict=False))
    if not hmac.compare_digest(hashlib.sha1(secret + key, usedforsecurity=False).digest(), check):
        raise JksError(f"the password of the key {entry.alias!r} is wrong")
    return key


def _certificate(reader: _Reader, version: int) -> bytes:
    if version >= _FIRST_VERSION_WITH_TYPES:
        kind = reader.text()
        if kind != "X.509":
            raise JksError(f"a certificate of the unknown type {kind!r}")
    return reader.piece()


def _protected_data(encoded: bytes) -> bytes:
    """Return the octets of an EncryptedPrivateKeyInfo: SEQUENCE { SEQUENCE { OID, NULL }, OCTET STRING }."""
    outer = _Der(encoded).content(0x30)
    parts = _Der(outer)
    algorithm = parts.content(0x30)
    if not algorithm.startswith(_KEY_PROTECTOR_OID):
        raise JksError("a key is encrypted by an unknown algorithm")
    data = parts.content(0x04)
    if len(data) < 2 * _DIGEST_SIZE:
        raise JksError("an encrypted key is too short")
    return data


class _Der:
    """Reads consecutive DER values."""

    def __init__(self, data: bytes) -> None:
        self._reader = _Reader(data)

    def content(self, tag: int) -> bytes:
        """Return the content of the next value, which must have `tag`."""
        if self._reader.number("B") != tag:
            raise JksError("an encrypted key is malformed")
        length = self._reader.number("B")
        if length & 0x80:
            length = int.from_bytes(self._reader.take(length & 0x7F), "big")
        return self._reader.take(length)


def _utf16(password: str) -> bytes:
    return password.encode("utf-16-be")
