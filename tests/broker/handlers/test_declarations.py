"""Each handler module declares its API, and nothing else decides by the name of an API."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.handlers.declaration import Declaration, Elements
from broker.requests.routes import TABLE
from protocol.api import APIS

ROOT = Path(__file__).resolve().parents[3]
NAMES_APIS = {
    "broker/console/cluster_client.py": "sends requests of these APIs itself, and shows what their responses list",
    "broker/handlers": "declares them, and names their metrics",
    "broker/network/sasl/dispatcher.py": "finds the frame that begins a login again",
    "broker/requests/dispatch.py": "responds to an unknown version of ApiVersions before a client knows any",
    "broker/requests/release_gate.py": "responds to an unknown version of ApiVersions before a client knows any",
    "protocol": "declares messages, versions and headers",
}
"""What may name an API, and why."""


@pytest.mark.parametrize("key", sorted(TABLE), ids=lambda key: APIS[key].name)
def test_a_handler_declares_its_own_api(key: int) -> None:
    declaration = TABLE[key].API
    assert isinstance(declaration, Declaration)
    assert declaration.key == key
    assert (declaration.elements is Elements.CONTROL) <= APIS[key].cluster_action


def named_apis(source: str) -> Iterator[str]:
    """Yield the APIs that a module names."""
    if "ApiKey" not in source:  # to parse all modules takes seconds
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "ApiKey":
            yield node.attr


def test_only_listed_modules_name_an_api() -> None:
    folders = ("base", "broker", "controller", "protocol", "storage", "config")
    found = {
        str(path.relative_to(ROOT))
        for folder in folders
        for path in (ROOT / folder).rglob("*.py")
        if any(named_apis(path.read_text(encoding="utf-8")))
    }
    listed = {path for path in found if path.startswith(tuple(NAMES_APIS))}
    assert found == listed
    assert all(any(path.startswith(prefix) for path in found) for prefix in NAMES_APIS)
