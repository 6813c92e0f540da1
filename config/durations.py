"""ISO 8601 durations, as settings and tools name them.

Owns the parsing. Must not know: what a duration is for.
"""

import re
from datetime import timedelta

_DURATION = re.compile(
    r"(?P<sign>[+-]?)P(?:(?P<days>[+-]?\d+)D)?"
    r"(?:T(?=.)(?:(?P<hours>[+-]?\d+)H)?(?:(?P<minutes>[+-]?\d+)M)?(?:(?P<seconds>[+-]?\d+(?:\.\d{1,9})?)S)?)?",
    re.IGNORECASE,
)


def parse_duration(text: str) -> timedelta:
    """Parse a duration of days and smaller units, `PnDTnHnMnS`. Raises ValueError."""
    match = _DURATION.fullmatch(text)
    amounts = (
        {name: float(value) for name, value in match.groupdict().items() if value and name != "sign"} if match else {}
    )
    if match is None or not amounts:
        raise ValueError(f"'{text}' is no duration; expected PnDTnHnMnS")
    duration = timedelta(**amounts)
    return -duration if match["sign"] == "-" else duration
