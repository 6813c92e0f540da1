"""An identity provider for tests: keys, their key set, and the tokens that they sign."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from functools import cached_property
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature


def encoded(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")


def _number(value: int) -> str:
    return encoded(value.to_bytes((value.bit_length() + 7) // 8, "big"))


class IdentityProvider:
    """One RSA key, `rsa`, and one on a curve, `ec`, which are made when they are used first."""

    def __init__(self, rsa_bits: int = 2048) -> None:
        self._rsa_bits = rsa_bits

    @cached_property
    def _rsa(self) -> rsa.RSAPrivateKey:
        return rsa.generate_private_key(65537, self._rsa_bits)

    @cached_property
    def _ec(self) -> ec.EllipticCurvePrivateKey:
        return ec.generate_private_key(ec.SECP256R1())

    @property
    def key_set(self) -> bytes:
        return json.dumps(self.key_set_document).encode()

    @property
    def key_set_document(self) -> dict[str, Any]:
        rsa_numbers, ec_numbers = self._rsa.public_key().public_numbers(), self._ec.public_key().public_numbers()
        keys = [
            {"kty": "RSA", "kid": "rsa", "n": _number(rsa_numbers.n), "e": _number(rsa_numbers.e)},
            {"kty": "EC", "kid": "ec", "crv": "P-256", "x": _number(ec_numbers.x), "y": _number(ec_numbers.y)},
            {"kty": "oct", "kid": "symmetric", "k": "AAAA"},
        ]
        return {"keys": keys}

    def publish(self, path: Path) -> str:
        """Write the key set to a file and return its URL."""
        path.write_bytes(self.key_set)
        return path.as_uri()

    def token(self, claims: dict[str, Any], *, algorithm: str = "RS256", key_id: str | None = None) -> str:
        key_id = key_id or ("ec" if algorithm == "ES256" else "rsa")
        header = {"alg": algorithm, "kid": key_id}
        signed = f"{encoded(json.dumps(header).encode())}.{encoded(json.dumps(claims).encode())}"
        return f"{signed}.{encoded(self._signature(algorithm, signed.encode()))}"

    def _signature(self, algorithm: str, signed: bytes) -> bytes:
        digest = hashes.SHA256()
        if algorithm == "ES256":
            r, s = decode_dss_signature(self._ec.sign(signed, ec.ECDSA(digest)))
            return r.to_bytes(32, "big") + s.to_bytes(32, "big")
        if algorithm == "PS256":
            return self._rsa.sign(signed, padding.PSS(padding.MGF1(digest), 32), digest)
        return self._rsa.sign(signed, padding.PKCS1v15(), digest)
