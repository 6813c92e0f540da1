"""Checks of single values: what passes, and the words of what does not."""

import math

import pytest

from config.validators import Check, KnownClass, NotEmpty, OneOf, Principals, Range, RangeOr, Validator

LEVEL = RangeOr(Range(1, 9), -1, "[1,...,9] or -1", "Value must be between 1 and 9 or equal to -1")


@pytest.mark.parametrize(
    ("validator", "value", "problem"),
    [
        (Range(1), 1, None),
        (Range(1), None, None),
        (Range(1), 0, "Value must be at least 1"),
        (Range(0, 1), 0.5, None),
        (Range(0, 1), 1.1, "Value must be no more than 1"),
        (Range(0, 1), math.nan, "Value must be at least 0"),
        (LEVEL, -1, None),
        (LEVEL, 9, None),
        (LEVEL, None, None),
        (LEVEL, 0, "Value must be between 1 and 9 or equal to -1"),
        (OneOf(("a", "b")), "a", None),
        (OneOf(("a", "b")), None, None),
        (OneOf(("a", "b")), "c", "String must be one of: a, b"),
        (OneOf(("a", "b")), ("a", "b"), None),
        (OneOf(("a", "b")), ("a", ""), "String must be one of: a, b"),
        (OneOf(("a", "b")), (), None),
        (NotEmpty("non-empty list"), (), "must be a non-empty list"),
        (NotEmpty("non-empty list"), None, None),
        (NotEmpty("non-empty string"), "x", None),
        (KnownClass("Xs are", ("a.B",)), "a.B", None),
        (KnownClass("Xs are", ("a.B",)), None, None),
        (
            KnownClass("Xs are", ("a.B",)),
            "c.D",
            "Xs are not supported yet, expected one of a.B; see docs/not-yet.md",
        ),
        (KnownClass("Xs are"), "c.D", "Xs are not supported yet, expected no class; see docs/not-yet.md"),
        (Check(lambda value: None if value == 1 else "one"), 2, "one"),
        (Principals(), "User:a; User:CN=b,O=c;", None),
        (Principals(), None, None),
        (
            Principals(),
            "User:a;admin",
            "expected principals as Type:name separated by semicolons, such as User:admin; found admin",
        ),
    ],
)
def test_validator_returns_the_problem_of_a_value(validator: Validator, value: object, problem: str | None) -> None:
    assert validator.problem(value) == problem


@pytest.mark.parametrize(
    ("validator", "description"),
    [
        (Range(1), "[1,...]"),
        (Range(-131072, 22), "[-131072,...,22]"),
        (LEVEL, "[1,...,9] or -1"),
        (OneOf(("a", "b")), "[a, b]"),
        (NotEmpty("non-empty list"), "non-empty list"),
        (KnownClass("Xs are", ("",), "non-null string"), "non-null string"),
        (Check(lambda value: None, "anything"), "anything"),
        (Principals(), "Type:name;..."),
    ],
)
def test_validator_describes_its_valid_values(validator: Validator, description: str) -> None:
    assert validator.describe() == description
