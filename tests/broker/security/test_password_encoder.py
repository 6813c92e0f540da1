"""Passwords in stored settings."""

import pytest

from broker.security.password_encoder import CannotDecode, CannotEncode, PasswordEncoder
from config.broker import BrokerConfig


def encoder(**settings: str) -> PasswordEncoder:
    """With `password.encoder.` before each name, underscores for dots."""
    named = {f"password.encoder.{key.replace('_', '.')}": value for key, value in settings.items()}
    return PasswordEncoder(BrokerConfig.from_properties(named))


@pytest.mark.parametrize("password", ["", "a", "sixteen bytes it", "with , and : and = in it", "ünïcödé" * 20])
@pytest.mark.parametrize("settings", [{}, {"key_length": "256"}, {"keyfactory_algorithm": "PBKDF2WithHmacSHA1"}])
def test_decoded_password_equals_the_encoded_one(password: str, settings: dict[str, str]) -> None:
    secret = {"secret": "s", "iterations": "1024"}
    text = encoder(**secret, **settings).encode(password)
    assert len(password) < 4 or password not in text
    assert encoder(**secret).decode(text) == password, "the text says itself how it was made"


def test_encoded_text_has_kafkas_members() -> None:
    members = dict(pair.split(":") for pair in encoder(secret="s").encode("password").split(","))
    assert set(members) == {
        "keyFactoryAlgorithm",
        "cipherAlgorithm",
        "keyLength",
        "salt",
        "iterations",
        "encryptedPassword",
        "passwordLength",
        "initializationVector",
    }
    assert (members["keyLength"], members["iterations"], members["passwordLength"]) == ("128", "4096", "8")


def test_a_new_secret_reads_what_the_old_one_wrote() -> None:
    text = encoder(secret="old").encode("password")
    assert encoder(secret="new", old_secret="old").decode(text) == "password"


def test_password_under_the_old_secret_is_encoded_again() -> None:
    both = encoder(secret="new", old_secret="old")
    assert both.is_encoded_before(encoder(secret="old").encode("password"))
    assert not both.is_encoded_before(encoder(secret="new").encode("password"))
    assert not encoder(secret="old").is_encoded_before(encoder(secret="old").encode("password"))


@pytest.mark.parametrize("text", ["", "password", "cipherAlgorithm:none", "a:b,c"])
def test_malformed_encrypted_password_cannot_be_decoded(text: str) -> None:
    with pytest.raises(CannotDecode):
        encoder(secret="s").decode(text)


def test_another_secret_does_not_read_it() -> None:
    text = encoder(secret="one").encode("password")
    for other in (encoder(secret="two"), encoder()):
        with pytest.raises(CannotDecode):
            other.decode(text)


def test_without_a_secret_nothing_is_written() -> None:
    with pytest.raises(CannotEncode, match="Password encoder secret not configured"):
        encoder().encode("password")
    with pytest.raises(CannotEncode):
        encoder(secret="s", cipher_algorithm="DES").encode("password")
