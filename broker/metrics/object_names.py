"""JMX object names: how they are written, read and matched.

Owns the syntax: `domain:key=value,...`, quotes around values of more than letters, digits and `_ - % .`, and patterns
with `*` and `?`. Must not know any particular name. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import translate
from functools import lru_cache

from base.dataclass import dataclass
from broker.metrics.metric import TagValues

PLAIN = re.compile(r"[\w\-%. \t]*", re.ASCII)
# Nothing is tried twice (`++`, `*+`), so that the time is proportional to the length.
_PROPERTY = re.compile(r'\s*+("?)(?P<key>[^=",:]++)\1\s*+=\s*+(?P<value>"(?:[^"\\]|\\.)*+"|[^,"]*+)\s*+(?P<end>,|$)')
_PART = re.compile(r'(?:[^,"]|"(?:[^"\\]|\\.)*+"|")++')
WILDCARDS = frozenset("*?")
WILDCARDS_MAX = 100


class ObjectNameError(ValueError):
    """A text that is not the name or the pattern of an object."""


@dataclass(frozen=True)
class NamePattern:
    """The name of one object, or a pattern of names."""

    domain: str
    properties: Mapping[str, str]
    """Unquoted values by key; a value may contain wildcards."""
    is_open: bool = False
    """Whether objects with further keys match."""

    @property
    def is_pattern(self) -> bool:
        return self.is_open or any(WILDCARDS & set(text) for text in (self.domain, *self.properties.values()))

    def matches_domain(self, domain: str) -> bool:
        return _matches(self.domain, domain)

    def matches_keys(self, keys: frozenset[str]) -> bool:
        """Whether objects with these keys may match."""
        return keys >= self.properties.keys() if self.is_open else keys == self.properties.keys()

    def matches(self, keys: Iterable[str], values: Iterable[str]) -> bool:
        """Whether these values match; keys that the pattern does not name match any."""
        wanted = self.properties
        return all(key not in wanted or _matches(wanted[key], value) for key, value in zip(keys, values, strict=True))


def parse_object_name(text: str) -> NamePattern:
    """Read a name or a pattern. Blanks after commas, and quotes around domain, keys and values, are accepted.

    Raises ObjectNameError.
    """
    if sum(map(text.count, WILDCARDS)) > WILDCARDS_MAX:
        raise ObjectNameError(f"a pattern has more than {WILDCARDS_MAX} wildcards")
    domain, colon, rest = text.strip().partition(":")
    if not colon or not rest:
        raise ObjectNameError(f"{text!r} is no object name; expected domain:key=value,...")
    properties: dict[str, str] = {}
    is_open = False
    position = 0
    while position < len(rest):
        if rest[position:].lstrip().startswith("*") and "=" not in rest[position:].partition(",")[0]:
            is_open = True
            position = len(rest) - len(rest[position:].lstrip()) + 1
            if position < len(rest) and rest[position] == ",":
                position += 1
            continue
        found = _PROPERTY.match(rest, position)
        if found is None:
            raise ObjectNameError(f"{text!r} is no object name: expected key=value at {rest[position:]!r}")
        properties[found["key"].strip()] = unquoted(found["value"].strip())
        position = found.end()
    return NamePattern(unquoted(domain), properties, is_open)


def object_name(bean: str, tags: tuple[str, ...], values: TagValues) -> str:
    """Return the full name of an object; tags with an empty value are left out."""
    return ",".join((bean, *(f"{tag}={quoted(value)}" for tag, value in zip(tags, values, strict=False) if value)))


def canonical_name(name: str) -> str:
    """Return a name with its keys in alphabetical order, as JMX's canonical names have them; `*` alone comes last."""
    domain, colon, rest = name.partition(":")
    parts = [part.strip() for part in _PART.findall(rest)]
    return domain + colon + ",".join(sorted(parts, key=lambda part: (part == "*", part.partition("=")[0].strip('"'))))


def quoted(value: str) -> str:
    """Quote a value if its characters require it."""
    if PLAIN.fullmatch(value):
        return value
    return '"' + re.sub(r'(["\\*?])', r"\\\1", value).replace("\n", r"\n") + '"'


def unquoted(value: str) -> str:
    """Return a value without its quotes; in quotes, `\\n` is a line feed and `\\` protects other characters."""
    if len(value) < 2 or not (value.startswith('"') and value.endswith('"')):
        return value
    return re.sub(r"\\(.)", lambda found: "\n" if found[1] == "n" else found[1], value[1:-1])


def _matches(pattern: str, text: str) -> bool:
    if not WILDCARDS & set(pattern):
        return pattern == text
    return _expression(pattern).match(text) is not None


@lru_cache(maxsize=64)
def _expression(pattern: str) -> re.Pattern[str]:
    """Return the expression of a pattern, which many names are compared with."""
    # fnmatch's expressions do not backtrack. Square brackets have no meaning here.
    return re.compile(translate(pattern.replace("[", "[[]")))
