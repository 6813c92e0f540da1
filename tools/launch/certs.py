"""milena-certs: makes a certificate authority, a server and a client certificate for development.

Owns what the certificates contain, the names of the files, and the settings that it prints.
"""

import argparse
import ipaddress
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tools.base.command_line import CommandLine, run_tool

DAYS = 825
"""Clients of some operating systems reject certificates that are valid for longer."""
ORGANIZATION = "Milena development"


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status."""
    return run_tool(_command_line(), _run, arguments)


def _command_line() -> CommandLine:
    line = CommandLine(
        "milena-certs",
        "This tool makes a certificate authority, a server and a client certificate for development, and prints the "
        "settings that use them.",
        ("certs localhost 127.0.0.1",),
        help_succeeds=True,
    )
    line.add_argument("folder", nargs="?", help="Where to write ca.pem, ca.key, server.pem and client.pem.")
    line.add_argument(
        "hosts", nargs="*", default=["localhost", "127.0.0.1"], help="Names and addresses of the brokers."
    )
    return line


def _run(line: CommandLine, options: argparse.Namespace) -> int:
    line.require(options, "folder")
    folder = Path(options.folder)
    try:
        make(folder, options.hosts)
    except (OSError, ValueError) as error:
        print(f"milena-certs: {error}", file=sys.stderr)
        return 1
    print(settings(folder.resolve()))
    return 0


def make(folder: Path, hosts: Sequence[str], now: datetime | None = None) -> None:
    """Write the certificates. An authority that is there is used again. Raises OSError and ValueError."""
    now = datetime.now(UTC) if now is None else now
    folder.mkdir(parents=True, exist_ok=True)
    authority_key, authority = _authority(folder, now)
    for name, common_name, names in (("server", hosts[0], hosts), ("client", "client", [])):
        key = ec.generate_private_key(ec.SECP256R1())
        usage = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH
        builder = (
            _builder(common_name, authority.subject, key, now)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usage), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False
            )
        )
        if names:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_alternative_name(each) for each in names]), critical=False
            )
        certificate = builder.sign(authority_key, hashes.SHA256())
        _write(folder / f"{name}.pem", _pem(key) + certificate.public_bytes(Encoding.PEM))


def settings(folder: Path) -> str:
    """Return the settings of a broker and of its clients, and how to try them."""
    return f"""\
# server.properties
listeners=SSL://:9093
inter.broker.listener.name=SSL
ssl.keystore.type=PEM
ssl.keystore.location={folder}/server.pem
ssl.truststore.type=PEM
ssl.truststore.location={folder}/ca.pem
# ssl.client.auth=required   (clients present client.pem; their principal is User:CN=client,O={ORGANIZATION})

# client.properties of Kafka's tools and Java clients
security.protocol=SSL
ssl.truststore.type=PEM
ssl.truststore.location={folder}/ca.pem
# ssl.keystore.type=PEM
# ssl.keystore.location={folder}/client.pem

# librdkafka: security.protocol=SSL ssl.ca.location={folder}/ca.pem"""


def _authority(folder: Path, now: datetime) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    key_path, certificate_path = folder / "ca.key", folder / "ca.pem"
    if key_path.exists() and certificate_path.exists():
        known = load_pem_private_key(key_path.read_bytes(), None)
        if not isinstance(known, ec.EllipticCurvePrivateKey):
            raise ValueError(f"{key_path}: expected a key on an elliptic curve, made by milena-certs")
        return known, x509.load_pem_x509_certificate(certificate_path.read_bytes())
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name("Milena development authority")
    certificate = (
        _builder("Milena development authority", name, key, now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    _write(key_path, _pem(key))
    _write(certificate_path, certificate.public_bytes(Encoding.PEM))
    return key, certificate


def _builder(
    common_name: str, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(_name(common_name))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=DAYS))
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, ORGANIZATION),
            x509.NameAttribute(NameOID.COMMON_NAME, common_name),
        ]
    )


def _alternative_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _write(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


if __name__ == "__main__":
    raise SystemExit(main())
