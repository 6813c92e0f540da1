"""Serves schemas to serializers: a small registry with Confluent's HTTP API, for tests and development.

It keeps subjects with numbered versions, gives equal schemas one id, and checks a new version of an Avro schema
against the last one (BACKWARD, FORWARD, FULL), or against all (..._TRANSITIVE). Schemas of other types (JSON) are
stored unchecked. The schemas are in memory; with `--file` also in a file, which is read at the next start.

Supported: /subjects, /subjects/S, /subjects/S/versions[/V[/schema]], /schemas/ids/I[/versions], /schemas/types,
/config[/S], /compatibility/subjects/S/versions[/V]. References between schemas are not.
"""

import json
import os
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import fastavro
from aiohttp import web

from base.replaced_file import replace_file
from spark_jobs.skeleton.formats.avro_compatibility import problems
from spark_jobs.skeleton.parameters import address, bare_parser

LEVELS = ("NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE")
_TYPES = ("AVRO", "JSON")
_CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
_LATEST = "latest"


class RegistryError(Exception):
    """A request that cannot be served: the HTTP status, Confluent's code, and a message."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a subject."""

    subject: str
    version: int
    id: int
    schemaType: str  # noqa: N815
    schema: str


class Registry:
    """The schemas. Knows nothing of HTTP."""

    def __init__(self) -> None:
        self._versions: list[Version] = []
        self._levels: dict[str, str] = {}
        self._next_id = 1
        self.default_level = "BACKWARD"

    def subjects(self) -> list[str]:
        return sorted({version.subject for version in self._versions})

    def versions(self, subject: str) -> list[Version]:
        """Return the versions of a subject. Raises RegistryError if there is none."""
        found = [version for version in self._versions if version.subject == subject]
        if not found:
            raise RegistryError(404, 40401, f"Subject '{subject}' not found.")
        return found

    def version(self, subject: str, number: str) -> Version:
        """Return the version with that number, or the last one for `latest`."""
        found = self.versions(subject)
        if number in {_LATEST, "-1"}:
            return found[-1]
        for version in found:
            if str(version.version) == number:
                return version
        raise RegistryError(404, 40402, f"Version {number} not found.")

    def by_id(self, schema_id: str) -> list[Version]:
        """Return the versions with a schema id. Raises RegistryError if there is none."""
        found = [version for version in self._versions if str(version.id) == schema_id]
        if not found:
            raise RegistryError(404, 40403, f"Schema {schema_id} not found")
        return found

    def find(self, subject: str, kind: str, schema: str) -> Version:
        """Return the version of a subject that has this schema. Raises RegistryError if none has."""
        wanted = canonical(kind, schema)
        for version in self.versions(subject):
            if version.schemaType == kind and canonical(kind, version.schema) == wanted:
                return version
        raise RegistryError(404, 40403, "Schema not found")

    def register(self, subject: str, kind: str, schema: str) -> Version:
        """Return the version of a subject with this schema; adds it if it is new and compatible."""
        wanted = canonical(kind, schema)
        same = [each for each in self._versions if each.schemaType == kind and canonical(kind, each.schema) == wanted]
        for version in same:
            if version.subject == subject:
                return version
        if found := self.incompatibilities(subject, kind, schema):
            raise RegistryError(409, 409, f"Schema is incompatible with an earlier one: {'; '.join(found)}")
        earlier = [each.version for each in self._versions if each.subject == subject]
        schema_id = same[0].id if same else self._next_id
        added = Version(subject, max(earlier, default=0) + 1, schema_id, kind, schema)
        self._next_id += not same
        self._versions.append(added)
        return added

    def delete(self, subject: str, number: str | None = None) -> list[int]:
        """Delete a subject, or one of its versions; return the numbers of what was deleted."""
        gone = self.versions(subject) if number is None else [self.version(subject, number)]
        self._versions = [version for version in self._versions if version not in gone]
        return [version.version for version in gone]

    def level(self, subject: str | None) -> str:
        return self._levels.get(subject or "", self.default_level)

    def set_level(self, subject: str | None, level: str) -> None:
        """Set the compatibility of a subject, or the default one."""
        if level not in LEVELS:
            raise RegistryError(422, 42203, f"Invalid compatibility level. Valid values are {', '.join(LEVELS)}.")
        if subject is None:
            self.default_level = level
        else:
            self._levels[subject] = level

    def incompatibilities(self, subject: str, kind: str, schema: str, number: str | None = None) -> list[str]:
        """Return why a schema does not fit the versions that the level of the subject compares, or one version."""
        level = self.level(subject)
        earlier = [version for version in self._versions if version.subject == subject]
        if number is not None:
            earlier = [self.version(subject, number)]
        elif not level.endswith("_TRANSITIVE"):
            earlier = earlier[-1:]
        new = parsed(kind, schema)
        found = []
        for version in earlier:
            if version.schemaType != kind:
                found.append(f"the type {kind} is not {version.schemaType}")
                continue
            if kind != "AVRO":
                continue
            old = json.loads(version.schema)
            if level.startswith(("BACKWARD", "FULL")):
                found += problems(reader=new, writer=old)
            if level.startswith(("FORWARD", "FULL")):
                found += problems(reader=old, writer=new)
        return found

    def dump(self) -> str:
        """Return the content as text."""
        content = {"versions": [asdict(version) for version in self._versions], "levels": self._levels}
        return json.dumps({**content, "default": self.default_level, "next_id": self._next_id})

    def load(self, text: str) -> None:
        """Replace the content by that of `dump`."""
        content = json.loads(text)
        self._versions = [Version(**version) for version in content["versions"]]
        self._levels = content["levels"]
        self.default_level = content["default"]
        self._next_id = content["next_id"]


