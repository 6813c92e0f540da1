"""Types: which texts are values, how values print, and what an error says."""

import pytest

from config.definition import (
    ConfigError,
    ConfigErrors,
    ConfigType,
    Importance,
    Password,
    Property,
    UpdateMode,
    text_of,
)
from config.validators import Range


def row(config_type: ConfigType) -> Property[object]:
    return Property("some.key", config_type, None, UpdateMode.READ_ONLY, Importance.LOW, "A setting.")


@pytest.mark.parametrize(
    ("config_type", "text", "value"),
    [
        (ConfigType.BOOLEAN, "true", True),
        (ConfigType.BOOLEAN, " FALSE ", False),
        (ConfigType.INT, "2147483647", 2147483647),
        (ConfigType.INT, "-2147483648", -2147483648),
        (ConfigType.INT, " +7 ", 7),
        (ConfigType.INT, "007", 7),
        (ConfigType.SHORT, "-32768", -32768),
        (ConfigType.LONG, "9223372036854775807", 9223372036854775807),
        (ConfigType.DOUBLE, "1e3", 1000.0),
        (ConfigType.DOUBLE, ".5", 0.5),
        (ConfigType.DOUBLE, "5.", 5.0),
        (ConfigType.DOUBLE, "0.25d", 0.25),
        (ConfigType.LIST, "", ()),
        (ConfigType.LIST, " a , b,c ", ("a", "b", "c")),
        (ConfigType.STRING, " text ", "text"),
        (ConfigType.CLASS, "a.b.C", "a.b.C"),
        (ConfigType.PASSWORD, "secret", Password("secret")),
    ],
)
def test_valid_texts_are_parsed(config_type: ConfigType, text: str, value: object) -> None:
    assert row(config_type).parse(text) == value


@pytest.mark.parametrize(
    ("config_type", "text", "expected"),
    [
        (ConfigType.BOOLEAN, "yes", "Expected value to be either true or false"),
        (ConfigType.BOOLEAN, "", "Expected value to be either true or false"),
        (ConfigType.INT, "2147483648", "Not a number of type INT"),
        (ConfigType.INT, "1g", "Not a number of type INT"),
        (ConfigType.INT, "1.5", "Not a number of type INT"),
        (ConfigType.INT, "1_000", "Not a number of type INT"),
        (ConfigType.INT, "٣", "Not a number of type INT"),
        (ConfigType.INT, "9" * 100, "Not a number of type INT"),
        (ConfigType.SHORT, "32768", "Not a number of type SHORT"),
        (ConfigType.LONG, "9223372036854775808", "Not a number of type LONG"),
        (ConfigType.DOUBLE, "NaN", "Not a number of type DOUBLE"),
        (ConfigType.DOUBLE, "1e999", "Not a number of type DOUBLE"),
        (ConfigType.DOUBLE, "1_0.0", "Not a number of type DOUBLE"),
    ],
)
def test_invalid_texts_are_rejected(config_type: ConfigType, text: str, expected: str) -> None:
    with pytest.raises(ConfigError) as failure:
        row(config_type).parse(text)
    assert str(failure.value) == f"Invalid value {text} for configuration some.key: {expected}"
    assert (failure.value.key, failure.value.value, failure.value.expected) == ("some.key", text, expected)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, None),
        (True, "true"),
        (False, "false"),
        (7, "7"),
        (("a", "b"), "a,b"),
        ((), ""),
        ("text", "text"),
        (Password("secret"), "[hidden]"),
        # What Java's Double.toString makes of the same numbers:
        (0.0, "0.0"),
        (1.0, "1.0"),
        (0.5, "0.5"),
        (-0.25, "-0.25"),
        (0.001, "0.001"),
        (0.00099, "9.9E-4"),
        (9999999.0, "9999999.0"),
        (10000000.0, "1.0E7"),
        (12345678.9, "1.23456789E7"),
        (1e21, "1.0E21"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (100.0, "100.0"),
        (123456.789, "123456.789"),
        (1e-5, "1.0E-5"),
        (2147483647.0, "2.147483647E9"),
    ],
)
def test_values_print_as_java_prints_them(value: object, text: str | None) -> None:
    assert text_of(value) == text


def test_passwords_are_not_printed() -> None:
    secret = Password("hunter2")
    assert f"{secret} {secret!r} {secret}" == "[hidden] [hidden] [hidden]"
    assert secret == Password("hunter2")
    assert secret != Password("other")
    assert hash(secret) == hash(Password("hunter2"))


def test_secrets_are_not_in_error_messages() -> None:
    secret = Property(
        "a.password", ConfigType.PASSWORD, None, UpdateMode.READ_ONLY, Importance.LOW, "A secret.", _RefuseAll()
    )
    with pytest.raises(ConfigError) as failure:
        secret.parse("hunter2")
    assert "hunter2" not in str(failure.value)


def test_all_errors_are_in_the_message() -> None:
    errors = ConfigErrors([ConfigError("a", "1", "two"), ConfigError("b", None, "three")])
    assert str(errors).splitlines() == [
        "Invalid value 1 for configuration a: two",
        "Invalid value null for configuration b: three",
    ]


def test_validator_runs_after_the_type_check() -> None:
    bounded = Property("a", ConfigType.INT, 1, UpdateMode.READ_ONLY, Importance.LOW, "A.", Range(1, 9))
    assert bounded.parse("9") == 9
    with pytest.raises(ConfigError, match="no more than 9"):
        bounded.parse("10")
    assert bounded.valid_values == "[1,...,9]"


class _RefuseAll:
    def problem(self, value: object) -> str | None:
        return "something else"

    def describe(self) -> str:
        return ""


def test_an_error_message_shortens_a_long_value() -> None:
    message = str(ConfigError("num.partitions", "\n" + "7" * 1_000_000, "Not a number"))
    assert message.startswith("Invalid value \\n777")
    assert message.endswith("... for configuration num.partitions: Not a number")
    assert len(message) < 2_100
