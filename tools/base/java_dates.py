"""Times in the form of a pattern of Java's SimpleDateFormat.

Owns the fields that tools understand. Must not know any tool.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from config.log4j import date_format
from tools.base.command_line import UsageError

_MILLISECONDS = "\ue000"  # stands for a field that strftime does not have


def time_format(pattern: str) -> Callable[[float], str]:
    """Return a function from seconds since 1970 to text in local time. Raises UsageError."""
    shown = date_format(pattern.replace("SSS", f"'{_MILLISECONDS}'"))
    if shown is None:
        raise UsageError(f"Invalid date-format {pattern}: expected the fields yyyy MM dd HH mm ss SSS")
    return lambda now_s: (
        datetime.fromtimestamp(now_s)
        .astimezone()
        .strftime(shown)
        .replace(_MILLISECONDS, f"{int(now_s * 1000) % 1000:03d}")
    )
