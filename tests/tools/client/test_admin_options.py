"""Settings of the administration tools' client."""

from pathlib import Path

import pytest

from tests.support.broker import BrokerProcess
from tests.tools.conftest import RunTool
from tools.admin import topics


def test_command_config_is_read(broker: BrokerProcess, run: RunTool, tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("client.id=me\nrequest.timeout.ms=1000\nsecurity.protocol=plaintext\nno.such.key=1\n")
    outcome = run(topics.main, "--bootstrap-server", broker.bootstrap, "--list", "--command-config", str(path))
    assert outcome.status == 0
    assert outcome.stderr == f"WARNING: no.such.key of {path} is ignored\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("security.protocol=TLS", "Invalid value TLS for configuration security.protocol"),
        ("request.timeout.ms=soon", "Invalid value soon for configuration request.timeout.ms"),
        ("security.protocol=SSL\nssl.truststore.location=/no/such", "cannot read the JKS store /no/such"),
        ("a=\\u12", "Cannot read"),
    ],
)
def test_invalid_command_config_is_one_line(run: RunTool, tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "client.properties"
    path.write_text(text)
    outcome = run(topics.main, "--bootstrap-server", "127.0.0.1:1", "--list", "--command-config", str(path))
    assert outcome.status == 1
    (said,) = outcome.stderr.splitlines()
    assert said.startswith(reason)


def test_missing_command_config_is_a_usage_error(run: RunTool) -> None:
    outcome = run(topics.main, "--bootstrap-server", "127.0.0.1:1", "--list", "--command-config", "/nowhere")
    assert outcome.status == 1
    assert outcome.stderr.startswith("Cannot read /nowhere")


def test_timeouts_are_configurable(run: RunTool, tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("default.api.timeout.ms=200\n")
    outcome = run(topics.main, "--bootstrap-server", "127.0.0.1:1", "--list", "--command-config", str(path))
    assert outcome.status == 1
    assert outcome.stderr.startswith("No broker at 127.0.0.1:1: ")
