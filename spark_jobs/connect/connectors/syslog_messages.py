"""Syslog messages: RFC 5424, and RFC 3164 as devices send it.

    <34>1 2003-10-11T22:14:15.003Z host su 123 ID47 [example@1 a="b"] text       RFC 5424
    <34>Oct 11 22:14:15 host su[123]: text                                        RFC 3164

A time of RFC 3164 has no year and no zone: it is in a zone that the caller names, and in the year that brings it
nearest to now. Some devices write an RFC 3339 time there, which is accepted.

Owns the grammars. No bytes are an error: what fits neither is a malformed message with the whole text. Must not know
how messages arrive.
"""

from __future__ import annotations

import datetime as dt
import re
from typing import Any, Final

from spark_jobs.connect.base.data import (
    BOOLEAN,
    OPTIONAL_STRING,
    STRING,
    Schema,
    Struct,
    Type,
    map_schema,
    struct_schema,
    timestamp_schema,
)
from spark_jobs.connect.converters.java_text import MONTHS

_OPTIONAL_INT32 = Schema(Type.INT32, optional=True)

MESSAGE_SCHEMA: Final = struct_schema(
    {
        "priority": _OPTIONAL_INT32,
        "facility": _OPTIONAL_INT32,
        "severity": _OPTIONAL_INT32,
        "timestamp": timestamp_schema(optional=True),
        "host": OPTIONAL_STRING,
        "app": OPTIONAL_STRING,
        "process_id": OPTIONAL_STRING,
        "message_id": OPTIONAL_STRING,
        "structured_data": map_schema(STRING, map_schema(STRING, STRING)).as_optional(),
        "message": STRING,
        "sender": STRING,
        "malformed": BOOLEAN,
        "truncated": BOOLEAN,
    },
    name="milena.connect.SyslogMessage",
    version=1,
)

_PRIORITY_MAX = 191
_PRIORITY = re.compile(r"<(\d{1,3})>")
_RFC5424 = re.compile(r"1 (\S+) (\S{1,255}) (\S{1,48}) (\S{1,128}) (\S{1,32}) ?(.*)", re.DOTALL)
_RFC3164 = re.compile(r"([A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT\S+) (\S+) ?(.*)", re.DOTALL)
_TAG = re.compile(r"([^\s:\[]{1,48})(?:\[([^\]\s]*)\])?: ?")
_ELEMENT = re.compile(r'\[([^\s="\]]{1,32})((?: [^\s="\]]{1,32}="(?:[^"\\\]]|\\.)*")*)\]', re.DOTALL)
_PARAMETER = re.compile(r' ([^\s="\]]{1,32})="((?:[^"\\\]]|\\.)*)"', re.DOTALL)
_ESCAPED = re.compile(r'\\(["\\\]])')
_HALF_A_YEAR = dt.timedelta(days=183)


class _MalformedError(ValueError):
    pass


def parse_message(
    stored: bytes, sender: str, *, zone: dt.tzinfo, now: dt.datetime, is_truncated: bool = False
) -> Struct:
    """Return the message as a Struct of `MESSAGE_SCHEMA`. `zone` is that of times that have none."""
    text = stored.decode(errors="replace")
    fields: dict[str, Any] = {"sender": sender, "malformed": False, "truncated": is_truncated}
    try:
        fields |= _parsed(text, zone, now)
    except ValueError:
        fields |= {"message": text, "malformed": True}
    return Struct(MESSAGE_SCHEMA, fields)


def _parsed(text: str, zone: dt.tzinfo, now: dt.datetime) -> dict[str, Any]:
    """Raises ValueError for a malformed message."""
    match = _PRIORITY.match(text)
    if match is None or (priority := int(match[1])) > _PRIORITY_MAX:
        raise _MalformedError
    fields: dict[str, Any] = {"priority": priority, "facility": priority >> 3, "severity": priority & 7}
    rest = text[match.end() :]
    if modern := _RFC5424.fullmatch(rest):
        return fields | _rfc5424(modern)
    if old := _RFC3164.fullmatch(rest):
        return fields | _rfc3164(old, zone, now)
    raise _MalformedError


def _rfc5424(match: re.Match[str]) -> dict[str, Any]:
    timestamp, host, app, process_id, message_id, rest = match.groups()
    elements, message = _structured_data(rest)
    return {
        "timestamp": None if timestamp == "-" else _rfc3339(timestamp, None),
        "host": _unless_nil(host),
        "app": _unless_nil(app),
        "process_id": _unless_nil(process_id),
        "message_id": _unless_nil(message_id),
        "structured_data": elements,
        "message": message.removeprefix("\ufeff"),
    }


def _unless_nil(value: str) -> str | None:
    return None if value == "-" else value


def _structured_data(text: str) -> tuple[dict[str, dict[str, str]] | None, str]:
    """Return the elements and the rest. Parameters of one name are joined by a comma."""
    if text == "-" or text.startswith("- "):
        return None, text[2:]
    elements: dict[str, dict[str, str]] = {}
    position = 0
    while match := _ELEMENT.match(text, position):
        parameters = elements.setdefault(match[1], {})
        for name, value in _PARAMETER.findall(match[2]):
            plain = _ESCAPED.sub(r"\1", value)
            parameters[name] = f"{parameters[name]},{plain}" if name in parameters else plain
        position = match.end()
    if not elements or (position < len(text) and text[position] != " "):
        raise _MalformedError
    return elements, text[position + 1 :]


def _rfc3164(match: re.Match[str], zone: dt.tzinfo, now: dt.datetime) -> dict[str, Any]:
    timestamp, host, rest = match.groups()
    moment = _rfc3339(timestamp, zone) if timestamp[0].isdigit() else _without_year(timestamp, zone, now)
    tag = _TAG.match(rest)
    app, process_id = tag.groups() if tag else (None, None)
    return {
        "timestamp": moment,
        "host": host,
        "app": app,
        "process_id": process_id,
        "message": rest[tag.end() :] if tag else rest,
    }


def _rfc3339(text: str, zone: dt.tzinfo | None) -> dt.datetime:
    moment = dt.datetime.fromisoformat(text)
    if moment.tzinfo is None:
        if zone is None:
            raise _MalformedError
        moment = moment.replace(tzinfo=zone)
    try:
        return moment.astimezone(dt.UTC)
    except OverflowError:  # before the year 1 or after 9999 in UTC
        raise _MalformedError from None


def _without_year(text: str, zone: dt.tzinfo, now: dt.datetime) -> dt.datetime:
    """Return the moment of `Oct 11 22:14:15` that is nearest to `now`."""
    month, day, time = MONTHS.index(text[:3]) + 1, int(text[4:6]), dt.time.fromisoformat(text[7:])
    for year in (now.year, now.year - 1, now.year + 1):
        try:
            moment = dt.datetime.combine(dt.date(year, month, day), time, zone)
        except ValueError:  # 29 February, or no date at all
            continue
        if abs(moment - now) <= _HALF_A_YEAR:
            return moment.astimezone(dt.UTC)
    raise _MalformedError
