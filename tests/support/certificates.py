"""Certificates for tests: an authority, and stores of every type that hold what it issues.

Owns how stores are made: PEM by `trustme`, PKCS#12 by the library, JKS by Java's keytool.
"""

from __future__ import annotations

import subprocess
from datetime import datetime, timedelta
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.hashes import SHA1
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    load_pem_private_key,
    pkcs12,
)

from tests.support.java import SHORT_LIVED

SHA256_WITH_RSA, SHA1_WITH_RSA = (bytes.fromhex(f"06092a864886f70d0101{last}") for last in ("0b", "05"))
STORE_PASSWORD, KEY_PASSWORD = "store secret", "key secret"


class Stores:
    """An authority and the stores that it fills in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.authority = trustme.CA(organization_name="Milena tests")
        self.ca = self._write("ca.pem", self.authority.cert_pem.bytes())

    def issue(self, name: str, common_name: str, *, not_after: datetime | None = None) -> Path:
        """Return a PEM file with a key and its chain for 127.0.0.1 and localhost."""
        certificate = self.authority.issue_cert(
            "localhost",
            "127.0.0.1",
            common_name=common_name,
            organization_unit_name="tests",
            not_before=None if not_after is None else not_after - timedelta(days=1),
            not_after=not_after,
        )
        return self._write(f"{name}.pem", certificate.private_key_and_cert_chain_pem.bytes())

    def issue_with_sha1(self, name: str, common_name: str) -> tuple[Path, Path]:
        """Return a PEM file with a key and its certificate, signed with SHA-1, and one with its authority.

        The library makes no such signatures, so one with SHA-256 is replaced: all lengths stay.
        """
        authority = trustme.CA(key_type=trustme.KeyType.RSA)
        issued = authority.issue_cert("localhost", common_name=common_name)
        certificate = x509.load_pem_x509_certificate(issued.cert_chain_pems[0].bytes())
        issuer_key = load_pem_private_key(authority.private_key_pem.bytes(), None)
        assert isinstance(issuer_key, RSAPrivateKey)
        signed = certificate.tbs_certificate_bytes.replace(SHA256_WITH_RSA, SHA1_WITH_RSA)
        signature = issuer_key.sign(signed, PKCS1v15(), SHA1())
        der = certificate.public_bytes(Encoding.DER).replace(SHA256_WITH_RSA, SHA1_WITH_RSA)
        weak = x509.load_der_x509_certificate(der[: -len(signature)] + signature)
        data = issued.private_key_pem.bytes() + weak.public_bytes(Encoding.PEM)
        return self._write(f"{name}.pem", data), self._write(f"{name}-ca.pem", authority.cert_pem.bytes())

    def pkcs12(self, pem: Path, password: str = STORE_PASSWORD) -> Path:
        """Return a PKCS#12 store with the key and chain of a PEM file."""
        data = pem.read_bytes()
        own, *others = x509.load_pem_x509_certificates(data)
        key = load_pem_private_key(data, None)
        others = [*others, *x509.load_pem_x509_certificates(self.ca.read_bytes())]
        encryption = BestAvailableEncryption(password.encode()) if password else NoEncryption()
        store = pkcs12.serialize_key_and_certificates(b"own", key, own, others, encryption)  # type: ignore[arg-type]
        return self._write(f"{pem.stem}.p12", store)

    def jks(self, pem: Path, key_password: str = STORE_PASSWORD) -> Path:
        """Return a JKS store with the key and chain of a PEM file."""
        target = self.folder / f"{pem.stem}.jks"
        if target.exists():
            return target
        self._keytool(
            *("-importkeystore", "-srckeystore", str(self.pkcs12(pem)), "-srcstoretype", "PKCS12"),
            *("-srcstorepass", STORE_PASSWORD, "-destkeystore", str(target), "-deststoretype", "JKS"),
            *("-deststorepass", STORE_PASSWORD, "-destkeypass", key_password, "-srcalias", "own"),
        )
        return target

    def trust_store(self, store_type: str) -> Path:
        """Return a store that trusts the authority: PEM, or made by keytool."""
        if store_type == "PEM":
            return self.ca
        target = self.folder / f"trust.{store_type.lower()}"
        if target.exists():
            return target
        self._keytool(
            *("-importcert", "-noprompt", "-alias", "ca", "-file", str(self.ca), "-keystore", str(target)),
            *("-storetype", store_type, "-storepass", STORE_PASSWORD),
        )
        return target

    def _keytool(self, *arguments: str) -> None:
        options = [f"-J{option}" for option in SHORT_LIVED]
        subprocess.run(["keytool", *options, *arguments], check=True, capture_output=True, text=True)

    def _write(self, name: str, content: bytes) -> Path:
        path = self.folder / name
        path.write_bytes(content)
        return path
