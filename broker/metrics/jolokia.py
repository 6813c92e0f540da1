"""Metrics as JSON, in the protocol of Jolokia 1.x: read, list, search and version.

Owns: the requests and the form of responses. Must not know any particular metric, or HTTP. Pure: times are arguments.

The text comes in pieces, so that the event loop can do other work in between. An unknown name has the status 404 in the
JSON object; the status of HTTP stays 200, as in Jolokia.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator, Mapping
from typing import Final
from urllib.parse import unquote

from broker.metrics.beans import Attributes, Bean, Family, attribute_names, beans, families
from broker.metrics.object_names import NamePattern, ObjectNameError, parse_object_name
from broker.metrics.old_names import present_name
from broker.metrics.registry import Registry
from protocol.dataclass import dataclass

PROTOCOL_VERSION: Final = "7.2"
REQUESTS_MAX: Final = 1000
"""Requests in one array."""
NAME_LENGTH_MAX: Final = 4096
NOT_FOUND, BAD_REQUEST = 404, 400


class JolokiaError(Exception):
    """A request that cannot be served. `status` is that of the JSON object."""

    def __init__(self, status: int, text: str, kind: str) -> None:
        super().__init__(text)
        self.status = status
        self.kind = kind


@dataclass(frozen=True)
class JolokiaRequest:
    """One request. `attributes` is None if all are wanted."""

    type: str
    mbean: str = ""
    attributes: tuple[str, ...] | None = None
    has_one_attribute: bool = False

    def as_json(self) -> dict[str, object]:
        shown: dict[str, object] = {"type": self.type}
        if self.mbean:
            shown["mbean"] = self.mbean
        if self.attributes is not None:
            shown["attribute"] = self.attributes[0] if self.has_one_attribute else list(self.attributes)
        return shown


def request_of_path(path: str) -> JolokiaRequest:
    """Read the part of a URL after `/jolokia/`. `!/` is a slash within a name, `!!` an exclamation mark.

    Raises JolokiaError.
    """
    parts = _segments(path)
    kind = parts[0] if parts and parts[0] else "version"
    if kind == "read" and len(parts) > 1:
        names = parts[2].split(",") if len(parts) > 2 and parts[2] else None
        return _checked(kind, parts[1], names, has_one_attribute=names is not None and len(names) == 1)
    return _checked(kind, parts[1] if kind == "search" and len(parts) > 1 else "", None)


def requests_of_body(body: bytes) -> tuple[list[JolokiaRequest | JolokiaError], bool]:
    """Read the body of a POST; also return whether it is an array.

    Raises JolokiaError if it is not one request or an array of requests.
    """
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise _bad(f"the body is no JSON: {error}") from error
    is_array = isinstance(parsed, list)
    items = parsed if is_array else [parsed]
    if len(items) > REQUESTS_MAX:
        raise _bad(f"{len(items)} requests in one array; expected at most {REQUESTS_MAX}")
    requests: list[JolokiaRequest | JolokiaError] = []
    for item in items:
        try:
            requests.append(_request_of(item))
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
            yield f'{begun}"status":200,"value":'
            yield from _list(registry, shown)
            yield "}"
        elif request.type == "search":
            yield f'{begun}"status":200,"value":['
            yield from _search(registry, shown, _pattern(request.mbean))
            yield "]}"
        else:
            yield from _read(registry, shown, request, begun)
    except JolokiaError as error:
        failure = {"status": error.status, "error_type": error.kind, "error": f"{error.kind} : {error}"}
        yield f"{begun}{_json(failure)[1:]}"


def _read(registry: Registry, shown: Collection[Family], request: JolokiaRequest, begun: str) -> Iterator[str]:
    asked = _pattern(request.mbean)
    wanted = present_name(asked)
    if asked.is_pattern:
        # The first object decides between a value and an error, so nothing may be sent before.
        before = f'{begun}"status":200,"value":{{'
        for bean in _matching(registry, shown, wanted):
            if bean is None:
                yield ""
                continue
            values = _chosen(bean[1], request.attributes)
            if values:
                yield f"{before}{_json(bean[0])}:{_json(values)}"
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
    values = combined(found)
    for name in request.attributes or ():
        if name not in values:
            raise JolokiaError(NOT_FOUND, f"No such attribute: {name}", "javax.management.AttributeNotFoundException")
    if request.has_one_attribute and request.attributes is not None:
        yield f'{begun}"status":200,"value":{_json(values[request.attributes[0]])}}}'
    else:
        yield f'{begun}"status":200,"value":{_json(_chosen(values, request.attributes))}}}'


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


def _list(registry: Registry, shown: Collection[Family]) -> Iterator[str]:
    by_domain: dict[str, list[Family]] = {}
    for family in shown:
        by_domain.setdefault(family.domain, []).append(family)
    outer = "{"
    for domain, ours in by_domain.items():
        yield f"{outer}{_json(domain)}:"
        outer = ","
        inner = "{"
        for family in ours:
            described = {
                name: {"rw": False, "type": "java.lang.Object", "desc": metric.help}
                for metric in family.metrics
                for name in attribute_names(metric)
            }
            about = _json({"desc": family.metrics[0].help, "attr": described})
            for bean in beans(registry, family):
                if bean is None:
                    yield ""
                else:
                    yield f"{inner}{_json(bean[0].partition(':')[2])}:{about}"
                    inner = ","
        yield "{}" if inner == "{" else "}"
    yield "{}" if outer == "{" else "}"


def _search(registry: Registry, shown: Collection[Family], pattern: NamePattern) -> Iterator[str]:
    comma = ""
    for bean in _matching(registry, shown, present_name(pattern)):
        if bean is None:
            yield ""
        else:
            yield f"{comma}{_json(bean[0])}"
            comma = ","


def _matching(registry: Registry, shown: Collection[Family], wanted: NamePattern) -> Iterator[Bean | None]:
    for family in shown:
        yield from beans(registry, family, wanted)


def _chosen(attributes: Attributes, names: tuple[str, ...] | None) -> dict[str, object]:
    if names is None:
        return dict(attributes)
    return {name: attributes[name] for name in names if name in attributes}


def _request_of(item: object) -> JolokiaRequest:
    if not isinstance(item, Mapping):
        raise _bad("a request is no JSON object")
    kind, mbean, attribute = item.get("type", ""), item.get("mbean", ""), item.get("attribute")
    if not isinstance(kind, str) or not isinstance(mbean, str):
        raise _bad("type and mbean are texts")
    if isinstance(attribute, str):
        return _checked(kind, mbean, [attribute], has_one_attribute=True)
    if attribute is not None and not (isinstance(attribute, list) and all(isinstance(one, str) for one in attribute)):
        raise _bad("attribute is a text or an array of texts")
    return _checked(kind, mbean, attribute or None)


def _checked(kind: str, mbean: str, names: list[str] | None, *, has_one_attribute: bool = False) -> JolokiaRequest:
    kind = kind.lower()
    if kind not in ("read", "list", "search", "version"):
        raise _bad(f"unknown request type {kind!r}; expected read, list, search or version")
    if kind in ("read", "search") and not mbean:
        raise _bad(f"a {kind} request without mbean")
    if len(mbean) > NAME_LENGTH_MAX:
        raise _bad(f"an mbean of {len(mbean)} characters; expected at most {NAME_LENGTH_MAX}")
    return JolokiaRequest(kind, mbean, None if names is None else tuple(names), has_one_attribute)


def _pattern(text: str) -> NamePattern:
    try:
        return parse_object_name(text)
    except ObjectNameError as error:
        raise JolokiaError(BAD_REQUEST, str(error), "javax.management.MalformedObjectNameException") from error


def _segments(path: str) -> list[str]:
    """Split at slashes that are neither escaped nor within the quotes of a name."""
    segments, text, position, in_quotes = [], "", 0, False
    plain = unquote(path)
    while position < len(plain):
        letter = plain[position]
        if letter == "!" and plain[position + 1 : position + 2] in ("!", "/", '"'):
            position += 1
            text += plain[position]
        elif letter == "/" and not in_quotes:
            segments.append(text)
            text = ""
        else:
            in_quotes ^= letter == '"'
            text += letter
        position += 1
    return [*segments, text]


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