def parsed(kind: str, schema: str) -> Any:
    """Return the JSON of a schema. Raises RegistryError if it is not valid."""
    try:
        content = json.loads(schema)
        if kind == "AVRO":
            fastavro.parse_schema(content)
    except (ValueError, TypeError, KeyError, fastavro.schema.SchemaParseException) as error:
        raise RegistryError(422, 42201, f"Invalid schema: {error}") from error
    return content


def canonical(kind: str, schema: str) -> str:
    """Return a text that equal schemas share."""
    return json.dumps(parsed(kind, schema), sort_keys=True)


@dataclass(frozen=True, slots=True)
class _Call:
    """One request to the API: what its path and its query name, and its decoded body, None if it has none."""

    match_info: Mapping[str, str]
    query: Mapping[str, str]
    body: Any


class Server:
    """The HTTP API of a registry."""

    def __init__(self, registry: Registry, file: Path | None = None) -> None:
        self._registry = registry
        self._file = file
        if file is not None and file.exists():
            registry.load(file.read_text(encoding="utf-8"))

    def application(self) -> web.Application:
        application = web.Application(middlewares=[_errors])
        routes: Mapping[str, Callable[[_Call], Any]] = {
            "GET /subjects": lambda _: self._registry.subjects(),
            "POST /subjects/{subject}": self._find,
            "DELETE /subjects/{subject}": self._delete,
            "GET /subjects/{subject}/versions": self._versions,
            "POST /subjects/{subject}/versions": self._register,
            "GET /subjects/{subject}/versions/{version}": lambda request: _shown(self._version(request)),
            "GET /subjects/{subject}/versions/{version}/schema": lambda request: json.loads(
                self._version(request).schema
            ),
            "DELETE /subjects/{subject}/versions/{version}": lambda request: self._delete(request)[0],
            "GET /schemas/types": lambda _: list(_TYPES),
            "GET /schemas/ids/{id}": self._schema,
            "GET /schemas/ids/{id}/versions": self._versions_of_schema,
            "GET /config": self._level,
            "PUT /config": self._set_level,
            "GET /config/{subject}": self._level,
            "PUT /config/{subject}": self._set_level,
            "POST /compatibility/subjects/{subject}/versions": self._compatibility,
            "POST /compatibility/subjects/{subject}/versions/{version}": self._compatibility,
        }
        for route, handle in routes.items():
            method, path = route.split()
            application.router.add_route(method, path, self._handler(handle))
        return application

    def _handler(self, handle: Callable[[_Call], Any]) -> Callable[[web.Request], Any]:
        async def respond(request: web.Request) -> web.Response:
            body = None
            if request.can_read_body:
                try:
                    body = json.loads(await request.text())
                except ValueError as error:
                    raise RegistryError(400, 400, f"The body is not JSON: {error}") from error
            content = handle(_Call(request.match_info, request.query, body))
            if self._file is not None and request.method != "GET":
                replace_file(self._file, self._registry.dump())
            return web.json_response(content, content_type=_CONTENT_TYPE)

        return respond

    def _version(self, request: _Call) -> Version:
        return self._registry.version(request.match_info["subject"], request.match_info["version"])

    def _versions(self, request: _Call) -> Any:
        return [version.version for version in self._registry.versions(request.match_info["subject"])]

    def _register(self, request: _Call) -> Any:
        return {"id": self._registry.register(request.match_info["subject"], *_posted(request)).id}

    def _find(self, request: _Call) -> Any:
        return _shown(self._registry.find(request.match_info["subject"], *_posted(request)))

    def _delete(self, request: _Call) -> list[int]:
        return self._registry.delete(request.match_info["subject"], request.match_info.get("version"))

    def _schema(self, request: _Call) -> Any:
        shown = _shown(self._registry.by_id(request.match_info["id"])[0])
        return {key: value for key, value in shown.items() if key in {"schema", "schemaType"}}

    def _versions_of_schema(self, request: _Call) -> Any:
        found = self._registry.by_id(request.match_info["id"])
        return [{"subject": version.subject, "version": version.version} for version in found]

    def _level(self, request: _Call) -> Any:
        return {"compatibilityLevel": self._registry.level(request.match_info.get("subject"))}

    def _set_level(self, request: _Call) -> Any:
        level = str(request.body.get("compatibility") if isinstance(request.body, dict) else None)
        self._registry.set_level(request.match_info.get("subject"), level)
        return {"compatibility": level}

    def _compatibility(self, request: _Call) -> Any:
        subject, version = request.match_info["subject"], request.match_info.get("version")
        found = self._registry.incompatibilities(subject, *_posted(request), version)
        messages = {"messages": found} if request.query.get("verbose") == "true" else {}
        return {"is_compatible": not found, **messages}


