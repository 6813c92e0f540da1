"""milena: a broker in the background, its topics and seeds, and what the command says in each state."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer, Message

from protocol.errors import ErrorCode, KafkaError
from tests.tools.conftest import ROOT, Outcome, RunTool
from tools.launch.background import milena
from tools.launch.background.first_topics import _end_offsets
from tools.launch.running_servers import wait_for_end

# The broker is meant to outlive the command that starts it.
pytestmark = pytest.mark.filterwarnings("ignore:subprocess [0-9]+ is still running:ResourceWarning")

DEADLINE_S = 30
ORDERS = """\
{"key": "ann", "value": {"amount": 10}, "headers": {"trace": "7"}}
{"key": "bob", "value": {"amount": 5}}

{"value": null, "key": "ann", "partition": 2, "timestamp_ms": 1700000000000}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: RunTool) -> Iterator[Path]:
    """The current folder, which has no broker before and after the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    (tmp_path / "orders.jsonl").write_text(ORDERS)
    (tmp_path / "rows.csv").write_text("customer,total\nann,10\n")
    yield tmp_path
    run(milena.main, "down")


def records_of(bootstrap: str, topic: str, count: int) -> list[Message]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found = consumer.consume(count, DEADLINE_S)
    consumer.close()
    return found


def test_up_is_repeatable_and_down_ends_it(run: RunTool, project: Path) -> None:
    command = ("up", "--port", "0", "--topics", "orders:3", "--seed", "orders.jsonl", "orders=rows.csv", "--json")
    first = run(milena.main, *command)
    assert first.status == 0, first.stderr
    up = json.loads(first.stdout)
    assert up["done"] == [
        "topic orders: created, partitions: 3",
        "seed orders.jsonl: appended to orders, records: 3",
        "seed rows.csv: appended to orders, records: 1",
    ]
    bob = next(record for record in records_of(up["bootstrap_servers"], "orders", 4) if record.key() == b"bob")
    assert json.loads(bob.value()) == {"amount": 5}

    second = json.loads(run(milena.main, *command).stdout)
    assert second == up | {
        "done": [
            "topic orders: exists, partitions: 3",
            "seed orders.jsonl: left out, because orders has been written to: offset 4",
            "seed rows.csv: left out, because orders has been written to: offset 4",
        ]
    }

    where = f"a broker runs at {up['bootstrap_servers']}"
    refused = {
        ("--topics", "orders:4"): "milena: topic orders exists with 3 partitions, not 4\n",
        ("--port", "1"): f"milena: {where}, not at port 1: stop it with `milena down` first\n",
        ("--override", "a=b"): f"milena: {where}, and settings need a start: stop it with `milena down` first\n",
    }
    assert {options: run(milena.main, "up", *options) for options in refused} == {
        options: Outcome(1, "", said) for options, said in refused.items()
    }
    port = up["bootstrap_servers"].rpartition(":")[2]
    other = run(milena.main, "up", "--dir", "other", "--port", port)
    assert other.stderr.startswith("milena: listener PLAINTEXT cannot listen on ")
    assert "Address already in use" in other.stderr

    line = f"A broker runs at {up['bootstrap_servers']} (process {up['pid']}); log: .milena/broker.log\n"
    assert run(milena.main, "status") == Outcome(0, line, "")
    exported = f"export KAFKA_BOOTSTRAP_SERVERS={up['bootstrap_servers']}\n"
    assert run(milena.main, "status", "--env") == Outcome(0, exported, line)

    down = run(milena.main, "down", "--delete-data")
    assert down.status == 0
    assert down.stdout.startswith(f"Stopped the broker in .milena (process {up['pid']}) in ")
    assert not (project / ".milena").exists()
    assert run(milena.main, "down") == Outcome(0, "No broker runs in .milena\n", "")
    assert run(milena.main, "status", "--json") == Outcome(
        1, '{"running": false}\n', "milena: No broker runs in .milena\n"
    )


def test_a_killed_broker_is_reported_and_replaced(run: RunTool, project: Path) -> None:
    pid = json.loads(run(milena.main, "up", "--port", "0", "--json").stdout)["pid"]
    os.kill(pid, signal.SIGKILL)
    wait_for_end({pid}, DEADLINE_S, project / ".milena" / "run")
    # A registration that its process has not removed, as waiting has removed that of the killed one.
    (project / ".milena" / "run" / f"broker-{pid}").write_text(f"{pid} 0\nPLAINTEXT://localhost:1\n")
    said = f"No broker runs in .milena: process {pid} ended without `milena down`; its log is .milena/broker.log\n"
    assert run(milena.main, "status") == Outcome(1, "", f"milena: {said}")
    assert run(milena.main, "up", "--port", "0").stdout.startswith("Started a broker at localhost:")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--topics", "orders:0"), "milena: error: argument --topics: 'orders:0': expected name or name:partitions, "),
        (("--override", "x"), "milena: error: argument --override: 'x': expected property=value"),
        (("--port", "65536"), "milena: error: argument --port: '65536': expected a port from 0 to 65535"),
        (("--json", "--env"), "--json and --env are two formats: give one of them"),
        (("--seed", "missing.jsonl"), "cannot read the seed missing.jsonl: No such file or directory"),
        (("--seed", "bad.jsonl"), "bad.jsonl:2: expected one JSON value a line: "),
        (("--dir", "bad.jsonl"), "milena: cannot use the folder bad.jsonl: File exists"),
    ],
)
def test_a_wrong_value_is_named_before_a_broker_starts(
    run: RunTool, project: Path, arguments: tuple[str, ...], said: str
) -> None:
    (project / "bad.jsonl").write_text('{"value": 1}\n{"value": \n')
    outcome = run(milena.main, "up", *arguments)
    assert (outcome.status, outcome.stdout) == (1, "")
    assert outcome.stderr.startswith(said)
    assert not (project / ".milena").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--override", "log.retention.hours=x"), "milena: Invalid value x for configuration log.retention.hours: "),
        (("--topics", "a b"), "milena: Topic name is invalid: 'a b' contains "),
        (("--seed", "orders.jsonl"), "milena: seed orders.jsonl has records for partition 2, but the partitions of "),
    ],
)
def test_a_failed_up_leaves_no_broker(run: RunTool, project: Path, arguments: tuple[str, ...], said: str) -> None:
    outcome = run(milena.main, "up", "--port", "0", *arguments)
    assert (outcome.status, outcome.stdout) == (1, "")
    assert outcome.stderr.startswith(said)
    assert run(milena.main, "status").status == 1


def test_a_folder_with_other_files_is_left_alone(run: RunTool, project: Path) -> None:
    (project / "data").mkdir()
    files = sorted(path.name for path in project.iterdir())
    said = "milena: . has other files: expected a new folder, an empty one, or that of an earlier `milena up`\n"
    assert run(milena.main, "up", "--dir", ".", "--port", "0") == Outcome(1, "", said)
    assert run(milena.main, "down", "--dir", ".", "--delete-data") == Outcome(0, "No broker runs in .\n", "")
    assert sorted(path.name for path in project.iterdir()) == files


def test_a_topic_whose_end_is_not_known_does_not_count_as_empty() -> None:
    """It would be filled a second time."""
    admin: Any = SimpleNamespace(
        list_offsets=lambda wanted: {each: KafkaError(ErrorCode.LEADER_NOT_AVAILABLE) for each in wanted}
    )
    with pytest.raises(KafkaError):
        _end_offsets(admin, "t", 2)
