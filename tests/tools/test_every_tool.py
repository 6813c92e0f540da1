"""The properties of all tools: a launcher, a console script and a version."""

from importlib import import_module

import pytest

from tests.tools.conftest import ROOT, SCRIPTS, RunTool, module_of
from tools.launch import missing

# Its options before the class name need a shell script.
LAUNCHER_ALONE = {"kafka-run-class"}


def test_every_launcher_of_a_tool_is_a_console_script() -> None:
    names = {
        path.name for path in (ROOT / "bin").iterdir() if path.name.startswith(("kafka-", "zookeeper-", "connect-"))
    }
    launchers = {name for name in names if not name.endswith(".sh")}
    assert {f"{name}.sh" for name in launchers} == names - launchers
    assert set(SCRIPTS) == launchers - LAUNCHER_ALONE - set(missing.TOOLS) | {
        "coordination-server-start",
        "metadata-copy",
        "milena",
        "milena-certs",
        "milena-completion",
    }


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_launcher_runs_the_same_module_as_the_console_script(name: str) -> None:
    module = module_of(name)
    package, _, inner = module.partition(".")
    # Workers of Connect are not in the folder of the tools.
    start = f"run_tool {inner}" if package == "tools" else f"run_module {module}"
    assert f'{start} "$@"' in (ROOT / "bin" / name).read_text()


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_tool_prints_its_version(run: RunTool, name: str) -> None:
    version = run(import_module(module_of(name)).main, "--version")
    assert version.status == 0
    assert version.stdout.startswith("3.9.1 (Commit:f745dfdcee2b9851)\n")
