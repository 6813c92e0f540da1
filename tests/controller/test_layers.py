"""The decision modules of the controller are pure: they import no module for I/O, time or randomness."""

import ast
from pathlib import Path

import pytest

CONTROLLER = Path(__file__).parents[2] / "controller"

IMPURE = {"asyncio", "concurrent", "kazoo", "os", "random", "selectors", "socket", "sqlite3", "threading", "time"}

PURE = [
    "assignment",
    "context",
    "effects",
    "election",
    "events",
    "isr_changes",
    "leadership",
    "model",
    "partition_states",
    "paths",
    "reassignment",
    "replica_states",
    "requests",
    "topic_creation",
    "topic_deletion",
]


def _imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return names


@pytest.mark.parametrize("module", PURE)
def test_decision_modules_do_no_io(module: str) -> None:
    imported = _imported(CONTROLLER / f"{module}.py")
    assert not {name.split(".")[0] for name in imported} & IMPURE
    ours = {name.split(".")[1] for name in imported if name.startswith("controller.")}
    # Ports: what may be sent, not how; and where work may be interrupted, not when.
    assert ours <= {*PURE, "broker_channels", "settings", "turns"}


@pytest.mark.parametrize("module", ["armed_watches", "second_execution"])
def test_decisions_about_lost_connections_do_no_io(module: str) -> None:
    imported = _imported(CONTROLLER / "zookeeper" / f"{module}.py")
    assert not {name.split(".")[0] for name in imported} & IMPURE
    assert {name for name in imported if name.startswith("controller.")} <= {"controller.state_store"}


def test_no_module_reads_the_system_clock() -> None:
    """Time comes in through `Clock`."""
    for path in CONTROLLER.rglob("*.py"):
        assert not {"time", "datetime"} & _imported(path), path
