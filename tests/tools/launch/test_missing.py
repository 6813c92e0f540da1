"""Tools of Kafka that are missing: each has a launcher that says so, and a row in docs/not-yet.md."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.tools.conftest import ROOT, Outcome, RunTool
from tools.launch import missing

PAGE = ROOT / "docs" / "not-yet.md"


@pytest.mark.parametrize("name", missing.TOOLS)
def test_missing_tool_prints_reason_and_replacement_in_one_line_and_fails(run: RunTool, name: str) -> None:
    reason, instead = missing.TOOLS[name]
    line = f"{name} is missing: {reason}. Use instead: {instead}.\n"
    assert run(missing.main, name, "--help") == Outcome(1, "", line)


def test_every_missing_tool_has_a_launcher_under_both_names() -> None:
    launchers = {path.name for path in (ROOT / "bin").iterdir() if "run_tool launch.missing" in path.read_text()}
    assert launchers == {f"{name}{suffix}" for name in missing.TOOLS for suffix in ("", ".sh")}
    for name in missing.TOOLS:
        assert (ROOT / "bin" / f"{name}.sh").readlink() == Path(name)
        assert (ROOT / "bin" / name).stat().st_mode & 0o111 == 0o111


def test_launcher_passes_its_own_name() -> None:
    command = [ROOT / "bin" / "trogdor.sh", "agent"]
    finished = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert (finished.returncode, finished.stdout) == (1, "")
    assert finished.stderr.startswith("trogdor is missing: ")


def test_page_lists_exactly_the_missing_tools() -> None:
    section = PAGE.read_text(encoding="utf-8").split("| tool | why | instead |\n|---|---|---|\n")[1].split("\n\n")[0]
    rows = re.findall(r"^\| `(.+?)` \| (.+) \| (.+) \|$", section, re.MULTILINE)
    assert rows == [(name, *each) for name, each in missing.TOOLS.items()]


def test_every_replacement_of_a_missing_tool_exists() -> None:
    for _, instead in missing.TOOLS.values():
        for tool in re.findall(r"`((?:kafka|zookeeper|spark)-[a-z-]+)", instead):
            assert tool not in missing.TOOLS
            assert (ROOT / "bin" / tool).exists()
        for page in re.findall(r"docs/[a-z-]+\.md", instead):
            assert (ROOT / page).exists()
