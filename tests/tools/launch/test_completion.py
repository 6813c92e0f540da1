"""Shell completion, run by the shell where it is installed."""

import re
import subprocess

from tests.tools.conftest import RunTool
from tools.launch import completion


def test_options_come_from_the_tables_of_the_tools() -> None:
    tools = completion.tool_options()
    assert {"kafka-topics", "kafka-topics.sh", "kafka-console-consumer", "kafka-configs"} <= set(tools)
    assert "--partitions" in dict(tools["kafka-topics"])


def test_bash_completes_an_option(run: RunTool) -> None:
    script = run(completion.main, "bash").stdout
    asked = "COMP_WORDS=(/opt/bin/kafka-topics --parti); COMP_CWORD=1; _milena; echo ${COMPREPLY[@]}"
    found = subprocess.run(["bash", "-c", f"{script}\n{asked}"], capture_output=True, text=True, check=True).stdout
    assert "--partitions" in found.split()


def test_zsh_loads_the_completion_of_bash(run: RunTool) -> None:
    bash, zsh = run(completion.main, "bash").stdout, run(completion.main, "zsh").stdout
    assert zsh == "autoload -U +X bashcompinit && bashcompinit\n" + bash


def test_fish_has_one_quoted_line_an_option(run: RunTool) -> None:
    lines = run(completion.main, "fish").stdout.splitlines()
    assert len(lines) == sum(map(len, completion.tool_options().values()))
    assert all(re.fullmatch(r"complete -c \S+ -[lo] \S+ -d '(?:[^'\\]|\\.)*'", line) for line in lines)
