"""Names of certificates as Java writes them; the expected values were printed by Java's X500Principal."""

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from broker.security.distinguished_names import rfc2253_name

CN, O, C, OU = NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME, NameOID.COUNTRY_NAME, NameOID.ORGANIZATIONAL_UNIT_NAME  # noqa: E741


def name(*attributes: tuple[x509.ObjectIdentifier, str]) -> x509.Name:
    """Return a name from its most specific attribute to its least."""
    return x509.Name([x509.NameAttribute(oid, value) for oid, value in reversed(attributes)])


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (name((CN, "a,b"), (O, "x=y #z"), (C, "DE")), r"CN=a\,b,O=x\=y \#z,C=DE"),
        (name((CN, "zoë <q>;"), (OU, "#lead")), r"CN=zoë \<q\>\;,OU=\#lead"),
        (name((CN, "sp"), (O, r"a+b\"c\\d;e".replace("\\\\", "\\").replace('\\"', '"'))), r"CN=sp,O=a\+b\"c\\d\;e"),
        (name((CN, "w x"), (O, "y/z")), "CN=w x,O=y/z"),
        (
            name((NameOID.USER_ID, "u"), (NameOID.STATE_OR_PROVINCE_NAME, "s"), (NameOID.STREET_ADDRESS, "r")),
            "UID=u,ST=s,STREET=r",
        ),
    ],
)
def test_names_are_written_as_by_java(given: x509.Name, expected: str) -> None:
    assert rfc2253_name(given) == expected


def test_other_attributes_are_encoded() -> None:
    given = x509.Name(
        [
            x509.NameAttribute(CN, "k"),
            x509.NameAttribute(NameOID.EMAIL_ADDRESS, "x@y.z"),
        ]
    )
    assert rfc2253_name(given) == "1.2.840.113549.1.9.1=#16057840792e7a,CN=k"


def test_attributes_of_one_relative_name_are_joined() -> None:
    both = x509.RelativeDistinguishedName(
        [x509.NameAttribute(NameOID.DOMAIN_COMPONENT, "com"), x509.NameAttribute(CN, "multi")]
    )
    assert sorted(rfc2253_name(x509.Name([both])).split("+")) == ["CN=multi", "DC=com"]
