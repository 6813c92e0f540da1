"""Every tool says in one line why a listener will not serve it: TLS, a login, neither of them, or no broker at all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.secured import SecuredBroker
from tests.tools.conftest import RunTool
from tests.tools.test_every_command_line import ADDRESS, AT, PARTITIONS, TOOLS, lines_but_warnings, main_of

WAITING: Mapping[str, Sequence[str]] = {
    "kafka-verifiable-consumer": (*AT, "--topic", "t", "--group-id", "g"),
    "kafka-verifiable-producer": (*AT, "--topic", "t", "--max-messages", "1"),
}
"""Tools that wait for a broker that does not run, but not for one that will never serve them."""
CONNECTING = {**{name: tool.connecting for name, tool in TOOLS.items() if tool.connecting}, **WAITING}
BEFORE_LOGIN = {"kafka-features"}
"""Tools that only send what brokers respond to before a login."""


class Case(NamedTuple):
    """A listener, the settings of a client, and what the tool says about the listener."""

    listener: str
    client: str
    said: str


CASES = [
    Case("SSL", "PLAINTEXT", "expects TLS: security.protocol is PLAINTEXT, expected SSL. Set it in the file that"),
    Case(
        "SASL_PLAINTEXT",
        "PLAINTEXT",
        "expects a login without TLS: security.protocol is PLAINTEXT, expected SASL_PLAINTEXT. Set it in the file that",
    ),
    Case("HTTP", "PLAINTEXT", "is an HTTP server, expected a listener of a broker"),
]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with SecuredBroker(tmp_path_factory.mktemp("first-connection"), kerberos=False) as running:
        yield running


def address(secured: SecuredBroker, listener: str) -> str:
    return f"localhost:{secured.metrics_port}" if listener == "HTTP" else secured.bootstrap(listener)


@pytest.fixture
def partitions(tmp_path: Path) -> Path:
    path = tmp_path / "partitions.json"
    path.write_text('{"partitions": [{"topic": "t", "partition": 0, "offset": 1}], "version": 1}')
    return path


@pytest.mark.parametrize("name", sorted(CONNECTING))
def test_every_tool_says_what_a_listener_expects(
    run: RunTool, secured: SecuredBroker, partitions: Path, name: str
) -> None:
    for case in CASES:
        if name in BEFORE_LOGIN and case.listener == "SASL_PLAINTEXT":
            continue
        at = address(secured, case.listener)
        stands_for = {ADDRESS: at, PARTITIONS: str(partitions)}
        outcome = run(main_of(name), *(stands_for.get(part, part) for part in CONNECTING[name]))
        (said,) = lines_but_warnings(outcome.stderr)
        assert said.startswith(f"{at} {case.said}")
        assert outcome.status == 1


OF_TWO_CLIENTS = [
    Case("PLAINTEXT", "SSL", "expects neither TLS nor a login: security.protocol is SSL, expected PLAINTEXT"),
    Case("PLAINTEXT", "SASL_PLAINTEXT", "expects neither TLS nor a login: security.protocol is SASL_PLAINTEXT"),
    Case("SASL_SSL", "SSL", "expects TLS and a login: security.protocol is SSL, expected SASL_SSL"),
    Case("SSL", "SASL_SSL", "expects TLS: security.protocol is SASL_SSL, expected SSL"),
    Case("HTTP", "SSL", "is an HTTP server, expected a listener of a broker"),
]


@pytest.mark.parametrize(
    ("name", "option"), [("kafka-topics", "--command-config"), ("kafka-console-producer", "--producer.config")]
)
@pytest.mark.parametrize("case", OF_TWO_CLIENTS, ids=lambda case: f"{case.client}-at-{case.listener}")
def test_both_clients_say_that_their_settings_do_not_fit(
    run: RunTool, secured: SecuredBroker, tmp_path: Path, name: str, option: str, case: Case
) -> None:
    path = settings_file(tmp_path, secured.java(case.client, "PLAIN" if case.client.startswith("SASL") else ""))
    at = address(secured, case.listener)
    listed = ("--list",) if name == "kafka-topics" else ("--topic", "t")
    outcome = run(main_of(name), "--bootstrap-server", at, *listed, option, str(path))
    (said,) = lines_but_warnings(outcome.stderr)
    assert said.startswith(f"{at} {case.said}")
    assert outcome.status == 1


def test_console_says_that_a_login_failed(run: RunTool, secured: SecuredBroker, tmp_path: Path) -> None:
    path = settings_file(tmp_path, secured.java("SASL_PLAINTEXT", "PLAIN", password="wrong"))
    at = address(secured, "SASL_PLAINTEXT")
    arguments = ("--bootstrap-server", at, "--topic", "t", "--producer.config", str(path))
    outcome = run(main_of("kafka-console-producer"), *arguments)
    assert outcome.status == 1
    reason = "Authentication failed: Invalid username or password"
    assert outcome.stderr == f"No connection to {at} with security.protocol=SASL_PLAINTEXT: {reason}\n"


def settings_file(folder: Path, settings: Mapping[str, str]) -> Path:
    path = folder / "client.properties"
    lines = (f"{key}={value}" for key, value in settings.items() if key != "bootstrap.servers")
    path.write_text("\n".join(lines).replace("\\", "\\\\"))
    return path
