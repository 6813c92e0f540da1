"""The subjects of a schema registry, and the versions of one with their schemas.

Owns what these pages contain. Must not know how the registry is asked.
"""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any, Final, TypedDict
from urllib.parse import quote

from broker.console.console import Console
from broker.console.problem import ProblemError, not_found
from broker.console.records.schemas import NoSchemaError

VERSIONS_MAX: Final = 20
"""The newest versions of a subject that are shown."""


class SubjectPage(TypedDict):
    """A page of subjects; `total` counts all that match."""

    total: int
    subjects: list[str]


class SchemaVersion(TypedDict):
    """One version of a subject."""

    version: int
    id: int
    kind: str
    text: str


class Subject(TypedDict):
    """A subject with its newest versions, the newest first. `topic` is the one that its name belongs to, if it does."""

    subject: str
    version_count: int
    versions: list[SchemaVersion]
    topic: str


async def subjects(console: Console, *, search: str, offset: int, limit: int) -> SubjectPage:
    """Return a page of the subjects whose names contain `search`. Raises ProblemError."""
    found = await _asked(console, "/subjects")
    names = sorted(each for each in _elements(found, str) if search.lower() in each.lower())
    return SubjectPage(total=len(names), subjects=names[offset : offset + limit])


async def subject(console: Console, *, subject: str) -> Subject:
    """Return a subject with its newest versions. Raises ProblemError."""
    path = f"/subjects/{quote(subject, safe='')}/versions"
    numbers = sorted(_elements(await _asked(console, path), int), reverse=True)
    versions = []
    for number in numbers[:VERSIONS_MAX]:
        found = await _asked(console, f"{path}/{number}")
        if not isinstance(found, dict):
            raise _unexpected()
        schema_id, schema = found.get("id"), found.get("schema")
        if not isinstance(schema_id, int) or not isinstance(schema, str):
            raise _unexpected()
        kind = str(found.get("schemaType", "AVRO"))[:40]
        versions.append(SchemaVersion(version=number, id=schema_id, kind=kind, text=_indented(schema, kind)))
    topic = subject.removesuffix("-value").removesuffix("-key")
    is_known = topic in console.services.metadata_cache.topics and console.may_describe(topic)
    return Subject(subject=subject, version_count=len(numbers), versions=versions, topic=topic if is_known else "")


async def _asked(console: Console, path: str) -> Any:
    try:
        found = await console.schemas.get(path)
    except NoSchemaError as error:
        raise ProblemError(HTTPStatus.SERVICE_UNAVAILABLE, str(error)) from error
    if found is None:
        raise not_found(f"the registry has no {path[:200]}")
    return found


def _elements(found: object, kind: type) -> list[Any]:
    if not isinstance(found, list) or not all(isinstance(each, kind) for each in found):
        raise _unexpected()
    return found


def _unexpected() -> ProblemError:
    return ProblemError(HTTPStatus.BAD_GATEWAY, "the response is not what a schema registry sends")


def _indented(schema: str, kind: str) -> str:
    """Return a schema with line breaks if it is JSON."""
    if kind == "PROTOBUF":
        return schema
    try:
        return json.dumps(json.loads(schema), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return schema
