"""The command lines of the sessions with Kafka's tools and Milena's, against Kafka and Milena: the four pairs.

`tests/tools/test_command_line_sessions.py` runs the pair that needs no Java, and compares it with the recorded outputs.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.conftest import STARTERS
from tests.interop.kafka_tools import KAFKA_SETTLES_S, kafka_tools
from tests.support import command_lines
from tests.support.apache_kafka import JavaPrograms
from tests.support.command_lines import RunTool
from tests.support.parts import skip_when_unavailable
from tests.tools.conftest import milenas_tools as milenas_tools  # a fixture
from tests.tools.conftest import run as run  # a fixture

PARTS = {
    ("apache-kafka", "apache-kafka"): (),
    ("apache-kafka", "milena"): ("broker",),
    ("milena", "apache-kafka"): ("tool",),
    ("milena", "milena"): ("tool", "broker"),
}
"""By whose tools and whose broker: what of Milena takes part."""


@pytest.mark.soak
@pytest.mark.parametrize("name", command_lines.names())
@pytest.mark.parametrize("pair", PARTS, ids=lambda pair: f"{pair[0]}-tools-with-{pair[1]}")
def test_tools_print_what_is_recorded(
    pair: tuple[str, str], name: str, java_programs: JavaPrograms, milenas_tools: RunTool, tmp_path: Path
) -> None:
    whose_tools, whose_broker = pair
    entries = command_lines.read(name)
    run_tool = milenas_tools if whose_tools == "milena" else kafka_tools(java_programs, tmp_path)
    with (
        skip_when_unavailable(),
        STARTERS[whose_broker](tmp_path / "broker", command_lines.BROKER_SETTINGS) as server,
    ):
        settle_s = KAFKA_SETTLES_S if whose_broker == "apache-kafka" else 0
        printed = list(
            command_lines.play(entries, server.bootstrap, tmp_path, server.log_dir, run_tool, settle_s=settle_s)
        )
    assert command_lines.unexplained(entries, printed, *PARTS[pair]) == []
