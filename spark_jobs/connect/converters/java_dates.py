"""Times in the form of a pattern of Java's `SimpleDateFormat`, in UTC and English.

All letters of Java's patterns are understood. Parsing is as lenient as Java's: `2024-02-30` is the first of March, a
fraction of any length counts milliseconds (`SSSSSS` does not read microseconds), and text behind the pattern is
ignored. Of time zones it reads UTC, GMT, Z and offsets.

Owns the letters. Must not know who formats.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from spark_jobs.connect.converters.java_text import MS_PER_DAY, instant

_MONTHS: Final = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
_DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_ELEMENT: Final = re.compile(r"(?P<letter>[A-Za-z])(?P=letter)*|'(?P<quoted>(?:[^']|'')*)'|(?P<other>[^A-Za-z'])")
_NUMBER: Final = re.compile(r"[ \t]*(-?[0-9]+)")
_ZONE: Final = re.compile(r"(?:(?:UTC|GMT)(?![+-])|Z)|(?:UTC|GMT)?([+-])([0-9]{1,2}):?([0-9]{2})?", re.IGNORECASE)
_TEXTS: Final = frozenset("GEazZX")
"""Letters that never stand for a number."""
_NUMBER_LENGTH_MAX: Final = 9


@dataclass(frozen=True, slots=True)
class _Element:
    """A letter with its count, or a literal text (the letter is then empty)."""

    letter: str
    count: int
    text: str
    abuts: bool = False
    """Whether a number follows at once, so that this one has exactly `count` digits."""

    @property
    def is_number(self) -> bool:
        return bool(self.letter) and self.letter not in _TEXTS and not (self.letter in "ML" and self.count > 2)


class JavaDateFormat:
    """Formats and parses times by a pattern."""

    def __init__(self, pattern: str) -> None:
        """Raises ValueError, which names the pattern, if Java would refuse it."""
        self.pattern = pattern
        elements = list(_elements(pattern))
        following = [*elements[1:], _Element("", 0, "")]
        self._elements = [
            _Element(each.letter, each.count, each.text, each.is_number and after.is_number)
            for each, after in zip(elements, following, strict=True)
        ]

    def format(self, ms: int) -> str:
        """Return the text of a time in milliseconds since 1970. Raises DataError for years that Python lacks."""
        when = instant(ms)
        return "".join(_FORMATS[each.letter](when, each.count) if each.letter else each.text for each in self._elements)

    def parse(self, text: str) -> int:
        """Return the time of a text in milliseconds since 1970. Raises ValueError."""
        found: dict[str, int] = {}
        position = 0
        for each in self._elements:
            if not each.letter:
                if not text.startswith(each.text, position):
                    raise ValueError(f"{text!r:.60} has no {each.text!r} at position {position}")
                position += len(each.text)
            else:
                position = self._parse_field(text, position, each, found)
        return _resolve(found)

    def _parse_field(self, text: str, position: int, element: _Element, found: dict[str, int]) -> int:
        """Put one field into `found`; return the position behind it."""
        read = _TEXT_PARSERS.get(element.letter)
        if read is not None and not element.is_number:
            value, position = read(text, position)
        else:
            digits = _NUMBER.match(text, position, position + element.count if element.abuts else len(text))
            if digits is None or len(digits[1]) > _NUMBER_LENGTH_MAX:
                raise ValueError(f"{text!r:.60} has no number at position {position}, where {self.pattern} has one")
            value, position = int(digits[1]), digits.end()
            if element.letter in "yY" and element.count <= 2 and len(digits[1]) == 2 and value >= 0:
                value = _four_digits(value)
            elif element.letter in "ML":
                value -= 1
        found[element.letter] = value
        return position


def _elements(pattern: str) -> Iterator[_Element]:
    position = 0
    while position < len(pattern):
        found = _ELEMENT.match(pattern, position)
        if found is None:
            raise ValueError(f"the pattern {pattern} has an unterminated quote")
        position = found.end()
        if found["letter"]:
            if found["letter"] not in _FORMATS:
                raise ValueError(f"the pattern {pattern} has an illegal letter, {found['letter']}")
            yield _Element(found["letter"], len(found[0]), "")
        elif found["quoted"] is not None:
            yield _Element("", 0, found["quoted"].replace("''", "'") or "'")
        else:
            yield _Element("", 0, found["other"])


def _padded(number_of: Callable[[dt.datetime], int]) -> Callable[[dt.datetime, int], str]:
    return lambda when, count: str(number_of(when)).rjust(count, "0")


def _year_text(year: int, count: int) -> str:
    return f"{year % 100:02d}" if count == 2 else str(year).rjust(count, "0")


def _named(names: tuple[str, ...], index: int, count: int) -> str:
    return names[index] if count >= 4 else names[index][:3]


def _month_text(when: dt.datetime, count: int) -> str:
    return _named(_MONTHS, when.month - 1, count) if count >= 3 else str(when.month).rjust(count, "0")


def _week_year(when: dt.datetime) -> tuple[int, int]:
    """Return year and number of a week that begins on Sunday; the first one has the first of January."""
    saturday = when.date() + dt.timedelta(days=(5 - when.weekday()) % 7)
    return saturday.year, (saturday.timetuple().tm_yday - 1) // 7 + 1


def _week_of_month(when: dt.datetime) -> int:
    first = when.replace(day=1)
    return (when.day - 1 + (first.weekday() + 1) % 7) // 7 + 1


_FORMATS: Mapping[str, Callable[[dt.datetime, int], str]] = {
    "G": lambda _when, _count: "AD",
    "y": lambda when, count: _year_text(when.year, count),
    "Y": lambda when, count: _year_text(_week_year(when)[0], count),
    "M": _month_text,
    "L": _month_text,
    "w": _padded(lambda when: _week_year(when)[1]),
    "W": _padded(_week_of_month),
    "D": _padded(lambda when: when.timetuple().tm_yday),
    "d": _padded(lambda when: when.day),
    "F": _padded(lambda when: (when.day - 1) // 7 + 1),
    "E": lambda when, count: _named(_DAYS, when.weekday(), count),
    "u": _padded(lambda when: when.isoweekday()),
    "a": lambda when, _count: "AM" if when.hour < 12 else "PM",
    "H": _padded(lambda when: when.hour),
    "k": _padded(lambda when: when.hour or 24),
    "K": _padded(lambda when: when.hour % 12),
    "h": _padded(lambda when: when.hour % 12 or 12),
    "m": _padded(lambda when: when.minute),
    "s": _padded(lambda when: when.second),
    "S": _padded(lambda when: when.microsecond // 1000),
    "z": lambda _when, count: "Coordinated Universal Time" if count >= 4 else "UTC",
    "Z": lambda _when, _count: "+0000",
    "X": lambda _when, _count: "Z",
}


def _name_parser(names: tuple[str, ...]) -> Callable[[str, int], tuple[int, int]]:
    def parse(text: str, position: int) -> tuple[int, int]:
        for index, name in enumerate(names):
            for form in (name, name[:3]):
                if text[position : position + len(form)].lower() == form.lower():
                    return index, position + len(form)
        raise ValueError(f"{text!r:.60} has none of {', '.join(names)} at position {position}")

    return parse


def _parse_zone(text: str, position: int) -> tuple[int, int]:
    """Return an offset to UTC in milliseconds."""
    found = _ZONE.match(text, position)
    if found is None:
        raise ValueError(f"{text!r:.60} has no time zone at position {position}: expected UTC, GMT, Z or an offset")
    minutes = int(found[2] or 0) * 60 + int(found[3] or 0)
    return (-minutes if found[1] == "-" else minutes) * 60_000, found.end()


_TEXT_PARSERS: Mapping[str, Callable[[str, int], tuple[int, int]]] = {
    "G": _name_parser(("BC", "AD")),
    "M": _name_parser(_MONTHS),
    "L": _name_parser(_MONTHS),
    "E": _name_parser(_DAYS),
    "a": _name_parser(("AM", "PM")),
    "z": _parse_zone,
    "Z": _parse_zone,
    "X": _parse_zone,
}


def _four_digits(year: int) -> int:
    """Return the year with these last two digits that is at most 80 years ago and 20 years ahead."""
    earliest = dt.datetime.now(dt.UTC).year - 80
    return earliest + (year - earliest) % 100


def _resolve(found: Mapping[str, int]) -> int:
    year = found.get("y", found.get("Y", 1970))
    months = found.get("M", found.get("L", 0))
    try:
        first = dt.date(year + months // 12, months % 12 + 1, 1)
    except ValueError as error:
        raise ValueError(f"the year {year} is not in the years 1 to 9999") from error
    days = (first - dt.date(1970, 1, 1)).days + found.get("d", 1) - 1
    if "D" in found:
        days = (dt.date(first.year, 1, 1) - dt.date(1970, 1, 1)).days + found["D"] - 1
    seconds = (_hour(found) * 60 + found.get("m", 0)) * 60 + found.get("s", 0)
    zone_ms = next((found[letter] for letter in "zZX" if letter in found), 0)
    return days * MS_PER_DAY + seconds * 1000 + found.get("S", 0) - zone_ms


def _hour(found: Mapping[str, int]) -> int:
    if "H" in found or "k" in found:
        return found.get("H", found.get("k", 0) % 24)
    return found.get("K", found.get("h", 0) % 12) + 12 * found.get("a", 0)
