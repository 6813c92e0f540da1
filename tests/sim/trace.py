"""The trace of a run as text.

Owns the format: one line an event, with the virtual time in seconds. Must not know how events came about.
"""

from __future__ import annotations

from collections.abc import Iterable

from protocol.api import APIS


def formatted(trace: Iterable[tuple[int, str, tuple[object, ...]]]) -> list[str]:
    """Return the lines of a trace."""
    return [f"{at_us / 1_000_000:12.6f} {_line(kind, details)}" for at_us, kind, details in trace]


def _line(kind: str, details: tuple[object, ...]) -> str:
    if kind != "sent":
        return f"{kind}: " + " ".join(map(str, details))
    source, target, is_client, start, size, checksum = details
    assert isinstance(start, bytes)
    if is_client and len(start) >= 12:
        key, version = int.from_bytes(start[4:6], "big"), int.from_bytes(start[6:8], "big")
        name = APIS[key].request.__name__ if key in APIS else f"request {key}"
        what = f"{name} v{version} #{int.from_bytes(start[8:12], 'big')}"
    else:
        what = f"response #{int.from_bytes(start[4:8], 'big')}"
    return f"{source} -> {target}: {what} ({size} bytes, {checksum:08x})"
