"""The error codes in a response, as Kafka counts them: every field for a code, at any depth.

Owns: which fields of a message are error codes. Must not know: what the codes mean.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from protocol.schema import Encoded, Struct

NONE = 0
CODE_FIELDS = frozenset({"error_code", "partition_error_code"})

_Count = Callable[[Any, dict[int, int]], None]


def error_counts(response: object, version: int) -> dict[int, int]:
    """Return how often each code is in `response`, a message that is written in `version`."""
    counts: dict[int, int] = {}
    if isinstance(response, Struct):
        count = _counter_of(type(response), version)  # type: ignore[arg-type]  # classes are hashable
        if count is not None:
            count(response, counts)
    return counts


@cache
def _counter_of(struct: type[Struct], version: int) -> _Count | None:
    """Return what counts the codes in a struct of this type, None if it has none in `version`."""
    fields = [field for field in struct.__fields__ if field.is_in(version)]
    codes = [field.name for field in fields if field.name in CODE_FIELDS]
    inner: list[tuple[str, bool, _Count]] = []
    for field in fields:
        counter = None if field.struct is None else _counter_of(field.struct, version)  # type: ignore[arg-type]
        if counter is not None:
            inner.append((field.name, field.is_array, counter))
    if not codes and not inner:
        return None

    def count(value: Any, counts: dict[int, int]) -> None:
        for name in codes:
            code = getattr(value, name)
            counts[code] = counts.get(code, 0) + 1
        for name, is_array, count_inner in inner:
            found = getattr(value, name)
            if is_array:
                for each in found or ():
                    if type(each) is Encoded:
                        counts[NONE] = counts.get(NONE, 0) + 1  # encoded before, for several responses; counts once
                    else:
                        count_inner(each, counts)
            elif found is not None:
                count_inner(found, counts)

    return count
