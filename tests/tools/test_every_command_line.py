"""The rules for the command lines of all tools: usage, unknown options, missing arguments, dead addresses.

One table names for each tool what it requires. A tool without a row, or a row without a tool, fails.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.forked_programs import start_program, variables_of_programs
from tests.support.processes import closed_port
from tests.tools.conftest import ROOT, SCRIPTS, RunTool, module_of
from tools.base.command_line import HELP_WIDTH
from tools.client.bootstrap import require_reachable

ADDRESS = "ADDRESS"
"""Stands for the address of a broker in a command line."""
PARTITIONS = "PARTITIONS"
"""Stands for a file that names a partition."""
AT = ("--bootstrap-server", ADDRESS)


class Tool(NamedTuple):
    """What the rules need to know about one tool."""

    incomplete: Sequence[str] = ()
    """A command line that lacks an argument."""
    missing: str = ""
    """What its error names."""
    connecting: Sequence[str] = ()
    """A complete command line that connects to a broker."""
    without_arguments: int | None = 1
    """The exit status without arguments; None if the tool then does its work."""


TOOLS: Mapping[str, Tool] = {
    "connect-distributed": Tool(("no-such-file",), "no-such-file"),
    "connect-mirror-maker": Tool(("no-such-file",), "no-such-file"),
    "connect-plugin-path": Tool(("list", "--plugin-path"), "--plugin-path: expected one argument"),
    "connect-standalone": Tool(("no-such-file",), "no-such-file"),
    "kafka-acls": Tool(("--list",), "[bootstrap-server]", (*AT, "--list")),
    "kafka-broker-api-versions": Tool(("--command-config", "f"), "[bootstrap-server]", AT),
    "kafka-check": Tool(("--config",), "config requires an argument", without_arguments=None),
    "kafka-client-metrics": Tool(("--list",), "[bootstrap-server]", (*AT, "--list")),
    "kafka-cluster": Tool(("cluster-id",), "[bootstrap-server]", ("cluster-id", *AT)),
    "coordination-server-start": Tool(("--port", "0"), 'Missing required argument "[data]"', without_arguments=None),
    "kafka-cluster-start": Tool(("-n",), "n requires an argument", without_arguments=None),
    "kafka-configs": Tool(("--describe", "--topic", "t"), "[bootstrap-server]", (*AT, "--describe", "--topic", "t")),
    "kafka-console-consumer": Tool(AT, "--topic", (*AT, "--topic", "t")),
    "kafka-console-producer": Tool(AT, "[topic]", (*AT, "--topic", "t")),
    "kafka-console-share-consumer": Tool(AT, "--topic", (*AT, "--topic", "t")),
    "kafka-consumer-groups": Tool(("--list",), "[bootstrap-server]", (*AT, "--list")),
    "kafka-consumer-perf-test": Tool((*AT, "--topic", "t"), "[messages]", (*AT, "--topic", "t", "--messages", "1")),
    "kafka-delegation-tokens": Tool(("--describe",), "[bootstrap-server]"),
    "kafka-delete-records": Tool(AT, "[offset-json-file]", (*AT, "--offset-json-file", PARTITIONS)),
    "kafka-dump-log": Tool(("--print-data-log",), "[files]"),
    "kafka-e2e-latency": Tool((ADDRESS, "t", "1", "1"), "USAGE: kafka-e2e-latency", (ADDRESS, "t", "1", "1", "8")),
    "kafka-features": Tool(("describe",), "bootstrap-server", (*AT, "describe")),
    "kafka-get-offsets": Tool(("--topic", "t"), "[bootstrap-server]", AT),
    "kafka-groups": Tool(("--list",), "[bootstrap-server]", (*AT, "--list")),
    "kafka-jmx": Tool(("--attributes",), "attributes requires an argument"),
    "kafka-lag": Tool(("--one-time",), "[bootstrap-server]", (*AT, "--one-time")),
    "kafka-leader-election": Tool(
        (*AT, "--all-topic-partitions"),
        "[election-type]",
        (*AT, "--all-topic-partitions", "--election-type", "preferred"),
    ),
    "kafka-log-dirs": Tool(("--describe",), "[bootstrap-server]", (*AT, "--describe")),
    "kafka-metadata-quorum": Tool(("describe", "--status"), "bootstrap-server", (*AT, "describe", "--status")),
    "kafka-mirror-maker": Tool(("--include", "t"), "[consumer.config]"),
    "kafka-monitor": Tool(("--topic", "t"), "[bootstrap-server]"),
    "kafka-preferred-replica-election": Tool(("--path-to-json-file", "f"), "[bootstrap-server]", AT),
    "kafka-producer-perf-test": Tool(("--topic", "t"), "[num-records]", without_arguments=0),
    "kafka-reassign-partitions": Tool(("--list",), "--bootstrap-server", (*AT, "--list")),
    "kafka-replica-verification": Tool(("--topics-include", "t"), "[broker-list]", ("--broker-list", ADDRESS)),
    "kafka-server-start": Tool(("--override",), "expected one argument", without_arguments=None),
    "kafka-server-stop": Tool(("--node-id",), "node-id requires an argument", without_arguments=None),
    "kafka-share-consumer-perf-test": Tool(
        (*AT, "--topic", "t"), "[messages]", (*AT, "--topic", "t", "--messages", "1")
    ),
    "kafka-share-groups": Tool(("--list",), "[bootstrap-server]", (*AT, "--list")),
    "kafka-storage": Tool(("info",), "--config"),
    "kafka-streams-application-reset": Tool(AT, "[application-id]", (*AT, "--application-id", "a")),
    "kafka-topics": Tool(("--list",), "[bootstrap-server]", (*AT, "--list")),
    "kafka-transactions": Tool((*AT, "describe"), "--transactional-id", (*AT, "list")),
    "kafka-verifiable-consumer": Tool((*AT, "--topic", "t"), "[group-id]", without_arguments=0),
    "kafka-verifiable-producer": Tool(("--max-messages", "1"), "[topic]", without_arguments=0),
    "metadata-copy": Tool(("--from-log-dir", "d"), "to-zookeeper"),
    "milena": Tool(("up", "--port"), "argument --port: expected one argument"),
    "milena-certs": Tool(),
    "milena-completion": Tool(("csh",), "expected bash, fish, zsh"),
    "zookeeper-security-migration": Tool(("--zookeeper.connect", "z"), "zookeeper.acl"),
    "zookeeper-server-start": Tool(("a", "b"), "USAGE: zookeeper-server-start"),
    "zookeeper-server-stop": Tool(without_arguments=None),
    "zookeeper-shell": Tool(("host:1", "-zk-tls-config-file"), "USAGE: zookeeper-shell"),
}
NAMES = sorted(TOOLS)


def main_of(name: str) -> object:
    return import_module(module_of(name)).main


def lines_but_warnings(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith("WARNING: ")]


def test_every_tool_has_a_row() -> None:
    assert set(TOOLS) == set(SCRIPTS)


HELP_SUCCEEDS = {
    "connect-plugin-path", "coordination-server-start",
    "kafka-check", "kafka-cluster", "kafka-cluster-start", "kafka-features", "kafka-lag", "kafka-metadata-quorum",
    "kafka-monitor",
    "kafka-producer-perf-test", "kafka-server-start", "kafka-storage", "kafka-transactions",
    "kafka-verifiable-consumer", "kafka-verifiable-producer", "metadata-copy", "milena", "milena-certs",
    "milena-completion",
}  # fmt: skip
"""Tools whose help is on stdout with exit status 0: Kafka's that it built on argparse4j, Milena's, the start."""


@pytest.mark.parametrize("name", NAMES)
def test_help_is_printed_where_kafkas_tool_prints_it(run: RunTool, name: str) -> None:
    outcome = run(main_of(name), "--help")
    if name in HELP_SUCCEEDS:
        assert (outcome.status, outcome.stderr) == (0, "")
        assert len(outcome.stdout.splitlines()) > 0
    else:
        assert (outcome.status, outcome.stdout) == (1, "")
        assert len(outcome.stderr.splitlines()) > 0


@pytest.mark.parametrize("name", NAMES)
def test_help_fits_a_hundred_columns(run: RunTool, name: str) -> None:
    outcome = run(main_of(name), "--help")
    assert [line for line in (outcome.stdout + outcome.stderr).splitlines() if len(line) > HELP_WIDTH] == []


@pytest.mark.parametrize("name", [name for name in NAMES if TOOLS[name].without_arguments is not None])
def test_usage_is_printed_without_arguments(run: RunTool, name: str) -> None:
    outcome = run(main_of(name))
    assert outcome.status == TOOLS[name].without_arguments
    # As in Kafka, the tools that succeed then print it to stdout.
    usage, nothing = (outcome.stderr, outcome.stdout) if outcome.status else (outcome.stdout, outcome.stderr)
    assert len(usage) > 50
    assert nothing == ""


@pytest.mark.parametrize("name", NAMES)
def test_an_unknown_option_is_named_in_the_first_line(run: RunTool, name: str) -> None:
    outcome = run(main_of(name), "--no-such-option")
    assert (outcome.status, outcome.stdout) == (1, "")
    assert outcome.stderr.splitlines()[0].endswith("no-such-option is not a recognized option")


HAS_NO_OPTIONS = {"kafka-e2e-latency", "zookeeper-server-start", "zookeeper-shell"}


@pytest.mark.parametrize("name", [name for name in NAMES if name not in HAS_NO_OPTIONS])
def test_a_misspelt_option_names_the_nearest_one(run: RunTool, name: str) -> None:
    outcome = run(main_of(name), "--verzion")
    assert (outcome.status, outcome.stdout) == (1, "")
    first = outcome.stderr.splitlines()[0]
    assert first.endswith("verzion is not a recognized option; did you mean --version?")


@pytest.mark.parametrize("name", [name for name in NAMES if TOOLS[name].missing])
def test_a_missing_argument_is_named_in_the_first_line(run: RunTool, name: str) -> None:
    tool = TOOLS[name]
    outcome = run(main_of(name), *(part.replace(ADDRESS, "127.0.0.1:1") for part in tool.incomplete))
    assert (outcome.status, outcome.stdout) == (1, "")
    assert tool.missing in lines_but_warnings(outcome.stderr)[0]


def test_the_help_names_the_defaults_in_force() -> None:
    """Options whose default is None take one from elsewhere, such as a file of settings."""
    stated = {}
    for name in NAMES:
        new_command_line = getattr(import_module(module_of(name)), "_command_line", None)
        for action in [] if new_command_line is None else new_command_line()._actions:
            found = re.search(r"\(default: ([^)]*)\)", action.help or "")
            if found is not None and action.default is not None:
                stated[name, action.option_strings[0]] = (found[1], str(action.default))
    assert stated.pop(("kafka-producer-perf-test", "--transaction-duration-ms")) == ("0, no transactions", "0")
    assert stated.pop(("kafka-verifiable-consumer", "--assignment-strategy"))[1].endswith(".RangeAssignor")
    assert {option: pair for option, pair in stated.items() if pair[0] != pair[1]} == {}
    assert len(stated) > 30


@pytest.fixture
def partitions(tmp_path: Path) -> Path:
    path = tmp_path / "partitions.json"
    path.write_text('{"partitions": [{"topic": "t", "partition": 0, "offset": 1}], "version": 1}')
    return path


@pytest.mark.parametrize("name", [name for name in NAMES if TOOLS[name].connecting])
def test_a_dead_address_is_one_line(run: RunTool, monkeypatch: pytest.MonkeyPatch, partitions: Path, name: str) -> None:
    monkeypatch.setattr(require_reachable, "__defaults__", (0.1,))
    monkeypatch.setattr("tools.client.admin_client.REACH_TIMEOUT_S", 0.1)
    with closed_port() as port:
        stands_for = {ADDRESS: f"127.0.0.1:{port}", PARTITIONS: str(partitions)}
        outcome = run(main_of(name), *(stands_for.get(part, part) for part in TOOLS[name].connecting))
    expected = f"No broker at 127.0.0.1:{port}: Connection refused. Does it run at this address?"
    assert outcome.status == 1
    assert lines_but_warnings(outcome.stderr) == [expected]
    assert len(outcome.stdout.splitlines()) <= 1  # a heading, as in Kafka


@pytest.mark.parametrize("name", NAMES)
def test_output_that_nobody_reads_is_no_error(name: str, tmp_path: Path) -> None:
    """The output is buffered, as without a terminal: it reaches the pipe at the end of the tool."""
    reader, writer = os.pipe()
    os.close(reader)
    with (tmp_path / "stderr").open("wb") as stderr:
        process = start_program(
            module_of(name), ["--version"], stdout=writer, stderr=stderr.fileno(), environment=variables_of_programs()
        )
    os.close(writer)
    assert (process.wait(60), (tmp_path / "stderr").read_bytes()) == (0, b"")


HEAVY = ("asyncio", "broker.settings", "confluent_kafka", "cryptography", "kazoo", "protocol.api", "ssl", "uvloop")
"""What takes longer to import than a tool may take to start."""
# The client library, HTTP and the ciphers are what these tools are about. Workers of Connect are servers.
LIGHT = [
    name
    for name in NAMES
    if name
    not in {
        "connect-distributed", "connect-mirror-maker", "connect-plugin-path", "connect-standalone",
        "kafka-broker-api-versions", "kafka-jmx", "kafka-lag", "kafka-monitor", "metadata-copy", "milena-certs",
        "zookeeper-security-migration", "zookeeper-shell",
    }
]  # fmt: skip


def test_the_administration_tools_start_without_what_only_some_command_lines_need() -> None:
    modules = [module_of(name) for name in LIGHT]
    probe = (
        "import sys\n"
        "from importlib import import_module\n"
        f"for name in {modules}:\n"
        "    tool = import_module(name)\n"
        "    is_start = name == 'tools.launch.server_start'\n"
        "    tool.main(['--version']) if is_start else getattr(tool, '_command_line', int)()\n"
        f"    heavy = sorted(set({HEAVY}) & set(sys.modules))\n"
        "    assert not heavy, f'{name} imports {heavy}'\n"
    )
    finished = subprocess.run(
        [sys.executable, "-P", "-c", probe],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=60,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
