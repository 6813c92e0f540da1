"""Metrics as JSON, in the protocol of Jolokia 1.x: read, list, search and version.

Owns: the requests and the form of responses. Must not know any particular metric, or HTTP. Pure: times are arguments.

The text comes in pieces, so that the event loop can do other work in between. An unknown name has the status 404 in the
JSON object; the status of HTTP stays 200, as in Jolokia.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final
from urllib.parse import unquote

from base.dataclass import dataclass
from broker.metrics.beans import Attributes, Bean, Family, attribute_names, beans, families
from broker.metrics.object_names import NamePattern, ObjectNameError, canonical_name, parse_object_name
from broker.metrics.old_names import present_name
from broker.metrics.registry import Registry

PROTOCOL_VERSION: Final = "7.2"
REQUESTS_MAX: Final = 1000
"""Requests in one array."""
BODY_SIZE_MAX: Final = 64 << 10
"""Bytes of a POST. The text is parsed in one step, a few milliseconds."""
NAME_LENGTH_MAX: Final = 4096
"""Characters of an object name, and of a path."""
SETTINGS: Final = ("maxDepth", "canonicalNaming")
DEPTH_DIGITS_MAX: Final = 9
NOT_FOUND, BAD_REQUEST = 404, 400


class JolokiaError(Exception):
    """A request that cannot be served. `status` is that of the JSON object."""

    def __init__(self, status: int, text: str, kind: str) -> None:
        super().__init__(text)
        self.status = status
        self.kind = kind


@dataclass(frozen=True)
class JolokiaRequest:
    """One request. `attributes` is None if all are wanted.

    `path` selects a part of the value. `depth_max` limits how many objects of JSON contain each other; None does not.
    `is_canonical`: the keys of names are in alphabetical order, else in that of Kafka.
    """

    type: str
    mbean: str = ""
    attributes: tuple[str, ...] | None = None
    has_one_attribute: bool = False
    path: tuple[str, ...] = ()
    depth_max: int | None = None
    is_canonical: bool = True

    def shown_name(self, name: str) -> str:
        return canonical_name(name) if self.is_canonical else name

    def as_json(self) -> dict[str, object]:
        shown: dict[str, object] = {"type": self.type}
        if self.mbean:
            shown["mbean"] = self.shown_name(self.mbean)
        if self.attributes is not None:
            shown["attribute"] = self.attributes[0] if self.has_one_attribute else list(self.attributes)
        if self.path:
            shown["path"] = "/".join(part.replace("!", "!!").replace("/", "!/") for part in self.path)
        return shown


def request_of_path(path: str, query: Mapping[str, str] = MappingProxyType({})) -> JolokiaRequest:
    """Read the part of a URL after `/jolokia/`. `!/` is a slash within a name, `!!` an exclamation mark.

    `query` has the parameters of the URL; `p` is the path if that of the URL is empty. Raises JolokiaError.
    """
    parts = _segments(query.get("p", "") if not path else unquote(path))
    kind = parts[0] if parts and parts[0] else "version"
    mbean, names, inner = "", None, parts[1:]
    if kind in ("read", "search"):
        mbean, inner = "".join(parts[1:2]), parts[2:]
    if kind == "read" and inner:
        names, inner = inner[0].split(",") if inner[0] else None, inner[1:]
    has_one_attribute = names is not None and len(names) == 1
    return _checked(kind, mbean, names, inner, _settings(query), has_one_attribute=has_one_attribute)


def requests_of_body(
    body: bytes, query: Mapping[str, str] = MappingProxyType({})
) -> tuple[list[JolokiaRequest | JolokiaError], bool]:
    """Read the body of a POST; also return whether it is an array. `query` has the parameters of the URL.

    Raises JolokiaError if it is not one request or an array of requests.
    """
    if len(body) > BODY_SIZE_MAX:
        raise _bad(f"a body of {len(body)} bytes; expected at most {BODY_SIZE_MAX}")
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise _bad(f"the body is no JSON: {error}") from error
    is_array = isinstance(parsed, list)
    items = parsed if is_array else [parsed]
    if len(items) > REQUESTS_MAX:
        raise _bad(f"{len(items)} requests in one array; expected at most {REQUESTS_MAX}")
    settings = _settings(query)
    requests: list[JolokiaRequest | JolokiaError] = []
    for item in items:
        try:
            requests.append(_request_of(item, settings))
        except JolokiaError as error:
            requests.append(error)
    return requests, is_array


def respond(
    registry: Registry, request: JolokiaRequest | JolokiaError, now_s: int, version: str, *, with_partitions: bool
) -> Iterator[str]:
    """Yield the JSON text of one response in pieces, some of them empty. `now_s`: seconds since the epoch."""
    head = "{}" if isinstance(request, JolokiaError) else _json(request.as_json())
    begun = f'{{"request":{head},"timestamp":{now_s},'
    try:
        if isinstance(request, JolokiaError):
            raise request
        shown = families(registry, with_partitions=with_partitions)
        if request.type == "version":
            info = {"product": "milena", "vendor": "Milena", "version": version}
            about = _json({"agent": version, "protocol": PROTOCOL_VERSION, "info": info})
            yield f'{begun}"status":200,"value":{about}}}'
        elif request.type == "list":
            before = f'{begun}"status":200,"value":'
            yield from _list(registry, shown, request, before)
            yield "}"
        elif request.type == "search":
            yield f'{begun}"status":200,"value":['
            yield from _search(registry, shown, request)
            yield "]}"
        else:
            yield from _read(registry, shown, request, begun)
    except JolokiaError as error:
        failure = {"status": error.status, "error_type": error.kind, "error": f"{error.kind} : {error}"}
        yield f"{begun}{_json(failure)[1:]}"


def _read(registry: Registry, shown: Collection[Family], request: JolokiaRequest, begun: str) -> Iterator[str]:
    asked = _pattern(request.mbean)
    wanted = present_name(asked)
    if asked.is_pattern and request.path:
        raise _bad(f"a path within the value needs the name of one object, not the pattern {request.mbean}")
    if asked.is_pattern:
        # The first object decides between a value and an error, so nothing may be sent before.
        before = f'{begun}"status":200,"value":{{'
        for bean in _matching(registry, shown, wanted):
            if bean is None:
                yield ""
                continue
            values = _chosen(bean[1], request.attributes)
            if values:
                shown_value = _limited(values, None if request.depth_max is None else request.depth_max - 1)
                yield f"{before}{_json(request.shown_name(bean[0]))}:{_json(shown_value)}"
                before = ","
        if before != ",":
            raise _missing(request.mbean)
        yield "}}"
        return
    found: list[Attributes] = []
    for bean in _matching(registry, shown, wanted):
        if bean is None:
            yield ""
        else:
            found.append(bean[1])
    if not found:
        raise _missing(request.mbean)
    yield f'{begun}"status":200,"value":{_json(_limited(_selected(combined(found), request), request.depth_max))}}}'


def _selected(values: Attributes, request: JolokiaRequest) -> object:
    """Return the part of an object that is asked for. Raises JolokiaError."""
    for name in request.attributes or ():
        if name not in values:
            raise JolokiaError(NOT_FOUND, f"No such attribute: {name}", "javax.management.AttributeNotFoundException")
    value: object = _chosen(values, request.attributes)
    if request.has_one_attribute and request.attributes is not None:
        value = values[request.attributes[0]]
    for part in request.path:
        if not isinstance(value, Mapping) or part not in value:
            raise JolokiaError(NOT_FOUND, f"Invalid path '{part}'", "javax.management.AttributeNotFoundException")
        value = value[part]
    return value


def _limited(value: object, depth: int | None) -> object:
    """Return a value in which objects below a depth are texts, as in Jolokia."""
    if depth is None or not isinstance(value, Mapping):
        return value
    return {key: _limited(one, depth - 1) for key, one in value.items()} if depth > 0 else _json(value)


def combined(found: list[Attributes]) -> dict[str, object]:
    """Return what one old name shows of several objects: the sum of counts and rates, else the greatest value."""
    merged = dict(found[0])
    for other in found[1:]:
        for name, value in other.items():
            old = merged.get(name)
            if not isinstance(value, int | float) or not isinstance(old, int | float):
                merged.setdefault(name, value)
            elif name == "Count" or name.endswith("Rate"):
                merged[name] = old + value
            else:
                merged[name] = max(old, value)
    return merged


def _list(registry: Registry, shown: Collection[Family], request: JolokiaRequest, before: str) -> Iterator[str]:
    """Yield the objects by domain and keys, or the part that the path selects.

    Raises JolokiaError before the first piece if the path names no object.
    """
    domain, keys, *inner = (*request.path, "", "")[: max(len(request.path), 2)]
    if keys:
        yield from _listed_object(registry, shown, request, before, f"{domain}:{keys}", inner)
        return
    depth = request.depth_max
    by_domain: dict[str, list[Family]] = {}
    for family in shown:
        if domain in ("", family.domain):
            by_domain.setdefault(family.domain, []).append(family)
    if domain:
        depth = None if depth is None else depth + 1  # it counts from the selected part
    outer = before if domain else before + "{"
    for name, ours in by_domain.items():
        yield outer if domain else f"{outer}{_json(name)}:"
        outer = ","
        if depth == 1:
            yield "1"
            continue
        inner_mark = "{"
        for family in ours:
            about = _json(_cut(_described(family), None if depth is None else depth - 2))
            for bean in beans(registry, family):
                if bean is None:
                    yield ""
                else:
                    yield f"{inner_mark}{_json(request.shown_name(bean[0]).partition(':')[2])}:{about}"
                    inner_mark = ","
        yield "{}" if inner_mark == "{" else "}"
    if domain:
        yield "" if by_domain else f"{before}{{}}"
    else:
        yield "}" if by_domain else f"{before}{{}}"


def _listed_object(
    registry: Registry, shown: Collection[Family], request: JolokiaRequest, before: str, name: str, inner: list[str]
) -> Iterator[str]:
    wanted = _pattern(name)
    for family in shown:
        for bean in beans(registry, family, wanted):
            if bean is None:
                yield ""
                continue
            value: object = _described(family)
            for part in inner:
                value = value.get(part, {}) if isinstance(value, Mapping) else {}
            yield f"{before}{_json(_cut(value, request.depth_max))}"
            return
    raise _missing(name)


def _described(family: Family) -> dict[str, object]:
    attributes = {
        name: {"rw": False, "type": "java.lang.Object", "desc": metric.help}
        for metric in family.metrics
        for name in attribute_names(metric)
    }
    return {"desc": family.metrics[0].help, "attr": attributes}


def _cut(value: object, depth: int | None) -> object:
    """Return a part of a list in which everything below a depth is 1, as in Jolokia."""
    if depth is None:
        return value
    if depth <= 0:
        return 1
    return {key: _cut(one, depth - 1) for key, one in value.items()} if isinstance(value, Mapping) else value


def _search(registry: Registry, shown: Collection[Family], request: JolokiaRequest) -> Iterator[str]:
    comma = ""
    for bean in _matching(registry, shown, present_name(_pattern(request.mbean))):
        if bean is None:
            yield ""
        else:
            yield f"{comma}{_json(request.shown_name(bean[0]))}"
            comma = ","


def _matching(registry: Registry, shown: Collection[Family], wanted: NamePattern) -> Iterator[Bean | None]:
    for family in shown:
        yield from beans(registry, family, wanted)


def _chosen(attributes: Attributes, names: tuple[str, ...] | None) -> dict[str, object]:
    if names is None:
        return dict(attributes)
    return {name: attributes[name] for name in names if name in attributes}


def _settings(given: Mapping[str, object]) -> dict[str, str]:
    """Return those that have a meaning here, of the parameters of a URL or the `config` of a request."""
    return {name: str(given[name]) for name in SETTINGS if name in given}


def _request_of(item: object, settings: Mapping[str, str]) -> JolokiaRequest:
    if not isinstance(item, Mapping):
        raise _bad("a request is no JSON object")
    kind, mbean, attribute = item.get("type", ""), item.get("mbean", ""), item.get("attribute")
    if not isinstance(kind, str) or not isinstance(mbean, str):
        raise _bad("type and mbean are texts")
    path, config = item.get("path") or "", item.get("config") or {}
    if not isinstance(path, str) or not isinstance(config, Mapping):
        raise _bad("path is a text, and config an object")
    inner = _segments(path) if path else []
    settings = {**settings, **_settings(config)}
    if isinstance(attribute, str):
        return _checked(kind, mbean, [attribute], inner, settings, has_one_attribute=True)
    if attribute is not None and not (isinstance(attribute, list) and all(isinstance(one, str) for one in attribute)):
        raise _bad("attribute is a text or an array of texts")
    return _checked(kind, mbean, attribute or None, inner, settings)


def _checked(
    kind: str,
    mbean: str,
    names: list[str] | None,
    path: Sequence[str],
    settings: Mapping[str, str],
    *,
    has_one_attribute: bool = False,
) -> JolokiaRequest:
    kind = kind.lower()
    if kind not in ("read", "list", "search", "version"):
        raise _bad(f"unknown request type {kind!r}; expected read, list, search or version")
    if kind in ("read", "search") and not mbean:
        raise _bad(f"a {kind} request without mbean")
    if len(mbean) > NAME_LENGTH_MAX:
        raise _bad(f"an mbean of {len(mbean)} characters; expected at most {NAME_LENGTH_MAX}")
    depth = settings.get("maxDepth", "0")
    if not depth.isdecimal() or len(depth) > DEPTH_DIGITS_MAX:
        raise _bad(f"maxDepth is {depth[:DEPTH_DIGITS_MAX]!r}, expected a number")
    return JolokiaRequest(
        kind,
        mbean,
        None if names is None else tuple(names),
        has_one_attribute,
        tuple(part for part in path if part),
        int(depth) or None,
        settings.get("canonicalNaming", "true").lower() != "false",
    )


def _pattern(text: str) -> NamePattern:
    try:
        return parse_object_name(text)
    except ObjectNameError as error:
        raise JolokiaError(BAD_REQUEST, str(error), "javax.management.MalformedObjectNameException") from error


def _segments(path: str) -> list[str]:
    """Split at slashes that are neither escaped nor within the quotes of a name. Raises JolokiaError."""
    if len(path) > NAME_LENGTH_MAX:
        raise _bad(f"a path of {len(path)} characters; expected at most {NAME_LENGTH_MAX}")
    segments, letters, position, in_quotes = [], list[str](), 0, False
    while position < len(path):
        letter = path[position]
        if letter == "!" and path[position + 1 : position + 2] in ("!", "/", '"'):
            position += 1
            letters.append(path[position])
        elif letter == "/" and not in_quotes:
            segments.append("".join(letters))
            letters.clear()
        else:
            in_quotes ^= letter == '"'
            letters.append(letter)
        position += 1
    return [*segments, "".join(letters)]


def _missing(name: str) -> JolokiaError:
    return JolokiaError(NOT_FOUND, name, "javax.management.InstanceNotFoundException")


def _bad(text: str) -> JolokiaError:
    return JolokiaError(BAD_REQUEST, text, "java.lang.IllegalArgumentException")


def _json(value: object) -> str:
    return json.dumps(_finite(value), separators=(",", ":"))


def _finite(value: object) -> object:
    """Replace what JSON has no numbers for by null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(one) for key, one in value.items()}
    return value