def _posted(request: _Call) -> tuple[str, str]:
    """Return type and text of the schema in the body of a request."""
    body = request.body
    if not isinstance(body, dict) or not isinstance(body.get("schema"), str):
        raise RegistryError(422, 42201, "Invalid schema: expected an object with the text 'schema'")
    kind = body.get("schemaType") or "AVRO"
    if kind not in _TYPES:
        raise RegistryError(422, 42201, f"Invalid schema: the type {kind} is not supported")
    return kind, body["schema"]


def _shown(version: Version) -> dict[str, Any]:
    """Return a version as the API states it: Avro is the type that is not stated."""
    shown = asdict(version)
    if version.schemaType == "AVRO":
        del shown["schemaType"]
    return shown


@web.middleware
async def _errors(request: web.Request, handler: Callable[[web.Request], Any]) -> web.StreamResponse:
    try:
        response: web.StreamResponse = await handler(request)
        return response
    except RegistryError as error:
        content = {"error_code": error.code, "message": str(error)}
        return web.json_response(content, status=error.status, content_type=_CONTENT_TYPE)
    except web.HTTPNotFound:
        content = {"error_code": 404, "message": f"HTTP 404 Not Found: {request.path}"}
        return web.json_response(content, status=404, content_type=_CONTENT_TYPE)


def _end_with_input() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = bare_parser("schema_registry", __doc__)
    parser.add_argument(
        "--listen", type=address, default=("127.0.0.1", 8081), metavar="[HOST:]PORT", help="default 127.0.0.1:8081"
    )
    parser.add_argument("--file", type=Path, metavar="FILE", help="where to keep the schemas (default: nowhere)")
    parser.add_argument(
        "--inherited",
        type=int,
        metavar="DESCRIPTOR",
        help="serve at this listening socket of the parent process instead, until standard input ends",
    )
    flags = parser.parse_args(arguments)
    if flags.inherited is not None:
        threading.Thread(target=_end_with_input, daemon=True).start()
        listening = socket.socket(fileno=flags.inherited)
        web.run_app(Server(Registry(), flags.file).application(), sock=listening, access_log=None)
        return 0
    host, port = flags.listen
    web.run_app(Server(Registry(), flags.file).application(), host=host, port=port, access_log=None)
    return 0


if __name__ == "__main__":
    sys.exit(main())
