"""Encrypts passwords in stored settings with the secret that all brokers share, in Kafka's text form.

Owns that form: `name:value` pairs, separated by commas, which include the parameters of the encryption, so that the
settings of the cipher may change later. Must not know which settings are passwords.

The library of the cipher takes time and memory to load, and most brokers store no password. So it is imported on first
use.
"""

from __future__ import annotations

import hashlib
from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from config import broker_properties as rows
from config.broker import BrokerConfig

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.modes import CBC
    from cryptography.hazmat.primitives.padding import PKCS7

CIPHER = "AES/CBC/PKCS5Padding"
DIGESTS = {"PBKDF2WithHmacSHA512": "sha512", "PBKDF2WithHmacSHA256": "sha256", "PBKDF2WithHmacSHA1": "sha1"}
STRONGEST = "PBKDF2WithHmacSHA512"
SALT_SIZE = 256
BLOCK_BITS = 128


class CannotEncode(ValueError):  # noqa: N818 - the name states the condition
    """No secret is configured, or the configured cipher is not available."""


class CannotDecode(ValueError):  # noqa: N818
    """The text is not an encrypted password, or was encrypted with another secret."""


class _Derivation(NamedTuple):
    algorithm: str
    salt: bytes
    iterations: int
    key_bits: int

    def key(self, secret: str) -> bytes:
        digest = DIGESTS[self.algorithm]
        return hashlib.pbkdf2_hmac(digest, secret.encode(), self.salt, self.iterations, self.key_bits // 8)


class PasswordEncoder:
    """Encodes with the broker's secret; decodes with that or with the one before it."""

    def __init__(self, config: BrokerConfig) -> None:
        secrets = (config[rows.PASSWORD_ENCODER_SECRET], config[rows.PASSWORD_ENCODER_OLD_SECRET])
        self._secret = None if secrets[0] is None else secrets[0].value
        self._secrets: Sequence[str] = [secret.value for secret in secrets if secret is not None]
        self._cipher = config[rows.PASSWORD_ENCODER_CIPHER_ALGORITHM]
        self._algorithm = config[rows.PASSWORD_ENCODER_KEYFACTORY_ALGORITHM] or STRONGEST
        self._iterations = config[rows.PASSWORD_ENCODER_ITERATIONS]
        self._key_bits = config[rows.PASSWORD_ENCODER_KEY_LENGTH]

    def encode(self, password: str) -> str:
        """Return the text to store. Raises CannotEncode."""
        if self._secret is None:
            raise CannotEncode("Password encoder secret not configured")
        if self._cipher != CIPHER or self._algorithm not in DIGESTS:
            raise CannotEncode(f"{self._algorithm} with {self._cipher} is not available, expected {CIPHER}")
        from secrets import token_bytes  # on demand

        derivation = _Derivation(self._algorithm, token_bytes(SALT_SIZE), self._iterations, self._key_bits)
        vector = token_bytes(BLOCK_BITS // 8)
        cipher, padding = _cipher(derivation.key(self._secret), vector)
        padder, encryptor = padding.padder(), cipher.encryptor()
        encrypted = encryptor.update(padder.update(password.encode()) + padder.finalize()) + encryptor.finalize()
        members = {
            "keyFactoryAlgorithm": derivation.algorithm,
            "cipherAlgorithm": CIPHER,
            "keyLength": str(derivation.key_bits),
            "salt": b64encode(derivation.salt).decode(),
            "iterations": str(derivation.iterations),
            "encryptedPassword": b64encode(encrypted).decode(),
            "passwordLength": str(len(password)),
            "initializationVector": b64encode(vector).decode(),
        }
        return ",".join(f"{name}:{value}" for name, value in members.items())

    def is_encoded_before(self, text: str) -> bool:
        """Return whether only the secret before opens a stored text, so that it has to be encoded again."""
        if self._secret is None or len(self._secrets) < 2:
            return False
        try:
            _decoded(text, self._secret)
        except (ValueError, KeyError):
            return True
        return False

    def decode(self, text: str) -> str:
        """Return the password of a stored text. Raises CannotDecode."""
        for secret in self._secrets:
            try:
                return _decoded(text, secret)
            except (ValueError, KeyError):
                continue
        raise CannotDecode("a stored password cannot be read with password.encoder.secret")


def _cipher(key: bytes, vector: bytes) -> tuple[Cipher[CBC], PKCS7]:
    """Return `CIPHER` and its padding."""
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.algorithms import AES
    from cryptography.hazmat.primitives.ciphers.modes import CBC
    from cryptography.hazmat.primitives.padding import PKCS7

    return Cipher(AES(key), CBC(vector)), PKCS7(BLOCK_BITS)


def _decoded(text: str, secret: str) -> str:
    members = {name: value for name, _, value in (pair.partition(":") for pair in text.split(","))}
    if members["cipherAlgorithm"] != CIPHER:
        raise ValueError(members["cipherAlgorithm"])
    derivation = _Derivation(
        members["keyFactoryAlgorithm"],
        b64decode(members["salt"]),
        int(members["iterations"]),
        int(members["keyLength"]),
    )
    cipher, padding = _cipher(derivation.key(secret), b64decode(members["initializationVector"]))
    decryptor, unpadder = cipher.decryptor(), padding.unpadder()
    padded = decryptor.update(b64decode(members["encryptedPassword"])) + decryptor.finalize()
    password = (unpadder.update(padded) + unpadder.finalize()).decode()
    if len(password) != int(members["passwordLength"]):
        raise ValueError("sizes of original and decoded passwords differ")
    return password
