"""kafka-jmx: prints metrics of a broker at intervals, read from its JSON endpoint (`metrics.http.listener`).

It has the options and the output of Kafka's JmxTool. A broker of Milena has no RMI port, so an RMI address stands for
the HTTP port of the same number.
"""

from __future__ import annotations

import argparse
import base64
import json
import re
import ssl
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit

from tools.base.command_line import CommandLine, StopRequest, UnreachableError, UsageError, run_tool
from tools.base.java_dates import time_format
from tools.client.bootstrap import Endpoint, require_reachable

DEFAULT_URL: Final = "service:jmx:rmi:///jndi/rmi://:9999/jmxrmi"
FORMATS: Final = ("original", "properties", "csv", "tsv")
READ_TIMEOUT_S: Final = 10.0
WAIT_S: Final = 10.0
"""How long --wait waits for the objects, as in Kafka."""
RETRY_S: Final = 0.2
ONCE: Final = -1
_RMI = re.compile(r"service:jmx:rmi:///jndi/rmi://(?P<host>\[[^\]]+\]|[^:/]*):(?P<port>\d+)/jmxrmi")
_HTTP = re.compile(r"https?://(\[[^\]]+\]|[^:/]+)(:\d+)?/?")

Values = dict[str, object]


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status."""
    return run_tool(_command_line(), _run, arguments)


def _command_line() -> CommandLine:
    line = CommandLine("kafka-jmx", "Dump JMX values to standard output.")
    line.add_option(
        "--jmx-url",
        value="service-url",
        default=DEFAULT_URL,
        help_text=(
            "The address of the broker's metrics: http://host:port, or service:jmx:rmi:///jndi/rmi://host:port/jmxrmi "
            f"with the same port. (default: {DEFAULT_URL})"
        ),
    )
    line.add_option(
        "--object-name",
        value="name",
        repeatable=True,
        help_text=("An object to read; * stands for any text in it. Without this option all objects are read."),
    )
    line.add_option("--attributes", value="name", help_text="The attributes to read, separated by commas.")
    line.add_option(
        "--reporting-interval",
        value="ms",
        parse=int,
        default=2000,
        help_text="Milliseconds between two lines; -1 prints one line. (default: 2000)",
    )
    line.add_flag("--one-time", "Print the values once.")
    line.add_option(
        "--date-format", value="format", help_text="The format of times, as Java's SimpleDateFormat has it."
    )
    line.add_option(
        "--report-format",
        value="report-format",
        default="original",
        help_text=f"{', '.join(FORMATS)}. (default: original)",
    )
    line.add_flag("--wait", "Wait until the objects exist.")
    line.add_option("--jmx-auth-prop", value="user:password", help_text="The login, as user=password or user:password.")
    line.add_flag("--jmx-ssl-enable", "Read with HTTPS.")
    return line


def _run(line: CommandLine, options: argparse.Namespace) -> int:
    line.require_one_of(options, "--report-format", FORMATS)
    wanted_attributes = None if options.attributes is None else [each.strip() for each in options.attributes.split(",")]
    show_time = _time_format(options.date_format)
    read = _reader(options)
    names = options.object_name or ["*:*"]
    require_reachable([_address(_endpoint(options))])
    try:
        values = _first(read, names, wanted_attributes, is_waiting=options.wait)
    except NameRefusedError as error:
        print(error, file=sys.stderr)
        return 1
    keys = sorted(values)
    if options.report_format == "original":
        print(",".join(f'"{key}"' for key in ("time", *keys)))
    interval_ms = ONCE if options.one_time else options.reporting_interval
    stopped = threading.Event()
    with StopRequest(stopped.set):
        due_s = time.monotonic()
        while True:
            _print(options.report_format, {"time": show_time(time.time()), **values}, keys)
            due_s += interval_ms / 1000
            if interval_ms < 0 or stopped.wait(max(due_s - time.monotonic(), 0)):
                return 0
            values = read(names, wanted_attributes)


class NameRefusedError(Exception):
    """No object has this name, or it is not well formed."""


def _first(
    read: Callable[[Sequence[str], Sequence[str] | None], Values],
    names: Sequence[str],
    attributes: Sequence[str] | None,
    *,
    is_waiting: bool,
) -> Values:
    """Return the first values.

    Raises UnreachableError, and NameRefusedError: immediately, or after `WAIT_S` if `is_waiting`.
    """
    end_s = time.monotonic() + WAIT_S
    while True:
        try:
            return read(names, attributes)
        except NameRefusedError:
            if not is_waiting:
                raise
            if time.monotonic() >= end_s:
                raise NameRefusedError(f"Could not find all requested objects after {WAIT_S:.0f} s") from None
        time.sleep(RETRY_S)


def _reader(options: argparse.Namespace) -> Callable[[Sequence[str], Sequence[str] | None], Values]:
    url = f"{_endpoint(options)}/jolokia"
    headers = {"Content-Type": "application/json"}
    if options.jmx_auth_prop:
        user, separator, password = options.jmx_auth_prop.replace("=", ":", 1).partition(":")
        if not separator:
            raise UsageError("jmx-auth-prop expects user:password")
        headers["Authorization"] = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
    context = ssl.create_default_context() if url.startswith("https") else None

    def read(names: Sequence[str], attributes: Sequence[str] | None) -> Values:
        asked = [{"type": "read", "mbean": name, **({"attribute": attributes} if attributes else {})} for name in names]
        # JmxTool prints names as they were registered, not in their canonical form.
        request = urllib.request.Request(f"{url}?canonicalNaming=false", json.dumps(asked).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=READ_TIMEOUT_S, context=context) as response:
                responses = json.load(response)
        except (OSError, ValueError) as error:
            raise UnreachableError(f"Could not read {url}: {getattr(error, 'reason', error)}") from error
        found: Values = {}
        for name, response in zip(names, responses, strict=True):
            if response["status"] != 200:
                raise NameRefusedError(f"No matched attributes for the queried objects {name}: {response['error']}")
            found |= _flat(name, response["value"])
        return found

    return read


def _flat(name: str, value: Mapping[str, object]) -> Values:
    """Return values by `object:attribute`; the response to a pattern has objects, to a name attributes."""
    if all(isinstance(one, Mapping) for one in value.values()) and value:
        return {
            f"{bean}:{attribute}": one
            for bean, attributes in value.items()
            if isinstance(attributes, Mapping)
            for attribute, one in attributes.items()
        }
    return {f"{name}:{attribute}": one for attribute, one in value.items()}


def _endpoint(options: argparse.Namespace) -> str:
    """Return the address of the HTTP port. Raises UsageError."""
    url: str = options.jmx_url
    scheme = "https" if options.jmx_ssl_enable else "http"
    if (found := _RMI.fullmatch(url)) is not None:
        return f"{scheme}://{found['host'] or 'localhost'}:{found['port']}"
    if _HTTP.fullmatch(url) is None:
        raise UsageError(
            f"Invalid jmx-url {url}: expected http://host:port or {DEFAULT_URL.replace('://:', '://host:')}"
        )
    return url.rstrip("/")


def _address(endpoint: str) -> Endpoint:
    """Return host and port of an HTTP address."""
    parts = urlsplit(endpoint)
    return Endpoint(parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80))


def _time_format(pattern: str | None) -> Callable[[float], str]:
    if pattern is None:
        return lambda now_s: str(int(now_s * 1000))
    return time_format(pattern)


def _print(form: str, values: Mapping[str, object], keys: Iterable[str]) -> None:
    shown = {key: _text(values.get(key)) for key in ("time", *keys)}
    match form:
        case "original":
            print(",".join(shown.values()))
        case "properties":
            print("\n".join(f"{key}={value}" for key, value in shown.items()))
        case "csv":
            print("\n".join(f'{key},"{value}"' for key, value in shown.items()))
        case _:
            print("\n".join(f"{key}\t{value}" for key, value in shown.items()))
    sys.stdout.flush()


def _text(value: object) -> str:
    return "NaN" if value is None else str(value)


if __name__ == "__main__":
    raise SystemExit(main())
