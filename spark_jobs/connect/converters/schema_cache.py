"""What is derived from schemas, made once for each schema object.

A schema has no hash, so the key is its identity. An entry holds its schema: no other schema can get the same identity
while the entry exists. Each cache belongs to the thread of one task.

Owns the bound of memory. Must not know what is derived.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from spark_jobs.connect.base.data import Schema

Key = TypeVar("Key")
Made = TypeVar("Made")

TRANSFORM_CACHE_SIZE = 16
"""How many schemas a transform remembers, as Kafka's do: a topic rarely has more at a time."""


class SchemaCache(Generic[Made]):
    """Calls `make` for each new schema; forgets the oldest one of more than `limit` schemas."""

    def __init__(self, make: Callable[[Schema], Made], limit: int = TRANSFORM_CACHE_SIZE) -> None:
        self._make = make
        self._limit = limit
        self._entries: dict[int, tuple[Schema, Made]] = {}

    def __getitem__(self, schema: Schema) -> Made:
        """Return what belongs to a schema. Raises what `make` raises."""
        found = self._entries.get(id(schema))
        if found is not None:
            return found[1]
        made = self._make(schema)
        remember(self._entries, id(schema), (schema, made), self._limit)
        return made


def remember(entries: dict[Key, Made], key: Key, made: Made, limit: int) -> None:
    """Add an entry, in the place of the oldest one if there are `limit`; with a limit of 0 add none."""
    if limit > 0:
        if len(entries) >= limit:
            del entries[next(iter(entries))]
        entries[key] = made
