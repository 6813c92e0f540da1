"""Java's conversions between numbers and texts.

Owns the rules: whole numbers wrap around, fractions are cut and stop at the limits of their type, texts must be exact.
Must not know schemas.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,40}")
_FRACTION: Final = re.compile(
    r"[\x00-\x20]*([+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?))[fFdD]?[\x00-\x20]*"
)
_EXPONENT_MAX: Final = 1000


def wrapped(number: int, bits: int) -> int:
    """Return the lowest bits of a whole number, as a signed one."""
    half = 1 << (bits - 1)
    return (number + half) % (1 << bits) - half


def cut(number: float, bits: int) -> int:
    """Return the whole part of a float: at most the largest INT32 or INT64, then wrapped to smaller types."""
    if number != number:
        return 0
    half = 1 << (max(bits, 32) - 1)
    limited = -half if number <= -half else half - 1 if number >= half else int(number)
    return wrapped(limited, bits)


def cut_decimal(number: Decimal, bits: int) -> int:
    """Return the lowest bits of the whole part of a decimal. Raises ValueError if it has thousands of digits."""
    if number.adjusted() > _EXPONENT_MAX:
        raise ValueError(f"{number} has more than {_EXPONENT_MAX} digits")
    return wrapped(int(number), bits)


def parse_whole(text: str, bits: int) -> int:
    """Return the number of a text. Raises ValueError."""
    half = 1 << (bits - 1)
    number = int(text) if _WHOLE.fullmatch(text) else half
    if not -half <= number < half:
        raise ValueError(f"{text!r:.60} is not a whole number of {bits} bits")
    return number


def parse_float(text: str) -> float:
    """Return the number of a text. Raises ValueError."""
    found = _FRACTION.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r:.60} is not a number")
    return float(found[1])
