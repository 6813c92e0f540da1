"""Names of certificate subjects in Java's RFC 2253 form.

Owns that form. Must not know connections, or what a name is used for. The library for certificates takes time and
memory to load, and a broker without TLS needs none of it; so only modules for listeners with TLS import this one.

A name lists the relative names from the most specific to the least. Java writes nine attribute types by their keyword,
others as `oid=#hex of the encoded value`.
"""

from __future__ import annotations

from collections.abc import Mapping

from cryptography import x509
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID, ObjectIdentifier

KEYWORDS: Mapping[ObjectIdentifier, str] = {
    NameOID.COMMON_NAME: "CN",
    NameOID.COUNTRY_NAME: "C",
    NameOID.LOCALITY_NAME: "L",
    NameOID.STATE_OR_PROVINCE_NAME: "ST",
    NameOID.ORGANIZATION_NAME: "O",
    NameOID.ORGANIZATIONAL_UNIT_NAME: "OU",
    NameOID.STREET_ADDRESS: "STREET",
    NameOID.DOMAIN_COMPONENT: "DC",
    NameOID.USER_ID: "UID",
}

_ESCAPED = frozenset(',=+<>#;"\\')
_LONG_LENGTH = 0x80


def subject_of(certificate: bytes) -> str:
    """Return the subject of a DER certificate. Raises ValueError if it cannot be read."""
    return rfc2253_name(x509.load_der_x509_certificate(certificate).subject)


def rfc2253_name(name: x509.Name) -> str:
    return ",".join("+".join(map(_attribute, rdn)) for rdn in reversed(name.rdns))


def _attribute(attribute: x509.NameAttribute[str | bytes]) -> str:
    keyword = KEYWORDS.get(attribute.oid)
    if keyword is None:
        return f"{attribute.oid.dotted_string}=#{_encoded(attribute).hex()}"
    value = attribute.value if isinstance(attribute.value, str) else attribute.value.decode("latin-1")
    return f"{keyword}={_escaped(value)}"


def _escaped(value: str) -> str:
    escaped = "".join(
        "\\00" if character == "\0" else f"\\{character}" if character in _ESCAPED else character for character in value
    )
    inner = escaped.strip(" ")
    leading = len(escaped) - len(escaped.lstrip(" "))
    trailing = len(escaped) - leading - len(inner)
    return "\\ " * leading + inner + "\\ " * trailing


def _encoded(attribute: x509.NameAttribute[str | bytes]) -> bytes:
    """Return the DER encoding of an attribute's value."""
    match attribute.value, attribute._type:
        case bytes() as value, _:
            content = value
        case str() as value, _ASN1Type.BMPString:
            content = value.encode("utf-16-be")
        case str() as value, _ASN1Type.UTF8String:
            content = value.encode()
        case value, _:
            content = str(value).encode("latin-1", "replace")
    size = len(content)
    length = bytes([size]) if size < _LONG_LENGTH else _long_length(size)
    return bytes([attribute._type.value]) + length + content


def _long_length(size: int) -> bytes:
    encoded = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([_LONG_LENGTH | len(encoded)]) + encoded
