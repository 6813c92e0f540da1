"""What a broker gets from the machine is made in one module, so that simulated brokers can get it from elsewhere."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def makers_of_randomness(source: str) -> Iterator[str]:
    """Yield what a module takes from `random`, beside the class by whose name others pass a source of randomness."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name == "random")
        elif isinstance(node, ast.ImportFrom) and node.module == "random":
            yield from (alias.name for alias in node.names if alias.name != "Random")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Random":
            yield "Random()"


def test_only_the_environment_makes_a_source_of_randomness() -> None:
    makers = {
        str(path.relative_to(ROOT))
        for folder in ("base", "protocol", "config", "storage", "controller", "broker")
        for path in (ROOT / folder).rglob("*.py")
        if any(makers_of_randomness(path.read_text(encoding="utf-8")))
    }
    assert makers == {"broker/environment.py"}
