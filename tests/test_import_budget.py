"""What a broker imports until it serves: each further library costs every start time and memory."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

THIRD_PARTY = {"uvloop", "cython_runtime", "_crc32c"}
"""What a broker without metrics, TLS, OAUTHBEARER and ZooKeeper needs of other people's code."""
EXPENSIVE = {
    "argparse",
    "ctypes.util",
    "difflib",
    "email",
    "encodings.idna",
    "gettext",
    "http.client",
    "importlib.metadata",
    "importlib.resources",
    "multiprocessing",
    "pickle",
    "tempfile",
    "urllib.request",
    "zipfile",
}
"""Modules of the standard library that cost more than a millisecond, and that are only needed for some requests."""
ONLY_WITH_LOGINS = {
    "broker.network.sasl.clients",
    "broker.network.sasl.dispatcher",
    "broker.network.sasl.gssapi",
    "broker.network.sasl.oauthbearer",
    "broker.security.kerberos",
    "broker.security.token_source",
    "broker.settings.sasl_settings",
    "broker.settings.zookeeper_settings",
    "base.jaas",
}
"""Modules of the project that only brokers with SASL or ZooKeeper need."""
MODULES_MAX = 510
"""How many modules a started broker has imported: each costs 0.1 ms and 40 KB, a package with a docstring less."""
CALLS_MAX = 107_000
"""How many Python functions a start calls. With the dataclasses of the standard library there were 172,000."""

START = """
import asyncio
import tools.launch.server_start
import broker.server
import uvloop
from broker.environment import environment_of_this_machine
from config.broker import BrokerConfig

async def start():
    config = BrokerConfig.from_properties({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": sys.argv[1]}, {})
    server = broker.server.Server(config, environment_of_this_machine())
    await server.start()
    report()
    await server.stop()

with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
    runner.run(start())
"""

# Prints as JSON which file imported each module first. `sys.meta_path` is asked once for a module.
PROBE = """
import json, sys

BEFORE = set(sys.modules)
importers = {}

class Recorder:
    def find_spec(self, name, path=None, target=None):
        frame = sys._getframe(1)
        while frame is not None and "importlib" in frame.f_code.co_filename:
            frame = frame.f_back
        importers.setdefault(name, f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame else "?")

sys.meta_path.insert(0, Recorder())

def report():
    print(json.dumps({name: importers.get(name, "?") for name in sys.modules if name not in BEFORE}))
"""

# Prints how many Python functions the main thread has called.
COUNTER = """
import sys

calls = 0

def count(frame, event, argument):
    global calls
    calls += event == "call"

def report():
    sys.setprofile(None)
    print(calls)

sys.setprofile(count)
"""


def _run(code: str, folder: Path) -> str:
    """Return the output of a broker's start. The modules are compiled before: a start does not compile them."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    for attempt in ("compiled", "measured"):
        probe = subprocess.run(
            [sys.executable, "-P", "-c", code + START, str(folder / attempt)],
            env={**kept, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0"},
            capture_output=True,
            text=True,
            check=True,
        )
    return probe.stdout


@pytest.fixture(scope="module")
def importers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The modules that a started broker has imported, and the place of the import."""
    found: dict[str, str] = json.loads(_run(PROBE, tmp_path_factory.mktemp("budget")))
    assert "broker.server" in found
    return found


def test_a_start_imports_no_library_that_only_some_brokers_need(importers: dict[str, str]) -> None:
    own = {path.name for path in ROOT.iterdir() if (path / "__init__.py").exists()}
    allowed = THIRD_PARTY | own | set(sys.stdlib_module_names)
    too_much = {
        name: place
        for name, place in importers.items()
        if (top := name.partition(".")[0]) not in allowed and not top.startswith("_cython_")
    }
    assert not too_much, "\n".join(f"{name} is imported at the start by {place}" for name, place in too_much.items())


def test_a_start_imports_no_expensive_module_of_the_standard_library(importers: dict[str, str]) -> None:
    too_much = {name: importers[name] for name in EXPENSIVE & set(importers)}
    assert not too_much, "\n".join(f"{name} is imported at the start by {place}" for name, place in too_much.items())


def test_a_start_imports_handlers_only_when_they_are_needed(importers: dict[str, str]) -> None:
    handlers = {name.rpartition(".")[2] for name in importers if name.startswith("broker.handlers.")}
    assert "create_topics" not in handlers
    assert "join_group" not in handlers


def test_a_start_imports_no_mechanism_of_logins_that_it_does_not_offer(importers: dict[str, str]) -> None:
    too_much = {name: importers[name] for name in ONLY_WITH_LOGINS & set(importers)}
    assert not too_much, "\n".join(f"{name} is imported at the start by {place}" for name, place in too_much.items())


@pytest.mark.parametrize("folder", ["base", "broker", "controller", "protocol", "storage"])
def test_classes_of_values_compile_nothing_at_a_start(folder: str) -> None:
    own = ROOT / "base" / "dataclass.py"
    standard = re.compile(r"^from dataclasses import .*\bdataclass\b", re.MULTILINE)
    sources = [path for path in (ROOT / folder).rglob("*.py") if path != own]
    assert [str(path) for path in sources if standard.search(path.read_text(encoding="utf-8"))] == []


def test_a_start_imports_few_modules(importers: dict[str, str]) -> None:
    assert len(importers) <= MODULES_MAX


def test_a_start_calls_few_functions(tmp_path: Path) -> None:
    assert int(_run(COUNTER, tmp_path)) <= CALLS_MAX
