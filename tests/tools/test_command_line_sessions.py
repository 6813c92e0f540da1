"""Milena's tools with Milena print what Kafka's tools printed with Kafka, or the session says why not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import command_lines
from tests.support.broker import BrokerProcess
from tests.support.command_lines import RunTool


@pytest.mark.parametrize("name", command_lines.names())
def test_tools_print_what_kafkas_printed(milenas_tools: RunTool, tmp_path: Path, name: str) -> None:
    entries = command_lines.read(name)
    with BrokerProcess(tmp_path / "broker", command_lines.BROKER_SETTINGS) as broker:
        printed = list(command_lines.play(entries, broker.bootstrap, tmp_path, broker.log_dir, milenas_tools))
    assert command_lines.unexplained(entries, printed, "tool", "broker") == []
